//! Trouble of the worker as a whole: one of its rooms tells of it, and the others are in its incident.

use super::Book;
use crate::account::Account;
use crate::evidence::EvidenceId;
use crate::fact::{Phase, Seq};
use crate::judge::Found;
use crate::verdict::Cause;

impl Book {
    /// The room that has told already of what is found of this one, where that is the worker's
    /// trouble and no room's own.
    pub(crate) fn teller(&self, found: &Found, of: &Account) -> Option<Seq> {
        let deaf = found.evidence.iter().any(|evidence| evidence.id == EvidenceId::ListenerGone);
        let whole = found.cause == Cause::SchedulerWedged || deaf;
        self.told_by(found.cause, of.seq).filter(|_| whole)
    }

    fn told_by(&self, cause: Cause, of: Seq) -> Option<Seq> {
        let teller = self.account(*self.tellers.get(&cause)?)?;
        let tells = teller.standing.is_some_and(|told| told.cause == cause && told.head.is_none());
        (tells && teller.seq != of).then_some(teller.seq)
    }

    /// A verdict about a room is told, now or by an earlier life of the agent: it may stand for
    /// others'. Gives the room that stands for this one, where an earlier life did not say.
    pub(crate) fn note_teller(&mut self, cause: Cause, seq: Seq) -> Option<Seq> {
        let parked = self.account(seq).is_some_and(|room| room.counts.phase == Phase::Parked);
        let whole = match cause {
            Cause::SchedulerWedged => true,
            Cause::WorkerThreadDead => parked,
            _ => false,
        };
        if !whole {
            return None;
        }
        let other = self.told_by(cause, seq);
        if other.is_none() {
            self.tellers.insert(cause, seq);
        }
        other
    }
}
