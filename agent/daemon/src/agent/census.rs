//! Workers come and go.

use std::collections::{BTreeMap, BTreeSet};

use inflightd_abi::table::WORKERS_MAX;
use inflightd_core::fact::Worker;
use inflightd_core::{Event, Fact, Nanos, Sight, Source};

use super::Agent;
use crate::discover::Read;
use crate::error::chain;
use crate::names::{About, WorkerName};
use crate::proc::{self, TableMap};
use crate::table::{Mapped, OpenError};
use crate::worker::{self, History, Removals, Tally, Tracker, Watched};

impl Agent {
    /// Looks for workers that are new, and for those that have gone.
    pub(super) fn look(&mut self, now: Nanos) {
        self.bury(now);
        let reads = match self.census.look(now) {
            Ok(reads) => reads,
            Err(error) => {
                tracing::warn!(%error, "listing the processes");
                return;
            }
        };
        let before = self.next_worker;
        for read in reads {
            self.reconcile(&read, now);
        }
        if self.next_worker > before {
            self.meet(now);
        }
    }

    /// Reads the meters of all workers after some were found: only now is it known who is whose
    /// far end, and a peer that is not found yet would look like one on another node.
    pub(super) fn meet(&mut self, now: Nanos) {
        let numbers: Vec<Worker> = self
            .workers
            .values()
            .filter(|watched| watched.is_seen())
            .map(|watched| watched.number)
            .collect();
        self.read_meters(&numbers, now);
    }

    /// Ends the workers whose process has gone.
    fn bury(&mut self, now: Nanos) {
        let gone: Vec<u32> = self
            .workers
            .values()
            .filter(|watched| !watched.is_alive())
            .map(|watched| watched.pid)
            .collect();
        for pid in gone {
            self.process_gone(pid, now);
        }
        for pid in self.gone_neighbours() {
            self.process_gone(pid, now);
        }
        self.bury_unhooked(now);
    }

    pub(super) fn reconcile(&mut self, read: &Read, now: Nanos) {
        if !self.census.covers(read.pid) {
            self.note_neighbour(read, now);
            return;
        }
        self.note_stranger(read);
        for number in self.outgrown(read) {
            self.end(number, now);
        }
        let known: Vec<Worker> = self
            .workers
            .values()
            .filter(|watched| (watched.pid, watched.start) == (read.pid, read.start))
            .map(|watched| watched.number)
            .collect();
        // Libraries are loaded late: what was missing may be there now.
        for number in known {
            self.attach(number, &read.maps, now);
        }
        self.welcome(read, now);
        let closed: Vec<Worker> = self
            .workers
            .values()
            .filter(|watched| watched.pid == read.pid && watched.hooked)
            .filter(|watched| read.maps.tables.iter().all(|map| Some(map.inode) != watched.inode()))
            .map(|watched| watched.number)
            .collect();
        for number in closed {
            self.end(number, now);
        }
    }

    /// Takes the tables of a process that are new, as many as it may have.
    fn welcome(&mut self, read: &Read, now: Nanos) {
        let of = |watched: &&Watched| (watched.pid, watched.start) == (read.pid, read.start);
        let known: BTreeSet<u64> =
            self.workers.values().filter(of).filter_map(Watched::inode).collect();
        let new = read.maps.tables.iter().filter(|map| !known.contains(&map.inode));
        let mut new: Vec<_> =
            new.map(|map| (map, worker::open(read.pid, read.start, map))).collect();
        // The kernel lays the first table highest: its place says nothing of its worth.
        new.sort_by_key(|(_, opened)| worker::index(opened));
        let tables = read.maps.tables.iter();
        let there = tables.filter(|map| known.contains(&map.inode)).count();
        let left_out = new.split_off(new.len().min(WORKERS_MAX.saturating_sub(there)));
        if !left_out.is_empty() && self.crowded.insert((read.pid, read.start)) {
            tracing::warn!(
                pid = read.pid,
                tables = read.maps.tables.len(),
                most = WORKERS_MAX,
                "a process has more tables than the hook can make: those of the highest indexes \
                 are not watched"
            );
        }
        for (map, opened) in new {
            self.found(read, map, opened, now);
        }
    }

    fn found(&mut self, read: &Read, map: &TableMap, opened: worker::Opened, now: Nanos) {
        match opened {
            Err(error) if error.is_passing() => self.census.hint(read.pid),
            Err(OpenError::Ending) => {}
            Err(OpenError::WrongProcess { .. }) if self.is_borrowed(read, map) => {}
            Err(error) => self.found_unreadable(read, map, &error, now),
            Ok((mapped, about)) => self.found_table(read, map, (mapped, about), now),
        }
    }

    /// Whether a table is that of another worker: a process shows the memory of its parent between
    /// `vfork` and `exec`.
    fn is_borrowed(&self, read: &Read, map: &TableMap) -> bool {
        let others = self.workers.values().filter(|watched| watched.pid != read.pid);
        others
            .filter(|watched| watched.mapped.is_some())
            .any(|watched| watched.inode() == Some(map.inode))
    }

    pub(super) fn add(
        &mut self,
        read: &Read,
        map: Option<TableMap>,
        about: About,
        told: Removals,
        now: Nanos,
    ) -> Worker {
        let number = self.number();
        let identity = self.identity(read, &about);
        let tracker = Tracker::new(number, now, told);
        let mut watched = Watched::new(number, (read.pid, read.start), map, tracker);
        watched.index = about.index;
        self.workers.insert(number, watched);
        let names = about.identities.clone();
        self.introduce(number, WorkerName { identity, about }, now);
        self.tell(number, now, Fact::Found);
        self.renew(&names, now);
        number
    }

