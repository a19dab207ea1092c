//! One worker's book: its rooms, threads, transfers, peers and what is seen of it.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use crate::account::Account;
use crate::coverage::Coverage;
use crate::fact::{Append, Counts, Handle, Life, Meter, Peer, Phase, Seq, Tid};
use crate::flush::Flushes;
use crate::ledger::Kept;
use crate::policy::Policy;
use crate::time::Nanos;
use crate::wire::PeerBook;

mod case;
mod transfers;

use crate::account::Transfer;

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
    /// The handle whose post is under way on this thread, and since when.
    pub(crate) posting: Option<Handle>,
}

/// One worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Book {
    pub(crate) accounts: BTreeMap<Seq, Account>,
    pub(crate) coverage: Coverage,
    pub(crate) beat: Nanos,
    /// When the whole table was last read.
    pub(crate) read_at: Nanos,
    /// Facts that fit nothing: about rooms, handles or threads that are not known.
    pub(crate) misfits: u64,
    /// The worker has marked a post: rooms without one were not posted.
    marks_posts: bool,
    /// The worker has said which room a thread works for: the library's posts find their rooms.
    marks_serves: bool,
    /// The library posted on a thread that served no room: it may have been any room's.
    posts_astray: bool,
    threads: BTreeMap<Tid, Thread>,
    transfers: BTreeMap<Handle, Transfer>,
    by_post: BTreeSet<(Nanos, Handle)>,
    /// Rooms whose first post was within [`YOUNG`], oldest first.
    young: VecDeque<(Nanos, Seq)>,
    peers: BTreeMap<Peer, PeerBook>,
    flushes: Flushes,
}

impl Book {
    /// Takes a room in. `false` when it was already there.
    pub(crate) fn append(&mut self, at: Nanos, seen_at: Nanos, append: &Append) -> bool {
        let known = self.accounts.get_mut(&append.seq);
        let new = known.is_none();
        match known {
            Some(account) => account.describe(append),
            None => {
                self.accounts.insert(append.seq, Account::new(at, seen_at, append));
            }
        }
        for peer in &append.peers {
            self.peer(*peer).rooms.insert(append.seq);
        }
        new
    }

    /// The room that has to go when one more comes in.
    pub(crate) fn victim(&self) -> Option<Seq> {
        let full = self.accounts.len() >= ROOMS_MAX;
        self.accounts.keys().next().copied().filter(|_| full)
    }

