//! Processes beside those that `--pid` names. They are not followed, no probe is set for them and
//! nothing is told of their rooms; but a worker's far end may be among them, and a peer on this
//! node is not one that is elsewhere. All that is read of them is `/proc` and the head of their
//! tables.

use std::collections::BTreeMap;

use inflightd_abi::table::WORKERS_MAX;
use inflightd_core::Nanos;
use inflightd_core::fact::Worker;

use super::Agent;
use super::whose::Process;
use crate::discover::Read;
use crate::names::{NEIGHBOUR, WorkerName};
use crate::probe::is_telling;
use crate::proc::lives;
use crate::worker;

/// Most neighbours that are known. The victim is the newcomer.
const NEIGHBOURS_MAX: usize = 4096;

/// A process that is not followed and could be a far end.
#[derive(Debug)]
struct Neighbour {
    start: u64,
    found_at: Nanos,
    /// The numbers of its workers, by the inode of their table.
    tables: BTreeMap<u64, Worker>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    of: BTreeMap<u32, Neighbour>,
    by_number: BTreeMap<Worker, Process>,
    next: u32,
}

impl Neighbours {
    /// The living process of a neighbour's number.
    pub(super) fn process(&self, number: Worker) -> Option<Process> {
        self.by_number.get(&number).copied()
    }

    /// The numbers of all that state who they are.
    pub(super) fn numbers(&self) -> impl Iterator<Item = Worker> + '_ {
        self.by_number.keys().copied()
    }

    /// Every process, also those without a table.
    pub(super) fn pids(&self) -> impl Iterator<Item = u32> + '_ {
        self.of.keys().copied()
    }

    /// Whether a process was known at `at`.
    pub(super) fn knew(&self, (pid, start): Process, at: Nanos) -> bool {
        self.of.get(&pid).is_some_and(|known| known.start == start && known.found_at <= at)
    }

    fn number(&mut self) -> Worker {
        let number = Worker(NEIGHBOUR | self.next);
        // After two thousand million of them numbers are used again, long after anybody asks.
        self.next = (self.next + 1) % NEIGHBOUR;
        number
    }
}

impl Agent {
    /// Takes note of a process that was read and is not followed.
    pub(super) fn note_neighbour(&mut self, read: &Read, now: Nanos) {
        let known = self.neighbours.of.get(&read.pid);
        let is_another = known.is_some_and(|known| known.start != read.start);
        let maps_library = read.maps.objects.iter().any(|object| is_telling(&object.path));
        let may_be_peer = maps_library || !read.maps.tables.is_empty();
        if is_another || (known.is_some() && !may_be_peer) {
            self.process_gone(read.pid, now);
        }
        let is_known = self.neighbours.of.contains_key(&read.pid);
        if !may_be_peer || (!is_known && self.neighbours.of.len() >= NEIGHBOURS_MAX) {
            return;
        }
        let fresh = Neighbour { start: read.start, found_at: now, tables: BTreeMap::new() };
        let tables = &mut self.neighbours.of.entry(read.pid).or_insert(fresh).tables;
        let is_mapped = |inode: &u64| read.maps.tables.iter().any(|map| map.inode == *inode);
        let closed: Vec<Worker> =
            tables.extract_if(.., |inode, _| !is_mapped(inode)).map(|(_, number)| number).collect();
        for number in closed {
            self.end_neighbour(number, now);
        }
        self.read_neighbour(read, now);
    }

    /// Reads who a neighbour's new tables say that they are.
    fn read_neighbour(&mut self, read: &Read, now: Nanos) {
        for map in read.maps.tables.iter().take(WORKERS_MAX) {
            let known = self.neighbours.of.get(&read.pid);
            if known.is_none_or(|known| known.tables.contains_key(&map.inode)) {
                continue;
            }
            let about = match worker::open(read.pid, read.start, map) {
                Ok((_, about)) => about,
                Err(error) => {
                    if error.is_passing() {
                        self.census.again(read.pid);
                    }
                    continue;
                }
            };
            let number = self.neighbours.number();
            if let Some(known) = self.neighbours.of.get_mut(&read.pid) {
                known.tables.insert(map.inode, number);
            }
            self.neighbours.by_number.insert(number, (read.pid, read.start));
            let (identity, names) = (self.identity(read, &about), about.identities.clone());
            self.names.add_worker(number, WorkerName { identity, about });
            self.renew(&names, now);
        }
    }

    fn end_neighbour(&mut self, number: Worker, at: Nanos) {
        self.neighbours.by_number.remove(&number);
        self.names.end_worker(number, at);
    }

    /// A process has ended: it is nobody's neighbour any more.
    pub(super) fn neighbour_gone(&mut self, pid: u32, at: Nanos) {
        let gone = self.neighbours.of.remove(&pid);
        for number in gone.into_iter().flat_map(|gone| gone.tables.into_values()) {
            self.end_neighbour(number, at);
        }
    }

    /// The neighbours whose process has gone.
    pub(super) fn gone_neighbours(&self) -> Vec<u32> {
        let gone = self.neighbours.of.iter().filter(|(pid, known)| !lives(**pid, known.start));
        gone.map(|(pid, _)| *pid).collect()
    }
}
