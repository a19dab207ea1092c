//! Every room's account, by worker and append sequence.
//!
//! Bounds: [`WORKERS_MAX`] workers, and per worker the bounds of its book. The agenda holds each
//! open room once; outputs wait until they are polled, and the caller polls after every call.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use crate::account::Standing;
use crate::book::{Book, Post};
use crate::fact::{Append, Event, Fact, Life, Outcome, Peer, Seq, Worker};
use crate::flush::Completed;
use crate::judge;
use crate::policy::Policy;
use crate::time::Nanos;
use crate::verdict::{Appended, ClearReason, Output, Tier};

mod tell;

mod agenda;
mod far;
mod node;
mod ranks;

/// Most workers at a time; facts of further ones are counted as misfits.
pub const WORKERS_MAX: usize = 1024;

/// How much a ledger keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Open rooms.
    pub rooms: usize,
    /// Transfers whose handle was not released.
    pub transfers: usize,
    /// Flushes that have not completed.
    pub flushes: usize,
    /// Threads that have served or posted.
    pub threads: usize,
    /// Peers.
    pub peers: usize,
}

impl Kept {
    const fn with(mut self, other: Self) -> Self {
        self.rooms += other.rooms;
        self.transfers += other.transfers;
        self.flushes += other.flushes;
        self.threads += other.threads;
        self.peers += other.peers;
        self
    }
}

/// The machine: facts in, outputs out.
#[derive(Debug)]
pub struct Ledger {
    pub(crate) policy: Policy,
    now: Nanos,
    pub(crate) books: BTreeMap<Worker, Book>,
    far: far::FarRooms,
    agenda: BTreeSet<(Nanos, Worker, Seq)>,
    outputs: VecDeque<Output>,
    forgotten: Vec<(Worker, Seq)>,
    misfits: u64,
}

impl Ledger {
    /// A ledger without any account.
    pub const fn new(policy: Policy) -> Self {
        Self {
            policy,
            now: Nanos::ZERO,
            books: BTreeMap::new(),
            far: far::FarRooms::new(),
            agenda: BTreeSet::new(),
            outputs: VecDeque::new(),
            forgotten: Vec::new(),
            misfits: 0,
        }
    }

    /// Takes a fact. One that fits nothing is counted ([`Ledger::misfits`]), never refused.
    pub fn observe(&mut self, event: &Event) {
        self.now = self.now.max(event.at);
        if !self.books.contains_key(&event.worker) {
            if self.books.len() >= WORKERS_MAX || matches!(event.fact, Fact::Ended) {
                self.misfits += 1;
                return;
            }
            self.books.insert(event.worker, Book::default());
        }
        let receives = self.books.get_mut(&event.worker).is_some_and(|book| {
            book.now = book.now.max(event.at);
            book.receives
        });
        if receives {
            self.note_far(event);
        }
        match &event.fact {
            Fact::Append(append) => self.append(event, append),
            Fact::Remove(seq, outcome) => self.remove(event.at, event.worker, *seq, *outcome),
            Fact::Ended => self.ended(event.at, event.worker),
            Fact::Cover(source, sight) => {
                let Some(book) = self.books.get_mut(&event.worker) else {
                    return;
                };
                if book.coverage.set(event.at, *source, *sight) {
                    let coverage = book.coverage.clone();
                    self.outputs.push_back(Output::Coverage(event.at, event.worker, coverage));
                }
            }
            Fact::XferPost { .. } => {
                self.open_unhooked(event);
                self.enter(event);
            }
            Fact::Load(load) => self.load(event.at, event.worker, load),
            Fact::Lose(source, count) => {
                let Some(book) = self.books.get_mut(&event.worker) else {
                    return;
                };
                book.coverage.lose(event.at, *source, *count);
                self.outputs.push_back(Output::Loss(event.at, event.worker, *source, *count));
            }
            _ => self.enter(event),
        }
    }

    fn enter(&mut self, event: &Event) {
        for seq in self.apply(event.at, event.worker, &event.fact) {
            self.hurry(event.worker, seq, event.at);
        }
        let put_down = self.books.get_mut(&event.worker).map(Book::take_put_down);
        for seq in put_down.unwrap_or_default() {
            self.forget_left(event.at, event.worker, seq);
        }
        let ended = self.books.get_mut(&event.worker).map(Book::ended_stays).unwrap_or_default();
        for (seq, outcome) in ended {
            self.remove(event.at, event.worker, seq, outcome);
        }
    }

