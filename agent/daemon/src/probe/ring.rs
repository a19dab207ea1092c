//! Reading the ring and the counters of what did not get into it.

use std::collections::BTreeMap;

use aya::{
    Ebpf,
    maps::{MapData, PerCpuArray, PerCpuHashMap, RingBuf},
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrainStats {
    /// Records handed over.
    pub records: usize,
    /// Entries that were no records: the kernel side and this build do not agree.
    pub malformed: usize,
    /// Records lost since the last call: the ring was full, or a process had its share of it.
    pub lost: u64,
    /// Of them those that are known to be of a process, by its id.
    pub lost_of: Vec<(u32, u64)>,
    /// Of them those for which the ring had no room at all.
    pub lost_full: u64,
    /// Whether the call ended before the ring was empty: call again soon.
    pub more: bool,
}

/// The consumer's end of the ring.
pub(crate) struct Ring {
    records: RingBuf<MapData>,
    mishaps: PerCpuArray<MapData, u64>,
    lost_by_kind: PerCpuArray<MapData, u64>,
    lost_of: PerCpuHashMap<MapData, u32, u64>,
    lost: u64,
    lost_full: u64,
    /// What was lost of each process until now, as the kernel has it.
    seen_of: BTreeMap<u32, u64>,
    logs: Option<Logs>,
}

impl Ring {
    pub(crate) fn take(ebpf: &mut Ebpf, debug: bool) -> Result<Self, LoadError> {
        Ok(Self {
            records: take(ebpf, "RING")?,
            mishaps: take(ebpf, "MISHAPS")?,
            lost_by_kind: take(ebpf, "LOST")?,
            lost_of: take(ebpf, "LOST_OF")?,
            lost: 0,
            lost_full: 0,
            seen_of: BTreeMap::new(),
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
        let before = (self.lost, self.lost_full);
        stats.lost = self.lost() - before.0;
        if stats.lost > 0 {
            stats.lost_full = self.lost_full - before.1;
            stats.lost_of = self.lost_of();
        }
        if let Some(logs) = &mut self.logs {
            logs.flush();
        }
        stats
    }

    pub(crate) fn lost(&mut self) -> u64 {
        // A counter never goes back; where it cannot be read, the last value stands.
        self.lost_full = self.lost_full.max(sum(&self.mishaps, Mishap::RingFull as u32));
        let over_share = sum(&self.mishaps, Mishap::OverShare as u32);
        self.lost = self.lost.max(self.lost_full + over_share);
        self.lost
    }

    /// What each process lost since this was last asked.
    fn lost_of(&mut self) -> Vec<(u32, u64)> {
        let now: BTreeMap<u32, u64> = self
            .lost_of
            .iter()
            .filter_map(Result::ok)
            .map(|(tgid, values)| (tgid, values.iter().sum()))
            .collect();
        let more = now.iter().filter_map(|(tgid, count): (&u32, &u64)| {
            let seen = self.seen_of.get(tgid).copied().unwrap_or(0);
            // One that gave way to others and came back has begun anew.
            let more = if *count < seen { *count } else { count - seen };
            (more > 0).then_some((*tgid, more))
        });
        let more = more.collect();
        self.seen_of = now;
        more
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
pub(super) fn sum(counters: &PerCpuArray<MapData, u64>, slot: u32) -> u64 {
    counters.get(&slot, 0).map(|values| values.iter().sum()).unwrap_or_default()
}
