//! One room's account, and the transfers posted for it.

use alloc::vec::Vec;

use crate::fact::{Append, Counts, Handle, Peer, Phase, Room, Seq, Tid};
use crate::time::Nanos;
use crate::verdict::{Bytes, Cause, Finding, Tier, is_alert};

/// A status that ended something badly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// When it was seen.
    pub at: Nanos,
    /// The library's status; 0 where only the engine said so.
    pub code: i32,
}

/// Where a transfer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Open,
    Complete,
    Failed,
    /// Released while it was open, or its end was not seen: nothing is known of its bytes.
    Abandoned,
}

/// Most flushes of one transfer that are followed; one per endpoint that it uses is issued.
pub(crate) const PENDING_MAX: usize = 64;

/// How a transfer can be seen to move without its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shows {
    /// Not at all.
    Never,
    /// Its operations are so large that each completes where it is counted.
    Operations,
    /// Its own memory tells what has arrived.
    Memory,
}

/// A transfer by its handle.
#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    pub(crate) seq: Option<Seq>,
    pub(crate) peer: Option<Peer>,
    pub(crate) bytes: Option<u64>,
    pub(crate) posted_at: Nanos,
    pub(crate) ep: Option<u64>,
    /// Requests of flushes issued for it that have not completed, at most [`PENDING_MAX`].
    pub(crate) pending: Vec<u64>,
    /// Flushes issued for it.
    pub(crate) flushes: u32,
    /// The post has returned: no further flush will be issued.
    pub(crate) returned: bool,
    /// How it can be seen to move where no connection shows that.
    pub(crate) shows: Shows,
    pub(crate) progress: Progress,
}

impl Transfer {
    pub(crate) const fn is_open(&self) -> bool {
        matches!(self.progress, Progress::Open)
    }

    /// Whether every flush has completed: all bytes have arrived.
    pub(crate) fn is_flushed(&self) -> bool {
        self.returned && self.flushes > 0 && self.pending.is_empty()
    }
}

/// A verdict that was told and has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) finding: Finding,
    pub(crate) cause: Cause,
    pub(crate) at: Nanos,
    /// The stay that it waits behind, where the verdict says so.
    pub(crate) head: Option<Seq>,
}

impl Standing {
    /// Whether it was told as an alert: not where the head's verdict tells.
    pub(crate) const fn is_alert(&self) -> bool {
        self.head.is_none() && is_alert(self.finding, self.cause)
    }
}

/// Cumulative counts of a room's marks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Marks {
    pub(crate) posts: u64,
    pub(crate) posted_bytes: u64,
    pub(crate) dones: u64,
    pub(crate) done_bytes: u64,
    pub(crate) failures: u64,
}

/// One stay of one room in one worker's queue.
#[expect(clippy::struct_excessive_bools, reason = "each says another thing about the room")]
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) seq: Seq,
    pub(crate) room: Room,
    /// What identity its verdicts rest on.
    pub(crate) tier: Tier,
    /// Without the hook: no further transfer belongs to it.
    pub(crate) whole: bool,
    /// Without the hook: the end of a transfer was not seen.
    pub(crate) abandoned: bool,
    pub(crate) appended_at: Nanos,
    /// When the agent came, for a room that was open before.
    pub(crate) late_at: Option<Nanos>,
    pub(crate) expected: u64,
    pub(crate) patient: bool,
    pub(crate) peers: Vec<Peer>,
    pub(crate) peers_whole: bool,
    /// What the table and the marks say, whichever is further.
    pub(crate) counts: Counts,
    /// What the marks alone say.
    pub(crate) marks: Marks,
    /// When the table was last read.
    pub(crate) read_at: Nanos,
    /// Handles posted for it that are not released yet.
    pub(crate) handles: Vec<Handle>,
    /// Bytes in transfers that were seen posted, and seen complete.
    pub(crate) seen: Bytes,
    /// Of `counts.done_bytes` and `seen.completed`, what was credited to the peers.
    pub(crate) credited: u64,
    pub(crate) transfers_seen: u64,
    /// Of those, all whose bytes have arrived.
    pub(crate) transfers_arrived: u64,
    pub(crate) first_post: Option<Nanos>,
    /// Its first post went to a peer that had ended before, at this moment, and whose successor
    /// had taken nothing yet.
    pub(crate) stale_at: Option<Nanos>,
    pub(crate) last_completion: Option<Nanos>,
    /// When payload last moved, as far as it was written down: see `Book::progress_of`.
    pub(crate) last_progress: Nanos,
    /// When something of it was opened while nothing was open.
    pub(crate) opened_at: Option<Nanos>,
    pub(crate) serving: Option<(Tid, Nanos)>,
    /// The thread that last worked for it.
    pub(crate) served_by: Option<Tid>,
    /// Never served and never posted: it may wait behind others.
    pub(crate) in_line: bool,
    /// Until when it waited behind others, known from when it left the line.
    pub(crate) waited_until: Option<Nanos>,
    pub(crate) unparked_at: Option<Nanos>,
    pub(crate) thread_gone: Option<(Tid, Nanos)>,
    pub(crate) failure: Option<Failure>,
    pub(crate) endpoint_failure: Option<Failure>,
    pub(crate) standing: Option<Standing>,
    pub(crate) stalled: bool,
    pub(crate) due: Nanos,
    /// When it left the queue under a thread that stays with it.
    pub(crate) left_at: Option<Nanos>,
}

impl Account {
    /// Whether it waits in line: nobody works for it, and its peers have answered.
    pub(crate) fn waits(&self) -> bool {
        self.in_line && self.counts.phase != Phase::Parked
    }

