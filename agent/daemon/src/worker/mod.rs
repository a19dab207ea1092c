//! One worker: its process, its table and its queue.

mod convert;
mod history;
mod out;
mod removals;
mod tracker;
mod work;

use std::collections::BTreeMap;

use inflightd_abi::table::{Counters, Gauge, Table};
use inflightd_core::fact::Worker;
use inflightd_core::{Nanos, Reason, Sight, Source};

pub use convert::{outcome, phase};
pub use history::History;
pub use out::Out;
pub use removals::Removals;
pub use tracker::{Open, Tally, Tracker};
pub use work::Work;

use crate::names::About;
use crate::proc::{self, Stat, TableMap, lives};
use crate::table::{Mapped, OpenError};

/// So long after a room last found a table full the table's word is doubted.
const FULL_DOUBT: Nanos = Nanos::from_secs(60);
/// The same for a thread that found no place: it may stay in one call for minutes.
const THREADS_DOUBT: Nanos = Nanos::from_secs(600);

/// A process counts as stopped after so long: who takes its stacks stops it for less.
const STOPPED: Nanos = Nanos::from_secs(2);

/// Ways for a worker's payload that nothing counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uncounted {
    /// It has an RDMA device open: no way by itself.
    pub verbs: bool,
    /// It can write into processes of its own node past its sockets.
    pub direct: bool,
    /// It has RDMA queue pairs of which it does not show what they have sent, or an RDMA device open
    /// and none that the kernel lists.
    pub rdma: bool,
}

impl Uncounted {
    /// Whether there is one.
    pub const fn any(self) -> bool {
        self.direct || self.rdma
    }
}

/// A worker under watch.
#[derive(Debug)]
pub struct Watched {
    /// Its number.
    pub number: Worker,
    /// Process id in the host's namespace.
    pub pid: u32,
    /// Start time of the process.
    pub start: u64,
    /// Where it maps its table; `None` for one that has none, or has ended.
    pub map: Option<TableMap>,
    /// Index of the worker inside its process, as marks give it.
    pub index: u64,
    /// The table; `None` where it could not be opened.
    pub mapped: Option<Mapped>,
    /// Whether it has, or had, a table; without the hook it has none.
    pub hooked: bool,
    /// Its queue.
    pub tracker: Tracker,
    /// The fields of a handle were not those of a handle, although its build is known.
    pub implausible: bool,
    /// Ways for its payload that nothing counts.
    pub uncounted: Uncounted,
    /// When its process ended, once it has.
    pub ended_at: Option<Nanos>,
    /// When its process was first seen stopped; `None` while it runs.
    stopped_since: Option<Nanos>,
    /// What was last told of each source.
    pub sights: BTreeMap<Source, Sight>,
    full: Full,
    threads_full: Full,
    /// When a thread that had worked for its rooms last ended.
    pub lost_thread_at: Option<Nanos>,
    /// Most threads that were seen to hear from its peers; `None` once one has ended.
    listeners: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Full {
    count: u64,
    at: Option<Nanos>,
}

impl Full {
    /// Whether the table was found full within this time.
    fn is_doubted(&mut self, count: u64, now: Nanos, doubt: Nanos) -> bool {
        if count > self.count {
            *self = Self { count, at: Some(now) };
        }
        self.at.is_some_and(|at| now.since(at) < doubt)
    }
}

impl Watched {
    /// Takes a found table under watch.
    pub fn new(
        number: Worker,
        process: (u32, u64),
        map: Option<TableMap>,
        tracker: Tracker,
    ) -> Self {
        Self {
            number,
            pid: process.0,
            start: process.1,
            map,
            index: 0,
            mapped: None,
            hooked: true,
            tracker,
            implausible: false,
            uncounted: Uncounted::default(),
            ended_at: None,
            stopped_since: None,
            sights: BTreeMap::new(),
            full: Full::default(),
            threads_full: Full::default(),
            lost_thread_at: None,
            listeners: Some(0),
        }
    }

