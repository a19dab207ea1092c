//! What the ledger says: findings, causes and the outputs that carry them.

use alloc::vec::Vec;

use crate::coverage::{Coverage, Source};
use crate::evidence::Evidence;
use crate::fact::{Outcome, Peer, Room, Seq, Worker};
use crate::time::Nanos;

/// Declares an enum of words whose ids are never reused.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $id:literal, $word:literal;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $name { $($(#[$doc])* $variant = $id,)* }

        impl $name {
            /// Every value, by id.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The word for it in outputs and captures.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// The value of that word.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.name() == name)
            }
        }
    };
}
pub(crate) use words;

words! {
    /// What is so.
    Finding {
        /// No payload byte has completed; the evidence says whether any was posted.
        NeverStarted = 1, "never_started";
        /// Some bytes moved, fewer than were posted, then nothing. Where `bytes_unseen` stands
        /// beside it: some may have moved, all even, and the library has not told of the end.
        StoppedMidway = 2, "stopped_midway";
        /// Bytes move: not a stall.
        MovingSlowly = 3, "moving_slowly";
        /// All bytes are complete and the scheduler does not know.
        CompletedNotReaped = 4, "completed_not_reaped";
        /// The agent cannot see enough to say: nobody is accused.
        Blind = 5, "blind";
    }
}

words! {
    /// Why it is so.
    Cause {
        /// The peer never answered the hand-shake: nothing may be sent yet.
        HandshakeMissing = 1, "handshake_missing";
        /// The peer's process is gone, or its endpoint failed.
        PeerDead = 2, "peer_dead";
        /// The peer's process is there and does not run, or runs and reads nothing.
        PeerFrozen = 3, "peer_frozen";
        /// The peer restarted and the worker still uses what it knew of the old one.
        StalePeer = 4, "stale_peer";
        /// The network between the two does not carry.
        LinkFault = 5, "link_fault";
        /// The thread that worked for the room has ended.
        WorkerThreadDead = 6, "worker_thread_dead";
        /// Another room's transfer is before it on the same thread or connection.
        QueuedBehind = 7, "queued_behind";
        /// No thread ever took the room.
        NeverEnqueued = 8, "never_enqueued";
        /// This rank is done, another is not.
        RemoteRank = 9, "remote_rank";
        /// The scheduler does not poll its queue.
        SchedulerWedged = 10, "scheduler_wedged";
        /// The decode engine has no room for it yet.
        DecodeBacklogged = 11, "decode_backlogged";
        /// The decode engine has given the request up.
        Orphaned = 12, "orphaned";
        /// A setting makes the transfer impossible.
        Misconfig = 13, "misconfig";
        /// The evidence allows no cause.
        Unknown = 14, "unknown";
        /// The room was given up, and the thread that sent it stays with it: its shard stands still.
        WorkerThreadCaptive = 15, "worker_thread_captive";
    }
}

words! {
    /// What identity a verdict rests on.
    Tier {
        /// A room, by the hook or by a transfer's notification.
        Room = 1, "room";
        /// A transfer by its handle only.
        Transfer = 2, "transfer";
        /// A peer.
        Peer = 3, "peer";
        /// The node.
        Node = 4, "node";
    }
}

/// Bytes of a room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// What the engine expects; 0 when it does not say.
    pub expected: u64,
    /// What transfer calls were given.
    pub posted: u64,
    /// What has arrived, as far as can be told: completed calls, or bytes taken by the peer.
    pub completed: u64,
}

/// A finding and its cause, with what they rest on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// When it was reached.
    pub at: Nanos,
    /// Whose room.
    pub worker: Worker,
    /// Which stay. The tier `node` has none: [`Seq::NODE`].
    pub seq: Seq,
    /// Which room; the tier `transfer` has none: the handle. The tier `node` neither: 0.
    pub room: Room,
    /// What is so.
    pub finding: Finding,
    /// Why.
    pub cause: Cause,
    /// How sure, in percent.
    pub confidence: u8,
    /// What identity it rests on.
    pub tier: Tier,
    /// Time in the queue so far.
    pub dwell: Nanos,
    /// Bytes of the room.
    pub bytes: Bytes,
    /// Time since a payload byte last moved, or since the append.
    pub since_progress: Nanos,
    /// The far ends.
    pub peers: Vec<Peer>,
    /// What speaks for it.
    pub evidence: Vec<Evidence>,
    /// Causes that were considered and what speaks against them.
    pub ruled_out: Vec<(Cause, Evidence)>,
    /// The stay that this one waits behind, or that tells of the same trouble of the worker: the
    /// head of the incident.
    pub head: Option<Seq>,
    /// Of a head: rooms that are known to wait behind it, oldest first; at most [`BEHIND_MAX`].
    pub behind: Vec<Room>,
    /// Of a head: how many wait behind it in all.
    pub behind_count: u64,
    /// What could and could not be seen.
    pub coverage: Coverage,
}

