//! What a process maps: its tables, and the files whose code it runs.
//!
//! `/proc/PID/maps` is read once for both, because reading it takes the target's mmap lock.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use inflightd_abi::table::WORKERS_MAX;

/// Most bytes of `/proc/PID/maps` that are read: some 160,000 mappings.
const MAPS_BYTES: u64 = 16 * 1024 * 1024;
/// Most tables that are kept of one process, which is more than it may have: which of them are
/// taken depends on what they say. The victims are those with the highest addresses.
pub(crate) const TABLES_MAX: usize = 4 * WORKERS_MAX;
/// Most files with code that are kept of one process; the victims are those with the highest
/// addresses.
pub(crate) const OBJECTS_PER_PROCESS: usize = 4096;
/// How a table shows in `/proc/PID/maps`.
const TABLE_PATH: &[u8] = b"/memfd:inflight (deleted)";
/// Where SGLang's load snapshots lie: this, any name, and [`LOAD_END`].
const LOAD_BEGIN: &[u8] = b"/dev/shm/sglang_loads_";
const LOAD_END: &[u8] = b".shm";
/// How RDMA devices are called that a process has open.
const VERBS: &[u8] = b"/dev/infiniband/uverbs";
/// What the kernel appends to the path of a file that has no name any more.
const DELETED: &[u8] = b" (deleted)";

/// A mapping of a memfd that is named as a table is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableMap {
    /// `START-END` as in `/proc/PID/map_files`.
    pub range: String,
    /// Inode of the memfd: one table, however often it is mapped.
    pub inode: u64,
}

impl TableMap {
    /// Whether the process maps something at this very range still: a cheap question, that does
    /// not walk its mappings.
    pub fn is_mapped(&self, pid: u32) -> bool {
        let link = std::fs::read_link(format!("/proc/{pid}/map_files/{}", self.range));
        !link.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }
}

/// A mapping of a file that is named as SGLang's load snapshot is, by one who writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadMap {
    /// Path as the process sees it.
    pub path: PathBuf,
    /// Inode number.
    pub inode: u64,
}

/// An executable mapping of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// `START-END` as in `/proc/PID/map_files`.
    pub range: String,
    /// Major and minor number of the device, as `maps` has them.
    pub device: (u32, u32),
    /// Inode number.
    pub inode: u64,
    /// Path as the process sees it, without the mark of a deleted file.
    pub path: PathBuf,
}

impl Mapping {
    /// File name, where it is UTF-8.
    pub fn file_name(&self) -> Option<&str> {
        self.path.file_name()?.to_str()
    }
}

/// What one reading of `/proc/PID/maps` gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Maps {
    /// The tables, each once.
    pub tables: Vec<TableMap>,
    /// The files with code, each once, in the order of their addresses.
    pub objects: Vec<Mapping>,
    /// The load snapshot that it writes: the one at the lowest address.
    pub load: Option<LoadMap>,
    /// It has an RDMA device open, as its doorbells or rings show.
    pub verbs: bool,
    /// Bytes that were read.
    pub bytes: u64,
}

impl Maps {
    /// Reads what a process maps.
    ///
    /// `device` is that of memfds on this kernel: a file of the same name on another file system
    /// (FUSE could hang its reader) is not a table.
    pub fn of(pid: u32, device: (u32, u32)) -> io::Result<Self> {
        let file = File::open(format!("/proc/{pid}/maps"))?;
        Self::parse(BufReader::with_capacity(64 * 1024, file.take(MAPS_BYTES)), device)
    }

    /// Parses the lines of `maps`. Lines of another form are skipped.
    fn parse(mut lines: impl BufRead, device: (u32, u32)) -> io::Result<Self> {
        let mut maps = Self::default();
        let mut known = BTreeSet::new();
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = lines.read_until(b'\n', &mut line)?;
            if read == 0 {
                return Ok(maps);
            }
            maps.bytes += read as u64;
            let text = line.strip_suffix(b"\n").unwrap_or(&line);
            if let Some(line) = Line::parse(text) {
                maps.take(&line, device, &mut known);
            }
        }
    }

    fn take(&mut self, line: &Line<'_>, device: (u32, u32), known: &mut Known) {
        if let Some(table) = line.table(device) {
            let is_new = self.tables.iter().all(|other| other.inode != table.inode);
            if is_new && self.tables.len() < TABLES_MAX {
                self.tables.push(table);
            }
        } else if line.path.starts_with(VERBS) {
            self.verbs = true;
        } else if self.load.is_none() && line.is_load() {
            let path = PathBuf::from(OsString::from_vec(line.path.to_vec()));
            self.load = Some(LoadMap { path, inode: line.inode });
        } else if line.is_code()
            && self.objects.len() < OBJECTS_PER_PROCESS
            && let Some(device) = line.device()
            && known.insert((device, line.inode))
        {
            self.objects.push(line.mapping(device));
        }
    }
}

