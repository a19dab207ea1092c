//! The census: which processes map a table.
//!
//! Reading a process's `maps` costs milliseconds for an engine, so it is read only when something
//! says that it may have changed: the process is new, its address space has another size, a mark
//! names it, or it has not been read for long. A look reads a bounded number of them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use inflightd_core::Nanos;

use crate::proc::{self, Stat, TableMap};

/// Most `maps` read in one look; the rest wait for the next.
const READS_MAX: usize = 256;
/// A process younger than this (since it was first seen) is read at every change of size.
const YOUNG: Nanos = Nanos::from_secs(600);
/// An older one, or one whose table is known, is read at a change at most so often.
const CHANGED_EVERY: Nanos = Nanos::from_secs(5);
/// A process that hints ask for is read at most so often.
const HINTED_EVERY: Nanos = Nanos::from_millis(200);
/// Any process is read at least so often.
const EVERY: Nanos = Nanos::from_secs(60);

/// A process whose `maps` was read just now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// Process id.
    pub pid: u32,
    /// Its start time, in clock ticks since boot.
    pub start: u64,
    /// The tables that it maps.
    pub maps: Vec<TableMap>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    start: u64,
    vsize: u64,
    first_at: Nanos,
    read_at: Option<Nanos>,
    has_table: bool,
}

impl Seen {
    /// Whether its `maps` should be read now, given its size now.
    fn is_due(&self, now: Nanos, vsize: u64) -> bool {
        let Some(read_at) = self.read_at else {
            return true;
        };
        let is_young = now.since(self.first_at) < YOUNG && !self.has_table;
        let since = now.since(read_at);
        since >= EVERY || vsize != self.vsize && (is_young || since >= CHANGED_EVERY)
    }
}

/// Looks for tables, again and again.
#[derive(Debug)]
pub struct Census {
    device: (u32, u32),
    only: Vec<u32>,
    seen: BTreeMap<u32, Seen>,
    hints: BTreeSet<u32>,
}

impl Census {
    /// A census of `only`, or of all processes where that is empty. `device` is that of memfds.
    pub const fn new(device: (u32, u32), only: Vec<u32>) -> Self {
        Self { device, only, seen: BTreeMap::new(), hints: BTreeSet::new() }
    }

    /// Reads this process soon, whatever is known of it: marks name it.
    pub fn hint(&mut self, pid: u32) {
        if self.only.is_empty() || self.only.contains(&pid) {
            self.hints.insert(pid);
        }
    }

    /// Looks at the processes that hints ask for.
    pub fn look_hinted(&mut self, now: Nanos) -> Vec<Read> {
        let ripe = |seen: &Seen| seen.read_at.is_none_or(|at| now.since(at) >= HINTED_EVERY);
        let pids: Vec<u32> = self
            .hints
            .iter()
            .copied()
            .filter(|pid| self.seen.get(pid).is_none_or(ripe))
            .take(READS_MAX)
            .collect();
        let mut reads = Vec::new();
        for pid in pids {
            self.hints.remove(&pid);
            if let Some(stat) = self.due(pid, now, true) {
                reads.extend(self.read(pid, stat, now));
            }
        }
        reads
    }

    /// Looks at all: the processes whose `maps` was read.
    pub fn look(&mut self, now: Nanos) -> io::Result<Vec<Read>> {
        let pids = if self.only.is_empty() { proc::processes()? } else { self.only.clone() };
        let present: BTreeSet<u32> = pids.iter().copied().collect();
        self.seen.retain(|pid, _| present.contains(pid));
        let hints = std::mem::take(&mut self.hints);
        let mut reads = Vec::new();
        let mut count = 0;
        for pid in pids.into_iter().filter(|pid| *pid != std::process::id()) {
            let Some(stat) = self.due(pid, now, hints.contains(&pid)) else {
                continue;
            };
            if count >= READS_MAX {
                continue;
            }
            count += 1;
            if let Some(read) = self.read(pid, stat, now) {
                reads.push(read);
            }
        }
        Ok(reads)
    }

    /// The process's state when its `maps` is to be read now.
    fn due(&mut self, pid: u32, now: Nanos, hinted: bool) -> Option<Stat> {
        // A process may end between the listing and here.
        let stat = Stat::of(pid).ok().filter(|stat| stat.vsize > 0)?;
        let fresh = Seen {
            start: stat.start,
            vsize: stat.vsize,
            first_at: now,
            read_at: None,
            has_table: false,
        };
        let seen = self.seen.entry(pid).or_insert(fresh);
        if seen.start != stat.start {
            *seen = fresh;
        }
        (hinted || seen.is_due(now, stat.vsize)).then_some(stat)
    }

    fn read(&mut self, pid: u32, stat: Stat, now: Nanos) -> Option<Read> {
        let maps = proc::table_maps(pid, self.device).ok();
        if let Some(seen) = self.seen.get_mut(&pid) {
            seen.read_at = Some(now);
            seen.vsize = stat.vsize;
            seen.has_table = maps.as_ref().is_some_and(|maps| !maps.is_empty());
        }
        Some(Read { pid, start: stat.start, maps: maps? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(first: u64, read: u64, has_table: bool) -> Seen {
        Seen {
            start: 1,
            vsize: 4096,
            first_at: Nanos::from_secs(first),
            read_at: Some(Nanos::from_secs(read)),
            has_table,
        }
    }

    #[test]
    fn an_unchanged_process_is_left_alone_for_a_while() {
        let process = seen(0, 0, false);
        assert!(!process.is_due(Nanos::from_secs(59), 4096));
        assert!(process.is_due(Nanos::from_secs(60), 4096));
    }

    #[test]
    fn a_young_process_is_read_at_each_change_of_size() {
        assert!(seen(0, 9, false).is_due(Nanos::from_secs(10), 8192));
        assert!(!seen(0, 9, true).is_due(Nanos::from_secs(10), 8192));
        assert!(!seen(0, 699, false).is_due(Nanos::from_secs(700), 8192));
        assert!(seen(0, 695, false).is_due(Nanos::from_secs(700), 8192));
    }

    #[test]
    fn a_look_reads_a_process_once_until_it_changes_or_is_hinted() {
        // This test process cannot be its own subject: a census skips the agent itself.
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        let mut census = Census::new((0, 0), vec![pid]);
        // The size may change until `sleep` has loaded its libraries.
        std::thread::sleep(std::time::Duration::from_millis(300));
        let at = Nanos::from_secs;
        assert_eq!(census.look(at(1)).unwrap().len(), 1);
        assert_eq!(census.look(at(2)).unwrap().len(), 0);
        census.hint(pid);
        assert_eq!(census.look_hinted(at(3)).len(), 1);
        census.hint(pid);
        assert_eq!(census.look_hinted(at(3)).len(), 0, "not at every mark");
        assert_eq!(census.look_hinted(at(4)).len(), 1);
        census.hint(1);
        assert_eq!(census.look_hinted(at(5)).len(), 0, "only the processes asked for");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(census.look(at(4)).unwrap().len(), 0);
    }
}
