//! One worker's book: its rooms, threads, transfers, peers and what is seen of it.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::cell::Cell;

use crate::account::Account;
use crate::coverage::Coverage;
use crate::fact::{Append, Counts, Handle, Peer, Phase, Seq, Tid};
use crate::flush::Flushes;
use crate::ledger::Kept;
use crate::policy::Policy;
use crate::time::Nanos;
use crate::verdict::Cause;
use crate::wire::PeerBook;

mod batches;
mod case;
mod drained;
mod early;
mod freed;
mod node;
mod operations;
mod peers;
mod ports;
mod queue;
mod rooms;
mod transfers;
mod unhooked;
mod whole;

use crate::account::Transfer;
use freed::Freed;
use node::Node;
use ports::Ports;
pub(crate) use queue::Behind;
use queue::Captive;
use rooms::ByRoom;
pub(crate) use transfers::Post;
use unhooked::Stays;

/// Most open rooms of one worker: twice what a table holds. The victim is the oldest room, whose
/// stay is closed as unknown.
pub(crate) const ROOMS_MAX: usize = 16_384;
/// Most threads of one worker; the victim is the one with the lowest id.
const THREADS_MAX: usize = 4096;
/// Most transfers of one worker; the victim is the one posted first.
const TRANSFERS_MAX: usize = 16_384;
/// Most peers of one worker; the victim is the one with the lowest number.
const PEERS_MAX: usize = 4096;

/// A transfer is young for so long.
const YOUNG: Nanos = Nanos::from_secs(1);
/// Most young rooms that are followed; the victim is the oldest.
const YOUNG_MAX: usize = 256;
/// When after its first post the meters are read for a transfer that is still open: what it has
/// moved must be known before its peer dies, and a second is long for that.
const EARLY_READINGS: [Nanos; 3] =
    [Nanos::from_millis(50), Nanos::from_millis(200), Nanos::from_millis(500)];

/// What a thread is doing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Thread {
    pub(crate) serving: Option<(Seq, Nanos)>,
    /// The room that it served last.
    pub(crate) last: Option<Seq>,
    /// The handle whose post is under way on this thread, and since when.
    pub(crate) posting: Option<Handle>,
    /// It is at work that it took up before the room was in the queue: what that comes after.
    pub(crate) early: Option<Seq>,
}

/// One worker.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent answers, each read by its name")]
pub(crate) struct Book {
    /// Open rooms. Boxed: a tree's nodes are half empty when its keys only grow.
    pub(crate) accounts: BTreeMap<Seq, Box<Account>>,
    by_room: ByRoom,
    pub(crate) coverage: Coverage,
    /// The latest moment that the book was told of.
    pub(crate) now: Nanos,
    pub(crate) beat: Nanos,
    /// When the whole table was last read.
    pub(crate) read_at: Nanos,
    /// Facts that fit nothing: about rooms, handles or threads that are not known.
    pub(crate) misfits: u64,
    /// The worker marks no queue: its stays are its transfers.
    pub(crate) unhooked: bool,
    /// Its rooms are those that it receives: none is judged.
    pub(crate) receives: bool,
    /// When a thread that hears from its peers was first seen to have ended.
    pub(crate) listener_ended: Option<Nanos>,
    /// The worker has marked a post: rooms without one were not posted.
    marks_posts: bool,
    /// The worker has said which room a thread works for: the library's posts find their rooms.
    marks_serves: bool,
    /// When the library last posted on a thread that served no room: it may have been any room's.
    posts_astray: Option<Nanos>,
    threads: BTreeMap<Tid, Thread>,
    /// Threads that work for a room now, by the room.
    captives: BTreeMap<Seq, Captive>,
    /// Work that was taken up before its room was in the queue.
    early: early::Places,
    /// What was posted for such work, by which thread, and the room that it turned out to be for.
    early_posts: BTreeMap<Handle, (Tid, Option<Seq>)>,
    /// The room that tells of a trouble of the worker as a whole, by its cause.
    tellers: BTreeMap<Cause, Seq>,
    /// Open rooms that were neither served nor posted.
    line: BTreeSet<Seq>,
    /// Open rooms whose thread ended under them.
    orphans: BTreeSet<Seq>,
    /// When somebody's service last ended.
    freed: Freed,
    /// Rooms that have left the queue and whose thread has put them down: to be forgotten.
    put_down: Vec<Seq>,
    /// Threads that have worked for rooms and ended.
    dead: BTreeMap<Tid, Nanos>,
    transfers: BTreeMap<Handle, Transfer>,
    by_post: BTreeSet<(Nanos, Handle)>,
    /// Rooms whose first post was within [`YOUNG`], oldest first.
    young: VecDeque<(Nanos, Seq)>,
    peers: BTreeMap<Peer, PeerBook>,
    unhooked_stays: Stays,
    pub(crate) node: Node,
    /// No room has been without progress since before this moment, and the room that was last
    /// found to be a suspect: what [`Book::has_suspects`] need not look for again.
    stillest: Cell<Nanos>,
    suspect: Cell<Option<Seq>>,
    flushes: Flushes,
    pub(crate) ports: Ports,
    /// Since when operations are counted as they complete.
    armed_at: Option<Nanos>,
    /// By open room: when one last completed for its open transfers, and the bytes of all of them.
    operated: BTreeMap<Seq, (Nanos, u64)>,
    /// Since when the memory of an open batch is read, and what had arrived of it at the last time.
    batches_read: BTreeMap<Handle, (Nanos, u64)>,
}

