//! The agent: sources in, the ledger in the middle, lines out.
//!
//! One thread does everything, so facts reach the ledger in one order, which a capture keeps.

mod answer;
mod arming;
mod candidates;
mod census;
mod fail;
mod fresh;
mod gaze;
mod limit;
mod loads;
mod neighbours;
mod past;
mod peers;
mod pump;
mod rdma;
mod records;
mod teller;
mod unhooked;
mod whose;

use std::collections::BTreeSet;
use std::io;

use inflightd_core::fact::Worker;
use inflightd_core::{Event, Fact, Ledger, Nanos, Reason, Sight, Source};

use census::Workers;
use fail::Fails;
use fresh::Fresh;
use loads::Loads;
use neighbours::Neighbours;
use peers::Peers;
pub use teller::{After, Teller, TellerParts};
use unhooked::Strangers;

use crate::clock::Clock;
use crate::config::{Config, ForceFail, Setting};
use crate::desk::Desk;
use crate::discover::Census;
use crate::glance::Glances;
use crate::heap::Heap;
use crate::hits::{Drained, Hits, Seen};
use crate::names::Names;
use crate::proc::Maps;
use crate::reload::NewExport;
use crate::views::HttpView;
use crate::worker::{Uncounted, Watched};

/// The fields of a handle were not those of a handle, although its build is known.
const DOUBTED: Sight = Sight::Degraded(Reason::SelfCheckFailed);
/// Most batches of records taken in one round: as many as a full ring of the smallest records is.
/// What came before the round is read then, and a flood keeps neither the tables from being read
/// nor facts in memory that could be judged.
const BATCHES_MAX: usize = 104;
/// Wall time that is off by more than this is set anew.
const CLOCK_STEP: Nanos = Nanos::from_millis(1);

/// Everything that the agent knows.
#[derive(Debug)]
pub struct Agent {
    boot: String,
    started_at: Nanos,
    clock: Clock,
    census: Census,
    names: Names,
    workers: Workers,
    /// Workers that ended in this round: their last lines are still to be written.
    ended: Vec<Watched>,
    next_worker: u32,
    peers: Peers,
    fresh: Fresh,
    loads: Loads,
    strangers: Strangers,
    neighbours: Neighbours,
    /// Living processes, with their start times, of which it was said that they have too many
    /// tables.
    crowded: BTreeSet<(u32, u64)>,
    events: Vec<Event>,
    ledger: Ledger,
    glances: Glances,
    fails: Fails,
    force_fail: ForceFail,
    heap: Heap,
    teller: Teller,
    /// Where the loop is asked.
    desk: Desk,
    /// Every value in force.
    settings: Vec<Setting>,
    http: HttpView,
    /// Marks of processes that were not known as workers.
    unplaced: u64,
    mishaps: Vec<(&'static str, u64)>,
    /// The last field: however the agent ends, its links are closed last, which takes seconds.
    hits: Hits,
}

/// What the agent is made of.
#[derive(Debug)]
pub struct Parts {
    /// Identity of this boot.
    pub boot: String,
    /// Where workers are looked for.
    pub census: Census,
    /// The probes.
    pub hits: Hits,
    /// The configuration in force.
    pub config: Config,
    /// Monotonic to wall time.
    pub clock: Clock,
    /// Where lines go.
    pub teller: Teller,
    /// Where the loop is asked.
    pub desk: Desk,
    /// Where the agent listens.
    pub http: HttpView,
}

impl Agent {
    /// An agent that has seen nothing yet.
    pub fn new(parts: Parts) -> Self {
        let mut agent = Self {
            boot: parts.boot,
            started_at: Clock::now(),
            clock: parts.clock,
            census: parts.census,
            names: Names::default(),
            workers: Workers::new(),
            ended: Vec::new(),
            next_worker: 0,
            peers: Peers::default(),
            fresh: Fresh::default(),
            loads: Loads::default(),
            strangers: Strangers::new(),
            neighbours: Neighbours::default(),
            crowded: BTreeSet::new(),
            events: Vec::new(),
            ledger: Ledger::new(parts.config.policy),
            glances: Glances::default(),
            fails: Fails::default(),
            force_fail: parts.config.force_fail,
            heap: Heap::default(),
            teller: parts.teller,
            desk: parts.desk,
            settings: parts.config.settings,
            http: parts.http,
            unplaced: 0,
            mishaps: Vec::new(),
            hits: parts.hits,
        };
        agent.remember_gone();
        agent
    }

    /// Takes what is in the ring, and re-reads the tables where something was lost.
    pub fn drain(&mut self, now: Nanos) -> io::Result<()> {
        self.read_beats(now);
        self.take_records(now);
        self.meter_newcomers(now);
        self.pump(now)
    }

    /// Looks at everything before anything is judged: for an agent that was not let run for a
    /// while, to whom all seems to have stood still.
    pub fn catch_up(&mut self, now: Nanos) -> io::Result<()> {
        self.take_records(now);
        self.scan_all(now, false);
        self.meters(now)
    }

