//! Reading the ring and the counters of what did not get into it.

use aya::{
    Ebpf,
    maps::{MapData, PerCpuArray, RingBuf},
};
use inflightd_abi::{
    mishap::Mishap,
    record::{KIND_SLOTS, Record},
};

use super::{
    load::{LoadError, take},
    logs::Logs,
};

/// Records handed over in one call at most: a flood must not keep the caller from its other work.
const BATCH: usize = 1024;

/// What one call of [`super::Probes::drain`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainStats {
    /// Records handed over.
    pub records: usize,
    /// Entries that were no records: the kernel side and this build do not agree.
    pub malformed: usize,
    /// Records lost since the last call, because the ring was full.
    pub lost: u64,
    /// Whether the call ended before the ring was empty: call again soon.
    pub more: bool,
}

/// The consumer's end of the ring.
pub(crate) struct Ring {
    records: RingBuf<MapData>,
    mishaps: PerCpuArray<MapData, u64>,
    lost_by_kind: PerCpuArray<MapData, u64>,
    lost: u64,
    logs: Option<Logs>,
}

impl Ring {
    pub(crate) fn take(ebpf: &mut Ebpf, debug: bool) -> Result<Self, LoadError> {
        Ok(Self {
            records: take(ebpf, "RING")?,
            mishaps: take(ebpf, "MISHAPS")?,
            lost_by_kind: take(ebpf, "LOST")?,
            lost: 0,
            logs: debug.then(|| Logs::take(ebpf)).transpose()?,
        })
    }

    pub(crate) fn drain(&mut self, each: &mut dyn FnMut(Record)) -> DrainStats {
        let mut stats = DrainStats::default();
        while stats.records + stats.malformed < BATCH {
            let Some(item) = self.records.next() else {
                break;
            };
            match Record::parse(&item) {
                Ok(record) => {
                    stats.records += 1;
                    each(record);
                }
                Err(_unknown) => stats.malformed += 1,
            }
        }
        stats.more = stats.records + stats.malformed == BATCH;
        let before = self.lost;
        stats.lost = self.lost() - before;
        if let Some(logs) = &mut self.logs {
            logs.flush();
        }
        stats
    }

    pub(crate) fn lost(&mut self) -> u64 {
        // A counter never goes back; where it cannot be read, the last value stands.
        self.lost = self.lost.max(sum(&self.mishaps, Mishap::RingFull as u32));
        self.lost
    }

    pub(crate) fn lost_by_kind(&self) -> Vec<(u32, u64)> {
        (0..KIND_SLOTS)
            .map(|kind| (kind, sum(&self.lost_by_kind, kind)))
            .filter(|(_, lost)| *lost > 0)
            .collect()
    }

    pub(crate) fn mishaps(&self) -> Vec<(Mishap, u64)> {
        Mishap::ALL.into_iter().map(|mishap| (mishap, sum(&self.mishaps, mishap as u32))).collect()
    }
}

/// A counter over all CPUs; 0 where it cannot be read.
fn sum(counters: &PerCpuArray<MapData, u64>, slot: u32) -> u64 {
    counters.get(&slot, 0).map(|values| values.iter().sum()).unwrap_or_default()
}