    pub(crate) fn entry(&mut self, at: Nanos, seq: Seq, counts: &Counts) {
        self.marks_posts |= counts.posts > 0;
        let Some(account) = self.accounts.get_mut(&seq) else {
            self.misfits += 1;
            return;
        };
        account.read(at, counts);
        account.read_at = at;
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

    pub(crate) fn serve(&mut self, at: Nanos, tid: Tid, seq: Seq) {
        self.marks_serves = true;
        self.serve_end(tid);
        if self.threads.len() >= THREADS_MAX && !self.threads.contains_key(&tid) {
            self.threads.pop_first();
        }
        self.threads.entry(tid).or_default().serving = Some((seq, at));
        match self.accounts.get_mut(&seq) {
            Some(account) => {
                account.serving = Some((tid, at));
                account.served = true;
                account.thread_gone = None;
            }
            None => self.misfits += 1,
        }
    }

    pub(crate) fn serve_end(&mut self, tid: Tid) {
        let serving = self.threads.get_mut(&tid).and_then(|thread| thread.serving.take());
        let account = serving.and_then(|(seq, _)| self.accounts.get_mut(&seq));
        if let Some(account) = account.filter(|account| account.serving.is_some_and(|s| s.0 == tid))
        {
            account.serving = None;
        }
    }

    /// A thread of the worker ended. Returns the room that it was working for.
    pub(crate) fn thread_exit(&mut self, at: Nanos, tid: Tid) -> Option<Seq> {
        let (seq, _) = self.threads.remove(&tid)?.serving?;
        let account = self.accounts.get_mut(&seq)?;
        account.serving = None;
        account.thread_gone = Some((tid, at));
        Some(seq)
    }

    /// The distance from a flush's request to its completion in this worker's build.
    pub(crate) const fn know_distance(&mut self, distance: i64) {
        self.flushes.know(distance);
    }

    /// Takes a room out.
    pub(crate) fn remove(&mut self, seq: Seq) -> Option<Account> {
        let account = self.accounts.remove(&seq)?;
        for handle in &account.handles {
            // A transfer outlives its room until its handle is released; it is nobody's then.
            if let Some(transfer) = self.transfers.get_mut(handle) {
                transfer.seq = None;
            }
        }
        for peer in &account.peers {
            self.peer(*peer).rooms.remove(&seq);
        }
        Some(account)
    }

    fn peer(&mut self, peer: Peer) -> &mut PeerBook {
        if self.peers.len() >= PEERS_MAX && !self.peers.contains_key(&peer) {
            self.peers.pop_first();
        }
        self.peers.entry(peer).or_default()
    }

    pub(crate) fn life(&mut self, at: Nanos, peer: Peer, life: Life) {
        let book = self.peer(peer);
        // When a process went is when that was first seen; that it runs is as fresh as the look.
        if book.life != life || life != Life::Gone {
            book.life = life;
            book.life_at = at;
        }
        if life == Life::Gone {
            book.gone_at = Some(book.life_at);
        }
    }

    pub(crate) fn history(&mut self, peer: Peer, bytes: u64, whole: bool) {
        // Bytes in the table's memory are those of marked transfer calls.
        self.marks_posts |= bytes > 0;
        if whole {
            self.peer(peer).history(bytes);
        }
    }

    /// The connections to a peer were read: growth is progress of every room that has something
    /// open to it.
    pub(crate) fn wire(&mut self, at: Nanos, peer: Peer, meter: Meter, policy: &Policy) {
        let quiet = !self.rooms_open_to(peer).any(|_| true) && !self.transfer_open_to(peer);
        if !self.peer(peer).sample(at, meter, quiet, policy) {
            return;
        }
        let moving: Vec<Seq> = self.rooms_open_to(peer).map(|account| account.seq).collect();
        for seq in moving {
            if let Some(account) = self.accounts.get_mut(&seq) {
                account.progress(at);
            }
        }
    }

    fn rooms_with(&self, peer: Peer) -> impl Iterator<Item = &Account> + '_ {
        let rooms = self.peers.get(&peer).into_iter().flat_map(|book| &book.rooms);
        rooms.filter_map(|seq| self.accounts.get(seq))
    }

    /// Rooms that have a transfer open to the peer, or may have one that was not seen.
    fn rooms_open_to(&self, peer: Peer) -> impl Iterator<Item = &Account> + '_ {
        self.rooms_with(peer).filter(move |account| {
            account.calls_open() > 0
                || self.open_transfers(account).any(|t| t.peer.is_none_or(|p| p == peer))
        })
    }

    fn transfer_open_to(&self, peer: Peer) -> bool {
        self.peers.get(&peer).is_some_and(|book| !book.open.is_empty())
    }

    fn open_transfers<'a>(&'a self, account: &'a Account) -> impl Iterator<Item = &'a Transfer> {
        account.handles.iter().filter_map(|h| self.transfers.get(h)).filter(|t| t.is_open())
    }

    /// Tells the peers of newly completed bytes of a room.
    fn credit(&mut self, seq: Seq, to: Option<Peer>) {
        let Some(account) = self.accounts.get_mut(&seq) else {
            return;
        };
        let bytes = account.credit();
        let at = account.last_completion.unwrap_or(account.last_progress);
        if bytes == 0 {
            return;
        }
        let peers = match to {
            Some(peer) => alloc::vec![peer],
            // Which of several peers took them is not known: each is charged, so that what is
            // left for open transfers is rather too little than too much.
            None => account.peers.clone(),
        };
        for peer in peers {
            self.peer(peer).complete(at, bytes);
        }
    }

    /// How much is kept.
    pub(crate) fn kept(&self) -> Kept {
        Kept {
            rooms: self.accounts.len(),
            transfers: self.transfers.len(),
            flushes: self.flushes.len(),
            threads: self.threads.len(),
            peers: self.peers.len(),
        }
    }

    /// The rooms that have this peer.
    pub(crate) fn rooms_of(&self, peer: Peer) -> Vec<Seq> {
        self.rooms_with(peer).map(|account| account.seq).collect()
    }
}