    /// Without the hook a transfer is its own append.
    fn open_unhooked(&mut self, event: &Event) {
        let book = self.books.get_mut(&event.worker);
        if let Some(append) = book.and_then(|book| book.open_stay(event.at, &event.fact)) {
            self.append(event, &append);
        }
    }

    /// Enters a fact in the book. Returns the rooms that must be judged anew because of it.
    fn apply(&mut self, at: Nanos, worker: Worker, fact: &Fact) -> Vec<Seq> {
        let policy = self.policy;
        let Some(book) = self.books.get_mut(&worker) else {
            return Vec::new();
        };
        let one = |seq: Option<Seq>| seq.into_iter().collect();
        match *fact {
            Fact::Entry(seq, ref counts) => book.entry(at, seq, counts),
            Fact::Read => book.read_at = at,
            Fact::Unhooked => book.unhooked = true,
            Fact::Receives => book.receives = true,
            Fact::ListenerEnded => book.listener_ended = book.listener_ended.or(Some(at)),
            Fact::Phase(seq, phase) => book.phase(at, seq, phase),
            Fact::Serve(tid, seq) => book.serve(at, tid, seq),
            Fact::ServeEarly(tid, after) => book.serve_early(at, tid, after),
            Fact::ServeEnd(tid) => book.serve_end(at, tid),
            Fact::Post(seq, bytes) => book.mark_post(at, seq, bytes),
            Fact::Done(seq, bytes, ok) => {
                book.mark_done(at, seq, bytes, ok);
                return one((!ok).then_some(seq));
            }
            Fact::Beat => book.beat = book.beat.max(at),
            Fact::XferPost { tid, handle, peer, bytes, descs, room } => {
                book.xfer_post(at, tid, &Post { handle, peer, bytes, descs, room });
            }
            Fact::XferRet(tid, handle, status) => {
                return one(book.xfer_ret(at, tid, handle, status));
            }
            Fact::XferStatus(handle, status) => return one(book.xfer_status(at, handle, status)),
            Fact::XferRelease(handle, status) => book.xfer_release(at, handle, status),
            Fact::Flush { tid, ep, request } => return one(book.flush(at, tid, ep, request)),
            Fact::FlushDone(completion, status) => {
                return one(book.flush_done(completion, Completed { at, status }));
            }
            Fact::FlushDistance(distance) => book.know_distance(distance),
            Fact::EpError(ep, code) => return book.ep_error(at, ep, code),
            Fact::Batch(tid, batch) => book.batch(at, tid, batch),
            Fact::BatchRead(batch, bytes) => book.batch_read(at, batch, bytes),
            Fact::BatchEnd(batch) => book.xfer_release(at, batch, None),
            Fact::Ports(counts) => book.ports.read(at, counts),
            Fact::Armed(on) => book.arm(at, on),
            Fact::Operations(ep, bytes) => book.operations(at, ep, bytes),
            Fact::Wire(peer, meter) => book.wire(at, peer, meter, &policy),
            Fact::History(peer, bytes, whole) => book.history(peer, bytes, whole),
            Fact::Life(peer, life) => return Self::life(book, at, peer, life),
            Fact::ThreadExit(tid) => return one(book.thread_exit(at, tid)),
            Fact::Told(seq, finding, cause) => {
                let standing = |head| Some(Standing { finding, cause, at, head });
                if seq == Seq::NODE {
                    book.node.standing = standing(None);
                    return Vec::new();
                }
                let head = book.note_teller(cause, seq);
                if let Some(account) = book.accounts.get_mut(&seq) {
                    account.standing = standing(head);
                    account.stalled = true;
                }
            }
            // The rest is handled by `observe`; that a worker was found opened its book.
            _ => {}
        }
        Vec::new()
    }

    fn life(book: &mut Book, at: Nanos, peer: Peer, life: Life) -> Vec<Seq> {
        book.life(at, peer, life);
        if life == Life::Gone { book.rooms_of(peer) } else { Vec::new() }
    }

