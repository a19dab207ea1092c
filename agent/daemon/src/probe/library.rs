//! The files that a process runs code of, and which of them may carry probes.
//!
//! What a library is to us is decided by the functions that it defines, not by its name: wheels
//! rename libraries, and a vendor may link one into another, or into the program itself. The name
//! only says where to look first.

use std::{
    fs::{File, Metadata},
    io,
    os::{fd::AsRawFd as _, unix::fs::MetadataExt as _},
    path::{Path, PathBuf},
};

use rustix::fs::fstatfs;

use super::{
    elf::{self, BuildId, Depth, ElfError, Exports, Function, Search},
    symbols,
};
use crate::proc::Mapping;

/// `OVERLAYFS_SUPER_MAGIC`.
const OVERLAY: i64 = 0x794c_7630;

/// What a library is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// libinflight: defines the queue marks.
    Inflight,
    /// NIXL's core, `libnixl.so`.
    Nixl,
    /// NIXL's UCX plugin, `libplugin_UCX.so`.
    NixlUcx,
    /// UCP, `libucp.so.0` or, in a wheel, `libucp-HASH.so.0.0.0`.
    Ucp,
    /// Mooncake's transfer engine, `mooncake/engine.so` in its wheel.
    Mooncake,
}

impl Family {
    /// Every family.
    pub const ALL: [Self; 5] =
        [Self::Inflight, Self::Nixl, Self::NixlUcx, Self::Ucp, Self::Mooncake];

    /// What a file of this name is expected to be.
    pub fn of(file_name: &str) -> Option<Self> {
        let shared = file_name.contains(".so");
        match file_name {
            "libplugin_UCX.so" => Some(Self::NixlUcx),
            "libnixl.so" => Some(Self::Nixl),
            name if shared && name.starts_with("libinflight") => Some(Self::Inflight),
            name if shared && (name.starts_with("libucp.") || name.starts_with("libucp-")) => {
                Some(Self::Ucp)
            }
            name if shared && name.starts_with("libnixl-") => Some(Self::Nixl),
            _ => None,
        }
    }
}

/// Whether a path lets expect a transfer library or the marks: who maps such a file is looked at
/// thoroughly, and that file first. Any part of the path may say so, because a binding often lies
/// in a folder that is named after what it binds.
pub fn is_telling(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    let name = path.file_name().map_or(&b""[..], |name| name.as_encoded_bytes());
    let has = |text: &[u8], word: &[u8]| {
        text.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word))
    };
    has(bytes, b"nixl")
        || has(bytes, b"mooncake/")
        || has(name, b"libucp")
        || has(name, b"libinflight")
}

/// Which library: the file that the kernel puts probes on, and its build.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectKey {
    /// `st_dev`; 0 for a file of an overlay, whose device says nothing about the file below.
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
    /// Functions whose names begin so, in the order of their names.
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

/// Which file the kernel puts probes on.
///
/// A probe sits on the file below an overlay, and containers of one image share that file under
/// different devices: probed once for each, every hit would come as often. So the device of an
/// overlay is left out, and the time of the last change, which nobody can set, takes its place:
/// it comes from the file below, like the inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// `st_dev`, 0 for a file of an overlay.
    pub(crate) device: u64,
    /// `st_ino`.
    pub(crate) inode: u64,
    changed: (i64, i64),
    bytes: u64,
}

impl Place {
    fn of(file: &File, meta: &Metadata) -> io::Result<Self> {
        let is_overlay = fstatfs(file)?.f_type == OVERLAY;
        Ok(Self {
            device: if is_overlay { 0 } else { meta.dev() },
            inode: meta.ino(),
            changed: (meta.ctime(), meta.ctime_nsec()),
            bytes: meta.len(),
        })
    }
}

/// A file with code, opened: it cannot be exchanged any more.
#[derive(Debug)]
pub(crate) struct Library {
    /// Path as the process sees it.
    pub(crate) path: PathBuf,
    pub(crate) place: Place,
    file: File,
}

impl Library {
    /// Opens the mapped file itself; where that is not allowed, the file at its path, if it still
    /// is the same one.
    pub(crate) fn open(pid: u32, mapping: &Mapping) -> io::Result<Self> {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let file = match File::open(process.join("map_files").join(&mapping.range)) {
            Ok(file) => file,
            Err(_denied) => at_path(&process, mapping)?,
        };
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(io::Error::other("what is mapped is not a regular file"));
        }
        let place = Place::of(&file, &meta)?;
        Ok(Self { path: mapping.path.clone(), place, file })
    }

    /// The file, by a path that leads to exactly the one that was opened.
    pub(crate) fn target(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    /// Reads the functions that a catalogue could want.
    pub(crate) fn exports(&self, depth: Depth) -> Result<Exports, ElfError> {
        elf::exports(&self.file, &Search { begin: symbols::BEGIN, wanted: &symbols::wanted, depth })
    }

    /// The key under which this library is known outside.
    pub(crate) fn key(&self, build_id: Option<BuildId>) -> ObjectKey {
        ObjectKey { device: self.place.device, inode: self.place.inode, build_id }
    }
}

/// The file at a mapping's path, in the process's own view. A name may lead to anything by now:
/// what is no regular file is not opened for reading, since a FIFO would never let go.
fn at_path(process: &Path, mapping: &Mapping) -> io::Result<File> {
    use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
    let root = openat(
        CWD,
        process.join("root"),
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let relative = mapping.path.strip_prefix("/").unwrap_or(&mapping.path);
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let file = File::from(openat2(root, relative, flags, Mode::empty(), within)?);
    let meta = file.metadata()?;
    if !meta.is_file() || meta.ino() != mapping.inode {
        return Err(io::Error::other("another file lies at the path of the mapped one"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_by_file_name() {
        let cases = [
            ("libnixl.so", Some(Family::Nixl)),
            ("libnixl-1a2b3c4d.so", Some(Family::Nixl)),
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
    fn a_path_tells_what_may_be_in_it() {
        let cases = [
            ("/venv/nixl_cu12/_bindings.cpython-311.so", true),
            ("/opt/NIXL/vendor.so", true),
            ("/usr/lib/libucp.so.0", true),
            ("/x/libinflight-1.so", true),
            ("/usr/lib/libc.so.6", false),
            ("/home/libucp/libz.so", false),
            ("/", false),
        ];
        for (path, telling) in cases {
            assert_eq!(is_telling(Path::new(path)), telling, "{path}");
        }
    }

    #[test]
    fn a_name_that_leads_elsewhere_by_now_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("libnixl.so");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        let mapping = |path: &Path, inode| Mapping {
            range: "0-1".to_owned(),
            device: (0, 0),
            inode,
            path: path.to_owned(),
        };
        let inode = std::fs::metadata(&fifo).unwrap().ino();
        let own = std::process::id();
        assert!(Library::open(own, &mapping(&fifo, inode)).is_err());
        let file = folder.path().join("real.so");
        std::fs::write(&file, "x").unwrap();
        let inode = std::fs::metadata(&file).unwrap().ino();
        assert!(Library::open(own, &mapping(&file, inode)).is_ok());
        assert!(Library::open(own, &mapping(&file, inode + 1)).is_err());
    }
}
