//! What happened: the ledger's inputs.

use alloc::vec::Vec;

use crate::coverage::{Sight, Source};
use crate::time::Nanos;
use crate::verdict::{Cause, Finding, words};

/// A worker, numbered by the agent in the order in which it found them; never reused in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Worker(pub u32);

/// Append sequence: with the worker, the identity of one stay of one room in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl Seq {
    /// No stay: of what is said about a node.
    pub const NODE: Self = Self(u64::MAX);
    /// Stays that no table numbers begin here: those of a worker without the hook. A table never
    /// gets there.
    pub const UNHOOKED: Self = Self(1 << 63);
}

/// The engine's id of a request's transfer. Any value is a real room, and a worker can see the
/// same room twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Room(pub u64);

/// A far end, numbered by the agent: one number for one (kind, value).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer(pub u32);

/// A thread of a worker, by its id in the host's pid namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tid(pub u32);

/// The transfer library's object for a transfer: an address, reused as soon as it is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u64);

/// One fact with its worker and time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it happened, not when it was read.
    pub at: Nanos,
    /// Whom it is about.
    pub worker: Worker,
    /// What happened.
    pub fact: Fact,
}

/// A room as it entered the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    /// Append sequence.
    pub seq: Seq,
    /// The engine's id.
    pub room: Room,
    /// Bytes that the engine expects to move; 0 when it does not say.
    pub expected: u64,
    /// The far ends that are known, at most 6.
    pub peers: Vec<Peer>,
    /// Whether `peers` is all of them.
    pub peers_whole: bool,
    /// The room was already open when the agent came: what happened before was not seen.
    pub late: bool,
    /// Its far ends end a silent transfer themselves, so that a stall is told later.
    pub patient: bool,
}

/// What the shared table says about an open room. Counts are cumulative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// What the engine says.
    pub phase: Phase,
    /// Transfer calls begun.
    pub posts: u64,
    /// Bytes in them.
    pub posted_bytes: u64,
    /// Transfer calls ended, well or badly.
    pub dones: u64,
    /// Bytes in those that went well.
    pub done_bytes: u64,
    /// Transfer calls that ended badly.
    pub failures: u64,
    /// When the first transfer call began.
    pub first_post: Option<Nanos>,
    /// When the last transfer call ended.
    pub last_done: Option<Nanos>,
}

words! {
    /// What the engine says about a room's progress.
    #[derive(Default)]
    Phase {
        /// Nothing said.
        #[default]
        None = 0, "none";
        /// In the queue before its peers have answered; nothing may be sent yet.
        Parked = 1, "parked";
        /// The peers have answered.
        PeersReady = 2, "peers_ready";
        /// A transfer is under way.
        Transferring = 3, "transferring";
        /// The engine knows that the room failed and has not removed it yet.
        Failed = 4, "failed";
        /// Nothing is to be moved for it by this worker: a warm-up, or another rank's work.
        Exempt = 5, "exempt";
        /// All of this rank's bytes are delivered, as the engine says; its other ranks' are not.
        DoneHere = 6, "done_here";
        /// Of a room that is received: it waits for memory, and its sender for its answer.
        Prealloc = 7, "prealloc";
    }
}

/// How a room left the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Not known: it was gone when the table was read.
    Unknown,
    /// The transfer completed.
    Success,
    /// The engine failed it.
    Failed,
    /// The client or an operator aborted it.
    Aborted,
    /// It went back to an earlier queue.
    Requeued,
    /// The same room was appended again.
    Superseded,
}

/// Cumulative counts of the connections from a worker to one peer, as the kernel keeps them.
///
/// Counts never fall while connections live and die: the agent adds what closed connections had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meter {
    /// Connections that are established now.
    pub connections: u32,
    /// Bytes that the far kernel has acknowledged.
    pub acked: u64,
    /// Bytes received from the far end. With UCX over TCP these are its application's
    /// acknowledgements, 9 bytes a put and 9 a flush: proof of progress, also from afar.
    pub received: u64,
    /// Bytes handed to the kernel and not yet sent.
    pub unsent: u64,
    /// Bytes sent and not yet acknowledged.
    pub unacked: u64,
    /// Bytes in the far end's receive buffers that its process has not read; known on one host.
    pub unread: Option<u64>,
    /// When payload was last received from the far end.
    pub last_received: Option<Nanos>,
    /// The far end's window is closed: its process does not read. Over RDMA: it has no receive
    /// posted.
    pub window_closed: bool,
    /// Sent bytes are being sent again without an answer.
    pub retransmitting: bool,
    /// Since when the last of its RDMA queue pairs stands in the error state, where none can send.
    pub broken: Option<Nanos>,
    /// None of the ports by which its RDMA queue pairs go can send.
    pub link_down: bool,
}

impl Meter {
    /// Bytes that the far process has taken from its connections, where its end can be seen.
    ///
    /// Acknowledged bytes alone are not taken: the kernel of a stopped process acknowledges what
    /// fits its receive buffer (127 KB to 14 MB measured on loopback).
    pub fn taken(&self) -> Option<u64> {
        self.unread.map(|unread| self.acked.saturating_sub(unread))
    }
}

/// What RDMA ports have counted of packets that went wrong, in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortTroubles {
    /// Requests that nobody acknowledged in time.
    pub timeouts: u64,
    /// Sends to a far end that had no receive posted.
    pub not_ready: u64,
    /// Packets that were missed or came out of their order.
    pub disorder: u64,
}

