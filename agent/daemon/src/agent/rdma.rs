//! What goes over RDMA, beside the sockets.

use std::io;

use inflightd_core::fact::Worker;
use inflightd_core::{Fact, Nanos};

use super::Agent;
use crate::meters::{Found, Reading, Wanted};

impl Agent {
    /// Adds what went over RDMA to a round of readings, and notes the workers of which that does
    /// not show. Nothing is read where there is no device.
    pub(super) fn add_rdma(
        &mut self,
        wanted: &[Wanted],
        readings: &mut [(Worker, io::Result<Reading>)],
        now: Nanos,
    ) {
        if !self.peers.rdma.is_present(now) {
            return;
        }
        let seen = self.hits.queues();
        let found = self.peers.rdma.add(wanted, readings, seen);
        for wanted in wanted {
            if let Some(watched) = self.workers.get_mut(&wanted.worker) {
                // Those of UCX on mlx5 are in no list.
                let listed = found.listed.contains_key(&wanted.pid);
                let hidden = watched.uncounted.verbs && !listed;
                watched.uncounted.rdma = hidden || found.uncounted.contains(&wanted.worker);
                if listed || hidden {
                    self.tell_troubles(wanted, &found, now);
                }
            }
        }
    }

    /// Tells what went wrong at the ports that a worker may use: those of its queue pairs, all where
    /// these are hidden.
    fn tell_troubles(&mut self, wanted: &Wanted, found: &Found, now: Nanos) {
        let devices = found.listed.get(&wanted.pid).cloned().unwrap_or_default();
        let suspect = self.ledger.has_suspects(wanted.worker);
        let counted = self.peers.rdma.troubles(wanted.worker, &devices, suspect, now);
        if let Some(counted) = counted {
            self.tell(wanted.worker, now, Fact::Ports(counted));
        }
    }
}
