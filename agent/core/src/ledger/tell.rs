//! What the ledger says of a room: judged when it is due, told once, taken back when it is over.

use super::Ledger;
use crate::account::{Account, Standing};
use crate::book::{Behind, Book};
use crate::fact::{Outcome, Phase, Seq, Worker};
use crate::judge::{self, Ahead, Case, Far, Found, Judgement};
use crate::time::Nanos;
use crate::verdict::{Cause, Clear, ClearReason, Dwell, Finding, Output, Verdict};

impl Ledger {
    pub(super) fn examine(&mut self, now: Nanos, worker: Worker, seq: Seq) {
        let others = self.others(worker, seq);
        let Some(book) = self.books.get_mut(&worker) else {
            return;
        };
        book.now = book.now.max(now);
        let Some(account) = book.accounts.get(&seq) else {
            return;
        };
        let queued = |standing: &Standing| standing.cause == Cause::QueuedBehind;
        let told = account.standing.as_ref().filter(|standing| queued(standing));
        if told.is_some_and(|standing| book.still_waits(account, standing.at)) {
            self.schedule(worker, seq, now.plus(judge::LOOK_AT_TOLD));
            return;
        }
        let policy = self.policy.of_room(account.patient);
        if let Some(outcome) = book.outlived(account, &policy, now) {
            self.remove(now, worker, seq, outcome);
            return;
        }
        let far = self.far.of(account.room);
        let case = Case { far, others, ..book.case(account, &policy) };
        let next = match judge::judge(&case, &policy, now) {
            Judgement::Quiet(until) => {
                let left = case.held_by.map(|_| ClearReason::Ended);
                let over = |standing| left.or_else(|| over(standing, &case));
                if let Some(why) = account.standing.and_then(over) {
                    self.clear(now, worker, seq, why);
                }
                until.max(now.plus(Nanos(1)))
            }
            Judgement::Found(found) => {
                let news = |told| {
                    is_news(told, &found) || changes_head(told, &found, account, &case, book)
                };
                if account.standing.is_none_or(news) {
                    let verdict = verdict(now, worker, account, book, &case, found);
                    self.tell(verdict);
                }
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
        let (finding, cause, head) = (verdict.finding, verdict.cause, verdict.head);
        account.stalled |= verdict.is_alert();
        self.clear(now, worker, seq, ClearReason::Changed);
        if let Some(account) = self.account(worker, seq) {
            account.standing = Some(Standing { finding, cause, at: now, head });
        }
        if let Some(book) = self.books.get_mut(&worker).filter(|_| head.is_none()) {
            book.note_teller(cause, seq);
        }
        self.outputs.push_back(Output::Verdict(verdict));
    }

    fn account(&mut self, worker: Worker, seq: Seq) -> Option<&mut Account> {
        self.books.get_mut(&worker)?.accounts.get_mut(&seq).map(AsMut::as_mut)
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

    /// A room leaves the queue. Where its thread stays with it, an alarm about it is not over: it
    /// stands, and the room is judged, until its thread puts it down.
    pub(super) fn remove(&mut self, at: Nanos, worker: Worker, seq: Seq, outcome: Outcome) {
        let Some(book) = self.books.get_mut(&worker) else {
            return;
        };
        let captor = book.is_captor(seq);
        let Some(account) = book.accounts.get(&seq).filter(|_| !(captor && book.has_left(seq)))
        else {
            book.misfits += 1;
            return;
        };
        if account.left_at.is_some() {
            self.forget_left(at, worker, seq);
            return;
        }
        let alarm = account.standing.as_ref().is_some_and(Standing::is_alert);
        if !(captor && alarm) {
            self.clear(at, worker, seq, ClearReason::Ended);
        }
        self.close(at, worker, seq, outcome);
        if !captor {
            self.forget(at, worker, seq);
        } else if let Some(account) = self.account(worker, seq) {
            account.left_at = Some(at);
            // A thread that has just failed the room puts it down in a moment.
            self.schedule(worker, seq, at.plus(self.policy.hard_grace));
        }
    }

    /// A room that had left the queue is nobody's any more.
    pub(super) fn forget_left(&mut self, at: Nanos, worker: Worker, seq: Seq) {
        self.clear(at, worker, seq, ClearReason::Ended);
        self.forget(at, worker, seq);
        self.forgotten.push((worker, seq));
    }

    fn forget(&mut self, at: Nanos, worker: Worker, seq: Seq) {
        let book = self.books.get_mut(&worker);
        if let Some(account) = book.and_then(|book| book.remove(at, seq)) {
            self.agenda.remove(&(account.due, worker, seq));
        }
    }

    /// Tells how a room left the queue.
    fn close(&mut self, at: Nanos, worker: Worker, seq: Seq, outcome: Outcome) {
        let book = self.books.get(&worker);
        let Some((book, account)) = book.and_then(|book| Some((book, book.account(seq)?))) else {
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
        self.outputs.push_back(Output::Dwell(Dwell {
            at,
            worker,
            seq,
            room: account.room,
            tier: account.tier,
            outcome,
            dwell: at.since(account.appended_at),
            bytes,
            peers: account.peers.clone(),
            cause,
            stalled: account.stalled,
            held: book.is_captor(seq),
            evidence,
        }));
    }
}

/// Why a verdict stands no more when there is nothing to say.
fn over(standing: Standing, case: &Case<'_>) -> Option<ClearReason> {
    let moved_elsewhere =
        standing.cause == Cause::RemoteRank && case.others_progress() > Some(standing.at);
    if case.last_progress > standing.at || moved_elsewhere {
        return Some(ClearReason::Progress);
    }
    let unblocked = match standing.cause {
        Cause::QueuedBehind | Cause::WorkerThreadCaptive => {
            case.ahead.is_none() || case.waited_until.is_some_and(|at| at > standing.at)
        }
        Cause::PeerFrozen => case.resumed_at().is_some_and(|at| at > standing.at),
        Cause::HandshakeMissing => case.phase != Phase::Parked,
        Cause::DecodeBacklogged => case.far != Far::WaitsForMemory,
        _ => false,
    };
    unblocked.then_some(ClearReason::Unblocked)
}

/// Whether this was not told yet. That the name of a dead peer goes on is no news to a room that
/// died with it, nor that its successor serves others to one that was sent to the old process, nor,
/// by itself, which room its thread stays with to one that waits for that thread.
pub(super) fn is_news(standing: Standing, found: &Found) -> bool {
    let same = (standing.finding, standing.cause) == (found.finding, found.cause);
    let known = matches!(
        (standing.cause, found.cause),
        (Cause::PeerDead, Cause::StalePeer)
            | (Cause::StalePeer, Cause::LinkFault)
            | (Cause::WorkerThreadCaptive, Cause::QueuedBehind)
    );
    !same && !known
}

/// Whether a room is told anew although nothing about it has changed, because who heads its incident
/// has.
fn changes_head(
    told: Standing,
    found: &Found,
    account: &Account,
    case: &Case<'_>,
    book: &Book,
) -> bool {
    match (told.cause, found.cause) {
        (Cause::WorkerThreadCaptive, Cause::QueuedBehind) => has_a_name(told, case, book),
        (Cause::QueuedBehind, _) | (_, Cause::QueuedBehind) => false,
        // The room that told of the worker's trouble tells of it no more: another has to.
        _ => told.head.is_some() && book.teller(found, account).is_none(),
    }
}

/// Whether the work that a room waits behind has a room by now whose own verdict tells of it, or
/// moves again: then this one's alarm, which told of it until then, is over.
fn has_a_name(told: Standing, case: &Case<'_>, book: &Book) -> bool {
    let head = case.ahead.and_then(|ahead| book.account(ahead.head?));
    let tells = head.and_then(|head| head.standing.as_ref()).is_some_and(Standing::is_alert);
    // Its entry alone is no movement.
    let moves = |ahead: &Ahead| ahead.progress > ahead.since && ahead.progress > told.at;
    tells || case.ahead.as_ref().is_some_and(moves)
}

fn verdict(
    at: Nanos,
    worker: Worker,
    account: &Account,
    book: &Book,
    case: &Case<'_>,
    found: Found,
) -> Verdict {
    let mut bytes = account.bytes();
    bytes.completed = case.arrived();
    let queued = found.cause == Cause::QueuedBehind;
    let first = case.ahead.filter(|_| queued).and_then(|ahead| ahead.head);
    let head = first.or_else(|| book.teller(&found, account));
    // Only of a head: it is a walk over all that wait.
    let behind = match found.finding {
        Finding::Blind => Behind::default(),
        _ if head.is_some() => Behind::default(),
        _ => book.behind(account),
    };
    Verdict {
        at,
        worker,
        seq: account.seq,
        room: account.room,
        finding: found.finding,
        cause: found.cause,
        confidence: found.confidence,
        tier: account.tier,
        dwell: account.left_at.unwrap_or(at).since(account.appended_at),
        bytes,
        since_progress: at.since(case.last_progress),
        peers: account.peers.clone(),
        evidence: found.evidence,
        ruled_out: found.ruled_out,
        head,
        behind: behind.rooms,
        behind_count: behind.count,
        coverage: book.coverage.clone(),
    }
}
