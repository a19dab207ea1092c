//! The agent's own policy: which rooms it fails by itself, and how many.

use std::collections::{BTreeMap, VecDeque};
use std::io;

use inflightd_core::Nanos;
use inflightd_core::fact::{Peer, Seq, Worker};

use super::super::Agent;
use super::{Open, Subject};
use crate::clock::Clock;
use crate::config::{FailMode, ForceFail};
use crate::fail::{Decision, Order, Refusal};

/// A room that was refused is looked at again after so long: what is under way may have arrived.
const AGAIN: Nanos = Nanos::from_secs(10);
/// What the limits count.
const MINUTE: Nanos = Nanos::from_secs(60);
/// After so many in a row of which it is not confirmed that they were failed, no more are.
const STRIKES_MAX: u32 = 2;
/// Most rooms whose last decision is kept; the victim is the oldest stay of the first worker.
const TRIED_MAX: usize = 16 * 1024;

/// What the policy remembers.
#[derive(Debug, Default)]
pub(super) struct Auto {
    /// When each open room was last tried, and the word that was told of it.
    tried: BTreeMap<(Worker, Seq), (Nanos, &'static str)>,
    /// What was committed, the oldest first.
    recent: VecDeque<Recent>,
    strikes: u32,
}

/// One that was committed.
#[derive(Clone, Copy, Debug)]
struct Recent {
    at: Nanos,
    worker: Worker,
    peer: Option<Peer>,
}

/// A room that the policy would fail.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    at: Nanos,
    worker: Worker,
    seq: Seq,
    room: u64,
    pid: u32,
    peer: Option<Peer>,
}

impl Auto {
    /// What became of one that was committed.
    pub(super) fn followed(&mut self, decision: Decision) {
        match decision {
            Decision::Failed | Decision::Ended => self.strikes = 0,
            _ => self.strikes += 1,
        }
        if self.strikes == STRIKES_MAX {
            tracing::error!(
                "{STRIKES_MAX} rooms in a row were not failed as they should have been: no more are \
                 failed until the configuration is read again (SIGHUP)"
            );
        }
    }

    /// The configuration was read anew: whoever did that has looked.
    pub(super) const fn mend(&mut self) {
        self.strikes = 0;
    }

    /// Whether one more may be failed now.
    fn may(&self, candidate: &Candidate, open: usize, policy: &ForceFail) -> Result<(), Refusal> {
        if self.strikes >= STRIKES_MAX {
            return Err(Refusal::Broken(STRIKES_MAX));
        }
        let count = |fits: &dyn Fn(&Recent) -> bool| {
            u32::try_from(self.recent.iter().filter(|recent| fits(recent)).count())
                .unwrap_or(u32::MAX)
        };
        let here = count(&|recent| recent.worker == candidate.worker);
        let limits = [
            ("per_minute", count(&|_| true), policy.per_minute),
            ("per_peer", count(&|recent| recent.peer == candidate.peer), policy.per_peer),
            ("share", here, share(open, here, policy.share)),
        ];
        let over = limits.into_iter().find(|(_, count, most)| count >= most);
        over.map_or(Ok(()), |(limit, _, most)| Err(Refusal::Limited(limit, most)))
    }
}

/// How many of a worker's rooms may go in a minute: of those in its queue, and those that went.
fn share(open: usize, gone: u32, share: f64) -> u32 {
    let all = f64::from(u32::try_from(open).unwrap_or(u32::MAX)) + f64::from(gone);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a count is one"
    )]
    let share = (all * share).floor() as u32;
    share.max(1)
}

impl Agent {
    /// Fails what the policy says, one room at a time.
    pub(in super::super) fn fail_by_policy(&mut self, now: Nanos) -> io::Result<()> {
        if self.force_fail.mode == FailMode::Off {
            return Ok(());
        }
        let auto = &mut self.fails.auto;
        auto.recent.retain(|recent| now.since(recent.at) < MINUTE);
        let workers = &self.workers;
        auto.tried.retain(|(worker, seq), _| {
            workers.get(worker).is_some_and(|watched| watched.tracker.open().contains_key(seq))
        });
        while auto.tried.len() > TRIED_MAX {
            auto.tried.pop_first();
        }
        let mut candidates = self.candidates_to_fail(now);
        candidates.sort_by_key(|candidate| candidate.at);
        match candidates.first() {
            Some(first) => self.try_by_policy(*first, now),
            None => Ok(()),
        }
    }