impl PortTroubles {
    /// What was counted since `before`; a count that was set back begins anew.
    #[must_use]
    pub fn less(self, before: Self) -> Self {
        let less = |now: u64, before: u64| if now < before { now } else { now - before };
        Self {
            timeouts: less(self.timeouts, before.timeouts),
            not_ready: less(self.not_ready, before.not_ready),
            disorder: less(self.disorder, before.disorder),
        }
    }
}

/// How many requests an engine says that it has in work, by stage: for an engine whose rooms are
/// not seen. Stages that it does not state are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// In a batch.
    pub running: u64,
    /// Prefill: waiting for their peers to answer.
    pub bootstrap: u64,
    /// Prefill: in the inflight queue.
    pub inflight: u64,
    /// Decode: waiting for memory.
    pub prealloc: u64,
    /// Decode: waiting for their bytes.
    pub transfer: u64,
}

/// Whether a far process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Life {
    /// Not on this node, or not found: nothing is known.
    Unseen,
    /// It is there and is not stopped.
    Running,
    /// Stopped by a signal or a tracer (`T` or `t` in `/proc/PID/stat`).
    Stopped,
    /// It has ended.
    Gone,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// A worker was found; its rooms follow as late appends.
    Found,
    /// The worker marks no queue: its stays are its transfers, or the rooms that their
    /// notifications name. Said once, right after it was found.
    Unhooked,
    /// The worker's rooms are those that it receives, and what holds them up is their senders': no
    /// room of its own is judged. Said once, right after it was found.
    Receives,
    /// A thread by which the worker's engine hears from its peers has ended: an answer of theirs may
    /// never be heard.
    ListenerEnded,
    /// The worker's process ended: all its rooms end with it.
    Ended,

    /// A room entered the queue. A second one of the same sequence is a re-reading.
    Append(Append),
    /// The table was read.
    Entry(Seq, Counts),
    /// The whole table was read: what it did not say anew is as it was.
    Read,
    /// The engine said something about a room.
    Phase(Seq, Phase),
    /// A thread begins to work for a room.
    Serve(Tid, Seq),
    /// A thread begins to work for a room that is not in the queue yet. That work was queued after
    /// the given room had entered, or before any had with `Seq(0)`: it comes before those that
    /// enter later. A [`Fact::Serve`] of the thread says later which room it was.
    ServeEarly(Tid, Seq),
    /// A thread ends its work for the room that it served.
    ServeEnd(Tid),
    /// A transfer call begins: bytes.
    Post(Seq, u64),
    /// A transfer call ends: bytes, and whether it went well.
    Done(Seq, u64, bool),
    /// A room left the queue.
    Remove(Seq, Outcome),
    /// The scheduler last polled its queue at this event's time.
    Beat,

    /// A transfer is posted on a handle.
    XferPost {
        /// The posting thread.
        tid: Tid,
        /// The handle.
        handle: Handle,
        /// The far end, where the build's layout is known.
        peer: Option<Peer>,
        /// Bytes of the whole transfer, where the layout is known.
        bytes: Option<u64>,
        /// Its descriptors, where the layout is known: so many operations of UCX, and a flush.
        descs: Option<u64>,
        /// The room that the transfer's notification names, and whether it is the room's last
        /// transfer. Used where the worker is [`Fact::Unhooked`], else ignored.
        room: Option<(Room, bool)>,
    },
    /// A post returned: NIXL status, 1 in progress, 0 done, negative on error.
    XferRet(Tid, Handle, i32),
    /// A handle's status as read from its memory.
    XferStatus(Handle, i32),
    /// A handle is released; its status where known.
    XferRelease(Handle, Option<i32>),
    /// A flush was issued on an endpoint by a thread; the request's address, or a status: 0 done
    /// at once, a small negative number an error.
    Flush {
        /// The calling thread.
        tid: Tid,
        /// The endpoint's address.
        ep: u64,
        /// `ucs_status_ptr_t`.
        request: u64,
    },
    /// A flush completed: address of the completion, and `ucs_status_t` where it could be read.
    FlushDone(u64, Option<i32>),
    /// The distance from a flush's request to its completion in this worker's build of UCX.
    FlushDistance(i64),
    /// An endpoint failed: its address and `ucs_status_t`.
    EpError(u64, i32),

    /// A thread submits a batch of Mooncake.
    Batch(Tid, Handle),
    /// Bytes that have arrived of a batch of Mooncake, by its own memory; `None` where that cannot be
    /// read any more.
    BatchRead(Handle, Option<u64>),
    /// A batch of Mooncake is freed.
    BatchEnd(Handle),
    /// What the RDMA ports that the worker may use have counted, for whomever.
    Ports(PortTroubles),
    /// From now on each operation of UCX that completes on an endpoint of the worker is counted, or
    /// not any more.
    Armed(bool),
    /// Operations of UCX, of so many bytes in all, completed on an endpoint since the last reading
    /// of their count, the last of them at this event's time.
    Operations(u64, u64),

    /// The connections to a peer were read.
    Wire(Peer, Meter),
    /// Bytes that all rooms that have left the queue moved to a peer, from the table at attach:
    /// the baseline of a peer that was not watched from the start. `false`: not all of them.
    History(Peer, u64, bool),
    /// Whether a far process lives.
    Life(Peer, Life),
    /// A thread of the worker ended.
    ThreadExit(Tid),

    /// The engine's own count of what it has in work was read.
    Load(Load),

    /// How well a source sees this worker, from now on.
    Cover(Source, Sight),
    /// Events of a source were lost before this moment: how many.
    Lose(Source, u64),
    /// A verdict that an earlier life of the agent has already told.
    Told(Seq, Finding, Cause),
}
