//! How far the open batches of Mooncake are, read from their memory while a room is a suspect.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use inflightd_abi::record::{Batch, Kind};
use inflightd_core::fact::{Handle, Tid, Worker};
use inflightd_core::{Fact, Nanos};

use super::Agent;
use crate::clock::Clock;
use crate::hits::Hits;
use crate::meters::batch;
use crate::probe::BatchLayout;

/// Most open batches of one process that are known at once: the first are the likeliest to be stuck.
const OPEN_MAX: usize = 4096;
/// Most of them that are read in one round.
const READ_MAX: usize = 64;

/// The open batches of each process, in the order in which they were submitted.
pub(super) type Batches = BTreeMap<u32, Vec<Open>>;

/// A batch that was submitted and not freed.
#[derive(Debug)]
pub(super) struct Open {
    batch: Handle,
    worker: Worker,
    /// Whether the ledger was told of what arrived.
    told: bool,
}

impl Agent {
    /// A batch was submitted, or freed.
    pub(in crate::agent) fn take_batch(&mut self, kind: Kind, record: &Batch) {
        let (pid, tid, at) = (record.head.tgid, Tid(record.head.tid), Nanos(record.head.at));
        let batch = Handle(record.batch);
        let begins = kind == Kind::Batch;
        let fact = if begins { Fact::Batch(tid, batch) } else { Fact::BatchEnd(batch) };
        let Some(worker) = self.tell_wire(pid, tid, at, fact) else { return };
        let open = self.peers.arming.batches.entry(pid).or_default();
        open.retain(|open| open.batch != batch);
        if begins && open.len() < OPEN_MAX {
            open.push(Open { batch, worker, told: false });
        }
    }

    /// Reads the batches of those processes that have a suspect.
    pub(super) fn read_batches(&mut self, wanted: impl Fn(u32) -> bool) {
        let workers = &self.workers;
        let batches = &mut self.peers.arming.batches;
        batches.retain(|pid, open| {
            !open.is_empty() && workers.values().any(|watched| watched.pid == *pid)
        });
        let mut told = Vec::new();
        for (pid, open) in batches.iter_mut().filter(|(pid, _)| wanted(**pid)) {
            let Some(layout) = self.hits.batch_layout(*pid) else { continue };
            told.extend(read_all(*pid, open, layout));
        }
        for (number, at, fact) in told {
            if self.workers.contains_key(&number) {
                self.tell(number, at, fact);
            }
        }
    }
}

/// One that cannot be read is not one any more: its end was lost, or its process ends.
fn read_all(pid: u32, open: &mut Vec<Open>, layout: BatchLayout) -> Vec<(Worker, Nanos, Fact)> {
    let memory = File::open(Path::new("/proc").join(pid.to_string()).join("mem"));
    let memory =
        memory.inspect_err(|error| tracing::debug!(pid, %error, "opening its memory")).ok();
    let mut told = Vec::new();
    let mut looked = 0;
    open.retain_mut(|open| {
        looked += 1;
        if looked > READ_MAX {
            return true;
        }
        let arrived = memory.as_ref().and_then(|memory| {
            let arrived = batch::arrived(memory, open.batch.0, layout);
            arrived.inspect_err(|error| tracing::debug!(pid, %error, "reading a batch")).ok()
        });
        if arrived.is_some() || open.told {
            told.push((open.worker, Clock::now(), Fact::BatchRead(open.batch, arrived)));
        }
        open.told = arrived.is_some();
        open.told
    });
    told
}

impl Hits {
    fn batch_layout(&self, pid: u32) -> Option<BatchLayout> {
        match self {
            Self::Off => None,
            Self::On(probes) => probes.batch_layout(pid),
        }
    }
}
