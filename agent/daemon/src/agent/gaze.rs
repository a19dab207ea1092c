//! The agent looks at what it knows: once a second for the instruments, and when it is asked.

use inflightd_core::fact::Worker;
use inflightd_core::{Fact, Nanos};

use super::Agent;
use crate::glance::{Glance, Wedged, Why};
use crate::names::WorkerName;

impl Agent {
    /// A worker was found: everything that is kept by worker begins.
    pub(super) fn introduce(&mut self, number: Worker, name: WorkerName, now: Nanos) {
        self.glances.meet(number, now);
        self.teller.instruments().meet(number, &name);
        self.names.add_worker(number, name);
    }

    /// Looks at a worker: its rooms, and whether its process is let run.
    pub(super) fn glance(&mut self, number: Worker, now: Nanos) -> Option<Glance> {
        let mut glance = self.glances.look(&self.ledger, number, now)?;
        let watched = self.workers.get_mut(&number)?;
        glance.says = watched.says();
        if let Some(since) = watched.stopped(now) {
            glance.wedged = Some(Wedged { why: Why::Stopped, since });
        }
        Some(glance)
    }

    /// Brings the instruments up to date.
    pub(super) fn gaze(&mut self, now: Nanos) {
        let numbers: Vec<Worker> = self.workers.keys().copied().collect();
        for number in numbers {
            if let Some(glance) = self.glance(number, now) {
                let watched = self.workers.get_mut(&number);
                if watched.is_some_and(|watched| watched.has_lost_listener(&glance.says)) {
                    self.tell(number, now, Fact::ListenerEnded);
                }
                self.teller.instruments().show(number, glance);
            }
        }
        let instruments = self.teller.instruments();
        instruments.set_counts(self.ledger.misfits(), self.hits.links(), &self.mishaps);
        instruments.set_armed(self.peers.arming.held());
    }
}
