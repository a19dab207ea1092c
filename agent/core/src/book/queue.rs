//! Who works for whom, and who waits behind whom.
//!
//! Which of the worker's queues a room stands in is not known. What is known: a thread that serves
//! a room takes no other, and a room that came later and was never taken may wait behind it.

use alloc::vec::Vec;

use super::{Book, THREADS_MAX, Thread};
use crate::account::Account;
use crate::fact::{Peer, Room, Seq, Tid};
use crate::judge::Ahead;
use crate::time::Nanos;
use crate::verdict::BEHIND_MAX;

/// Most rooms that are looked at to find the head of one, and that are counted before it: the
/// judge must stay cheap with thousands of rooms behind one head.
pub(super) const LOOK_MAX: usize = 100;
/// Most threads remembered that worked for rooms and ended; the victim has the lowest id.
const DEAD_MAX: usize = 256;

/// A thread that has put a room down with more to come takes its next part within this time, where
/// that is ready: until then the room holds up the others still.
const NEXT_PART: Nanos = Nanos::from_secs(1);

/// A thread that works for a room.
#[derive(Clone, Debug)]
pub(crate) struct Captive {
    tid: Tid,
    since: Nanos,
    /// It has put the room down, with more to come.
    idle_since: Option<Nanos>,
}

impl Captive {
    pub(super) const fn tid(&self) -> Tid {
        self.tid
    }

    /// Whether the room holds up others.
    fn holds(&self, now: Nanos) -> bool {
        self.idle_since.is_none_or(|at| at.plus(NEXT_PART) > now)
    }
}

/// Rooms behind a head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Behind {
    pub(crate) rooms: Vec<Room>,
    pub(crate) count: u64,
}

/// What may hold a room up.
#[derive(Clone, Copy)]
pub(super) struct Candidate {
    /// `None` for work whose room is not in the queue.
    pub(super) seq: Option<Seq>,
    pub(super) tid: Option<Tid>,
    /// To one of the same peers.
    pub(super) same_peer: bool,
    /// The thread last worked for one of its peers.
    pub(super) same_thread: bool,
    /// When the room entered, or the work began.
    pub(super) since: Nanos,
    pub(super) progress: Nanos,
    /// Whether its progress would show, where it is no room.
    pub(super) visible: bool,
}

impl Book {
    pub(crate) fn serve(&mut self, at: Nanos, tid: Tid, seq: Seq) {
        self.marks_serves = true;
        let early = self.adopt_early(tid, seq);
        if early.is_none() {
            self.serve_end(at, tid);
        }
        let at = early.unwrap_or(at);
        let thread = self.thread(tid);
        thread.serving = Some((seq, at));
        if let Some(last) = thread.last.replace(seq).filter(|last| *last != seq) {
            self.put_away(tid, last);
        }
        self.dead.remove(&tid);
        self.begin(seq);
        let Some(account) = self.accounts.get_mut(&seq) else {
            self.misfits += 1;
            return;
        };
        account.serving = Some((tid, at));
        account.served_by = Some(tid);
        account.thread_gone = None;
        for peer in account.peers.clone() {
            self.peer(peer).served_by = Some(tid);
        }
        self.orphans.remove(&seq);
        if self.captives.len() < THREADS_MAX {
            self.captives.insert(seq, Captive { tid, since: at, idle_since: None });
        }
    }

    /// The entry of a thread; of too many one goes.
    pub(super) fn thread(&mut self, tid: Tid) -> &mut Thread {
        if self.threads.len() >= THREADS_MAX && !self.threads.contains_key(&tid) {
            if let Some(victim) = self.threads.first_key_value().map(|(tid, _)| *tid) {
                self.end_early(self.now, victim);
            }
            self.threads.pop_first();
        }
        self.threads.entry(tid).or_default()
    }

    pub(crate) fn serve_end(&mut self, at: Nanos, tid: Tid) {
        self.end_early(at, tid);
        let serving = self.threads.get_mut(&tid).and_then(|thread| thread.serving.take());
        let Some((seq, _)) = serving else {
            return;
        };
        let more = self.accounts.get(&seq).is_some_and(|account| {
            let bytes = account.bytes();
            account.left_at.is_none() && (bytes.expected == 0 || bytes.completed < bytes.expected)
        });
        match self.captives.get_mut(&seq).filter(|captive| more && captive.tid == tid) {
            Some(captive) => {
                captive.idle_since = Some(at);
                self.unserve(tid, seq);
            }
            None => self.release(at, tid, seq),
        }
    }

    /// The thread has taken another room: the one that it had put down holds nobody up.
    pub(super) fn put_away(&mut self, tid: Tid, seq: Seq) {
        let idle_since = self.captives.get(&seq).filter(|captive| captive.tid == tid);
        if let Some(at) = idle_since.and_then(|captive| captive.idle_since) {
            self.captives.remove(&seq);
            self.freed.push(seq, at);
        }
    }

