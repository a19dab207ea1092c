//! Putting probes on the libraries of a process, once per file, and taking them off again.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use aya::{
    Ebpf,
    maps::{HashMap, MapData, MapError},
    programs::{
        ProgramError,
        uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeLink, UProbeScope},
    },
};
use inflightd_abi::{layout::WATCHED_SLOTS, mishap::Mishap, rdma::Queue, record::Record};
use inflightd_core::Nanos;

use super::{
    arming::Arming,
    elf::Depth,
    library::{ObjectKey, Place},
    load::{ExitSource, errno, uprobe},
    objects::{Found, Object, Part, Process, mapped},
    plan::{Gap, Point},
    queues::{QueueSight, Queues},
    reap::Reaper,
    report::{AttachError, AttachReport, Released, WatchError},
    ring::{DrainStats, Ring},
    rules::Rules,
};
use crate::error::chain;
use crate::proc::{Mapping, Maps};

/// Bytes of symbol tables that are read in one visit to a process; the rest waits for the next.
const VISIT_BYTES: u64 = 64 << 20;
/// An object that nobody uses keeps its probes so long: in a churn of short processes they would
/// be taken off and put on without end.
const LINGER: Nanos = Nanos::from_secs(2);

/// The loaded programs, their ring, and the libraries that carry probes.
///
/// Every method returns at once, [`Self::detach`] too: the links are closed by a thread of its
/// own, because the kernel takes about 100 ms for each. Dropping it closes what is left, many at
/// once, and waits for that.
pub struct Probes {
    pub(super) ebpf: Ebpf,
    ring: Ring,
    queues: Queues,
    pub(super) arming: Arming,
    watched: HashMap<MapData, u32, u8>,
    pub(super) rules: Rules,
    exit: ExitSource,
    pub(super) objects: BTreeMap<Place, Object>,
    pub(super) plain: BTreeSet<(Place, Depth)>,
    processes: BTreeMap<u32, Process>,
    pub(super) reaper: Reaper,
    pub(super) looked: u64,
}

impl std::fmt::Debug for Probes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Probes")
            .field("objects", &self.objects.len())
            .field("processes", &self.processes.len())
            .field("exit", &self.exit)
            .finish_non_exhaustive()
    }
}

/// How much the probes hold at this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Points that carry a probe.
    pub links: usize,
    /// Links whose closing is under way.
    pub closing: usize,
    /// Libraries and programs with something to probe.
    pub objects: usize,
    /// Processes whose files are known.
    pub processes: usize,
    /// Files whose symbols were read, since the start.
    pub looked: u64,
}

impl Probes {
    pub(super) fn new(
        ebpf: Ebpf,
        (ring, queues, arming): (Ring, Queues, Arming),
        watched: HashMap<MapData, u32, u8>,
        rules: Rules,
        exit: ExitSource,
    ) -> Self {
        Self {
            ebpf,
            ring,
            queues,
            arming,
            watched,
            rules,
            exit,
            objects: BTreeMap::new(),
            plain: BTreeSet::new(),
            processes: BTreeMap::new(),
            reaper: Reaper::start(),
            looked: 0,
        }
    }

    /// What this kernel tells of exits.
    pub const fn exit_source(&self) -> ExitSource {
        self.exit
    }

    /// Links that are attached now.
    pub fn links(&self) -> usize {
        self.objects.values().map(Object::links).sum::<usize>() + self.arming.links()
    }

    /// What is held at this moment.
    pub fn holdings(&self) -> Holdings {
        Holdings {
            links: self.links(),
            closing: self.reaper.waiting(),
            objects: self.objects.len(),
            processes: self.processes.len(),
            looked: self.looked,
        }
    }

    /// Reads what a process maps and attaches to it: [`Self::attach`] for a caller that has not
    /// read it.
    pub fn attach_process(&mut self, pid: u32) -> AttachReport {
        match Maps::of(pid, (0, 0)) {
            Ok(maps) => self.attach(pid, &maps.objects, true),
            Err(source) => {
                let problem = Some(AttachError::Maps { pid, source });
                AttachReport { pid, libraries: Vec::new(), problem, unfinished: false }
            }
        }
    }