    /// Which table is its own.
    pub fn inode(&self) -> Option<u64> {
        self.map.as_ref().map(|map| map.inode)
    }

    /// The table, where it can be read.
    pub fn table(&self) -> Option<Table<'_>> {
        self.mapped.as_ref()?.table().ok()
    }

    /// What the worker says of itself.
    pub fn says(&self) -> Vec<(Gauge, u64)> {
        let table = self.table();
        let said = Gauge::ALL.into_iter().filter_map(|gauge| Some((gauge, table?.gauge(gauge)?)));
        said.collect()
    }

    /// Whether a thread that hears from its peers has ended, by what the worker says of itself; told
    /// once. A worker that says how many live has had at least one.
    pub fn has_lost_listener(&mut self, says: &[(Gauge, u64)]) -> bool {
        let alive = says.iter().find(|(gauge, _)| *gauge == Gauge::ListenersAlive);
        let (Some((_, alive)), Some(most)) = (alive, self.listeners) else {
            return false;
        };
        self.listeners = (*alive > 0 && *alive >= most).then_some(*alive);
        self.listeners.is_none()
    }

    /// Whether the process is still the one that was found.
    pub fn is_alive(&self) -> bool {
        lives(self.pid, self.start)
    }

    /// Looks whether the process is stopped: since when, where that has lasted for two seconds.
    pub fn stopped(&mut self, now: Nanos) -> Option<Nanos> {
        let is_stopped = Stat::of(self.pid).is_ok_and(|stat| stat.is_stopped());
        self.stopped_since = is_stopped.then(|| self.stopped_since.unwrap_or(now));
        self.stopped_since.filter(|since| now.since(*since) >= STOPPED)
    }

    /// How well the table sees, given its counters now.
    ///
    /// It is full for as long as rooms are open that found no entry, and for a while more: what was
    /// there before the agent came, or whose marks it missed, it cannot know.
    pub fn table_sight(&mut self, counters: &Counters, now: Nanos) -> Sight {
        let rooms = self.full.is_doubted(counters.overflows, now, FULL_DOUBT);
        let threads = self.threads_full.is_doubted(counters.threads_overflow, now, THREADS_DOUBT);
        if rooms || threads || self.tracker.has_untabled() {
            return Sight::Degraded(Reason::TableFull);
        }
        Sight::Visible
    }

    /// Whether its connections are worth reading: it can be seen to have rooms.
    pub const fn is_seen(&self) -> bool {
        self.mapped.is_some() || !self.hooked
    }

    /// Whether `sight` of `source` is news; remembers it.
    pub fn is_news(&mut self, source: Source, sight: Sight) -> bool {
        self.sights.insert(source, sight) != Some(sight)
    }
}

/// A table and what it says of its worker, or why it cannot be read.
pub type Opened = Result<(Mapped, About), OpenError>;

/// The index of a worker; of one that cannot be read, one behind all others.
pub fn index(opened: &Opened) -> u64 {
    opened.as_ref().map_or(u64::MAX, |(_, about)| about.index)
}

/// Opens the table that a process maps, and checks that it is that process's own.
pub fn open(pid: u32, start: u64, map: &TableMap) -> Opened {
    // One that cannot die hangs in the kernel, perhaps for ever: it is not read again and again.
    if proc::is_ending(pid) {
        return Err(OpenError::Ending);
    }
    let mapped = Mapped::open(pid, map)?;
    // Pids are used again: only now is it certain whose table was opened.
    if !Stat::of(pid).is_ok_and(|stat| stat.start == start) {
        return Err(OpenError::ProcessChanged);
    }
    let header = mapped.table().map_err(OpenError::Table)?.header();
    let found = proc::ns_ids(&format!("/proc/{pid}/status")).unwrap_or_default();
    if found.last().map(|id| u64::from(*id)) != Some(header.pid) {
        return Err(OpenError::WrongProcess { stated: header.pid, found });
    }
    Ok((mapped, About::of(&header)))
}