    pub(crate) fn new(at: Nanos, seen_at: Nanos, append: &Append, tier: Tier) -> Self {
        Self {
            seq: append.seq,
            room: append.room,
            tier,
            whole: false,
            abandoned: false,
            appended_at: at,
            late_at: append.late.then_some(seen_at),
            expected: append.expected,
            patient: append.patient,
            peers: append.peers.clone(),
            peers_whole: append.peers_whole,
            counts: Counts::default(),
            marks: Marks::default(),
            read_at: Nanos::ZERO,
            handles: Vec::new(),
            seen: Bytes::default(),
            credited: 0,
            transfers_seen: 0,
            transfers_arrived: 0,
            first_post: None,
            stale_at: None,
            last_completion: None,
            last_progress: at,
            opened_at: None,
            serving: None,
            served_by: None,
            in_line: true,
            waited_until: None,
            unparked_at: None,
            thread_gone: None,
            failure: None,
            endpoint_failure: None,
            standing: None,
            stalled: false,
            due: Nanos::MAX,
            left_at: None,
        }
    }

    /// A second look at the same append: what the first did not know is added.
    pub(crate) fn describe(&mut self, append: &Append) {
        if self.peers.len() < append.peers.len() {
            self.peers.clone_from(&append.peers);
            self.peers_whole = append.peers_whole;
            self.patient = append.patient;
        }
        self.expected = self.expected.max(append.expected);
    }

    pub(crate) fn posts(&self) -> u64 {
        // What has ended has begun, whether the engine said so or not.
        self.counts.posts.max(self.counts.dones).max(self.transfers_seen)
    }

    pub(crate) fn bytes(&self) -> Bytes {
        Bytes {
            expected: self.expected,
            posted: self.counts.posted_bytes.max(self.counts.done_bytes).max(self.seen.posted),
            completed: self.counts.done_bytes.max(self.seen.completed),
        }
    }

    /// A transfer is posted for it. Most rooms have one or few at a time, and thousands of rooms may
    /// be open: no more memory is taken than is needed.
    pub(crate) fn hold(&mut self, handle: Handle) {
        if self.handles.is_empty() {
            self.handles.reserve_exact(1);
        }
        self.handles.push(handle);
    }

    /// A handle is released.
    pub(crate) fn let_go(&mut self, handle: Handle) {
        if let Some(index) = self.handles.iter().position(|held| *held == handle) {
            self.handles.remove(index);
        }
    }

    /// A transfer call began.
    pub(crate) fn post(&mut self, at: Nanos) {
        self.first_post = Some(self.first_post.map_or(at, |first| first.min(at)));
    }

    /// Payload moved.
    pub(crate) fn progress(&mut self, at: Nanos) {
        self.last_progress = self.last_progress.max(at);
    }

    /// All of a transfer's bytes arrived.
    pub(crate) fn complete(&mut self, at: Nanos) {
        self.last_completion = self.last_completion.max(Some(at));
        self.progress(at);
    }

    /// A transfer ended badly. The first failure is kept, and a status rather than the engine's
    /// bare word.
    pub(crate) fn fail(&mut self, failure: Failure) {
        if self.failure.is_none_or(|known| known.code == 0) {
            self.failure = Some(failure);
        }
    }

    /// The engine says where the room is.
    pub(crate) fn enter(&mut self, at: Nanos, phase: Phase) {
        if self.counts.phase == Phase::Parked && phase != Phase::Parked {
            self.unparked_at = Some(at);
        }
        self.counts.phase = phase;
    }

    /// The table was read: counts only grow, and marks may have been ahead of it.
    pub(crate) fn read(&mut self, at: Nanos, counts: &Counts) {
        self.enter(at, counts.phase);
        let was = self.counts;
        let now = &mut self.counts;
        now.posts = was.posts.max(counts.posts);
        now.posted_bytes = was.posted_bytes.max(counts.posted_bytes);
        now.dones = was.dones.max(counts.dones);
        now.done_bytes = was.done_bytes.max(counts.done_bytes);
        now.failures = was.failures.max(counts.failures);
        if let Some(first) = counts.first_post {
            self.post(first);
        }
        if counts.done_bytes > was.done_bytes
            && let Some(last) = counts.last_done
        {
            self.complete(last);
        }
        if counts.failures > was.failures
            && let Some(at) = counts.last_done
        {
            self.fail(Failure { at, code: 0 });
        }
    }

    /// A mark came: the counts are the further of table and marks.
    pub(crate) fn take_marks(&mut self) {
        let (now, marks) = (&mut self.counts, &self.marks);
        now.posts = now.posts.max(marks.posts);
        now.posted_bytes = now.posted_bytes.max(marks.posted_bytes);
        now.dones = now.dones.max(marks.dones);
        now.done_bytes = now.done_bytes.max(marks.done_bytes);
        now.failures = now.failures.max(marks.failures);
    }

    /// What is new in the completed bytes since the last call: to be credited to the peer.
    pub(crate) fn credit(&mut self) -> u64 {
        let completed = self.bytes().completed;
        let new = completed.saturating_sub(self.credited);
        self.credited = completed.max(self.credited);
        new
    }

    /// Transfer calls that have begun and not ended, as far as can be told.
    pub(crate) const fn calls_open(&self) -> u64 {
        self.counts.posts.saturating_sub(self.counts.dones)
    }

    /// Whether the engine has marked calls, and the end of each.
    pub(crate) const fn calls_ended(&self) -> bool {
        self.counts.dones > 0 && self.calls_open() == 0
    }

    /// Whether a transfer may be open that was not seen posted. Of those that were, the library
    /// says more than the engine: one that failed is not open, whoever ignores that.
    pub(crate) const fn unseen_open(&self) -> bool {
        self.calls_open() > 0 && self.counts.posts > self.transfers_seen
    }
}