    /// Until when others were before the room.
    pub(crate) fn waited_until(&self, seq: Seq) -> Option<Nanos> {
        let idle = self.captives.range(..seq).take(LOOK_MAX);
        let idle = idle.filter(|(_, captive)| !captive.holds(self.now));
        let idle = idle.filter_map(|(_, captive)| captive.idle_since).max();
        self.freed.before(seq).max(idle)
    }

    /// The thread works for the room no more.
    fn release(&mut self, at: Nanos, tid: Tid, seq: Seq) {
        if self.captives.get(&seq).is_some_and(|captive| captive.tid == tid) {
            self.captives.remove(&seq);
            self.freed.push(seq, at);
            if self.has_left(seq) {
                self.put_down.push(seq);
            }
        }
        self.unserve(tid, seq);
    }

    /// Whether a thread is at work for the room, which it goes on to do if the room leaves.
    pub(crate) fn is_captor(&self, seq: Seq) -> bool {
        self.captives.get(&seq).is_some_and(|captive| captive.idle_since.is_none())
    }

    /// Whether the room has left the queue under a thread that stays with it.
    pub(crate) fn has_left(&self, seq: Seq) -> bool {
        self.account(seq).is_some_and(|account| account.left_at.is_some())
    }

    /// The thread that stays with a room that has left the queue, and since when it has it.
    pub(crate) fn held_by(&self, account: &Account) -> Option<(Tid, Nanos)> {
        let captive = self.captives.get(&account.seq).filter(|_| account.left_at.is_some())?;
        Some((captive.tid, captive.since))
    }

    /// Rooms that have left the queue under a thread that stays with them.
    pub(crate) fn left(&self) -> impl Iterator<Item = &Account> {
        let rooms = self.captives.keys().filter_map(|seq| self.account(*seq));
        rooms.filter(|account| account.left_at.is_some())
    }

    /// Rooms that have left the queue and that their thread has put down since the last call, and
    /// not taken up again.
    pub(crate) fn take_put_down(&mut self) -> Vec<Seq> {
        let mut rooms = core::mem::take(&mut self.put_down);
        rooms.retain(|seq| !self.captives.contains_key(seq));
        rooms
    }

    /// All threads put down what they have: the worker is gone.
    pub(crate) fn free_all(&mut self) {
        self.captives.clear();
        self.early.clear();
    }

    fn unserve(&mut self, tid: Tid, seq: Seq) {
        let account = self.accounts.get_mut(&seq);
        if let Some(account) = account.filter(|account| account.serving.is_some_and(|s| s.0 == tid))
        {
            account.serving = None;
        }
    }

    /// A thread of the worker ended. Returns the room that it was working for.
    pub(crate) fn thread_exit(&mut self, at: Nanos, tid: Tid) -> Option<Seq> {
        self.end_early(at, tid);
        let thread = self.threads.remove(&tid)?;
        if self.dead.len() >= DEAD_MAX {
            self.dead.pop_first();
        }
        self.dead.insert(tid, at);
        if let Some(last) = thread.last.filter(|_| thread.serving.is_none()) {
            self.put_away(tid, last);
        }
        let (seq, _) = thread.serving?;
        self.release(at, tid, seq);
        let account = self.accounts.get_mut(&seq)?;
        account.thread_gone = Some((tid, at));
        self.orphans.insert(seq);
        Some(seq)
    }

    /// A room left the queue: it holds nobody up, unless its thread stays with it.
    pub(super) fn leave(&mut self, at: Nanos, account: &Account) {
        self.orphans.remove(&account.seq);
        match self.captives.get_mut(&account.seq) {
            Some(Captive { idle_since: Some(_), .. }) => {
                self.captives.remove(&account.seq);
                self.freed.push(account.seq, at);
            }
            None if !account.in_line => self.freed.push(account.seq, at),
            Some(_) | None => {}
        }
    }

    /// The thread that last worked for the room, or for a room to its peer, where that ended.
    pub(super) fn last_thread_gone(&self, account: &Account) -> Option<(Tid, Nanos)> {
        let tid = account.served_by.or_else(|| {
            let peer = account.peers.first().filter(|_| account.in_line)?;
            self.peers.get(peer)?.served_by
        })?;
        self.dead.get(&tid).map(|at| (tid, *at))
    }

    /// What holds up a room that was neither served nor posted.
    pub(crate) fn ahead(&self, of: &Account) -> Option<Ahead> {
        if !of.in_line {
            return None;
        }
        let by = self.head(of)?;
        // A head that entered later was taken before it did.
        let from = by.seq.filter(|head| *head < of.seq).unwrap_or(of.seq);
        let between = self.line.range(from..of.seq).filter(|seq| Some(**seq) != by.seq);
        Some(Ahead {
            head: by.seq,
            tid: by.tid,
            rooms: between.take(LOOK_MAX - 1).count() as u64 + 1,
            since: by.since,
            progress: by.progress,
            certain: by.same_peer || by.same_thread,
            visible: by.visible,
        })
    }

    /// Whether a room that was told at `since` to wait behind others still does, as far as that can
    /// be told cheaply: thousands may wait behind one head.
    pub(crate) fn still_waits(&self, of: &Account, since: Nanos) -> bool {
        let same = self.waited_until(of.seq).is_none_or(|at| at <= since);
        // Where the head is no room, somebody else has to tell that it stands still.
        of.waits() && same && self.head(of).is_some_and(|head| head.seq.is_some())
    }

