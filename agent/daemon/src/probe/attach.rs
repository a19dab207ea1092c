//! Putting probes on the libraries of a process, once per file, and taking them off again.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    io,
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
use inflightd_abi::{layout::WATCHED_SLOTS, mishap::Mishap, record::Record};

use super::{
    builds::Builds,
    elf::ElfError,
    library::{self, Family, Library, ObjectKey},
    load::{ExitSource, uprobe},
    plan::{self, Gap, Group, Plan, Point},
    reap::Reaper,
    ring::{DrainStats, Ring},
};

/// Why a process, or one of its libraries, could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The process has gone, or its `maps` may not be read.
    #[error("reading /proc/{pid}/maps")]
    Maps {
        /// The process.
        pid: u32,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A mapped library could not be opened.
    #[error("opening {}", path.display())]
    Open {
        /// Path as the process sees it.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A mapped library could not be read.
    #[error("reading the symbols of {}", path.display())]
    Elf {
        /// Path as the process sees it.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: ElfError,
    },
}

/// Why a process's exit cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// As many processes are watched as fit.
    #[error("{WATCHED_SLOTS} processes are watched already")]
    Full,
    /// The kernel refused.
    #[error("storing process {0} in the map of watched processes")]
    Map(u32, #[source] Box<dyn Error + Send + Sync>),
}

/// What is seen of one library.
#[derive(Debug)]
pub struct LibraryReport {
    /// What the library is to us.
    pub family: Family,
    /// Path as the process sees it.
    pub path: PathBuf,
    /// Which file and build it is; `None` where it could not be read.
    pub key: Option<ObjectKey>,
    /// Name of the known build; `None` for an unknown one, and where none is needed.
    pub build: Option<String>,
    /// Address of a flush's completion less that of its request, where the build is known.
    pub distance: Option<i64>,
    /// The groups whose points are attached.
    pub attached: Vec<Group>,
    /// The groups whose points are not, and why.
    pub gaps: Vec<(Group, Gap)>,
    /// Whether this visit put the probes on; otherwise an earlier one did, for all processes.
    pub fresh: bool,
    /// Why nothing is attached at all.
    pub problem: Option<AttachError>,
}

impl LibraryReport {
    /// Whether the records of this library lack fields because its build is not known.
    pub fn degraded(&self) -> bool {
        matches!(self.family, Family::Nixl | Family::Ucp) && self.build.is_none()
    }

    fn unreadable(family: Family, path: PathBuf, problem: AttachError) -> Self {
        Self {
            family,
            path,
            key: None,
            build: None,
            distance: None,
            attached: Vec::new(),
            gaps: Vec::new(),
            fresh: false,
            problem: Some(problem),
        }
    }
}

/// What is seen of a process.
#[derive(Debug)]
pub struct AttachReport {
    /// The process.
    pub pid: u32,
    /// Its libraries that may carry probes. Plugins are opened late: look again later.
    pub libraries: Vec<LibraryReport>,
    /// Why the process could not be looked at.
    pub problem: Option<AttachError>,
}

impl AttachReport {
    /// Whether the points of a group are attached in at least one library of the process.
    pub fn sees(&self, group: Group) -> bool {
        self.libraries.iter().any(|library| library.attached.contains(&group))
    }
}

/// What happened when a process was forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// Libraries that no known process uses any more: [`Probes::detach`] them.
    pub unused: Vec<ObjectKey>,
}

/// A library that has been looked at. Its open file keeps the inode number from being reused.
struct Attached {
    library: Library,
    key: ObjectKey,
    plan: Plan,
    links: BTreeMap<Group, Vec<UProbeLink>>,
    failed: BTreeMap<Group, Gap>,
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
    builds: Builds,
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
        builds: Builds,
        exit: ExitSource,
    ) -> Self {
        Self {
            ebpf,
            ring,
            watched,
            builds,
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
        let exports = library.exports(&|name| plan::wanted(family, name)).map_err(|source| {
            let path = library.path.clone();
            (family, path.clone(), AttachError::Elf { path, source })
        })?;
        Ok(Attached {
            plan: plan::plan(family, &exports, &self.builds),
            key: library.key(exports.build_id),
            library,
            links: BTreeMap::new(),
            failed: BTreeMap::new(),
            users: BTreeSet::new(),
        })
    }

    /// Attaches the planned groups that are not attached: all at first, later what failed.
    fn attach_missing(&mut self, object: &mut Attached) {
        let target = object.library.target();
        for (group, points) in &object.plan.points {
            if object.links.contains_key(group) {
                continue;
            }
            match self.attach_group(points, &target) {
                Ok(links) => {
                    object.failed.remove(group);
                    object.links.insert(*group, links);
                }
                Err(gap) => {
                    object.failed.insert(*group, gap);
                }
            }
        }
    }

    /// Attaches every point of a group, or none.
    fn attach_group(&mut self, points: &[Point], target: &Path) -> Result<Vec<UProbeLink>, Gap> {
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

impl Attached {
    fn report(&self, fresh: bool) -> LibraryReport {
        let failed = self.failed.iter().map(|(group, gap)| (*group, gap.clone()));
        LibraryReport {
            family: self.library.family,
            path: self.library.path.clone(),
            key: Some(self.key.clone()),
            build: self.plan.build.clone(),
            distance: self.plan.distance,
            attached: self.links.keys().copied().collect(),
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
