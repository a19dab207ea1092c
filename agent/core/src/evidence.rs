//! What a verdict rests on: facts by ids that are never reused, with their numbers.

use crate::fact::{Handle, Peer, Tid, Worker};
use crate::time::Nanos;
use crate::verdict::words;

words! {
    /// The kinds of evidence.
    EvidenceId {
        /// Bytes were posted: `amount` in all, the first at `at`.
        Posted = 1, "posted";
        /// No transfer call was made for the room.
        NotPosted = 2, "not_posted";
        /// No thread has ever worked for the room.
        NoThreadServing = 3, "no_thread_serving";
        /// Thread `tid` works for the room since `at`.
        ThreadServing = 4, "thread_serving";
        /// Thread `tid`, which worked for the room, ended at `at`.
        ThreadGone = 5, "thread_gone";
        /// The peer's process is stopped: first seen so at `since`, last at `at`.
        PeerStopped = 6, "peer_stopped";
        /// The peer's process ended at `at`.
        PeerGone = 7, "peer_gone";
        /// The peer's process is there and not stopped, seen at `at`.
        PeerRunning = 8, "peer_running";
        /// The peer is not on this node: its process cannot be seen.
        PeerUnseen = 9, "peer_unseen";
        /// The peer took `amount` bytes of the room's transfers, the last at `at`.
        WireMoved = 10, "wire_moved";
        /// No byte moved to the peer since `at`.
        WireStill = 11, "wire_still";
        /// The peer's receive window is closed; `amount` bytes wait here.
        WindowClosed = 12, "window_closed";
        /// Bytes are sent again without an answer; `amount` are unacknowledged.
        Retransmitting = 13, "retransmitting";
        /// No connection to the peer is established.
        NoConnection = 14, "no_connection";
        /// The endpoint failed at `at` with the status `code`.
        EndpointError = 15, "endpoint_error";
        /// A transfer call ended badly at `at` with the status `code`.
        TransferFailed = 16, "transfer_failed";
        /// Every posted transfer has completed, `amount` bytes, the last at `at`.
        AllComplete = 17, "all_complete";
        /// `amount` posted transfers are still open, the oldest, `handle`, since `at`.
        TransfersOpen = 18, "transfers_open";
        /// The scheduler polled its queue at `at`.
        BeatFresh = 19, "beat_fresh";
        /// The scheduler has not polled its queue since `at`.
        BeatOld = 20, "beat_old";
        /// The engine says that the peers have not answered.
        Parked = 21, "parked";
        /// `amount` other rooms on the same thread or peer came first; the head is in the queue
        /// since `at`.
        RoomsAhead = 22, "rooms_ahead";
        /// The agent came at `at`, after the room's append: what was before was not seen.
        LateStart = 23, "late_start";
        /// `amount` events were lost at `at`: their absence proves nothing.
        EventsLost = 24, "events_lost";
        /// Other transfers to the same peer moved since: the peer and the link work.
        PeerServesOthers = 25, "peer_serves_others";
        /// Nothing that would show progress of this room can be seen.
        NothingVisible = 26, "nothing_visible";
        /// Some of the room's peers are not known to the agent.
        PeersUnknown = 27, "peers_unknown";
        /// Bytes go to the peer past its connections, written from process to process: how many
        /// have arrived is not seen.
        BytesUnseen = 28, "bytes_unseen";
        /// What holds the room up moves: payload of it last at `at`.
        HeadMoves = 29, "head_moves";
        /// What holds the room up does not move either: payload of it last at `at`.
        HeadStill = 30, "head_still";
        /// The room has left the queue, and thread `tid`, which has it since `at`, stays with it.
        ThreadHeld = 31, "thread_held";
        /// A process of the peer's name ended at `at`, before the post; another goes by it now and
        /// has taken nothing.
        PeerRestarted = 32, "peer_restarted";
        /// Thread `tid`, the last to work for the room or for its peer, ended at `at`; it was not
        /// at work.
        LastThreadGone = 33, "last_thread_gone";
        /// The engine says that `amount` rooms are in flight, the same number since `at`.
        EngineInflight = 34, "engine_inflight";
        /// The engine says that all bytes of this rank are delivered, and that its other ranks
        /// have not agreed.
        DoneHere = 35, "done_here";
        /// The engine that was to receive it, on this node, has failed it or given it up.
        FarGaveUp = 36, "far_gave_up";
        /// The engine that is to receive it, on this node, has it and waits for memory.
        FarWaitsForMemory = 37, "far_waits_for_memory";
        /// A thread by which the engine hears from its peers has ended, seen at `at`.
        ListenerGone = 38, "listener_gone";
        /// Another worker on this node, `worker`, has the room open too and has not done its part;
        /// payload of it last moved there at `at`, or it entered then.
        OtherRankWaits = 39, "other_rank_waits";
        /// Thread `tid`, for which the room waits, is since `at` at work for another that was not
        /// in the queue then.
        ThreadEarly = 40, "thread_early";
        /// No RDMA port on the way to the peer can send, seen at `at`.
        PortDown = 41, "port_down";
        /// The RDMA queue pair to the peer failed at `at`: nothing more goes over it.
        QueuePairFailed = 42, "queue_pair_failed";
        /// Operations of UCX, of `amount` bytes in all, completed on the endpoint of the room's open
        /// transfers since they are counted, the last at `at`.
        OperationsDone = 43, "operations_done";
        /// No operation of UCX has completed on the endpoint of the room's open transfers since
        /// `at`, from when on each is counted.
        OperationsStill = 44, "operations_still";
        /// `amount` more bytes of the room's open batches have arrived by their own memory (Mooncake)
        /// since that is read, the last at `at`.
        BatchMoved = 45, "batch_moved";
        /// By their own memory no byte of the room's open batches (Mooncake) has arrived since `at`,
        /// from when on it is read.
        BatchStill = 46, "batch_still";
        /// The RDMA ports that the worker may use counted `amount` requests since `at` that nobody
        /// acknowledged in time; those of others who use them are among them.
        PortTimeouts = 47, "port_timeouts";
        /// The same of sends to a far end that had no receive posted.
        PortNotReady = 48, "port_not_ready";
        /// The same of packets that were missed or came out of their order.
        PortDisorder = 49, "port_disorder";
    }
}