/// Most rooms that a head's verdict names as waiting behind it.
pub const BEHIND_MAX: usize = 32;

impl Verdict {
    /// The stay whose trouble this verdict belongs to: the head's, or its own.
    pub fn incident(&self) -> Seq {
        self.head.unwrap_or(self.seq)
    }

    /// Whether somebody should be told at once: not where the head's verdict does.
    pub const fn is_alert(&self) -> bool {
        self.head.is_none() && is_alert(self.finding, self.cause)
    }
}

/// Whether somebody should be told at once: not where bytes move, where nothing can be seen,
/// where the room waits behind another, whose own verdict tells, or for memory of an engine that
/// has more to do than it can hold.
pub const fn is_alert(finding: Finding, cause: Cause) -> bool {
    !matches!(finding, Finding::MovingSlowly | Finding::Blind)
        && !matches!(cause, Cause::QueuedBehind | Cause::DecodeBacklogged)
}

words! {
    /// Why a standing verdict ended.
    ClearReason {
        /// Bytes move again.
        Progress = 1, "progress";
        /// The room left the queue.
        Ended = 2, "ended";
        /// Another finding or cause takes its place.
        Changed = 3, "changed";
        /// What it waited for is over: the room before it has gone, or its peer has answered or
        /// runs again.
        Unblocked = 4, "unblocked";
    }
}

/// A standing verdict ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clear {
    /// When.
    pub at: Nanos,
    /// Whose room.
    pub worker: Worker,
    /// Which stay.
    pub seq: Seq,
    /// Which room.
    pub room: Room,
    /// The finding that stood.
    pub finding: Finding,
    /// The cause that stood.
    pub cause: Cause,
    /// Why it ended.
    pub why: ClearReason,
}

/// A room's stay in the queue, closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dwell {
    /// When it left.
    pub at: Nanos,
    /// Whose room.
    pub worker: Worker,
    /// Which stay.
    pub seq: Seq,
    /// Which room.
    pub room: Room,
    /// What identity it rests on.
    pub tier: Tier,
    /// How it left.
    pub outcome: Outcome,
    /// How long it was in the queue.
    pub dwell: Nanos,
    /// Bytes of the room.
    pub bytes: Bytes,
    /// The far ends.
    pub peers: Vec<Peer>,
    /// Why it failed, where it did and the evidence says.
    pub cause: Option<Cause>,
    /// Whether a stall was ever told of it.
    pub stalled: bool,
    /// Its thread stays with it: more may be said of it, until it is
    /// [forgotten](crate::Ledger::take_forgotten).
    pub held: bool,
    /// What speaks for the cause.
    pub evidence: Vec<Evidence>,
}

/// A room entered the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    /// When.
    pub at: Nanos,
    /// Whose room.
    pub worker: Worker,
    /// Which stay.
    pub seq: Seq,
    /// Which room.
    pub room: Room,
    /// Bytes that the engine expects to move; 0 when it does not say.
    pub expected: u64,
    /// The far ends.
    pub peers: Vec<Peer>,
    /// What identity it rests on.
    pub tier: Tier,
    /// The room was already open when the agent came.
    pub late: bool,
}

/// What the ledger says, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A room entered the queue.
    Append(Appended),
    /// A finding about a room.
    Verdict(Verdict),
    /// A standing verdict ended.
    Clear(Clear),
    /// A room left the queue.
    Dwell(Dwell),
    /// What is seen of a worker has changed.
    Coverage(Nanos, Worker, Coverage),
    /// Events of a source were lost.
    Loss(Nanos, Worker, Source, u64),
}
