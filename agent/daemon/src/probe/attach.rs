//! Putting probes on the libraries of a process, once per file, and taking them off again.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    path::{Path, PathBuf},
};

use aya::{
    Ebpf,
    maps::{HashMap, MapData, MapError},
    programs::{
        ProgramError,
        uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeLink, UProbeScope},
    },
};
use inflightd_abi::{mishap::Mishap, record::Record};

use super::{
    builds::Builds,
    library::{self, Family, Library, ObjectKey},
    load::{ExitSource, uprobe},
    plan::{self, Gap, Plan, Point, Returns},
    reap::Reaper,
    report::{AttachError, AttachReport, LIBRARIES, LibraryReport, Released, WatchError},
    ring::{DrainStats, Ring},
};

/// What a plan goes by.
pub(crate) struct Rules {
    pub(crate) builds: Builds,
    pub(crate) returns: Returns,
}

/// A library that has been looked at. Its open file keeps the inode number from being reused.
struct Attached {
    library: Library,
    key: ObjectKey,
    plan: Plan,
    /// Links and failures by bundle of the plan.
    links: BTreeMap<usize, Vec<UProbeLink>>,
    failed: BTreeMap<usize, Gap>,
    users: BTreeSet<u32>,
}

/// The loaded programs, their ring, and the libraries that carry probes.
///
/// Every method returns at once, [`Self::detach`] too: the links are closed by a thread of its
/// own, because the kernel takes about 100 ms for each. Dropping it waits for that.
pub struct Probes {
    ebpf: Ebpf,
    ring: Ring,
    watched: HashMap<MapData, u32, u8>,
    rules: Rules,
    exit: ExitSource,
    attached: BTreeMap<(u64, u64), Attached>,
    reaper: Reaper,
}

impl std::fmt::Debug for Probes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Probes")
            .field("attached", &self.attached.len())
            .field("exit", &self.exit)
            .finish_non_exhaustive()
    }
}

impl Probes {
    pub(crate) fn new(
        ebpf: Ebpf,
        ring: Ring,
        watched: HashMap<MapData, u32, u8>,
        rules: Rules,
        exit: ExitSource,
    ) -> Self {
        Self {
            ebpf,
            ring,
            watched,
            rules,
            exit,
            attached: BTreeMap::new(),
            reaper: Reaper::start(),
        }
    }

    /// What this kernel tells of exits.
    pub const fn exit_source(&self) -> ExitSource {
        self.exit
    }

    /// Looks at the libraries of a process and puts probes on those that do not carry them yet.
    /// A probe fires for every process that maps the file. Reads `/proc/PID/maps` once: how often
    /// is the caller's matter.
    pub fn attach_process(&mut self, pid: u32) -> AttachReport {
        let (found, problem) = match library::find(pid) {
            Ok(found) => (found, None),
            Err(source) => (Vec::new(), Some(AttachError::Maps { pid, source })),
        };
        let libraries = found
            .into_iter()
            .map(|(family, path, opened)| match opened {
                Ok(library) => self.attach_library(pid, library),
                Err(source) => {
                    let problem = AttachError::Open { path: path.clone(), source };
                    LibraryReport::unreadable(family, path, problem)
                }
            })
            .collect();
        AttachReport { pid, libraries, problem }
    }

    fn attach_library(&mut self, pid: u32, library: Library) -> LibraryReport {
        let place = (library.device, library.inode);
        let mut fresh = false;
        let mut object = match self.attached.remove(&place) {
            Some(object) => object,
            None => match self.inspect(library) {
                Ok(object) => {
                    fresh = true;
                    object
                }
                Err((family, path, problem)) => {
                    return LibraryReport::unreadable(family, path, problem);
                }
            },
        };
        object.users.insert(pid);
        self.attach_missing(&mut object);
        let report = object.report(fresh);
        self.attached.insert(place, object);
        report
    }