type Known = BTreeSet<((u32, u32), u64)>;

/// A line of `/proc/PID/maps`: `start-end perms offset major:minor inode path`.
struct Line<'a> {
    range: &'a str,
    permissions: &'a [u8],
    offset: &'a [u8],
    device: &'a [u8],
    inode: u64,
    path: &'a [u8],
}

impl<'a> Line<'a> {
    /// `None` where the mapping is not of a file.
    fn parse(text: &'a [u8]) -> Option<Self> {
        let mut fields = text.splitn(6, |byte| *byte == b' ');
        let range = std::str::from_utf8(fields.next()?).ok()?;
        let (permissions, offset, device) = (fields.next()?, fields.next()?, fields.next()?);
        let inode: u64 = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        let path = fields.next()?.trim_ascii_start();
        let (start, end) = range.split_once('-')?;
        let is_hex =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_file = inode != 0 && path.first() == Some(&b'/') && is_hex(start) && is_hex(end);
        is_file.then_some(Self { range, permissions, offset, device, inode, path })
    }

    fn device(&self) -> Option<(u32, u32)> {
        let (major, minor) = std::str::from_utf8(self.device).ok()?.split_once(':')?;
        let hex = |text| u32::from_str_radix(text, 16).ok();
        Some((hex(major)?, hex(minor)?))
    }

    fn is_code(&self) -> bool {
        self.permissions.get(2) == Some(&b'x')
    }

    /// A worker writes its table; who only reads it is an agent.
    fn table(&self, device: (u32, u32)) -> Option<TableMap> {
        let is_one = self.path == TABLE_PATH
            && self.permissions.starts_with(b"rw")
            && self.permissions.ends_with(b"s")
            && self.offset.iter().all(|digit| *digit == b'0')
            && self.device() == Some(device);
        is_one.then(|| TableMap { range: self.range.to_owned(), inode: self.inode })
    }

    /// A scheduler writes its snapshot; who only reads it is a front end.
    fn is_load(&self) -> bool {
        let name = self.path.strip_prefix(LOAD_BEGIN).and_then(|rest| rest.strip_suffix(LOAD_END));
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
        name.is_some_and(|name| !name.is_empty() && name.iter().all(is_plain))
            && self.permissions.starts_with(b"rw")
            && self.permissions.ends_with(b"s")
    }

    fn mapping(&self, device: (u32, u32)) -> Mapping {
        let path = self.path.strip_suffix(DELETED).unwrap_or(self.path);
        let path = PathBuf::from(OsString::from_vec(unescape(path)));
        Mapping { range: self.range.to_owned(), device, inode: self.inode, path }
    }
}

