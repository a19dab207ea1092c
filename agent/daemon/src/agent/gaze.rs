//! The agent looks at what it knows: once a second for the instruments, and when it is asked.

use inflightd_core::Nanos;
use inflightd_core::fact::Worker;

use super::Agent;
use crate::names::WorkerName;

impl Agent {
    /// A worker was found: everything that is kept by worker begins.
    pub(super) fn introduce(&mut self, number: Worker, name: WorkerName, now: Nanos) {
        self.glances.meet(number, now);
        self.teller.instruments().meet(number, &name);
        self.names.add_worker(number, name);
    }

    /// Brings the instruments up to date.
    pub(super) fn gaze(&mut self, now: Nanos) {
        let instruments = self.teller.instruments();
        for number in self.workers.keys() {
            if let Some(glance) = self.glances.look(&self.ledger, *number, now) {
                instruments.show(*number, glance);
            }
        }
        instruments.set_counts(self.ledger.misfits(), self.hits.links(), &self.mishaps);
    }
}
