//! Every room's account, by worker and append sequence.
//!
//! Bounds: [`WORKERS_MAX`] workers, and per worker the bounds of its book. The agenda holds each
//! open room once; outputs wait until they are polled, and the caller polls after every call.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use crate::account::{Account, Standing};
use crate::book::Book;
use crate::fact::{Append, Event, Fact, Life, Outcome, Peer, Seq, Worker};
use crate::flush::Completed;
use crate::judge::{self, Found, Judgement};
use crate::policy::Policy;
use crate::time::Nanos;
use crate::verdict::{Appended, Clear, ClearReason, Dwell, Output, Tier, Verdict};

mod agenda;

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
    agenda: BTreeSet<(Nanos, Worker, Seq)>,
    outputs: VecDeque<Output>,
    misfits: u64,
}

impl Ledger {
    /// A ledger without any account.
    pub const fn new(policy: Policy) -> Self {
        Self {
            policy,
            now: Nanos::ZERO,
            books: BTreeMap::new(),
            agenda: BTreeSet::new(),
            outputs: VecDeque::new(),
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
            Fact::Lose(source, count) => {
                let Some(book) = self.books.get_mut(&event.worker) else {
                    return;
                };
                book.coverage.lose(event.at, *source, *count);
                self.outputs.push_back(Output::Loss(event.at, event.worker, *source, *count));
            }
            fact => {
                for seq in self.apply(event.at, event.worker, fact) {
                    self.hurry(event.worker, seq, event.at);
                }
            }
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
            Fact::Phase(seq, phase) => book.phase(at, seq, phase),
            Fact::Serve(tid, seq) => book.serve(at, tid, seq),
            Fact::ServeEnd(tid) => book.serve_end(tid),
            Fact::Post(seq, bytes) => book.mark_post(at, seq, bytes),
            Fact::Done(seq, bytes, ok) => {
                book.mark_done(at, seq, bytes, ok);
                return one((!ok).then_some(seq));
            }
            Fact::Beat => book.beat = book.beat.max(at),
            Fact::XferPost { tid, handle, peer, bytes, room: _ } => {
                book.xfer_post(at, tid, handle, peer, bytes);
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
            Fact::Wire(peer, meter) => book.wire(at, peer, meter, &policy),
            Fact::History(peer, bytes, whole) => book.history(peer, bytes, whole),
            Fact::Life(peer, life) => return Self::life(book, at, peer, life),
            Fact::ThreadExit(tid) => return one(book.thread_exit(at, tid)),
            Fact::Told(seq, finding, cause) => {
                if let Some(account) = book.accounts.get_mut(&seq) {
                    account.standing = Some(Standing { finding, cause, at });
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
        self.outputs.push_back(Output::Append(Appended {
            at,
            worker,
            seq: append.seq,
            room: append.room,
            expected: append.expected,
            peers: append.peers.clone(),
            tier: Tier::Room,
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
            self.examine(now, worker, seq);
        }
    }

    fn examine(&mut self, now: Nanos, worker: Worker, seq: Seq) {
        let Some(book) = self.books.get(&worker) else {
            return;
        };
        let Some(account) = book.accounts.get(&seq) else {
            return;
        };
        let policy = self.policy.of_room(account.patient);
        let case = book.case(account, &policy);
        let next = match judge::judge(&case, &policy, now) {
            Judgement::Quiet(until) => {
                let moved = |standing: &Standing| account.last_progress > standing.at;
                if account.standing.as_ref().is_some_and(moved) {
                    self.clear(now, worker, seq, ClearReason::Progress);
                }
                until.max(now.plus(Nanos(1)))
            }
            Judgement::Found(found) => {
                let verdict = verdict(now, worker, account, book, case.arrived(), found);
                self.tell(verdict);
                now.plus(judge::LOOK_AT_TOLD)
            }
        };
        self.schedule(worker, seq, next);
    }

    fn tell(&mut self, verdict: Verdict) {
        let (now, worker, seq) = (verdict.at, verdict.worker, verdict.seq);
        let Some(account) = self.account(worker, seq) else {
            return;
        };
        let told = (verdict.finding, verdict.cause);
        if account.standing.is_some_and(|standing| (standing.finding, standing.cause) == told) {
            return;
        }
        self.clear(now, worker, seq, ClearReason::Changed);
        let Some(account) = self.account(worker, seq) else {
            return;
        };
        account.standing = Some(Standing { finding: told.0, cause: told.1, at: now });
        account.stalled |= verdict.is_alert();
        self.outputs.push_back(Output::Verdict(verdict));
    }

    fn account(&mut self, worker: Worker, seq: Seq) -> Option<&mut Account> {
        self.books.get_mut(&worker)?.accounts.get_mut(&seq)
    }

    fn clear(&mut self, at: Nanos, worker: Worker, seq: Seq, why: ClearReason) {
        let Some(account) = self.account(worker, seq) else {
            return;
        };
        let room = account.room;
        let Some(Standing { finding, cause, .. }) = account.standing.take() else {
            return;
        };
        self.outputs.push_back(Output::Clear(Clear { at, worker, seq, room, finding, cause, why }));
    }

    fn remove(&mut self, at: Nanos, worker: Worker, seq: Seq, outcome: Outcome) {
        self.clear(at, worker, seq, ClearReason::Ended);
        let Some(book) = self.books.get_mut(&worker) else {
            return;
        };
        let Some(account) = book.accounts.get(&seq) else {
            book.misfits += 1;
            return;
        };
        let policy = self.policy.of_room(account.patient);
        let known = book.case(account, &policy);
        let failed = outcome == Outcome::Failed;
        let why = failed.then(|| judge::cause_of_failure(&known, &policy, at)).flatten();
        let (cause, evidence) = why.unzip();
        let evidence = evidence.unwrap_or_default();
        let mut bytes = known.bytes;
        bytes.completed = known.arrived();
        let Some(account) = book.remove(seq) else {
            return;
        };
        self.agenda.remove(&(account.due, worker, seq));
        self.outputs.push_back(Output::Dwell(Dwell {
            at,
            worker,
            seq,
            room: account.room,
            tier: Tier::Room,
            outcome,
            dwell: at.since(account.appended_at),
            bytes,
            peers: account.peers,
            cause,
            stalled: account.stalled,
            evidence,
        }));
    }

    /// The worker is gone: so are its rooms, and nobody will ask for its book again.
    fn ended(&mut self, at: Nanos, worker: Worker) {
        let rooms =
            self.books.get(&worker).map(|book| book.accounts.keys().copied().collect::<Vec<_>>());
        for seq in rooms.unwrap_or_default() {
            self.remove(at, worker, seq, Outcome::Unknown);
        }
        if let Some(book) = self.books.remove(&worker) {
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

    /// Open rooms of all workers.
    pub fn open_rooms(&self) -> usize {
        self.books.values().map(|book| book.accounts.len()).sum()
    }

    /// Whether the meters of this worker, last read at `read_at`, should be read now for a transfer
    /// that has just begun and is still open.
    pub fn wants_reading(&self, worker: Worker, read_at: Nanos, now: Nanos) -> bool {
        self.books.get(&worker).is_some_and(|book| book.wants_reading(read_at, now))
    }

    /// Whether a room of this worker has been without progress for longer than `suspect`.
    pub fn has_suspects(&self, worker: Worker) -> bool {
        let suspect =
            |account: &Account| account.last_progress.plus(self.policy.suspect) <= self.now;
        self.books.get(&worker).is_some_and(|book| book.accounts.values().any(suspect))
    }
}

fn verdict(
    at: Nanos,
    worker: Worker,
    account: &Account,
    book: &Book,
    arrived: u64,
    found: Found,
) -> Verdict {
    let mut bytes = account.bytes();
    bytes.completed = arrived;
    Verdict {
        at,
        worker,
        seq: account.seq,
        room: account.room,
        finding: found.finding,
        cause: found.cause,
        confidence: found.confidence,
        tier: Tier::Room,
        dwell: at.since(account.appended_at),
        bytes,
        since_progress: at.since(account.last_progress),
        peers: account.peers.clone(),
        evidence: found.evidence,
        ruled_out: found.ruled_out,
        head: None,
        behind: Vec::new(),
        behind_count: 0,
        coverage: book.coverage.clone(),
    }
}