    fn append(&mut self, event: &Event, append: &Append) {
        let (at, worker) = (event.at, event.worker);
        let victim = self.books.get(&worker).and_then(Book::victim);
        if let Some(victim) = victim.filter(|victim| *victim != append.seq) {
            self.misfits += 1;
            self.remove(at, worker, victim, Outcome::Unknown);
        }
        let (seen_at, now) = (self.now, self.now);
        let Some(book) = self.books.get_mut(&worker) else {
            return;
        };
        if !book.append(at, seen_at, append) {
            return;
        }
        let tier = book.accounts.get(&append.seq).map_or(Tier::Room, |account| account.tier);
        self.outputs.push_back(Output::Append(Appended {
            at,
            worker,
            seq: append.seq,
            room: append.room,
            expected: append.expected,
            peers: append.peers.clone(),
            tier,
            late: append.late,
        }));
        let stall_at = at.plus(self.policy.of_room(append.patient).stall);
        // What was open before may be past its deadline; its facts follow, so not at once.
        self.schedule(worker, append.seq, stall_at.max(now.plus(judge::LOOK_AGAIN)));
    }

    fn schedule(&mut self, worker: Worker, seq: Seq, due: Nanos) {
        let book = self.books.get_mut(&worker);
        let Some(account) = book.and_then(|book| book.accounts.get_mut(&seq)) else {
            return;
        };
        self.agenda.remove(&(account.due, worker, seq));
        account.due = due;
        self.agenda.insert((due, worker, seq));
    }

    /// Judges the room at the next tick.
    fn hurry(&mut self, worker: Worker, seq: Seq, at: Nanos) {
        let account = self.books.get(&worker).and_then(|book| book.accounts.get(&seq));
        if account.is_some_and(|account| account.due > at) {
            self.schedule(worker, seq, at);
        }
    }

    /// Lets time pass. Early or repeated calls do nothing.
    pub fn tick(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        while let Some(&(due, worker, seq)) = self.agenda.first() {
            if due > now {
                return;
            }
            self.agenda.pop_first();
            if seq == Seq::NODE {
                self.examine_node(now, worker);
            } else {
                self.examine(now, worker, seq);
            }
        }
    }

    /// The worker is gone: so are its rooms, and nobody will ask for its book again.
    fn ended(&mut self, at: Nanos, worker: Worker) {
        let rooms = self.books.get_mut(&worker).map(|book| {
            book.free_all();
            book.accounts.keys().copied().collect::<Vec<_>>()
        });
        for seq in rooms.unwrap_or_default() {
            self.remove(at, worker, seq, Outcome::Unknown);
        }
        self.clear_node(at, worker, ClearReason::Ended);
        if let Some(book) = self.books.remove(&worker) {
            self.agenda.remove(&(book.node.due, worker, Seq::NODE));
            self.misfits += book.misfits;
        }
    }

    /// When [`Ledger::tick`] has something to do next. Ask after each `observe` and `tick`.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        self.agenda.first().map(|(due, _, _)| *due)
    }

    /// The oldest output that was not taken yet. Ask after each `observe` and `tick`, until `None`.
    #[must_use]
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Facts that fitted nothing so far.
    pub fn misfits(&self) -> u64 {
        self.books.values().fold(self.misfits, |sum, book| sum + book.misfits)
    }

    /// How much is kept, over all workers.
    pub fn kept(&self) -> Kept {
        self.books.values().fold(Kept::default(), |sum, book| sum.with(book.kept()))
    }

    /// Stays whose dwell was told while a thread stayed with them, and of which nothing more will be
    /// said, since the last call. Ask once the outputs are taken.
    pub fn take_forgotten(&mut self) -> Vec<(Worker, Seq)> {
        core::mem::take(&mut self.forgotten)
    }

    /// Open rooms of all workers.
    pub fn open_rooms(&self) -> usize {
        self.books.values().map(Book::open_rooms).sum()
    }

    /// Whether the meters of this worker, last read at `read_at`, should be read now for a transfer
    /// that has just begun and is still open.
    pub fn wants_reading(&self, worker: Worker, read_at: Nanos, now: Nanos) -> bool {
        self.books.get(&worker).is_some_and(|book| book.wants_reading(read_at, now))
    }

    /// Whether operations of UCX should be counted for this worker: one of its rooms is a suspect of
    /// which nothing else shows whether it moves.
    pub fn wants_arming(&self, worker: Worker, now: Nanos) -> bool {
        let book = self.books.get(&worker);
        book.is_some_and(|book| book.wants_arming(&self.policy, now))
    }

    /// Whether a room of this worker has been without progress for longer than `suspect`.
    pub fn has_suspects(&self, worker: Worker) -> bool {
        let book = self.books.get(&worker);
        book.is_some_and(|book| book.has_suspects(&self.policy, self.now))
    }
}