/// The kernel writes a newline in a path as `\012`; nothing else is escaped.
fn unescape(path: &[u8]) -> Vec<u8> {
    const ESCAPED: &[u8] = b"\\012";
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, tail)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(ESCAPED) {
            plain.push(b'\n');
            rest = after;
        } else {
            plain.push(*first);
            rest = tail;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: (u32, u32) = (0, 1);
    const TEXT: &[u8] = b"\
55d0c0a00000-55d0c0a01000 r--p 00000000 fe:00 100 /usr/bin/python3.11
55d0c0a01000-55d0c0a02000 r-xp 00001000 fe:00 100 /usr/bin/python3.11
7f0000000000-7f0000001000 r-xp 00047000 fe:00 200                        /opt/a b/libnixl.so
7f0000001000-7f0000002000 r-xp 00048000 fe:00 200                        /opt/a b/libnixl.so
7f0000003000-7f0000004000 r-xp 00000000 fe:00 300                        /x/libucp.so.0 (deleted)
7f0000005000-7f0000006000 r-xp 00000000 fe:00 400                        /x/od\\012d
7ffd00000000-7ffd00001000 r-xp 00000000 00:00 0                          [vdso]
7ffd00002000-7ffd00003000 rwxp 00000000 00:00 0 
7f0000007000-7f0000008000 rw-s 00000000 00:01 9                          /memfd:inflight (deleted)
garbage
";

    fn maps(text: &[u8]) -> Maps {
        Maps::parse(text, DEVICE).unwrap()
    }

    #[test]
    fn files_with_code_come_once_and_in_order() {
        let found = maps(TEXT);
        let names: Vec<_> = found.objects.iter().map(|m| m.path.to_str().unwrap()).collect();
        assert_eq!(
            names,
            ["/usr/bin/python3.11", "/opt/a b/libnixl.so", "/x/libucp.so.0", "/x/od\nd"]
        );
        assert_eq!(found.objects[0].range, "55d0c0a01000-55d0c0a02000");
        assert_eq!((found.objects[1].inode, found.objects[1].device), (200, (0xfe, 0)));
        assert_eq!(found.objects[2].file_name(), Some("libucp.so.0"));
        assert_eq!(found.tables.len(), 1);
        assert_eq!(found.bytes, TEXT.len() as u64);
    }

    #[test]
    fn no_prefix_of_the_text_is_a_trap() {
        for end in 0..TEXT.len() {
            assert!(maps(&TEXT[..end]).objects.len() <= 4);
        }
    }

    #[test]
    fn a_flood_is_cut() {
        let line = |n: usize, what: &str| format!("7f00-7f01 {what} 00000000 00:01 {n} ");
        let objects: String = (1..10_000).map(|n| line(n, "r-xp") + "/opt/libucp.so.0\n").collect();
        assert_eq!(maps(objects.as_bytes()).objects.len(), OBJECTS_PER_PROCESS);
        let tables: String =
            (1..100).map(|n| line(n, "rw-s") + "/memfd:inflight (deleted)\n").collect();
        assert_eq!(maps(tables.as_bytes()).tables.len(), TABLES_MAX);
        let header = include_str!("../../../../hook/marker/include/inflight.h");
        assert!(header.contains(&format!("#define INFLIGHT_WORKERS_MAX {WORKERS_MAX}\n")));
    }

    #[test]
    fn a_table_is_told_from_files_that_only_look_like_one() {
        let map = |line: &str| maps(line.as_bytes()).tables.pop();
        let good = "7f00-8f00 rw-s 00000000 00:01 9 /memfd:inflight (deleted)\n";
        assert_eq!(map(good), Some(TableMap { range: "7f00-8f00".to_owned(), inode: 9 }));
        let other_device = good.replace("00:01", "00:2c");
        let private = good.replace("rw-s", "rw-p");
        let in_folder = good.replace("/memfd", "/tmp /memfd");
        let inside = good.replace("00000000", "00001000");
        let agents_view = good.replace("rw-s", "r--s");
        for bad in [&other_device, &private, &in_folder, &inside, &agents_view] {
            assert_eq!(map(bad), None, "{bad}");
        }
        assert_eq!(map("7f00-8f00 rw-s 00000000 00:01 9 /memfd:inflight2 (deleted)"), None);
        assert_eq!(map("../x-8f00 rw-s 00000000 00:01 9 /memfd:inflight (deleted)"), None);
    }

    #[test]
    fn a_load_snapshot_is_its_writers() {
        let load = |line: &str| maps(line.as_bytes()).load;
        let good = "7f00-8f00 rw-s 00000000 00:1a 77 /dev/shm/sglang_loads_tmp-x.1_0a1b2c3d.shm\n";
        let path = PathBuf::from("/dev/shm/sglang_loads_tmp-x.1_0a1b2c3d.shm");
        assert_eq!(load(good), Some(LoadMap { path, inode: 77 }));
        for bad in [
            good.replace("rw-s", "r--s"),
            good.replace("rw-s", "rw-p"),
            good.replace(".shm", ".shm (deleted)"),
            good.replace("tmp-x", "../../etc/x"),
            good.replace("tmp-x", "a/b"),
            good.replace("/dev/shm", "/tmp/dev/shm"),
            good.replace("tmp-x.1_0a1b2c3d", ""),
        ] {
            assert_eq!(load(&bad), None, "{bad}");
        }
    }

    #[test]
    fn an_open_rdma_device_shows_by_its_doorbells() {
        let verbs = |path: &str| {
            maps(format!("7f00-8f00 -w-s 00000000 00:05 77 {path}\n").as_bytes()).verbs
        };
        assert!(verbs("/dev/infiniband/uverbs0"));
        assert!(!verbs("/tmp/dev/infiniband/uverbs0") && !verbs("/dev/infiniband/rdma_cm"));
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        assert!(Maps::of(u32::MAX, DEVICE).is_err());
    }
}
