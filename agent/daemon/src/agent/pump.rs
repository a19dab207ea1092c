//! The ledger fed, and what it says written.

use std::io;

use inflightd_capture::{Input, feed};
use inflightd_core::fact::Worker;
use inflightd_core::{Nanos, Output};

use super::Agent;
use crate::replay::said;
use crate::sink::Writer;

/// Inputs that the ledger is given before what it says is written: what waits takes memory.
const INPUTS_MAX: usize = 512;

impl Agent {
    /// Feeds the ledger what this round brought, in the order of time, and writes what it says.
    pub(super) fn pump(&mut self, now: Nanos) -> io::Result<()> {
        let mut events = std::mem::take(&mut self.events);
        // What happened before a worker was found comes after the finding, which says what was unseen.
        events.sort_by_key(|event| event.at.max(self.found_at(event.worker)));
        self.teller.settle(&self.names, self.clock, now)?;
        let mut events = events.into_iter();
        let mut told = false;
        loop {
            let mut inputs: Vec<Input> =
                events.by_ref().take(INPUTS_MAX).map(Input::Event).collect();
            for input in &inputs {
                feed(&mut self.ledger, input);
            }
            let is_last = events.len() == 0;
            if is_last && self.ledger.deadline().is_some_and(|due| due <= now) {
                feed(&mut self.ledger, &Input::Tick(now));
                inputs.push(Input::Tick(now));
            }
            if !inputs.is_empty() {
                told = true;
                self.teller.record(&mut self.names, &inputs);
                let outputs = said(&mut self.ledger);
                self.heap.worked((inputs.len() + outputs.len()) as u64);
                for output in outputs {
                    self.write(&output, now)?;
                }
                for (worker, seq) in self.ledger.take_forgotten() {
                    self.names.remove_room(worker, seq);
                }
            }
            if is_last {
                break;
            }
        }
        if !told {
            return Ok(());
        }
        for watched in self.workers.values_mut() {
            if let Some(through) = watched.tracker.take_given_up() {
                self.teller.give_up(watched.number, through);
            }
        }
        self.take_leave(now)
    }

    fn found_at(&self, worker: Worker) -> Nanos {
        let ended = || self.ended.iter().find(|watched| watched.number == worker);
        let watched = self.workers.get(&worker).or_else(ended);
        watched.map_or(Nanos::ZERO, |watched| watched.tracker.found_at())
    }

    fn write(&mut self, output: &Output, now: Nanos) -> io::Result<()> {
        let removal = match output {
            Output::Dwell(dwell) => self.removal_of(dwell.worker, dwell.seq),
            _ => 0,
        };
        self.glances.take(output);
        let writer = Writer { names: &self.names, clock: self.clock };
        self.teller.write(output, writer, (removal, now))?;
        if let Output::Dwell(dwell) = output
            && !dwell.held
        {
            self.names.remove_room(dwell.worker, dwell.seq);
        }
        Ok(())
    }

    /// Forgets the workers that have ended, now that their last lines are written.
    fn take_leave(&mut self, now: Nanos) -> io::Result<()> {
        for watched in std::mem::take(&mut self.ended) {
            let writer = Writer { names: &self.names, clock: self.clock };
            // Not when it is noted: who began in between never knew it.
            let at = watched.ended_at.unwrap_or(now);
            self.teller.end(watched.number, writer, at)?;
            self.glances.end(watched.number);
            self.teller.instruments().end(watched.number);
            self.names.end_worker(watched.number, at);
            self.forget_peers(watched.number, watched.pid);
            let is_free = self.workers.values().all(|other| other.pid != watched.pid);
            if is_free && !self.strangers.contains_key(&watched.pid) {
                self.hits.forget(watched.pid);
            }
        }
        Ok(())
    }
}