    /// Rooms with a verdict that is allowed, old enough, and not tried just now.
    fn candidates_to_fail(&self, now: Nanos) -> Vec<Candidate> {
        let (policy, tried) = (&self.force_fail, &self.fails.auto.tried);
        let mut found = Vec::new();
        for watched in self.workers.values().filter(|watched| watched.hooked) {
            let Some(view) = self.ledger.view(watched.number) else {
                continue;
            };
            let rooms = view.rooms().filter(|room| {
                let allowed = room.standing.is_some_and(|standing| {
                    policy.allow.contains(&(standing.finding, standing.cause))
                });
                let last = tried.get(&(watched.number, room.seq));
                let rests = last.is_some_and(|(at, _)| now.since(*at) < AGAIN);
                let old = now.since(room.appended_at) >= policy.min_dwell;
                allowed && old && !rests && room.judged && !room.left
            });
            found.extend(rooms.map(|room| Candidate {
                at: room.appended_at,
                worker: watched.number,
                seq: room.seq,
                room: room.room.0,
                pid: watched.pid,
                peer: room.peers.first().copied(),
            }));
        }
        found
    }

    fn try_by_policy(&mut self, candidate: Candidate, now: Nanos) -> io::Result<()> {
        let watched = self.workers.get(&candidate.worker);
        let open = watched.map_or(0, |watched| watched.tracker.open().len());
        let mut subject = Subject::of(candidate.room, "policy");
        subject.worker = Some((candidate.worker, candidate.seq));
        let mut ranks = Vec::new();
        let dry_run = self.force_fail.mode == FailMode::DryRun;
        let order = Order { room: candidate.room, pid: Some(candidate.pid), dry_run };
        let tried = match self.fails.auto.may(&candidate, open, &self.force_fail) {
            Ok(()) => self.try_fail(order, &mut subject, &mut ranks)?,
            Err(refusal) => Err(refusal),
        };
        let (decision, word) = match &tried {
            Ok(()) if dry_run => (Decision::WouldFail, "would_fail"),
            Ok(()) => (Decision::Committed, "committed"),
            Err(refusal) => (Decision::Refused, refusal.name()),
        };
        let key = (candidate.worker, candidate.seq);
        let last = self.fails.auto.tried.insert(key, (now, word));
        // Of each room each decision is told once, however often it is looked at.
        if last.is_none_or(|(_, last)| last != word) {
            self.tell_fail(&subject, &ranks, (decision, tried.as_ref().err()), now)?;
        }
        if decision == Decision::Committed {
            let Candidate { worker, peer, .. } = candidate;
            self.fails.auto.recent.push_back(Recent { at: now, worker, peer });
            let committed_at = Clock::now();
            self.fails.open.push(Open { subject, ranks, committed_at, question: None });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn policy() -> ForceFail {
        ForceFail {
            mode: FailMode::On,
            allow: BTreeSet::new(),
            min_dwell: Nanos::ZERO,
            per_minute: 3,
            per_peer: 2,
            share: 0.5,
        }
    }

    fn candidate(worker: u32, peer: u32) -> Candidate {
        let (worker, peer) = (Worker(worker), Some(Peer(peer)));
        Candidate { at: Nanos::ZERO, worker, seq: Seq(1), room: 1, pid: 1, peer }
    }

    fn after(gone: &[(u32, u32)]) -> Auto {
        let gone = gone.iter().map(|(worker, peer)| {
            let (worker, peer) = (Worker(*worker), Some(Peer(*peer)));
            Recent { at: Nanos::ZERO, worker, peer }
        });
        Auto { recent: gone.collect(), ..Auto::default() }
    }

    #[test]
    fn each_limit_holds_by_itself() {
        let (one, many) = (candidate(1, 1), 100);
        assert_eq!(after(&[]).may(&one, many, &policy()), Ok(()));
        let peer = after(&[(1, 1), (2, 1)]).may(&one, many, &policy());
        assert_eq!(peer, Err(Refusal::Limited("per_peer", 2)));
        let minute = after(&[(1, 2), (1, 3), (2, 4)]).may(&one, many, &policy());
        assert_eq!(minute, Err(Refusal::Limited("per_minute", 3)));
        let share = after(&[(1, 2)]).may(&one, 1, &policy());
        assert_eq!(share, Err(Refusal::Limited("share", 1)), "half of two");
        assert_eq!(after(&[]).may(&one, 1, &policy()), Ok(()), "one is always allowed");
    }

    #[test]
    fn what_is_not_confirmed_twice_in_a_row_ends_it_until_somebody_looks() {
        let mut auto = after(&[]);
        let one = candidate(1, 1);
        auto.followed(Decision::NotCarriedOut);
        auto.followed(Decision::Failed);
        auto.followed(Decision::Unconfirmed);
        assert_eq!(auto.may(&one, 9, &policy()), Ok(()));
        auto.followed(Decision::NotCarriedOut);
        assert_eq!(auto.may(&one, 9, &policy()), Err(Refusal::Broken(2)));
        auto.mend();
        assert_eq!(auto.may(&one, 9, &policy()), Ok(()));
    }
}
