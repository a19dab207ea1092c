//! What a thread works for, by its marks and by the table.

use inflightd_core::fact::Seq;

/// What a thread works for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Nothing.
    None,
    /// A room that is not in the queue yet: it comes after this one.
    Early(Seq),
    /// A room.
    Room(Seq),
}

impl Work {
    /// What a mark of a beginning says.
    pub const fn marked(seq: u64, after: u64) -> Self {
        match seq {
            0 => Self::Early(Seq(after)),
            seq => Self::Room(Seq(seq)),
        }
    }
}
