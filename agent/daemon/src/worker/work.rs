//! What a thread works for, by its marks and by the table.

use inflightd_core::fact::Seq;

/// What a thread works for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Nothing.
    None,
    /// A room that is not in the queue yet: it comes after this one.
    Early(Seq),
    /// A room, and what its work comes after where that was taken up before it entered.
    Room(Seq, Option<Seq>),
}

impl Work {
    /// What a mark of a beginning says, of a thread that worked for something before.
    #[must_use]
    pub fn marked(self, seq: u64, after: u64) -> Self {
        match (seq, self) {
            (0, _) => Self::Early(Seq(after)),
            (seq, Self::Early(after)) => Self::Room(Seq(seq), Some(after)),
            (seq, _) => Self::Room(Seq(seq), None),
        }
    }
}
