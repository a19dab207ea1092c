//! Failing a room on all its ranks: hold, prove, commit, follow.
//!
//! Hold, proof and commit are one step of the loop, a few milliseconds: what is known is as new as the
//! hold. Carrying out is the workers'. See `inflightd_abi::table` for the protocol and ARCHITECTURE §8
//! for why its order is safe.

mod auto;
mod follow;
mod prove;
mod ranks;

use std::io;

use inflightd_abi::table::{self, Fail, Table, Until};
use inflightd_core::drain::Drained;
use inflightd_core::fact::{Seq, Worker};
use inflightd_core::view::{RoomView, Standing};
use inflightd_core::{Cause, Nanos};

use auto::Auto;

use super::Agent;
use crate::clock::Clock;
use crate::config;
use crate::desk::{Answer, Question};
use crate::fail::{Decision, FailView, Order, RankView, Refusal, RefusedView, VALID_MS};
use crate::sink::{Line, RoomId, Writer};
use crate::table::Mapped;

/// Rooms that are being failed.
#[derive(Debug, Default)]
pub(super) struct Fails {
    open: Vec<Open>,
    auto: Auto,
}

impl Fails {
    /// The configuration was read anew.
    pub(super) const fn mend(&mut self) {
        self.auto.mend();
    }
}

/// A fail that was committed.
#[derive(Debug)]
struct Open {
    subject: Subject,
    ranks: Vec<Rank>,
    committed_at: Nanos,
    /// Who waits to hear what became of it.
    question: Option<Question>,
}

/// The room, as the rank has it that was asked for.
#[derive(Clone, Copy, Debug)]
struct Subject {
    room: u64,
    /// Who wants it.
    by: &'static str,
    worker: Option<(Worker, Seq)>,
    standing: Option<Standing>,
    dwell: Option<Nanos>,
}

impl Subject {
    const fn of(room: u64, by: &'static str) -> Self {
        Self { room, by, worker: None, standing: None, dwell: None }
    }
}

/// One of the ranks that decide about it.
#[derive(Debug)]
struct Rank {
    worker: Worker,
    seq: Seq,
    pid: u32,
    index: u64,
    table: Mapped,
    /// Held by this very attempt: what another holds is not released.
    held: bool,
    proof: Option<Drained>,
    carried_out: bool,
    outcome: Option<&'static str>,
}

impl Rank {
    /// Its table, and its stay there.
    fn stay(&self) -> Option<(Table<'_>, table::Seq)> {
        Some((self.table.table().ok()?, table::Seq(self.seq.0)))
    }

    /// How many threads are counted at its gate.
    fn active(&self) -> u16 {
        let command = self.stay().and_then(|(table, seq)| table.command(seq));
        command.map_or(0, |command| command.active)
    }

    fn view(&self) -> RankView {
        let view = RankView {
            pid: self.pid,
            index: self.index,
            seq: self.seq.0,
            proof: None,
            transfers: None,
            carried_out: self.carried_out,
            outcome: self.outcome,
        };
        view.proven(self.proof)
    }
}

impl Agent {
    /// Fails a room, or says why not. Where it is committed the answer waits for what becomes of it.
    pub(super) fn fail(&mut self, order: Order, question: Question) -> io::Result<()> {
        let mut subject = Subject::of(order.room, "hand");
        let mut ranks = Vec::new();
        let tried = self.try_fail(order, &mut subject, &mut ranks)?;
        let now = Clock::now();
        let decision = match &tried {
            Ok(()) if order.dry_run => Decision::WouldFail,
            Ok(()) => Decision::Committed,
            Err(_) => Decision::Refused,
        };
        let line = self.tell_fail(&subject, &ranks, (decision, tried.as_ref().err()), now)?;
        if decision == Decision::Committed {
            self.fails.open.push(Open {
                subject,
                ranks,
                committed_at: now,
                question: Some(question),
            });
        } else {
            question.answer(Answer::Fail(Box::new(line)));
        }
        Ok(())
    }

    /// Everything up to the commit. Where it is refused nothing is held any more.
    fn try_fail(
        &mut self,
        order: Order,
        subject: &mut Subject,
        ranks: &mut Vec<Rank>,
    ) -> io::Result<Result<(), Refusal>> {
        let planned = self.plan(order, subject, ranks);
        if let Err(refusal) = planned {
            return Ok(Err(refusal));
        }
        if order.dry_run {
            let (begun, behind) = self.look_again(ranks)?;
            return Ok(self.prove(ranks, begun, behind));
        }
        let until = Until::after(Clock::now().0, VALID_MS);
        let held = match hold(ranks, until) {
            Ok(()) => {
                let (begun, behind) = self.look_again(ranks)?;
                self.prove(ranks, begun, behind)
            }
            refused => refused,
        };
        let done = held.and_then(|()| commit(subject, ranks, until));
        if done.is_err() {
            // Nothing was committed anywhere: see `commit`.
            for (table, seq) in ranks.iter().filter(|rank| rank.held).filter_map(Rank::stay) {
                table.release(seq, until);
            }
        }
        Ok(done)
    }

