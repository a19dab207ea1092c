//! The census: which processes map a table, or a transfer library.
//!
//! Reading a process's `maps` takes its mmap lock and costs milliseconds for an engine. So it is
//! read only when something says that it may have changed: the process is new, its address space
//! has another size, its table is not where it was, a mark names it, or it has not been read for
//! long. Then, too, it is read at most once a second and for at most a hundredth of the time, and
//! a look reads a bounded number of processes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use inflightd_core::Nanos;

use crate::clock::Clock;
use crate::probe::is_telling;
use crate::proc::{self, Maps, Stat, TableMap};

/// Most `maps` read in one look; the rest wait for the next.
const READS_MAX: usize = 256;
/// Most time that a look reads `maps` for. The first has more: without it nobody is seen.
const READING_MAX: Nanos = Nanos::from_millis(100);
/// So long the first look may read.
const FIRST_READING_MAX: Nanos = Nanos::from_secs(2);
/// A process younger than this (since it was first seen) is asked for its size at every look.
const YOUNG: Nanos = Nanos::from_secs(600);
/// An older one that is of no interest is asked so often.
const ASKED_EVERY: Nanos = Nanos::from_secs(5);
/// A process that has changed is read at most so often.
const CHANGED_EVERY: Nanos = Nanos::from_secs(1);
/// A process that hints ask for is read at most so often.
const HINTED_EVERY: Nanos = Nanos::from_millis(200);
/// A process is read for at most this part of the time; hints may ask for five times as much.
const SHARE: u64 = 100;
/// Any process is read at least so often.
const EVERY: Nanos = Nanos::from_secs(60);

/// A process whose `maps` was read just now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// Process id.
    pub pid: u32,
    /// Its start time, in clock ticks since boot. Another program may run in the same process
    /// since the last time.
    pub start: u64,
    /// What it maps.
    pub maps: Maps,
}

/// What the census has cost; all of it only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Readings of a process's `stat`.
    pub stats: u64,
    /// Readings of a process's `maps`.
    pub maps: u64,
    /// Bytes of `maps` that were read.
    pub bytes: u64,
    /// Time spent on reading `maps`, in nanoseconds.
    pub nanos: u64,
}

#[derive(Clone, Debug)]
struct Seen {
    start: u64,
    vsize: u64,
    first_at: Nanos,
    asked_at: Nanos,
    read_at: Option<Nanos>,
    /// CPU time of the last reading.
    took: Nanos,
    tables: Vec<TableMap>,
    has_libraries: bool,
    /// The system did not let its `maps` be read.
    denied: bool,
}

impl Seen {
    const fn new(stat: Stat, now: Nanos) -> Self {
        Self {
            start: stat.start,
            vsize: stat.vsize,
            first_at: now,
            asked_at: now,
            read_at: None,
            took: Nanos::ZERO,
            tables: Vec::new(),
            has_libraries: false,
            denied: false,
        }
    }

    /// Whether its size should be asked for now.
    fn is_asked(&self, now: Nanos) -> bool {
        let is_young = now.since(self.first_at) < YOUNG && self.vsize > 0;
        let is_of_interest = is_young || self.has_libraries || !self.tables.is_empty();
        is_of_interest || now.since(self.asked_at) >= ASKED_EVERY
    }

    /// Whether its `maps` should be read now, given its size now.
    fn is_due(&self, now: Nanos, vsize: u64) -> bool {
        let Some(read_at) = self.read_at else {
            return true;
        };
        let since = now.since(read_at);
        since >= EVERY || vsize != self.vsize && since >= self.pause(CHANGED_EVERY, SHARE)
    }

    /// Whether a hint makes it be read now.
    fn is_ripe(&self, now: Nanos) -> bool {
        self.read_at.is_none_or(|at| now.since(at) >= self.pause(HINTED_EVERY, SHARE / 5))
    }

    /// The shortest time between two readings.
    fn pause(&self, least: Nanos, share: u64) -> Nanos {
        Nanos(least.0.max(self.took.0.saturating_mul(share)))
    }
}

/// Looks for tables and transfer libraries, again and again.
#[derive(Debug)]
pub struct Census {
    device: (u32, u32),
    only: Vec<u32>,
    around: bool,
    seen: BTreeMap<u32, Seen>,
    hints: BTreeSet<u32>,
    /// Those of them that have a table, by their marks.
    marked: BTreeSet<u32>,
    looked: bool,
    effort: Effort,
}

impl Census {
    /// A census of `only`, or of all processes where that is empty. `device` is that of memfds.
    pub const fn new(device: (u32, u32), only: Vec<u32>) -> Self {
        Self {
            device,
            only,
            around: false,
            seen: BTreeMap::new(),
            hints: BTreeSet::new(),
            marked: BTreeSet::new(),
            looked: false,
            effort: Effort { stats: 0, maps: 0, bytes: 0, nanos: 0 },
        }
    }

    /// The same, which reads all processes all the same: [`Self::covers`] tells which are which.
    #[must_use]
    pub fn around(self) -> Self {
        Self { around: true, ..self }
    }

    /// What it has cost so far.
    pub const fn effort(&self) -> Effort {
        self.effort
    }

    /// Processes that are known.
    pub fn processes(&self) -> usize {
        self.seen.len()
    }

    /// Processes that are there and could not be looked into, for want of a right.
    pub fn denied(&self) -> Vec<u32> {
        self.seen.iter().filter(|(_, seen)| seen.denied).map(|(pid, _)| *pid).collect()
    }

    /// Whether this process is one of those that were asked for.
    pub fn covers(&self, pid: u32) -> bool {
        self.only.is_empty() || self.only.contains(&pid)
    }