    fn found_unreadable(&mut self, read: &Read, map: &TableMap, error: &OpenError, now: Nanos) {
        tracing::warn!(pid = read.pid, error = chain(error), "a worker's table cannot be read");
        let number = self.add(read, Some(map.clone()), About::unread(), Removals::default(), now);
        self.cover(number, Source::Table, Sight::Blind(error.reason()), now);
        // Its marks can be heard all the same.
        self.attach(number, &read.maps, now);
    }

    fn found_table(&mut self, read: &Read, map: &TableMap, opened: (Mapped, About), now: Nanos) {
        let (mapped, about) = opened;
        let Ok(table) = mapped.table() else {
            return;
        };
        let (header, counters) = (table.header(), table.counters());
        // What a worker removed before this agent came is history; one that was opened later has
        // none.
        let before = if Nanos(header.opened_at) >= self.started_at {
            Removals::default()
        } else {
            Removals::through(counters.removals)
        };
        let past = self.past(read, &about, before);
        let history = History::read(&table, &past.told);
        tracing::info!(
            pid = read.pid,
            index = about.index,
            role = about.role,
            engine = about.engine,
            "found a worker"
        );
        let receives = about.role == "decode";
        let number = self.add(read, Some(map.clone()), about, past.told.clone(), now);
        if receives {
            self.tell(number, now, Fact::Receives);
        }
        self.teller.meet(number, &past);
        if let Some(watched) = self.workers.get_mut(&number) {
            watched.mapped = Some(mapped);
        }
        self.attach(number, &read.maps, now);
        for (name, bytes) in history.bytes {
            if let Some(peer) = self.names.peer(name) {
                self.tell(number, now, Fact::History(peer, bytes, history.whole));
            }
        }
        self.scan(number, now, true);
        self.resume(number, &past, now);
    }

    /// Reads a worker's table; with `threads`, what its threads are doing as well.
    pub(super) fn scan(&mut self, number: Worker, now: Nanos, threads: bool) {
        let pid = self.workers.get(&number).map_or(0, |watched| watched.pid);
        let threads =
            if threads { proc::threads(pid).unwrap_or_default() } else { BTreeMap::new() };
        let mut sight = None;
        self.with(number, |watched, out| {
            let mapped = watched.mapped.take();
            if let Some(table) = mapped.as_ref().and_then(|mapped| mapped.table().ok()) {
                watched.tracker.scan(&table, now, out);
                if !threads.is_empty() {
                    watched.tracker.scan_threads(&table, now, &threads, out);
                }
                sight = Some(watched.table_sight(&table.counters(), now));
            }
            if let Some(mapped) = &mapped {
                mapped.release();
            }
            watched.mapped = mapped;
        });
        if let Some(sight) = sight {
            self.cover(number, Source::Table, sight, now);
        }
    }

    /// Where something is due, whether the schedulers have polled their queues since may decide it,
    /// and the tables, which say so, are read twice a second only. To be called before records are
    /// taken: of a poll that is known, all that it took out must be known as well.
    pub(super) fn read_beats(&mut self, now: Nanos) {
        if self.ledger.deadline().is_none_or(|due| due > now) {
            return;
        }
        let stale = self.workers.values().filter(|watched| watched.tracker.wants_beat(now));
        for number in stale.map(|watched| watched.number).collect::<Vec<_>>() {
            self.with(number, |watched, out| {
                if let Some(table) = watched.mapped.as_ref().and_then(|mapped| mapped.table().ok())
                {
                    watched.tracker.read_beat(&table, now, out);
                }
            });
        }
    }

    /// Reads the tables of all workers.
    pub(super) fn scan_all(&mut self, now: Nanos, threads: bool) {
        let numbers: Vec<Worker> = self.workers.keys().copied().collect();
        for number in numbers {
            self.scan(number, now, threads);
        }
    }

    /// Tells how well a source sees a worker, where that is news.
    pub(super) fn cover(&mut self, number: Worker, source: Source, sight: Sight, now: Nanos) {
        let is_news =
            self.workers.get_mut(&number).is_some_and(|watched| watched.is_news(source, sight));
        if is_news {
            self.tell(number, now, Fact::Cover(source, sight));
        }
    }

    pub(super) fn tell(&mut self, worker: Worker, at: Nanos, fact: Fact) {
        self.events.push(Event { at, worker, fact });
    }

    /// A process has ended: its workers with it.
    pub(super) fn process_gone(&mut self, pid: u32, at: Nanos) {
        for number in self.workers_of(pid) {
            self.end(number, at);
        }
        self.loads.note(pid, None);
        if self.strangers.remove(&pid).is_some() {
            self.hits.forget(pid);
        }
        self.crowded.retain(|(crowded, _)| *crowded != pid);
        self.neighbour_gone(pid, at);
        self.peer_process_gone(pid, at);
    }

    /// The workers of a process: one for each table that it has opened.
    pub(super) fn workers_of(&self, pid: u32) -> Vec<Worker> {
        let of = self.workers.values().filter(|watched| watched.pid == pid);
        of.map(|watched| watched.number).collect()
    }

    pub(super) fn end(&mut self, number: Worker, at: Nanos) {
        // The table outlives its worker for as long as it is mapped here: its last words count.
        self.scan(number, at, false);
        self.tell(number, at, Fact::Ended);
        if let Some(mut watched) = self.workers.remove(&number) {
            watched.ended_at = Some(at);
            let Tally { disagreements, unplaced, torn, evicted, refused } = watched.tracker.tally();
            tracing::info!(
                pid = watched.pid,
                disagreements,
                unplaced,
                torn,
                evicted,
                refused,
                "a worker has ended"
            );
            self.ended.push(watched);
        }
    }
}

/// Workers that are watched, by number.
pub(super) type Workers = BTreeMap<Worker, Watched>;