    /// The likeliest head: to the same peer, else on the thread that last worked for that peer,
    /// else any thread that is busy with a room that came first; of several the stillest.
    fn head(&self, of: &Account) -> Option<Candidate> {
        let captives = self.captives.range(..of.seq).filter(|(_, c)| c.holds(self.now));
        let captives = captives.take(LOOK_MAX);
        let captives =
            captives.filter_map(|(seq, captive)| self.candidate(*seq, Some(captive.tid), of));
        let orphans = self.orphans.range(..of.seq).take(LOOK_MAX);
        let orphans = orphans.filter_map(|seq| self.candidate(*seq, None, of));
        let dead = self.last_thread_gone(of).map(|(tid, _)| tid);
        let of_dead = |orphan: &Candidate| dead.is_some() && orphan.tid == dead;
        let orphans = orphans.filter(|orphan| orphan.same_peer || of_dead(orphan));
        let first = dead.and_then(|tid| self.first_left_by(tid, of.seq));
        let first = first.and_then(|first| self.candidate(first, dead, of));
        let posted = of.peers.iter().filter(|_| !self.marks_serves);
        let posted = posted.filter_map(|peer| self.first_posted(*peer, of));
        let early = self.early_before(of);
        let rank = |c: &Candidate| (!c.same_peer, !c.same_thread, c.progress, c.seq);
        captives.chain(early).chain(orphans).chain(first).chain(posted).min_by_key(rank)
    }

    /// The first room before this one that a thread would take, or take up again, that has ended: it
    /// stands for all of them.
    fn first_left_by(&self, dead: Tid, before: Seq) -> Option<Seq> {
        let lacks = |account: &Account| {
            let bytes = account.bytes();
            account.in_line
                || (self.open_transfers(account).next().is_none()
                    && bytes.completed < bytes.posted.max(bytes.expected))
        };
        let older = self.accounts.range(..before).take(LOOK_MAX);
        let mut left = older.filter(|(_, account)| {
            lacks(account) && self.last_thread_gone(account).is_some_and(|(tid, _)| tid == dead)
        });
        left.next().map(|(seq, _)| *seq)
    }

    pub(super) fn candidate(&self, seq: Seq, tid: Option<Tid>, of: &Account) -> Option<Candidate> {
        let account = self.accounts.get(&seq)?;
        let tid = tid.or(account.thread_gone.map(|(tid, _)| tid));
        Some(Candidate {
            seq: Some(seq),
            tid,
            same_peer: shares(&account.peers, &of.peers),
            same_thread: tid.is_some_and(|tid| self.worked_for(tid, &of.peers)),
            since: account.appended_at,
            visible: true,
            progress: self.progress_of(account),
        })
    }

    pub(super) fn worked_for(&self, tid: Tid, peers: &[Peer]) -> bool {
        let mut books = peers.iter().filter_map(|peer| self.peers.get(peer));
        books.any(|book| book.served_by == Some(tid))
    }

    /// The first room to the peer that has something open, where the worker does not say which
    /// thread works for which room.
    fn first_posted(&self, peer: Peer, of: &Account) -> Option<Candidate> {
        let begun = self.peers.get(&peer)?.begun.range(..of.seq).take(LOOK_MAX);
        let mut open = begun.filter(|seq| {
            self.accounts.get(seq).is_some_and(|account| {
                account.calls_open() > 0 || self.open_transfers(account).next().is_some()
            })
        });
        self.candidate(*open.next()?, None, of)
    }

    /// Whether a room waits behind this one, as far as can be told cheaply.
    pub(crate) fn blocks(&self, of: &Account) -> bool {
        let mut later = self.line.range(self.place_of(of.seq)..).take(LOOK_MAX);
        later.any(|seq| {
            let head = self.account(*seq).and_then(|account| self.head(account));
            head.is_some_and(|head| head.seq == Some(of.seq))
        })
    }

    /// The rooms that wait behind this one. A walk over all that wait: for a verdict that is about
    /// to be told, once.
    pub(crate) fn behind(&self, of: &Account) -> Behind {
        let mut behind = Behind::default();
        let heads = self.captives.contains_key(&of.seq) || self.orphans.contains(&of.seq);
        let first = !self.marks_serves && of.calls_open() > 0;
        let early = of.in_line && !self.early.is_empty();
        if !heads && !first && !early && self.last_thread_gone(of).is_none() {
            return behind;
        }
        let later = self.line.range(self.place_of(of.seq)..).filter_map(|seq| self.account(*seq));
        for account in later.filter(|account| account.seq != of.seq) {
            if self.head(account).is_some_and(|head| head.seq == Some(of.seq)) {
                behind.count += 1;
                if behind.rooms.len() < BEHIND_MAX {
                    behind.rooms.push(account.room);
                }
            }
        }
        behind
    }
}

pub(super) fn shares(one: &[Peer], other: &[Peer]) -> bool {
    one.iter().any(|peer| other.contains(peer))
}
