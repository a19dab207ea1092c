//! Counting UCX's operations in one process, for as long as somebody suspects one of its rooms.
//!
//! Dear: a hit for each descriptor of each transfer. So the probe is put on for that process alone,
//! and whoever arms looks at the hits and ends it when they are too many.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;

use aya::{
    Ebpf, Pod,
    maps::{HashMap, MapData},
    programs::uprobe::{UProbeLink, UProbeScope},
};
use inflightd_abi::operations::{Endpoint, Operations};

use super::{
    attach::{Probes, attach_point},
    builds::BatchLayout,
    load::{LoadError, take},
    plan::Point,
};
use crate::error::chain;

/// `Endpoint` as a map key.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Key(Endpoint);

// SAFETY: integers in C order, without padding; any bytes are a value.
unsafe impl Pod for Key {}

/// `Operations` as a map value.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Counted(Operations);

// SAFETY: integers in C order, without padding; any bytes are a value.
unsafe impl Pod for Counted {}

/// The map of counts, and the processes that are counted.
pub(super) struct Arming {
    counted: HashMap<MapData, Key, Counted>,
    links: BTreeMap<u32, Vec<UProbeLink>>,
}

impl Arming {
    pub(super) fn take(ebpf: &mut Ebpf) -> Result<Self, LoadError> {
        Ok(Self { counted: take(ebpf, "OPERATIONS")?, links: BTreeMap::new() })
    }

    fn forget_counts(&mut self, pid: u32) {
        let keys: Vec<Key> = self.counted.keys().filter_map(Result::ok).collect();
        for key in keys.into_iter().filter(|key| key.0.tgid == pid) {
            drop(self.counted.remove(&key));
        }
    }

    /// Links that count.
    pub(super) fn links(&self) -> usize {
        self.links.values().map(Vec::len).sum()
    }

    pub(super) fn take_links(&mut self) -> Vec<UProbeLink> {
        std::mem::take(&mut self.links).into_values().flatten().collect()
    }
}

impl Probes {
    /// Counts the operations of a process from now on, by each copy of UCX that it maps. `Ok(false)`
    /// where none of them is of a build in which that is known.
    pub fn arm(&mut self, pid: u32) -> Result<bool, String> {
        if self.arming.links.contains_key(&pid) {
            return Ok(true);
        }
        let Some(scope) = NonZeroU32::new(pid).map(UProbeScope::OneProcess) else {
            return Ok(false);
        };
        self.arming.forget_counts(pid);
        let mut links = Vec::new();
        for (target, point) in self.armed_points(pid) {
            match attach_point(&mut self.ebpf, &point, &target, scope) {
                Ok(link) => links.push(link),
                Err(error) => {
                    self.reaper.close(links);
                    return Err(chain(&error));
                }
            }
        }
        let any = !links.is_empty();
        if any {
            self.arming.links.insert(pid, links);
        }
        Ok(any)
    }

    /// Where operations complete in the libraries of a process.
    fn armed_points(&self, pid: u32) -> Vec<(PathBuf, Point)> {
        let used = self.objects.values().filter(|object| object.users.contains(&pid));
        let points = used.flat_map(|object| {
            let parts = object.parts.iter().filter_map(|part| part.plan.armed.clone());
            parts.map(|point| (object.library.target(), point))
        });
        points.collect()
    }

    /// Where a batch of Mooncake keeps what has arrived of it, in the build that a process maps.
    pub fn batch_layout(&self, pid: u32) -> Option<BatchLayout> {
        let used = self.objects.values().filter(|object| object.users.contains(&pid));
        used.flat_map(|object| &object.parts).find_map(|part| part.plan.batch)
    }

    /// Ends what [`Self::arm`] began; a process that is not counted is no error. Returns at once.
    pub fn disarm(&mut self, pid: u32) {
        if let Some(links) = self.arming.links.remove(&pid) {
            self.reaper.close(links);
            self.arming.forget_counts(pid);
        }
    }

    /// What has completed since each process is counted: by process and endpoint.
    pub fn operations(&self) -> Vec<(Endpoint, Operations)> {
        if self.arming.links.is_empty() {
            return Vec::new();
        }
        let all = self.arming.counted.iter().filter_map(Result::ok);
        let all = all.map(|(key, counted)| (key.0, counted.0));
        all.filter(|(of, _)| self.arming.links.contains_key(&of.tgid)).collect()
    }
}
