//! Counting UCX's operations while a room is a suspect of which nothing else shows whether it moves,
//! and reading batches of Mooncake.
//!
//! The ledger says for whom. What it costs is bounded: by the processes that are counted at once, and
//! by the hits of each, which the agent reads and ends the counting by.

mod batches;

use std::collections::{BTreeMap, BTreeSet};

use inflightd_abi::operations::{Endpoint, Operations};
use inflightd_core::fact::Worker;
use inflightd_core::{Fact, Nanos};

use super::Agent;
use crate::clock::Clock;
use crate::hits::Hits;
use batches::Batches;

/// Most processes that are counted at once.
const ARMED_MAX: usize = 16;
/// How often it is looked whom to count, and what was.
const EVERY: Nanos = Nanos::from_millis(250);
/// More hits a second than this, over [`EVERY`], and a process is counted no more: each costs its
/// thread about half a microsecond.
const HITS_MAX: u64 = 50_000;
/// So long a process is let alone that was too dear, or that cannot be counted.
const REST: Nanos = Nanos::from_secs(60);
/// A process is counted so long after its last suspect. One whose operations complete is none any
/// more, until nothing was heard of it for as long again: a slow transfer is looked at for half a
/// second now and then.
const LINGER: Nanos = Nanos::from_millis(500);

/// Who is counted.
#[derive(Debug, Default)]
pub(super) struct Arming {
    looked_at: Nanos,
    of: BTreeMap<u32, Armed>,
    batches: Batches,
    /// Until when each is let alone.
    resting: BTreeMap<u32, Nanos>,
    /// Hits of all processes that were ever counted.
    hits: u64,
}

/// A process that is counted.
#[derive(Debug)]
struct Armed {
    wanted_at: Nanos,
    read_at: Nanos,
    hits: u64,
    counts: BTreeMap<u64, Operations>,
    told: BTreeSet<Worker>,
}

impl Armed {
    fn new(now: Nanos) -> Self {
        let (counts, told) = (BTreeMap::new(), BTreeSet::new());
        Self { wanted_at: now, read_at: now, hits: 0, counts, told }
    }

    /// Takes a reading. Gives what completed by endpoint since the last, and the hits since then.
    fn take(&mut self, read: BTreeMap<u64, Operations>) -> (Vec<(u64, Operations)>, u64) {
        let hits = read.values().map(|of| of.count + of.errors).sum::<u64>();
        let news = read.iter().filter_map(|(ep, of)| {
            let before = self.counts.get(ep).copied().unwrap_or_default();
            let bytes = of.bytes.wrapping_sub(before.bytes);
            (of.count > before.count).then_some((*ep, Operations { bytes, ..*of }))
        });
        let news = news.collect();
        self.counts = read;
        (news, hits.saturating_sub(std::mem::replace(&mut self.hits, hits)))
    }
}

impl Arming {
    /// Processes that are counted now.
    pub(super) fn processes(&self) -> Vec<u32> {
        self.of.keys().copied().collect()
    }

    /// How many those are, and hits of that so far.
    pub(super) fn held(&self) -> (u64, u64) {
        (self.of.len() as u64, self.hits)
    }
}

impl Agent {
    /// Begins and ends counting, and reads what was counted.
    pub(super) fn tend_arming(&mut self, now: Nanos) {
        if now.since(self.peers.arming.looked_at) < EVERY {
            return;
        }
        self.peers.arming.looked_at = now;
        let wanted = self.wanted_arming(now);
        self.read_batches(|pid| wanted.contains(&pid));
        self.read_operations(now);
        let is_over = |(pid, armed): (&u32, &mut Armed)| {
            if wanted.contains(pid) {
                armed.wanted_at = now;
            }
            (now.since(armed.wanted_at) >= LINGER).then_some(*pid)
        };
        let over: Vec<u32> = self.peers.arming.of.iter_mut().filter_map(is_over).collect();
        for pid in over {
            self.disarm(pid, now);
        }
        self.peers.arming.resting.retain(|_, until| *until > now);
        for pid in wanted {
            self.arm(pid, now);
        }
    }

    /// Processes with a suspect that would be told apart by counting.
    fn wanted_arming(&self, now: Nanos) -> BTreeSet<u32> {
        let seen = self.workers.values();
        let seen = seen.filter(|watched| self.ledger.wants_arming(watched.number, now));
        seen.map(|watched| watched.pid).collect()
    }

