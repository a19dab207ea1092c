//! Looks at far ends that cannot wait for the meters' turn: a transfer has failed, or a worker was
//! found that may go by the name of a peer. What is said of a failed room rests on who went by
//! the name at that moment: the dead process, or its successor.

use std::collections::BTreeMap;

use inflightd_core::Nanos;
use inflightd_core::fact::{Life, Peer, Worker};

use super::Agent;
use super::peers::Place;
use super::whose::Process;
use crate::clock::Clock;
use crate::meters;
use crate::names::PeerName;

/// A worker's peers are looked at at most so often for what failed: the engine's moment before a
/// verdict is longer.
const AGAIN: Nanos = Nanos::from_millis(100);

/// Workers whose peers are to be looked at before the ledger hears of anything later.
#[derive(Debug, Default)]
pub(super) struct Fresh {
    /// The moment of the first failure that was not looked into.
    wanted: BTreeMap<Worker, Nanos>,
    looked_at: BTreeMap<Worker, Nanos>,
}

impl Fresh {
    /// Something of a worker failed: how its peers were just before counts.
    pub(super) fn want(&mut self, worker: Worker, at: Nanos) {
        let at = Nanos(at.0.saturating_sub(1));
        let first = self.wanted.entry(worker).or_insert(at);
        *first = at.min(*first);
    }

    /// A worker has ended.
    pub(super) fn forget(&mut self, worker: Worker) {
        self.wanted.remove(&worker);
        self.looked_at.remove(&worker);
    }

    /// Takes the workers whose turn it is, with the moment of what failed.
    fn take(&mut self, now: Nanos) -> Vec<(Worker, Nanos)> {
        let looked_at = &self.looked_at;
        let is_due =
            |worker: &Worker| looked_at.get(worker).is_none_or(|at| now.since(*at) >= AGAIN);
        let due: Vec<(Worker, Nanos)> = self
            .wanted
            .iter()
            .map(|(worker, at)| (*worker, *at))
            .filter(|w| is_due(&w.0))
            .collect();
        for (worker, _) in &due {
            self.wanted.remove(worker);
            self.looked_at.insert(*worker, now);
        }
        due
    }
}

impl Agent {
    /// A thread's call, a transfer or an endpoint of a process failed.
    pub(super) fn failed(&mut self, pid: u32, at: Nanos) {
        for number in self.workers_of(pid) {
            self.fresh.want(number, at);
        }
    }

    /// Looks at the peers of workers of which something failed.
    pub(super) fn look_at_failed(&mut self, now: Nanos) {
        for (number, at) in self.fresh.take(now) {
            self.note_needs(number, now);
            for peer in self.needed(number) {
                self.look_at_peer(number, peer, at.min(now), now);
            }
        }
    }

    /// A worker was found: who has it as a peer hears of it at once.
    pub(super) fn renew(&mut self, names: &[PeerName], now: Nanos) {
        if names.is_empty() {
            return;
        }
        let pairs: Vec<(Worker, Peer)> = self
            .peers
            .of
            .keys()
            .flat_map(|worker| self.needed(*worker).into_iter().map(|peer| (*worker, peer)))
            .filter(|(_, peer)| self.names.peer_name(*peer).is_some_and(|n| names.contains(n)))
            .collect();
        for (worker, peer) in pairs {
            self.look_at_peer(worker, peer, now, now);
        }
    }

    /// Tells whether a peer's process lives. One that was known before `at` and runs now was there
    /// at `at`: it is told with that time, so that the ledger knows it before what followed.
    fn look_at_peer(&mut self, worker: Worker, peer: Peer, at: Nanos, now: Nanos) {
        let place = self.whereabouts(worker, peer, now);
        let life = self.life_at(worker, peer, place);
        let was_there = life == Life::Running
            && matches!(place, Place::Process(pid, start) if self.knew((pid, start), at));
        self.tell_life(worker, peer, life, if was_there { at } else { now });
    }

    /// Whether a process was known at `at`.
    fn knew(&self, process: Process, at: Nanos) -> bool {
        let mut of_process = self.workers.values().filter(|w| (w.pid, w.start) == process);
        of_process.any(|watched| watched.tracker.found_at() <= at)
            || self.neighbours.knew(process, at)
    }

    /// Whether what is at a peer's place lives; of whom it came after is told first.
    pub(super) fn life_at(&mut self, worker: Worker, peer: Peer, place: Place) -> Life {
        match place {
            Place::Process(pid, start) => {
                self.tell_predecessor(worker, peer, start);
                meters::life(pid, start)
            }
            Place::Gone(_) => Life::Gone,
            Place::Unseen => Life::Unseen,
        }
    }

    /// Rooms that are older than the process that goes by their peer's name were let in for
    /// another one. Whoever saw it end has told so; a late agent knows by the ages. One that was there
    /// as the room entered and saw nobody of that name knows that its peer is elsewhere: who takes
    /// the name here later is not the next of its line.
    fn tell_predecessor(&mut self, worker: Worker, peer: Peer, start: u64) {
        if self.peers.lives.has_seen(worker, peer) {
            return;
        }
        let begun = Clock::at_tick(start);
        let is_older = self.workers.get(&worker).is_some_and(|watched| {
            let mut open = watched.tracker.open().values();
            let found_at = watched.tracker.found_at();
            let was_before = |at: Nanos| at < begun && begun < found_at;
            open.any(|open| open.peers.contains(&peer) && was_before(open.appended_at))
        });
        if is_older {
            self.tell_life(worker, peer, Life::Gone, begun);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_looked_into_at_once_but_not_each_for_itself() {
        let at = Nanos::from_millis;
        let mut fresh = Fresh::default();
        fresh.want(Worker(1), at(12));
        fresh.want(Worker(1), at(10));
        assert_eq!(fresh.take(at(20)), [(Worker(1), Nanos(at(10).0 - 1))]);
        assert_eq!(fresh.take(at(20)), [], "looked into");
        fresh.want(Worker(1), at(30));
        fresh.want(Worker(2), at(31));
        assert_eq!(fresh.take(at(40)), [(Worker(2), Nanos(at(31).0 - 1))], "the first waits");
        assert_eq!(fresh.take(at(120)), [(Worker(1), Nanos(at(30).0 - 1))]);
        fresh.want(Worker(2), at(130));
        fresh.forget(Worker(2));
        assert_eq!(fresh.take(at(500)), []);
    }
}