    /// Takes what is in the ring. Whether more was in it than is taken in one round.
    fn take_records(&mut self, now: Nanos) -> bool {
        let mut records = Vec::new();
        let mut more = true;
        for _ in 0..BATCHES_MAX {
            records.clear();
            let drained = self.hits.drain(&mut |record| records.push(record));
            self.teller.instruments().read_records(records.len() as u64);
            for record in &records {
                self.take(record);
            }
            if drained.lost > 0 {
                self.lose(now, &drained);
            }
            more = drained.more;
            if !more {
                break;
            }
        }
        self.bury_ending(now);
        let before = self.next_worker;
        for read in self.census.look_hinted(now) {
            self.reconcile(&read, now);
        }
        if self.next_worker > before {
            self.meet(now);
        }
        self.look_at_failed(now);
        more
    }

    /// Records were lost: each worker learns of those that may have been of its process. Ends of
    /// other processes matter to all.
    fn lose(&mut self, now: Nanos, drained: &Drained) {
        let pids: Vec<(Worker, u32)> =
            self.workers.iter().map(|(number, watched)| (*number, watched.pid)).collect();
        for (number, pid) in pids {
            let lost = drained.lost_by(pid);
            if lost > 0 {
                self.with(number, |watched, out| watched.tracker.lose_untabled(now, out));
                for source in [Source::Marks, Source::Transfers, Source::Completions] {
                    self.tell(number, now, Fact::Lose(source, lost));
                }
            }
            if drained.lost_ends {
                self.tell(number, now, Fact::Lose(Source::Exits, drained.lost));
            }
            if lost > 0 || drained.lost_ends {
                self.scan(number, now, true);
            }
        }
    }

    /// Looks for workers.
    pub fn census(&mut self, now: Nanos) -> io::Result<()> {
        let clock = Clock::read();
        if clock.offset().abs_diff(self.clock.offset()) > CLOCK_STEP.0 {
            self.clock = clock;
            self.teller.offset(clock);
        }
        self.look(now);
        self.hits.sweep(now);
        self.bury_strangers(now);
        self.sweep_peers();
        let mishaps = self.hits.mishaps();
        if mishaps != self.mishaps {
            tracing::warn!(?mishaps, "failures inside the kernel programs, so far");
            self.mishaps = mishaps;
        }
        self.pump(now)?;
        self.fail_by_policy(now)?;
        self.gaze(now);
        self.desk.health.set_lacks(self.teller.lacks());
        self.heap.tend(now);
        self.desk.health.set_ready();
        Ok(())
    }

    /// Reads the tables.
    pub fn read_tables(&mut self, now: Nanos) -> io::Result<()> {
        self.scan_all(now, false);
        self.take_records(now);
        self.pump(now)
    }

    /// The configuration was read again: another one is in force, with what its export needs, or
    /// an error kept the old one.
    pub fn reloaded(&mut self, new: Option<(&Config, NewExport)>) {
        self.teller.instruments().reloaded(new.is_some());
        if let Some((config, export)) = new {
            self.settings.clone_from(&config.settings);
            self.ledger.set_policy(config.policy);
            self.force_fail.clone_from(&config.force_fail);
            self.fails.mend();
            self.teller.reconfigure(config, export);
        }
    }

    /// Attaches the probes to a worker's process.
    fn attach(&mut self, number: Worker, maps: &Maps, now: Nanos) {
        let Some(pid) = self.workers.get(&number).map(|watched| watched.pid) else {
            return;
        };
        let hooked = self.workers.get(&number).is_some_and(|watched| watched.hooked);
        let seen = self.hits.attach(pid, maps, hooked);
        if seen.unfinished {
            self.census.hint(pid);
        }
        self.cover_seen(number, seen, now);
    }

    /// Tells how well the probes see a worker.
    fn cover_seen(&mut self, number: Worker, seen: Seen, now: Nanos) {
        let Some(watched) = self.workers.get_mut(&number) else {
            return;
        };
        watched.uncounted = Uncounted { rdma: watched.uncounted.rdma, ..seen.uncounted };
        let (implausible, hooked) = (watched.implausible, watched.hooked);
        for (source, sight) in seen.sights {
            let sight = match sight {
                Sight::Visible if implausible && source == Source::Transfers => DOUBTED,
                _ if !hooked && source == Source::Marks => Sight::Blind(Reason::NoHook),
                sight => sight,
            };
            self.cover(number, source, sight, now);
        }
        if let Some(distance) = seen.distance {
            self.tell(number, now, Fact::FlushDistance(distance));
        }
    }

    /// Ends: what is in the ring is still told, written and exported. The probes come off
    /// meanwhile, and only they are waited for at the end: the kernel takes about 0.1 s for each.
    /// Whoever loses patience and kills loses nothing then, and the state directory is free for the
    /// next agent.
    pub fn finish(mut self, now: Nanos) -> io::Result<()> {
        let drained = self.drain(now);
        self.hits.let_go();
        let told = drained.and_then(|()| self.teller.finish(&self.names, self.clock, now));
        let Self { teller, hits, .. } = self;
        drop(teller);
        hits.end();
        told
    }

    /// When the ledger wants to be ticked.
    pub fn deadline(&self) -> Option<Nanos> {
        self.ledger.deadline()
    }
}