impl Book {
    /// Takes a room in. `false` when it was already there.
    pub(crate) fn append(&mut self, at: Nanos, seen_at: Nanos, append: &Append) -> bool {
        let known = self.accounts.get_mut(&append.seq).map(|account| account.describe(append));
        let new = known.is_none();
        if new {
            let tier = self.unhooked_stays.tier_of(append.seq);
            let account = Account::new(at, seen_at, append, tier);
            self.accounts.insert(append.seq, Box::new(account));
            self.line.insert(append.seq);
            self.by_room.enter(append.room, append.seq);
            self.stillest.set(self.stillest.get().min(at));
        }
        let begun = self.accounts.get(&append.seq).is_some_and(|account| !account.in_line);
        for peer in &append.peers {
            let book = self.peer(*peer);
            book.rooms.insert(append.seq);
            if begun {
                book.begun.insert(append.seq);
            }
        }
        new
    }

    /// Whether a room has been without progress for longer than `suspect`. All rooms are looked at
    /// only when one of them could be, and the last suspect first.
    pub(crate) fn has_suspects(&self, policy: &Policy, now: Nanos) -> bool {
        let suspect = |account: &Account| self.progress_of(account).plus(policy.suspect) <= now;
        if self.receives || self.stillest.get().plus(policy.suspect) > now {
            return false;
        }
        let last = self.suspect.get().and_then(|seq| self.account(seq));
        if last.is_some_and(suspect) {
            return true;
        }
        let found = self.accounts.values().find(|account| suspect(account));
        self.suspect.set(found.map(|account| account.seq));
        if found.is_none() {
            let progress = self.accounts.values().map(|account| self.progress_of(account));
            self.stillest.set(progress.min().unwrap_or(Nanos::MAX));
        }
        found.is_some()
    }

    /// An open room.
    pub(crate) fn account(&self, seq: Seq) -> Option<&Account> {
        self.accounts.get(&seq).map(AsRef::as_ref)
    }

    /// Rooms in the queue.
    pub(crate) fn open_rooms(&self) -> usize {
        self.accounts.len() - self.left().count()
    }

    /// The room that has to go when one more comes in. Not one that has left: it goes with its thread.
    pub(crate) fn victim(&self) -> Option<Seq> {
        let full = self.accounts.len() >= ROOMS_MAX;
        let mut open = self.accounts.values().filter(|account| account.left_at.is_none());
        if full { open.next().map(|account| account.seq) } else { None }
    }