    fn inspect(&self, library: Library) -> Result<Attached, (Family, PathBuf, AttachError)> {
        let family = library.family;
        if self.attached.len() >= LIBRARIES {
            return Err((family, library.path, AttachError::TooMany));
        }
        let exports = library.exports(&|name| plan::wanted(family, name)).map_err(|source| {
            let path = library.path.clone();
            (family, path.clone(), AttachError::Elf { path, source })
        })?;
        Ok(Attached {
            plan: plan::plan(family, &exports, &self.rules.builds, &self.rules.returns),
            key: library.key(exports.build_id),
            library,
            links: BTreeMap::new(),
            failed: BTreeMap::new(),
            users: BTreeSet::new(),
        })
    }

    /// Attaches the planned bundles that are not attached: all at first, later what failed.
    fn attach_missing(&mut self, object: &mut Attached) {
        let target = object.library.target();
        for (index, bundle) in object.plan.bundles.iter().enumerate() {
            if object.links.contains_key(&index) {
                continue;
            }
            match self.attach_bundle(&bundle.points, &target) {
                Ok(links) => {
                    object.failed.remove(&index);
                    object.links.insert(index, links);
                }
                Err(gap) => {
                    object.failed.insert(index, gap);
                }
            }
        }
    }

    /// Attaches every point of a bundle, or none.
    fn attach_bundle(&mut self, points: &[Point], target: &Path) -> Result<Vec<UProbeLink>, Gap> {
        let mut links = Vec::new();
        for point in points {
            match attach_point(&mut self.ebpf, point, target) {
                Ok(link) => links.push(link),
                Err(error) => {
                    self.reaper.close(links);
                    return Err(Gap::Attach { point: point.program, reason: chain(&error) });
                }
            }
        }
        Ok(links)
    }

    /// Forgets a process: its exit is not watched, and libraries that only it used are named.
    pub fn forget(&mut self, pid: u32) -> Released {
        self.unwatch(pid);
        let mut released = Released::default();
        for object in self.attached.values_mut() {
            if object.users.remove(&pid) && object.users.is_empty() {
                released.unused.push(object.key.clone());
            }
        }
        released
    }

    /// Takes every probe off a library; `false` when it carries none. Returns at once, the kernel
    /// needs about 100 ms more for each point.
    pub fn detach(&mut self, key: &ObjectKey) -> bool {
        match self.attached.remove(&(key.device, key.inode)) {
            Some(object) => {
                self.reaper.close(object.links.into_values().flatten().collect());
                true
            }
            None => false,
        }
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

impl Probes {
    /// Links that are attached now.
    pub fn links(&self) -> usize {
        self.attached.values().flat_map(|object| object.links.values()).map(Vec::len).sum()
    }
}

impl Attached {
    fn report(&self, fresh: bool) -> LibraryReport {
        let bundles = || self.plan.bundles.iter().enumerate();
        let failed = bundles()
            .filter_map(|(index, bundle)| Some((bundle, self.failed.get(&index)?)))
            .flat_map(|(bundle, gap)| bundle.groups.iter().map(|group| (*group, gap.clone())));
        LibraryReport {
            family: self.library.family,
            path: self.library.path.clone(),
            key: Some(self.key.clone()),
            build: self.plan.build.clone(),
            distance: self.plan.distance,
            attached: bundles()
                .filter(|(index, _)| self.links.contains_key(index))
                .flat_map(|(_, bundle)| bundle.groups.iter().copied())
                .collect(),
            gaps: self.plan.gaps.iter().cloned().chain(failed).collect(),
            fresh,
            problem: None,
        }
    }
}

fn attach_point(ebpf: &mut Ebpf, point: &Point, target: &Path) -> Result<UProbeLink, ProgramError> {
    let program = uprobe(ebpf, point.program)?;
    let at = UProbeAttachPoint {
        location: UProbeAttachLocation::AbsoluteOffset(point.offset),
        cookie: Some(point.cookie),
    };
    let id = program.attach(at, target, UProbeScope::AllProcesses)?;
    program.take_link(id)
}

fn full(error: &MapError) -> bool {
    let code = match error {
        MapError::SyscallError(error) => error.io_error.raw_os_error(),
        _ => None,
    };
    code == Some(libc::E2BIG)
}

/// An error with all its sources, on one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
