//! What goes over RDMA, beside the sockets.

use std::io;

use inflightd_core::Nanos;
use inflightd_core::fact::Worker;

use super::Agent;
use crate::meters::{Reading, Wanted};

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
                let hidden = watched.uncounted.verbs && !found.listed.contains(&wanted.pid);
                watched.uncounted.rdma = hidden || found.uncounted.contains(&wanted.worker);
            }
        }
    }
}
