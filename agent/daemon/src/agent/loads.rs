//! What SGLang schedulers without the hook say of themselves: how many requests each has in its
//! queues.

use std::collections::BTreeMap;

use inflightd_core::fact::{Load, Worker};
use inflightd_core::{Fact, Nanos};

use super::Agent;
use crate::error::chain;
use crate::meters::{SnapshotError, Stated, read_snapshot};
use crate::proc::{self, LoadMap};

/// How often snapshots are read.
const EVERY: Nanos = Nanos::from_secs(1);
/// A snapshot that nobody has written for so long says nothing of now: releases before 0.5.19 write
/// theirs with a batch only, later ones at least each 50 ms while the scheduler runs.
const STALE: Nanos = Nanos::from_secs(5);

/// The snapshots of the processes without a table.
#[derive(Debug, Default)]
pub(super) struct Loads {
    read_at: Option<Nanos>,
    of: BTreeMap<u32, OfProcess>,
}

/// One process's snapshot.
#[derive(Debug)]
struct OfProcess {
    map: LoadMap,
    rank: Option<u16>,
    written_at: f64,
    /// When it was last found written anew; `None` before that.
    renewed_at: Option<Nanos>,
    /// What the ledger was told.
    told: Load,
    failed: bool,
}

impl OfProcess {
    fn new(map: LoadMap, pid: u32) -> Self {
        let rank = rank(&proc::command_line(pid).unwrap_or_default());
        let (told, renewed_at) = (Load::default(), None);
        Self { map, rank, written_at: 0.0, renewed_at, told, failed: false }
    }

    /// What it says of now. The first reading does not show yet whether anybody writes it.
    fn current(&mut self, stated: Stated, now: Nanos) -> Option<Load> {
        let before = std::mem::replace(&mut self.written_at, stated.written_at);
        if before.total_cmp(&stated.written_at).is_ne() && before != 0.0 {
            self.renewed_at = Some(now);
        }
        stated.load.filter(|_| self.renewed_at.is_some_and(|at| now.since(at) < STALE))
    }
}

impl Loads {
    /// Takes note of what a process without a table maps.
    pub(super) fn note(&mut self, pid: u32, map: Option<&LoadMap>) {
        match map {
            Some(map) if self.of.get(&pid).is_none_or(|of| of.map != *map) => {
                self.of.insert(pid, OfProcess::new(map.clone(), pid));
            }
            Some(_) => {}
            None => drop(self.of.remove(&pid)),
        }
    }
}

impl Agent {
    /// Reads the snapshots, where it is time to.
    pub(super) fn read_loads(&mut self, now: Nanos) {
        if self.loads.read_at.is_some_and(|at| now.since(at) < EVERY) {
            return;
        }
        self.loads.read_at = Some(now);
        let pids: Vec<u32> = self.loads.of.keys().copied().collect();
        for pid in pids {
            self.read_load(pid, now);
        }
    }

    fn read_load(&mut self, pid: u32, now: Nanos) {
        let Some(of) = self.loads.of.get_mut(&pid) else {
            return;
        };
        let (load, role) = match read_snapshot(pid, &of.map, of.rank) {
            Ok(stated) => {
                of.failed = false;
                (of.current(stated, now), stated.role)
            }
            Err(error) if error.is_passing() => return,
            Err(error) => {
                complain(pid, of, &error);
                (None, None)
            }
        };
        if load.is_some() && self.workers_of(pid).is_empty() {
            self.adopt_by_load(pid, role, now);
        }
        if let Some(number) = self.unhooked(pid) {
            self.tell_load(number, pid, load, now);
        }
    }

    /// A process that publishes becomes a worker without a table, once it has been looked at anew:
    /// an engine that starts has opened its table before it publishes, but its long maps may not
    /// have been read since.
    fn adopt_by_load(&mut self, pid: u32, role: Option<&str>, now: Nanos) {
        let Some(read) = self.census.look_at(pid, now) else {
            // It was read a moment ago; this is tried again at the next snapshot.
            return;
        };
        self.reconcile(&read, now);
        if self.workers_of(pid).is_empty() {
            self.adopt_stranger(pid, role, now);
        }
    }

    fn unhooked(&self, pid: u32) -> Option<Worker> {
        let mut of_process = self.workers.values().filter(|watched| watched.pid == pid);
        of_process.find(|watched| !watched.hooked).map(|watched| watched.number)
    }

    /// Tells what a snapshot says. One that nobody writes any more says nothing; but what has been
    /// found by it stands, since a scheduler that writes no more has not become better.
    fn tell_load(&mut self, number: Worker, pid: u32, load: Option<Load>, now: Nanos) {
        let stands = || self.ledger.view(number).is_some_and(|view| view.node().is_some());
        if load.is_none() && stands() {
            return;
        }
        let load = load.unwrap_or_default();
        if let Some(of) = self.loads.of.get_mut(&pid)
            && of.told != load
        {
            of.told = load;
            self.tell(number, now, Fact::Load(load));
        }
    }
}

/// Says once why a snapshot cannot be read.
fn complain(pid: u32, of: &mut OfProcess, error: &SnapshotError) {
    if !std::mem::replace(&mut of.failed, true) {
        tracing::warn!(
            pid,
            path = %of.map.path.display(),
            error = chain(error),
            "SGLang's load snapshot cannot be read: a standstill of the whole engine is not told"
        );
    }
}

/// The DP rank in a scheduler's title, `sglang::scheduler_DP1_TP0`.
fn rank(command: &str) -> Option<u16> {
    let title = command.split('\0').next()?.strip_prefix("sglang::scheduler")?;
    title.split('_').find_map(|part| part.strip_prefix("DP")?.trim_end().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_names_the_rank() {
        assert_eq!(rank("sglang::scheduler_DP3_TP1\0"), Some(3));
        assert_eq!(rank("sglang::scheduler_PP0_DP12  "), Some(12));
        for other in
            ["", "sglang::scheduler", "sglang::scheduler_TP1", "x_DP1", "sglang::scheduler_DPx"]
        {
            assert_eq!(rank(other), None, "{other}");
        }
    }

    #[test]
    fn a_snapshot_that_nobody_writes_says_nothing() {
        let at = Nanos::from_secs;
        let map = LoadMap { path: "/dev/shm/sglang_loads_a_1.shm".into(), inode: 1 };
        let mut of = OfProcess::new(map, u32::MAX);
        let load = Some(Load { inflight: 3, ..Load::default() });
        let stated = |written_at| Stated { load, role: None, written_at };
        assert_eq!(of.current(stated(7.0), at(1)), None, "left behind, perhaps");
        assert_eq!(of.current(stated(7.5), at(2)), load);
        assert_eq!(of.current(stated(7.5), at(6)), load);
        assert_eq!(of.current(stated(7.5), at(7)), None);
        assert_eq!(of.current(stated(9.0), at(8)), load);
    }
}