    /// Looks at the files that a process maps, as far as they are new, and puts probes on those
    /// that have something to probe and do not carry them yet. A probe fires for every process
    /// that maps the file. Files that the process does not map any more lose it as a user.
    ///
    /// With `is_worker`, marks are looked for in every symbol that a file has kept, where none are
    /// exported.
    pub fn attach(&mut self, pid: u32, objects: &[Mapping], is_worker: bool) -> AttachReport {
        let mut report =
            AttachReport { pid, libraries: Vec::new(), problem: None, unfinished: false };
        let known = self.processes.remove(&pid);
        if known.is_none() && self.processes.len() >= WATCHED_SLOTS as usize {
            report.problem = Some(AttachError::TooMany);
            return report;
        }
        let mut process = known.unwrap_or_default();
        let present: BTreeSet<_> = objects.iter().map(mapped).collect();
        process.found.retain(|file, _| present.contains(file));
        let mut left = VISIT_BYTES;
        let mut fresh = self.look(pid, objects, &mut process, (Depth::Exported, &mut left));
        if is_worker && left > 0 && !self.has_marks(&process) {
            fresh.extend(self.look(pid, objects, &mut process, (Depth::All, &mut left)));
        }
        report.unfinished = left == 0;
        self.use_only(pid, &process.places());
        for place in process.places() {
            let Some(mut object) = self.objects.remove(&place) else {
                continue;
            };
            self.attach_missing(&mut object);
            report.libraries.extend(object.reports(fresh.contains(&place)));
            self.objects.insert(place, object);
        }
        report.libraries.extend(process.problems());
        self.processes.insert(pid, process);
        report
    }

    /// Notes that a process uses these objects and no others.
    fn use_only(&mut self, pid: u32, places: &BTreeSet<Place>) {
        for (place, object) in &mut self.objects {
            if places.contains(place) {
                object.users.insert(pid);
                object.unused_since = None;
            } else {
                object.users.remove(&pid);
            }
        }
    }

    /// Attaches the planned bundles that are not attached: all at first, later what failed.
    fn attach_missing(&mut self, object: &mut Object) {
        let target = object.library.target();
        for Part { plan, links, failed, .. } in &mut object.parts {
            for (index, bundle) in plan.bundles.iter().enumerate() {
                if links.contains_key(&index) {
                    continue;
                }
                match self.attach_bundle(&bundle.points, &target) {
                    Ok(fresh) => {
                        failed.remove(&index);
                        links.insert(index, fresh);
                    }
                    Err(gap) => {
                        failed.insert(index, gap);
                    }
                }
            }
        }
    }

    /// Attaches every point of a bundle, or none.
    fn attach_bundle(&mut self, points: &[Point], target: &Path) -> Result<Vec<UProbeLink>, Gap> {
        let mut links = Vec::new();
        for point in points {
            match attach_point(&mut self.ebpf, point, target, UProbeScope::AllProcesses) {
                Ok(link) => links.push(link),
                Err(error) => {
                    self.reaper.close(links);
                    let denied = matches!(errno(&error), Some(libc::EPERM | libc::EACCES));
                    let reason = chain(&error);
                    return Err(Gap::Attach { point: point.program, reason, denied });
                }
            }
        }
        Ok(links)
    }

    /// Forgets a process: its exit is not watched, and libraries that only it used are named.
    /// [`Self::sweep`] takes their probes off in a while, [`Self::detach`] at once.
    pub fn forget(&mut self, pid: u32) -> Released {
        self.disarm(pid);
        self.unwatch(pid);
        self.processes.remove(&pid);
        let mut released = Released::default();
        for object in self.objects.values_mut() {
            if object.users.remove(&pid) && object.users.is_empty() {
                released.unused.push(object.key.clone());
            }
        }
        released
    }

