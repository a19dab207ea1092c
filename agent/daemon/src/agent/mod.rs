//! The agent: sources in, the ledger in the middle, lines out.
//!
//! One thread does everything, so facts reach the ledger in one order, which a capture keeps.

mod census;
mod peers;
mod records;

use std::io;

use inflightd_core::fact::Worker;
use inflightd_core::{Event, Fact, Ledger, Nanos, Output, Policy, Source};

use census::Workers;
pub use census::chain;
use peers::Peers;

use crate::clock::Clock;
use crate::discover::Census;
use crate::hits::Hits;
use crate::names::Names;
use crate::sink::{Sink, Writer};
use crate::worker::Watched;

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
    hits: Hits,
    peers: Peers,
    events: Vec<Event>,
    ledger: Ledger,
    sink: Sink,
    unplaced: u64,
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
    /// Deadlines.
    pub policy: Policy,
    /// Where lines go.
    pub sink: Sink,
}

impl Agent {
    /// An agent that has seen nothing yet.
    pub fn new(parts: Parts) -> Self {
        Self {
            boot: parts.boot,
            started_at: Clock::now(),
            clock: Clock::read(),
            census: parts.census,
            names: Names::default(),
            workers: Workers::new(),
            ended: Vec::new(),
            next_worker: 0,
            hits: parts.hits,
            peers: Peers::default(),
            events: Vec::new(),
            ledger: Ledger::new(parts.policy),
            sink: parts.sink,
            unplaced: 0,
        }
    }

    /// Takes what is in the ring, and re-reads the tables where something was lost.
    pub fn drain(&mut self, now: Nanos) -> io::Result<()> {
        let mut records = Vec::new();
        let drained = self.hits.drain(&mut |record| records.push(record));
        for record in &records {
            self.take(record);
        }
        if drained.lost > 0 {
            self.lose(now, drained.lost);
        }
        if self.census.is_hinted() {
            self.look(now);
        }
        self.meter_newcomers(now);
        self.pump(now)
    }

    fn lose(&mut self, now: Nanos, lost: u64) {
        let numbers: Vec<Worker> = self.workers.keys().copied().collect();
        for number in numbers {
            for source in [Source::Marks, Source::Transfers, Source::Completions, Source::Exits] {
                self.tell(number, now, Fact::Lose(source, lost));
            }
            self.scan(number, now, true);
        }
    }

    /// Looks for workers.
    pub fn census(&mut self, now: Nanos) -> io::Result<()> {
        self.look(now);
        self.pump(now)
    }

    /// Reads the tables.
    pub fn read_tables(&mut self, now: Nanos) -> io::Result<()> {
        self.scan_all(now, false);
        self.pump(now)
    }

    /// Attaches the probes to a worker's process.
    fn attach(&mut self, number: Worker, now: Nanos) {
        let Some(pid) = self.workers.get(&number).map(|watched| watched.pid) else {
            return;
        };
        let seen = self.hits.attach(pid);
        for (source, sight) in seen.sights {
            self.cover(number, source, sight, now);
        }
        if let Some(distance) = seen.distance {
            self.tell(number, now, Fact::FlushDistance(distance));
        }
    }

    /// Ends: what is in the ring is still told.
    pub fn finish(mut self, now: Nanos) -> io::Result<()> {
        self.drain(now)
    }

    /// When the ledger wants to be ticked.
    pub fn deadline(&self) -> Option<Nanos> {
        self.ledger.deadline()
    }

    /// Feeds the ledger what this round brought, in the order of time, and writes what it says.
    pub fn pump(&mut self, now: Nanos) -> io::Result<()> {
        let mut events = std::mem::take(&mut self.events);
        events.sort_by_key(|event| event.at);
        for event in &events {
            self.ledger.observe(event);
        }
        if self.ledger.deadline().is_some_and(|due| due <= now) {
            self.ledger.tick(now);
        }
        while let Some(output) = self.ledger.poll() {
            self.write(&output)?;
        }
        for watched in std::mem::take(&mut self.ended) {
            self.names.end_worker(watched.number);
            self.forget_peers(watched.number, watched.pid);
            if self.workers.values().all(|other| other.pid != watched.pid) {
                self.hits.forget(watched.pid);
            }
        }
        Ok(())
    }

    fn write(&mut self, output: &Output) -> io::Result<()> {
        let writer = Writer { names: &self.names, clock: self.clock };
        self.sink.write(&writer.line(output))?;
        if let Output::Dwell(dwell) = output {
            self.names.remove_room(dwell.worker, dwell.seq);
        }
        Ok(())
    }
}