    fn arm(&mut self, pid: u32, now: Nanos) {
        let arming = &self.peers.arming;
        if !arming.of.contains_key(&pid) {
            if arming.resting.contains_key(&pid) || arming.of.len() >= ARMED_MAX {
                return;
            }
            match self.hits.arm(pid) {
                Ok(true) => {
                    tracing::info!(pid, "counting the operations of UCX: a room is a suspect");
                    self.peers.arming.of.insert(pid, Armed::new(now));
                }
                Ok(false) => {
                    self.peers.arming.resting.insert(pid, now.plus(REST));
                    return;
                }
                Err(error) => {
                    tracing::warn!(pid, error, "counting the operations of UCX");
                    self.peers.arming.resting.insert(pid, now.plus(REST));
                    return;
                }
            }
        }
        // Only from here on nothing completes unseen.
        let at = Clock::now();
        for number in self.workers_of(pid) {
            let armed = self.peers.arming.of.get_mut(&pid);
            if armed.is_some_and(|armed| armed.told.insert(number)) {
                self.tell(number, at, Fact::Armed(true));
            }
        }
    }

    fn disarm(&mut self, pid: u32, now: Nanos) {
        self.hits.disarm(pid);
        let armed = self.peers.arming.of.remove(&pid);
        for number in armed.into_iter().flat_map(|armed| armed.told) {
            if self.workers.contains_key(&number) {
                self.tell(number, now, Fact::Armed(false));
            }
        }
    }

    fn read_operations(&mut self, now: Nanos) {
        let mut read: BTreeMap<u32, BTreeMap<u64, Operations>> = BTreeMap::new();
        for (Endpoint { ep, tgid, .. }, of) in self.hits.operations() {
            read.entry(tgid).or_default().insert(ep, of);
        }
        let mut dear = Vec::new();
        let mut told = Vec::new();
        for (pid, armed) in &mut self.peers.arming.of {
            let (news, hits) = armed.take(read.remove(pid).unwrap_or_default());
            let over = now.since(std::mem::replace(&mut armed.read_at, now));
            if is_too_many(hits, over) {
                dear.push((*pid, hits));
            }
            self.peers.arming.hits += hits;
            for (ep, of) in news {
                let fact = Fact::Operations(ep, of.bytes);
                let at = Nanos(of.last_at).min(now);
                told.extend(armed.told.iter().map(|number| (*number, at, fact.clone())));
            }
        }
        for (number, at, fact) in told {
            self.tell(number, at, fact);
        }
        for (pid, hits) in dear {
            tracing::warn!(pid, hits, "operations of UCX are too many to be counted");
            self.disarm(pid, now);
            self.peers.arming.resting.insert(pid, now.plus(REST));
        }
    }
}

/// Whether hits within a span are more than a process is charged with.
fn is_too_many(hits: u64, over: Nanos) -> bool {
    let span = over.max(EVERY);
    u128::from(hits) * 1_000_000_000 > u128::from(HITS_MAX) * u128::from(span.0)
}

impl Hits {
    /// Counts the operations of a process from now on: see [`crate::probe::Probes::arm`].
    fn arm(&mut self, pid: u32) -> Result<bool, String> {
        match self {
            Self::Off => Ok(false),
            Self::On(probes) => probes.arm(pid),
        }
    }

    fn disarm(&mut self, pid: u32) {
        if let Self::On(probes) = self {
            probes.disarm(pid);
        }
    }

    fn operations(&self) -> Vec<(Endpoint, Operations)> {
        match self {
            Self::Off => Vec::new(),
            Self::On(probes) => probes.operations(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Nanos = Nanos::from_secs(9);

    fn counted(count: u64, bytes: u64, errors: u64) -> Operations {
        Operations { count, bytes, errors, last_at: count * 10 }
    }

    #[test]
    fn a_reading_tells_what_is_new_by_endpoint_and_every_hit() {
        let mut armed = Armed::new(NOW);
        let first = BTreeMap::from([(7, counted(3, 300, 0)), (8, counted(1, 50, 2))]);
        let (news, hits) = armed.take(first);
        assert_eq!((news, hits), (vec![(7, counted(3, 300, 0)), (8, counted(1, 50, 2))], 6));
        let second = BTreeMap::from([(7, counted(5, 420, 0)), (8, counted(1, 50, 3))]);
        let (news, hits) = armed.take(second);
        let grown = Operations { bytes: 120, ..counted(5, 420, 0) };
        assert_eq!((news, hits), (vec![(7, grown)], 3), "what failed is no progress");
    }

    #[test]
    fn the_bound_is_a_rate_and_no_shorter_span_makes_it_one() {
        let second = Nanos::from_secs(1);
        assert!(!is_too_many(HITS_MAX, second) && is_too_many(HITS_MAX + 1, second));
        assert!(!is_too_many(HITS_MAX / 4, Nanos::from_millis(1)));
        assert!(is_too_many(HITS_MAX / 2, Nanos::from_millis(1)));
    }
}
