//! The words of the table: states, outcomes, phases and peers, by numbers that are never reused.

use super::Text;

/// Where an entry is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum State {
    /// Never used.
    Free = 0,
    /// In the queue.
    Open = 1,
    /// A thread is just taking it out.
    Removing = 2,
    /// Left the queue; readable until the slot is used again.
    Closed = 3,
}

/// How a room left the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u64)]
pub enum Outcome {
    /// Not known.
    Unknown = 0,
    /// The transfer completed.
    Success = 1,
    /// The engine failed it.
    Failed = 2,
    /// The client or an operator aborted it.
    Aborted = 3,
    /// It went back to an earlier queue.
    Requeued = 4,
    /// The same room was appended again.
    Superseded = 5,
}

impl Outcome {
    /// The outcome of that number; [`Outcome::Unknown`] for one that this release does not know.
    pub const fn from_code(code: u64) -> Self {
        match code {
            1 => Self::Success,
            2 => Self::Failed,
            3 => Self::Aborted,
            4 => Self::Requeued,
            5 => Self::Superseded,
            _ => Self::Unknown,
        }
    }
}

/// What the engine says about a room's progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u64)]
pub enum Phase {
    /// Nothing said.
    None = 0,
    /// In the queue before its peers have answered; nothing may be sent yet.
    Parked = 1,
    /// The peers have answered.
    PeersReady = 2,
    /// A transfer is under way.
    Transferring = 3,
    /// The engine knows that the room failed and has not removed it yet.
    Failed = 4,
    /// Nothing is to be moved for it by this worker: a warm-up, or another rank's work.
    Exempt = 5,
    /// All of this rank's bytes are delivered, as the engine says; its other ranks' are not.
    DoneHere = 6,
    /// Of a room that is received: it waits for memory, and its sender for its answer.
    Prealloc = 7,
}

impl Phase {
    /// The phase of that number; [`Phase::None`] for one that this release does not know.
    pub const fn from_code(code: u64) -> Self {
        match code {
            1 => Self::Parked,
            2 => Self::PeersReady,
            3 => Self::Transferring,
            4 => Self::Failed,
            5 => Self::Exempt,
            6 => Self::DoneHere,
            7 => Self::Prealloc,
            _ => Self::None,
        }
    }
}

/// What a worker says of itself from time to time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub enum Gauge {
    /// Tokens for which KV memory can be had.
    KvFree = 1,
    /// Tokens for which there is KV memory.
    KvTotal = 2,
    /// Metadata slots that are free; each room holds one.
    SlotsFree = 3,
    /// Metadata slots that there are.
    SlotsTotal = 4,
    /// Threads that transfer and live.
    ThreadsAlive = 5,
    /// Threads that transfer and have been started.
    ThreadsStarted = 6,
    /// Threads that hear from peers and live: without them no new room is answered.
    ListenersAlive = 7,
    /// Faults inside the hook: what reported stopped reporting.
    Faults = 8,
    /// What the hook does not find in its engine, a bit each, by engine.
    Missing = 9,
    /// What it carries out of what the agent asks for a room, by version; 0 for nothing.
    Commands = 10,
}

impl Gauge {
    /// Every gauge.
    pub const ALL: [Self; 10] = [
        Self::KvFree,
        Self::KvTotal,
        Self::SlotsFree,
        Self::SlotsTotal,
        Self::ThreadsAlive,
        Self::ThreadsStarted,
        Self::ListenersAlive,
        Self::Faults,
        Self::Missing,
        Self::Commands,
    ];

    /// The gauge of that number.
    pub fn from_code(code: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|gauge| *gauge as u64 == code)
    }
}

/// What a peer's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PeerKind {
    /// Name of a NIXL agent.
    NixlAgent,
    /// Mooncake session, `host:rpc_port`.
    MooncakeSession,
    /// Network endpoint, `host:port`.
    Endpoint,
    /// A kind that this release does not know.
    Other(u64),
}

impl PeerKind {
    /// The number in the table and in `inflight.h`.
    pub const fn code(self) -> u64 {
        match self {
            Self::NixlAgent => 1,
            Self::MooncakeSession => 2,
            Self::Endpoint => 3,
            Self::Other(code) => code,
        }
    }

    /// The kind of that number.
    pub const fn from_code(code: u64) -> Self {
        match code {
            1 => Self::NixlAgent,
            2 => Self::MooncakeSession,
            3 => Self::Endpoint,
            other => Self::Other(other),
        }
    }
}

/// A far end, or one of the worker's own names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// What the value is.
    pub kind: PeerKind,
    /// The value, at most 96 bytes.
    pub value: Text<96>,
}

impl Peer {
    /// An unused place.
    pub const NONE: Self = Self { kind: PeerKind::Other(0), value: Text::EMPTY };
    pub(super) const WORDS: usize = 1 + Text::<96>::WORDS;
}