    /// Reads this process soon: marks name it, so that it has a table.
    pub fn hint_marked(&mut self, pid: u32) {
        self.hint(pid);
        if self.hints.contains(&pid) {
            self.marked.insert(pid);
        }
    }

    /// Reads this process soon, whatever is known of it.
    pub fn hint(&mut self, pid: u32) {
        if self.covers(pid) {
            self.hints.insert(pid);
        }
    }

    /// Whether the process has a table, by its marks, and has not been read since.
    pub fn is_marked(&self, pid: u32) -> bool {
        self.marked.contains(&pid)
    }

    /// Reads this process soon once more, also where it is not one of those asked for.
    pub fn again(&mut self, pid: u32) {
        if self.around || self.covers(pid) {
            self.hints.insert(pid);
        }
    }

    /// Looks at the processes that hints ask for.
    pub fn look_hinted(&mut self, now: Nanos) -> Vec<Read> {
        let ripe = |pid: &u32| self.seen.get(pid).is_none_or(|seen| seen.is_ripe(now));
        let pids: Vec<u32> = self.hints.iter().copied().filter(ripe).take(READS_MAX).collect();
        let mut reads = Vec::new();
        for pid in pids {
            self.hints.remove(&pid);
            if let Some(stat) = self.ask(pid, now) {
                reads.extend(self.read(pid, stat, now));
            }
        }
        reads
    }

    /// Looks at one process now, where it has not been read a moment ago.
    pub fn look_at(&mut self, pid: u32, now: Nanos) -> Option<Read> {
        let is_ripe = self.seen.get(&pid).is_none_or(|seen| seen.is_ripe(now));
        if !self.covers(pid) || !is_ripe {
            return None;
        }
        let stat = self.ask(pid, now)?;
        self.read(pid, stat, now)
    }

    /// Looks at all: the processes whose `maps` was read.
    pub fn look(&mut self, now: Nanos) -> io::Result<Vec<Read>> {
        let is_all = self.around || self.only.is_empty();
        let pids = if is_all { proc::processes()? } else { self.only.clone() };
        let present: BTreeSet<u32> = pids.iter().copied().collect();
        self.seen.retain(|pid, _| present.contains(pid));
        self.hints.retain(|pid| present.contains(pid));
        self.marked.retain(|pid| present.contains(pid));
        let mut due: Vec<(Nanos, u32, Stat)> = pids
            .into_iter()
            .filter(|pid| *pid != std::process::id())
            .filter_map(|pid| self.due(pid, now))
            .collect();
        // Those that were never read come first, then those that have waited longest.
        due.sort_unstable_by_key(|(read_at, pid, _)| (*read_at, *pid));
        let limit =
            if self.looked { (READS_MAX, READING_MAX) } else { (usize::MAX, FIRST_READING_MAX) };
        self.looked = true;
        let began = self.effort;
        let mut reads = Vec::new();
        for (_, pid, stat) in due.into_iter().take(limit.0) {
            if self.effort.nanos - began.nanos >= limit.1.0 {
                break;
            }
            self.hints.remove(&pid);
            reads.extend(self.read(pid, stat, now));
        }
        Ok(reads)
    }

    /// The process's state, and when it was last read, when its `maps` is to be read now.
    fn due(&mut self, pid: u32, now: Nanos) -> Option<(Nanos, u32, Stat)> {
        let hinted = self.hints.contains(&pid);
        if !hinted && self.seen.get(&pid).is_some_and(|seen| !seen.is_asked(now)) {
            return None;
        }
        let stat = self.ask(pid, now)?;
        let seen = self.seen.get(&pid)?;
        let is_due = seen.is_due(now, stat.vsize)
            || hinted && seen.is_ripe(now)
            // The process runs another program, or has given the table up.
            || seen.tables.iter().any(|table| !table.is_mapped(pid));
        is_due.then(|| (seen.read_at.unwrap_or(Nanos::ZERO), pid, stat))
    }

    /// Asks for a process's state. `None` for one that has ended, and for a kernel thread.
    fn ask(&mut self, pid: u32, now: Nanos) -> Option<Stat> {
        self.effort.stats += 1;
        // A process may end between the listing and here.
        let Ok(stat) = Stat::of(pid) else {
            self.seen.remove(&pid);
            return None;
        };
        let seen = self.seen.entry(pid).or_insert_with(|| Seen::new(stat, now));
        if seen.start != stat.start {
            *seen = Seen::new(stat, now);
        }
        seen.asked_at = now;
        if stat.vsize == 0 {
            seen.vsize = 0;
        }
        (stat.vsize > 0).then_some(stat)
    }

    fn read(&mut self, pid: u32, stat: Stat, now: Nanos) -> Option<Read> {
        self.marked.remove(&pid);
        let (began, busy) = (Clock::now(), Clock::busy());
        let maps = Maps::of(pid, self.device);
        let denied =
            maps.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
        let maps = maps.ok();
        self.effort.maps += 1;
        self.effort.nanos += Clock::now().since(began).0;
        self.effort.bytes += maps.as_ref().map_or(0, |maps| maps.bytes);
        if let Some(seen) = self.seen.get_mut(&pid) {
            seen.read_at = Some(now);
            // What the target's lock was held for, not how long a busy node let this thread wait.
            seen.took = Clock::busy().since(busy);
            seen.denied = denied;
            seen.vsize = stat.vsize;
            let (tables, objects) =
                maps.as_ref().map(|maps| (&*maps.tables, &*maps.objects)).unwrap_or_default();
            seen.tables = tables.to_vec();
            seen.has_libraries = objects.iter().any(|object| is_telling(&object.path));
        }
        Some(Read { pid, start: stat.start, maps: maps? })
    }
}

#[cfg(test)]
#[path = "discover_tests.rs"]
mod tests;