    pub(crate) fn entry(&mut self, at: Nanos, seq: Seq, counts: &Counts) {
        self.marks_posts |= counts.posts > 0;
        self.settle(at, seq);
        let Some(account) = self.accounts.get_mut(&seq) else {
            self.misfits += 1;
            return;
        };
        account.read(at, counts);
        account.read_at = at;
        if account.posts() > 0 {
            self.begin(seq);
        }
        self.credit(seq, None);
    }

    pub(crate) fn phase(&mut self, at: Nanos, seq: Seq, phase: Phase) {
        match self.accounts.get_mut(&seq) {
            Some(account) => account.enter(at, phase),
            None => self.misfits += 1,
        }
    }

    /// A transfer call of the engine begins, by its mark.
    pub(crate) fn mark_post(&mut self, at: Nanos, seq: Seq, bytes: u64) {
        self.marks_posts = true;
        self.begin(seq);
        self.settle(at, seq);
        let Some(account) = self.accounts.get_mut(&seq) else {
            self.misfits += 1;
            return;
        };
        account.marks.posts += 1;
        account.marks.posted_bytes = account.marks.posted_bytes.saturating_add(bytes);
        let first = account.first_post.is_none();
        account.post(at);
        account.take_marks();
        if first {
            self.note_stale(seq);
            self.note_young(at, seq);
        }
    }

    /// A room was posted for the first time.
    fn note_young(&mut self, at: Nanos, seq: Seq) {
        let old = |front: &(Nanos, Seq)| front.0.plus(YOUNG) < at;
        while self.young.len() >= YOUNG_MAX || self.young.front().is_some_and(old) {
            self.young.pop_front();
        }
        self.young.push_back((at, seq));
    }

    /// Whether a transfer that has just begun is still under way and the meters were not read
    /// since it has had a moment to move.
    pub(crate) fn wants_reading(&self, read_at: Nanos, now: Nanos) -> bool {
        let passed = |posted: Nanos| {
            let moments = EARLY_READINGS.iter().map(|after| posted.plus(*after));
            moments.into_iter().any(|at| read_at < at && at <= now)
        };
        let open = |seq: &Seq| {
            self.accounts.get(seq).is_some_and(|account| {
                account.calls_open() > 0 || self.open_transfers(account).next().is_some()
            })
        };
        self.young.iter().any(|(posted, seq)| passed(*posted) && open(seq))
    }

    /// A transfer call of the engine ends, by its mark.
    pub(crate) fn mark_done(&mut self, at: Nanos, seq: Seq, bytes: u64, ok: bool) {
        // What has ended has begun, also where the engine marks only ends.
        self.begin(seq);
        self.settle(at, seq);
        let Some(account) = self.accounts.get_mut(&seq) else {
            self.misfits += 1;
            return;
        };
        account.marks.dones += 1;
        if ok {
            account.marks.done_bytes = account.marks.done_bytes.saturating_add(bytes);
            account.complete(at);
        } else {
            account.marks.failures += 1;
            account.fail(crate::account::Failure { at, code: 0 });
        }
        account.take_marks();
        self.credit(seq, None);
    }

    /// The distance from a flush's request to its completion in this worker's build.
    pub(crate) const fn know_distance(&mut self, distance: i64) {
        self.flushes.know(distance);
    }

    /// Takes a room out.
    pub(crate) fn remove(&mut self, at: Nanos, seq: Seq) -> Option<Account> {
        let account = *self.accounts.remove(&seq)?;
        self.line.remove(&seq);
        self.operated.remove(&seq);
        self.by_room.leave(account.room, seq);
        for handle in &account.handles {
            // A transfer outlives its room until its handle is released; it is nobody's then.
            if let Some(transfer) = self.transfers.get_mut(handle) {
                transfer.seq = None;
            }
        }
        for peer in &account.peers {
            let book = self.peer(*peer);
            book.rooms.remove(&seq);
            book.begun.remove(&seq);
        }
        self.leave(at, &account);
        self.close_stay(&account);
        Some(account)
    }

    /// How much is kept.
    pub(crate) fn kept(&self) -> Kept {
        Kept {
            rooms: self.open_rooms(),
            transfers: self.transfers.len(),
            flushes: self.flushes.len(),
            threads: self.threads.len(),
            peers: self.peers.len(),
        }
    }
}