/// One piece of evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// What it says.
    pub id: EvidenceId,
    /// The moment that it speaks of.
    pub at: Option<Nanos>,
    /// When that was first seen, where it lasts: it may have begun since the look before.
    pub since: Option<Nanos>,
    /// An amount: bytes or a count, by id.
    pub amount: Option<u64>,
    /// A status code of the transfer library.
    pub code: Option<i32>,
    /// The peer that it is about.
    pub peer: Option<Peer>,
    /// The thread that it is about.
    pub tid: Option<Tid>,
    /// The transfer that it is about.
    pub handle: Option<Handle>,
    /// The other worker that it is about.
    pub worker: Option<Worker>,
}

impl Evidence {
    /// Evidence without any number.
    pub const fn of(id: EvidenceId) -> Self {
        Self {
            id,
            at: None,
            since: None,
            amount: None,
            code: None,
            peer: None,
            tid: None,
            handle: None,
            worker: None,
        }
    }

    /// With the moment that it speaks of.
    #[must_use]
    pub const fn at(mut self, at: Nanos) -> Self {
        self.at = Some(at);
        self
    }

    /// With the moment at which it was first seen.
    #[must_use]
    pub const fn since(mut self, since: Nanos) -> Self {
        self.since = Some(since);
        self
    }

    /// With an amount.
    #[must_use]
    pub const fn amount(mut self, amount: u64) -> Self {
        self.amount = Some(amount);
        self
    }

    /// With a status code.
    #[must_use]
    pub const fn code(mut self, code: i32) -> Self {
        self.code = Some(code);
        self
    }

    /// About a peer.
    #[must_use]
    pub const fn peer(mut self, peer: Peer) -> Self {
        self.peer = Some(peer);
        self
    }

    /// About a thread.
    #[must_use]
    pub const fn tid(mut self, tid: Tid) -> Self {
        self.tid = Some(tid);
        self
    }

    /// About a transfer.
    #[must_use]
    pub const fn handle(mut self, handle: Handle) -> Self {
        self.handle = Some(handle);
        self
    }

    /// About another worker.
    #[must_use]
    pub const fn worker(mut self, worker: Worker) -> Self {
        self.worker = Some(worker);
        self
    }
}
