//! The libraries of a process that may carry probes.

use std::{
    fs::{self, File},
    io,
    os::{fd::AsRawFd as _, unix::fs::MetadataExt as _},
    path::{Path, PathBuf},
};

use super::{
    elf::{self, BuildId, ElfError, Exports, Function},
    maps::{self, Mapping},
};

/// What a library is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// libinflight: exports the queue marks.
    Inflight,
    /// NIXL's core, `libnixl.so`.
    Nixl,
    /// NIXL's UCX plugin, `libplugin_UCX.so`.
    NixlUcx,
    /// UCP, `libucp.so.0` or, in a wheel, `libucp-HASH.so.0.0.0`.
    Ucp,
}

impl Family {
    /// What a file of this name would be.
    pub fn of(file_name: &str) -> Option<Self> {
        let shared = file_name.contains(".so");
        match file_name {
            "libnixl.so" => Some(Self::Nixl),
            "libplugin_UCX.so" => Some(Self::NixlUcx),
            name if shared && name.starts_with("libinflight") => Some(Self::Inflight),
            name if shared && (name.starts_with("libucp.") || name.starts_with("libucp-")) => {
                Some(Self::Ucp)
            }
            _ => None,
        }
    }
}

/// Which library: the file that the kernel puts probes on, and its build.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectKey {
    /// `st_dev`.
    pub device: u64,
    /// `st_ino`.
    pub inode: u64,
    /// Build-id; `None` for a library without one.
    pub build_id: Option<BuildId>,
}

/// What a plan needs to know of a library: the seam at which tests put a fake.
pub(crate) trait ObjectView {
    /// `e_machine`.
    fn machine(&self) -> u16;
    /// Which build it is.
    fn build_id(&self) -> Option<&BuildId>;
    /// Exported functions whose names begin so, in the order of their names.
    fn functions<'a>(&'a self, prefix: &'a str) -> Vec<(&'a str, &'a Function)>;
}

impl ObjectView for Exports {
    fn machine(&self) -> u16 {
        self.machine
    }

    fn build_id(&self) -> Option<&BuildId> {
        self.build_id.as_ref()
    }

    fn functions<'a>(&'a self, prefix: &'a str) -> Vec<(&'a str, &'a Function)> {
        self.functions
            .range(prefix.to_owned()..)
            .take_while(|(name, _)| name.starts_with(prefix))
            .map(|(name, function)| (name.as_str(), function))
            .collect()
    }
}

/// A library of a process, opened: the file cannot be exchanged any more.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) family: Family,
    /// Path as the process sees it.
    pub(crate) path: PathBuf,
    file: File,
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

/// What was found in a process; a library that could not be opened comes with the reason.
pub(crate) type Found = (Family, PathBuf, io::Result<Library>);

/// Libraries looked at in one process at most: a hostile one may map as many as it likes. Those
/// with the highest addresses are left out.
pub(crate) const PROCESS_LIBRARIES: usize = 32;

/// Finds and opens the libraries of a process that may carry probes. Reads `maps` once.
pub(crate) fn find(pid: u32) -> io::Result<Vec<Found>> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let text = fs::read(process.join("maps"))?;
    let opened = candidates(&text).into_iter().map(|(family, mapping)| {
        let opened = open(&process, &mapping, family);
        (family, mapping.path, opened)
    });
    Ok(opened.collect())
}

/// The mapped files whose names are those of a family, each once.
fn candidates(text: &[u8]) -> Vec<(Family, Mapping)> {
    let mut found: Vec<(Family, Mapping)> = Vec::new();
    for mapping in maps::executable(text) {
        let known = |(_, other): &(Family, Mapping)| {
            other.inode == mapping.inode && other.path == mapping.path
        };
        if let Some(family) = mapping.file_name().and_then(Family::of)
            && !found.iter().any(known)
        {
            found.push((family, mapping));
        }
        if found.len() == PROCESS_LIBRARIES {
            break;
        }
    }
    found
}

/// Opens the mapped file itself; where that is not allowed, the file at its path, if it still is
/// the same one.
fn open(process: &Path, mapping: &Mapping, family: Family) -> io::Result<Library> {
    let file = match File::open(process.join("map_files").join(&mapping.range)) {
        Ok(file) => file,
        Err(_denied) => {
            let relative = mapping.path.strip_prefix("/").unwrap_or(&mapping.path);
            let file = File::open(process.join("root").join(relative))?;
            if file.metadata()?.ino() != mapping.inode {
                return Err(io::Error::other("another file lies at the path of the mapped one"));
            }
            file
        }
    };
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::other("what is mapped is not a regular file"));
    }
    Ok(Library { family, path: mapping.path.clone(), file, device: meta.dev(), inode: meta.ino() })
}

impl Library {
    /// The file, by a path that leads to exactly the one that was opened.
    pub(crate) fn target(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    /// Reads the exports that a catalogue could want.
    pub(crate) fn exports(&self, wanted: &dyn Fn(&str) -> bool) -> Result<Exports, ElfError> {
        elf::exports(self.file.try_clone()?, wanted)
    }

    /// The key under which this library's probes are kept.
    pub(crate) fn key(&self, build_id: Option<BuildId>) -> ObjectKey {
        ObjectKey { device: self.device, inode: self.inode, build_id }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_by_file_name() {
        let cases = [
            ("libnixl.so", Some(Family::Nixl)),
            ("libplugin_UCX.so", Some(Family::NixlUcx)),
            ("libucp-b39b3ed9.so.0.0.0", Some(Family::Ucp)),
            ("libucp.so.0", Some(Family::Ucp)),
            ("libinflight.so", Some(Family::Inflight)),
            ("libinflight-1.2.so", Some(Family::Inflight)),
            ("libucp_extra.so", None),
            ("libinflight.txt", None),
            ("libnixl.so.old", None),
            ("libuct-1141f529.so.0.0.0", None),
        ];
        for (name, family) in cases {
            assert_eq!(Family::of(name), family, "{name}");
        }
    }

    #[test]
    fn each_library_is_a_candidate_once_and_a_flood_is_cut() {
        let line =
            |inode: u32, name: &str| format!("7f00-7f01 r-xp 00000000 fe:00 {inode} /opt/{name}\n");
        let two = [line(1, "libnixl.so"), line(1, "libnixl.so"), line(2, "libc.so.6")].concat();
        let found = candidates(two.as_bytes());
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].0, found[0].1.inode), (Family::Nixl, 1));
        let flood: String = (1..10_000).map(|inode| line(inode, "libucp.so.0")).collect();
        assert_eq!(candidates(flood.as_bytes()).len(), PROCESS_LIBRARIES);
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        assert!(find(u32::MAX).is_err());
    }
}
