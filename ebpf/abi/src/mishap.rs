//! Failures inside kernel programs, counted per CPU under ids that are never reused.

/// Number of slots in the per-CPU mishap array: room for ids to come.
pub const MISHAP_SLOTS: u32 = 64;

/// A failure inside a kernel program. The number is the slot of its counter, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Mishap {
    /// The ring had no room: the record is lost. The agent re-reads the tables.
    RingFull = 0,
    /// A handle's fields could not be read from the target's memory.
    HandleUnreadable = 1,
    /// A handle's fields were read and are not those of a handle: wrong layout for this build.
    HandleImplausible = 2,
    /// A string argument (request id, peer, notification) could not be read.
    TextUnreadable = 3,
    /// A return probe fired without the entry that it belongs to.
    ReturnWithoutEntry = 4,
    /// The map of calls under way was full: the return of this call will not be known.
    CallsFull = 5,
    /// The attach cookie names nothing that this program knows.
    CookieUnknown = 6,
    /// A completion's status could not be read from the target's memory.
    CompletionUnreadable = 7,
    /// A completion does not name the function that was called with it: its status is not read.
    CompletionImplausible = 8,
    /// The value at the end of a post is no status: wrong place for this build.
    EndImplausible = 9,
    /// A process had its share of a ring that was half full: its record is lost, to the good of
    /// others. The agent re-reads that process's tables.
    OverShare = 10,
    /// The map of RDMA queue pairs was full: one is not followed.
    QueuesFull = 11,
    /// A field of a queue pair could not be read from the kernel's memory.
    QueueUnreadable = 12,
    /// The map of counted endpoints was full: the operations of one are not counted.
    OperationsFull = 13,
    /// A field of an operation's request could not be read from the target's memory.
    OperationUnreadable = 14,
}

impl Mishap {
    /// Every mishap, in the order of its id.
    pub const ALL: [Self; 15] = [
        Self::RingFull,
        Self::HandleUnreadable,
        Self::HandleImplausible,
        Self::TextUnreadable,
        Self::ReturnWithoutEntry,
        Self::CallsFull,
        Self::CookieUnknown,
        Self::CompletionUnreadable,
        Self::CompletionImplausible,
        Self::EndImplausible,
        Self::OverShare,
        Self::QueuesFull,
        Self::QueueUnreadable,
        Self::OperationsFull,
        Self::OperationUnreadable,
    ];

    /// The name under which the counter is exported.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RingFull => "ring_full",
            Self::HandleUnreadable => "handle_unreadable",
            Self::HandleImplausible => "handle_implausible",
            Self::TextUnreadable => "text_unreadable",
            Self::ReturnWithoutEntry => "return_without_entry",
            Self::CallsFull => "calls_full",
            Self::CookieUnknown => "cookie_unknown",
            Self::CompletionUnreadable => "completion_unreadable",
            Self::CompletionImplausible => "completion_implausible",
            Self::EndImplausible => "end_implausible",
            Self::OverShare => "over_share",
            Self::QueuesFull => "queues_full",
            Self::QueueUnreadable => "queue_unreadable",
            Self::OperationsFull => "operations_full",
            Self::OperationUnreadable => "operation_unreadable",
        }
    }
}
