//! What becomes of a fail that was committed.

use std::io;

use inflightd_abi::table::{CommandState, Outcome, State};
use inflightd_core::Nanos;

use super::super::Agent;
use super::{Open, Rank};
use crate::desk::Answer;
use crate::fail::{Decision, VALID_MS};
use crate::sink::outcome;
use crate::worker;

/// So long after a fail can last be carried out its room has left all queues, or nobody knows why it
/// has not: an engine's poll, with the reduction in it, takes milliseconds.
const CONFIRM: Nanos = Nanos::from_secs(3);

impl Agent {
    /// Looks what became of the fails that were committed, and tells of those that are over.
    pub(in super::super) fn follow_fails(&mut self, now: Nanos) -> io::Result<()> {
        for mut open in std::mem::take(&mut self.fails.open) {
            let Some(decision) = open.look(now) else {
                self.fails.open.push(open);
                continue;
            };
            if open.question.is_none() {
                self.fails.auto.followed(decision);
            }
            let line = self.tell_fail(&open.subject, &open.ranks, (decision, None), now)?;
            if let Some(question) = open.question {
                question.answer(Answer::Fail(Box::new(line)));
            }
        }
        Ok(())
    }
}

impl Open {
    /// What became of it; `None` while that is not known.
    fn look(&mut self, now: Nanos) -> Option<Decision> {
        for rank in &mut self.ranks {
            rank.look();
        }
        let carried_out = self.ranks.iter().any(|rank| rank.carried_out);
        if self.ranks.iter().all(|rank| rank.outcome.is_some()) {
            let failed = self.ranks.iter().all(|rank| rank.outcome == Some("failed"));
            return Some(if failed && carried_out { Decision::Failed } else { Decision::Ended });
        }
        let valid = Nanos::from_millis(VALID_MS);
        if self.committed_at.plus(valid).plus(CONFIRM) > now {
            return None;
        }
        Some(if carried_out { Decision::Unconfirmed } else { Decision::NotCarriedOut })
    }
}

impl Rank {
    /// Reads where the room stands on this rank.
    fn look(&mut self) {
        let Some((table, seq)) = self.stay() else {
            return;
        };
        if let Some(command) = table.command(seq) {
            self.carried_out |= command.state == CommandState::Failed;
            return;
        }
        let entry = seq.slot().map(|slot| table.entry(slot));
        let gone = match entry {
            Some(Ok(Some(view))) if view.seq == seq && view.state == State::Closed => {
                self.carried_out |= view.command.state == CommandState::Failed;
                view.outcome
            }
            // Being closed or written: the next look sees how.
            Some(Ok(Some(view))) if view.seq == seq => return,
            Some(Err(_)) => return,
            _ => Outcome::Unknown,
        };
        self.outcome = Some(outcome(worker::outcome(gone)));
    }
}