    fn plan(
        &self,
        order: Order,
        subject: &mut Subject,
        ranks: &mut Vec<Rank>,
    ) -> Result<(), Refusal> {
        let (worker, seq) = self.stay_of(order)?;
        subject.worker = Some((worker, seq));
        let now = Clock::now();
        let seen = self.room(worker, seq);
        subject.standing = seen.and_then(|room| room.standing);
        subject.dwell = seen.map(|room| now.since(room.appended_at));
        self.is_fit(worker, subject.standing)?;
        *ranks = self.ranks_of(worker, order.room)?;
        Ok(())
    }

    /// What is known of a room.
    fn room(&self, worker: Worker, seq: Seq) -> Option<RoomView<'_>> {
        self.ledger.view(worker)?.room(seq)
    }

    /// Whether a room with this verdict may be failed.
    fn is_fit(&self, worker: Worker, standing: Option<Standing>) -> Result<(), Refusal> {
        let standing = standing.ok_or(Refusal::NoVerdict)?;
        let (finding, cause) = (standing.finding, standing.cause);
        if !config::is_fit(finding, cause) {
            return Err(Refusal::Unfit(finding, cause));
        }
        if cause != Cause::QueuedBehind {
            return Ok(());
        }
        let head = standing.head.and_then(|head| self.room(worker, head));
        let is_stuck = head.and_then(|head| head.standing).is_some_and(|head| head.is_alert());
        is_stuck.then_some(()).ok_or(Refusal::HeadMoves)
    }

    /// Writes the record of a decision.
    fn tell_fail(
        &mut self,
        subject: &Subject,
        ranks: &[Rank],
        (decision, refusal): (Decision, Option<&Refusal>),
        now: Nanos,
    ) -> io::Result<Line> {
        let fail = FailView {
            decision,
            by: subject.by,
            refused: refusal.map(RefusedView::of),
            peers_told: matches!(decision, Decision::Committed | Decision::Failed),
            ranks: ranks.iter().map(Rank::view).collect(),
        };
        let writer = Writer { names: &self.names, clock: self.clock };
        let of = subject.worker.map(|(worker, seq)| writer.of(worker, seq)).unwrap_or_default();
        let line = Line {
            time: self.clock.wall(now).to_string(),
            kind: "fail",
            room: Some(RoomId(subject.room)),
            finding: subject.standing.map(|standing| standing.finding.name()),
            cause: subject.standing.map(|standing| Some(standing.cause.name())),
            dwell_s: subject.dwell.map(Nanos::secs_f64),
            fail: Some(fail),
            ..of
        };
        self.teller.tell_line(&line)?;
        Ok(line)
    }
}

/// Holds the room on every rank; an error where one cannot be held.
fn hold(ranks: &mut [Rank], until: Until) -> Result<(), Refusal> {
    for rank in ranks {
        rank.held = rank.stay().and_then(|(table, seq)| table.hold(seq, until)).is_some();
        if !rank.held {
            return Err(Refusal::Held(rank.pid));
        }
    }
    Ok(())
}

/// Commits on every rank. Only the first can refuse with nothing done: the others were looked at
/// under the same hold, and what is idle under a hold stays so. One that cannot commit all the same
/// has left the queue, and the others carry out or not: their hold ends by itself.
fn commit(subject: &Subject, ranks: &[Rank], until: Until) -> Result<(), Refusal> {
    let reason = subject.standing.map_or_else(String::new, |standing| {
        format!("{} / {}", standing.finding.name(), standing.cause.name())
    });
    let dwell_ms = subject.dwell.map_or(0, |dwell| dwell.0 / 1_000_000);
    let fail = Fail { dwell_ms, tell_peers: true, reason: reason.as_bytes() };
    let mut committed = false;
    for rank in ranks {
        let done = rank.stay().is_some_and(|(table, seq)| table.commit(seq, until, &fail));
        if !done && !committed {
            return Err(Refusal::AtWork { pid: rank.pid, threads: rank.active() });
        }
        committed |= done;
    }
    Ok(())
}
