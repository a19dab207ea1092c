//! What is said of an engine as a whole, where none of its rooms can be seen.

use alloc::vec::Vec;

use super::Ledger;
use super::tell::is_news;
use crate::account::Standing;
use crate::book::Book;
use crate::fact::{Load, Room, Seq, Worker};
use crate::judge::{self, Case, Found, Judgement};
use crate::time::Nanos;
use crate::verdict::{Clear, ClearReason, Output, Tier, Verdict};

impl Ledger {
    /// The engine's own count of what it has in work was read.
    pub(super) fn load(&mut self, at: Nanos, worker: Worker, load: &Load) {
        let Some(book) = self.books.get_mut(&worker).filter(|book| book.unhooked) else {
            return;
        };
        if book.load(at, load) {
            self.clear_node(at, worker, ClearReason::Progress);
            self.schedule_node(worker, at.plus(self.policy.stall));
        }
    }

    fn schedule_node(&mut self, worker: Worker, due: Nanos) {
        let Some(book) = self.books.get_mut(&worker) else {
            return;
        };
        self.agenda.remove(&(book.node.due, worker, Seq::NODE));
        book.node.due = due;
        self.agenda.insert((due, worker, Seq::NODE));
    }

    pub(super) fn examine_node(&mut self, now: Nanos, worker: Worker) {
        let Some(book) = self.books.get(&worker) else {
            return;
        };
        let standing = book.node.standing;
        let Some(case) = book.node_case() else {
            // No room is in flight, or its transfers tell: then what was said of all is over.
            let busy = book.node.is_busy();
            self.clear_node(now, worker, ClearReason::Changed);
            if busy {
                self.schedule_node(worker, now.plus(judge::LOOK_AT_TOLD));
            }
            return;
        };
        let last_progress = case.last_progress;
        let next = match judge::judge(&case, &self.policy, now) {
            Judgement::Quiet(until) => {
                if standing.is_some_and(|standing| last_progress > standing.at) {
                    self.clear_node(now, worker, ClearReason::Progress);
                }
                until.max(now.plus(Nanos(1)))
            }
            Judgement::Found(found) => {
                if standing.is_none_or(|standing| is_news(standing, &found)) {
                    let verdict = verdict(now, worker, book, &case, found);
                    self.tell_node(verdict);
                }
                now.plus(judge::LOOK_AT_TOLD)
            }
        };
        self.schedule_node(worker, next);
    }

    fn tell_node(&mut self, verdict: Verdict) {
        let Verdict { at, worker, finding, cause, .. } = verdict;
        self.clear_node(at, worker, ClearReason::Changed);
        if let Some(book) = self.books.get_mut(&worker) {
            book.node.standing = Some(Standing { finding, cause, at, head: None });
            self.outputs.push_back(Output::Verdict(verdict));
        }
    }

    pub(super) fn clear_node(&mut self, at: Nanos, worker: Worker, why: ClearReason) {
        let standing = self.books.get_mut(&worker).and_then(|book| book.node.standing.take());
        let Some(Standing { finding, cause, .. }) = standing else {
            return;
        };
        let (seq, room) = (Seq::NODE, Room(0));
        self.outputs.push_back(Output::Clear(Clear { at, worker, seq, room, finding, cause, why }));
    }
}

fn verdict(at: Nanos, worker: Worker, book: &Book, case: &Case<'_>, found: Found) -> Verdict {
    Verdict {
        at,
        worker,
        seq: Seq::NODE,
        room: Room(0),
        finding: found.finding,
        cause: found.cause,
        confidence: found.confidence,
        tier: Tier::Node,
        dwell: at.since(case.appended_at),
        bytes: case.bytes,
        since_progress: at.since(case.last_progress),
        peers: case.peers.iter().map(|peer| peer.peer).collect(),
        evidence: found.evidence,
        ruled_out: found.ruled_out,
        head: None,
        behind: Vec::new(),
        behind_count: 0,
        coverage: book.coverage.clone(),
    }
}