    /// Takes the probes off what nobody has used for a while. To be called about once a second.
    pub fn sweep(&mut self, now: Nanos) {
        let mut unused = Vec::new();
        for (place, object) in &mut self.objects {
            if object.users.is_empty() {
                let since = *object.unused_since.get_or_insert(now);
                if now.since(since) >= LINGER {
                    unused.push(*place);
                }
            }
        }
        for place in unused {
            self.drop_object(place);
        }
    }

    fn drop_object(&mut self, place: Place) -> bool {
        let object = self.objects.remove(&place);
        let was_there = object.is_some();
        if let Some(object) = object {
            self.reaper.close(object.into_links());
        }
        was_there
    }

    /// Takes every probe off a library; `false` when it carries none. Returns at once, the kernel
    /// needs about 100 ms more for each point.
    pub fn detach(&mut self, key: &ObjectKey) -> bool {
        let place = self.objects.iter().find(|(_, object)| object.key == *key);
        place.map(|(place, _)| *place).is_some_and(|place| {
            for process in self.processes.values_mut() {
                process.found.retain(|_, found| !matches!(found, Found::Object(p) if *p == place));
            }
            self.drop_object(place)
        })
    }

    /// Takes every probe off, as [`Self::detach`] does.
    pub fn detach_all(&mut self) {
        let objects = std::mem::take(&mut self.objects);
        let links = objects.into_values().flat_map(Object::into_links);
        self.reaper.close(links.chain(self.arming.take_links()).collect());
    }

    /// Reports the ends of this process's threads from now on.
    pub fn watch(&mut self, tgid: u32) -> Result<(), WatchError> {
        self.watched.insert(tgid, 1, 0).map_err(|error| {
            if full(&error) { WatchError::Full } else { WatchError::Map(tgid, Box::new(error)) }
        })
    }

    /// Ends what [`Self::watch`] began; a process that is not watched is no error.
    pub fn unwatch(&mut self, tgid: u32) {
        drop(self.watched.remove(&tgid));
    }

    /// Hands over what is in the ring, oldest first, without blocking.
    pub fn drain(&mut self, each: &mut dyn FnMut(Record)) -> DrainStats {
        self.ring.drain(each)
    }

    /// Puts probes on the kernel's own RDMA functions, as far as they are not there yet. To be called
    /// where there is an RDMA device.
    pub fn attach_queues(&mut self) -> &QueueSight {
        self.queues.attach(&mut self.ebpf)
    }

    /// What those probes keep of each queue pair; nothing before they are there.
    pub fn queues(&mut self) -> Vec<Queue> {
        self.queues.read()
    }

    /// Records lost since the programs were loaded, because the ring was full.
    pub fn lost(&mut self) -> u64 {
        self.ring.lost()
    }

    /// Records lost by kind, as far as any were.
    pub fn lost_by_kind(&self) -> Vec<(u32, u64)> {
        self.ring.lost_by_kind()
    }

    /// Failures inside the kernel programs since they were loaded.
    pub fn mishaps(&self) -> Vec<(Mishap, u64)> {
        self.ring.mishaps()
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        // Dropped as they lie, the links would be closed one after the other.
        self.detach_all();
    }
}

/// Puts a probe on a point: for one process, or for each that maps the file.
pub(super) fn attach_point(
    ebpf: &mut Ebpf,
    point: &Point,
    target: &Path,
    scope: UProbeScope,
) -> Result<UProbeLink, ProgramError> {
    let program = uprobe(ebpf, point.program)?;
    let at = UProbeAttachPoint {
        location: UProbeAttachLocation::AbsoluteOffset(point.offset),
        cookie: Some(point.cookie),
    };
    let id = program.attach(at, target, scope)?;
    program.take_link(id)
}

fn full(error: &MapError) -> bool {
    let code = match error {
        MapError::SyscallError(error) => error.io_error.raw_os_error(),
        _ => None,
    };
    code == Some(libc::E2BIG)
}
