//! What `/proc` says about a process. Parsing is apart from reading, and bounded.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

/// Longest `/proc/PID/stat` or `status` that is read.
const SMALL_FILE: u64 = 16 * 1024;
/// Most bytes of `/proc/PID/maps` that are read: some 160,000 mappings.
const MAPS_BYTES: u64 = 16 * 1024 * 1024;
/// Most tables that one process may have.
pub(crate) const TABLES_PER_PROCESS: usize = 8;
/// How a table shows in `/proc/PID/maps`.
const TABLE_PATH: &str = "/memfd:inflight (deleted)";

/// Fields of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// `R`, `S`, `T`, `Z`, … (field 3).
    pub state: u8,
    /// Clock ticks from boot to the process's start (field 22): with the pid, its identity.
    pub start: u64,
    /// Bytes of address space (field 23); 0 for a kernel thread and for a zombie.
    pub vsize: u64,
    /// Threads (field 20).
    pub threads: u64,
}

impl Stat {
    /// Reads the process's or thread's own line.
    pub fn of(pid: u32) -> io::Result<Self> {
        let text = small(&format!("/proc/{pid}/stat"))?;
        Self::parse(&text).ok_or_else(|| malformed("stat", pid))
    }

    /// Parses a line of `/proc/PID/stat`. The name in parentheses may hold anything.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let name_end = text.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(text.get(name_end + 1..)?).ok()?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        Some(Self {
            state: *fields.first()?.as_bytes().first()?,
            start: fields.get(19)?.parse().ok()?,
            vsize: fields.get(20)?.parse().ok()?,
            threads: fields.get(17)?.parse().ok()?,
        })
    }

    /// Stopped by a signal or a tracer.
    pub const fn is_stopped(&self) -> bool {
        matches!(self.state, b'T' | b't')
    }

    /// Ended and not yet reaped, or on its way. A first thread that has ended leaves the state
    /// of a dead process behind while others live on.
    pub const fn is_gone(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x') && self.threads <= 1
    }
}

/// A mapping of a memfd that is named as a table is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableMap {
    /// `START-END` as in `/proc/PID/map_files`.
    pub range: String,
    /// Inode of the memfd: one table, however often it is mapped.
    pub inode: u64,
}

/// The tables that a process maps, each once.
///
/// `device` is that of memfds on this kernel: a file of the same name on another file system
/// (FUSE could hang its reader) is not a table.
pub fn table_maps(pid: u32, device: (u32, u32)) -> io::Result<Vec<TableMap>> {
    let file = File::open(format!("/proc/{pid}/maps"))?;
    let mut reader = BufReader::with_capacity(64 * 1024, file.take(MAPS_BYTES));
    let mut found: Vec<TableMap> = Vec::new();
    let mut line = Vec::new();
    while found.len() < TABLES_PER_PROCESS {
        line.clear();
        if reader.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if let Some(map) = parse_map(&line, device)
            && found.iter().all(|known| known.inode != map.inode)
        {
            found.push(map);
        }
    }
    Ok(found)
}

/// A line of `/proc/PID/maps`: `start-end perms offset major:minor inode path`.
fn parse_map(line: &[u8], device: (u32, u32)) -> Option<TableMap> {
    let line = std::str::from_utf8(line).ok()?.trim_end();
    let head = line.strip_suffix(TABLE_PATH)?;
    let mut fields = head.split_ascii_whitespace();
    let (range, permissions) = (fields.next()?, fields.next()?);
    let (offset, dev, inode) = (fields.next()?, fields.next()?, fields.next()?);
    // Anything between inode and name belongs to a longer path. A worker writes its table; who
    // only reads it is an agent.
    if fields.next().is_some() || !permissions.starts_with("rw") || !permissions.ends_with('s') {
        return None;
    }
    let (major, minor) = dev.split_once(':')?;
    let hex = |text| u32::from_str_radix(text, 16).ok();
    if (hex(major)?, hex(minor)?) != device || u64::from_str_radix(offset, 16).ok()? != 0 {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let is_hex = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_hex(start) && is_hex(end))
        .then(|| TableMap { range: range.to_owned(), inode: inode.parse().unwrap_or(0) })
}

/// The ids of a process or thread in its pid namespaces, outermost first.
pub fn ns_ids(path: &str) -> io::Result<Vec<u32>> {
    let text = small(path)?;
    Ok(parse_ns_ids(&String::from_utf8_lossy(&text)))
}

fn parse_ns_ids(status: &str) -> Vec<u32> {
    status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))
        .map(|ids| ids.split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect())
        .unwrap_or_default()
}

/// Threads of a process: id in its own pid namespace to id in the host's.
pub fn threads(pid: u32) -> io::Result<BTreeMap<u32, u32>> {
    let mut threads = BTreeMap::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let Some(tid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A thread that has just ended has no file any more.
        if let Ok(ids) = ns_ids(&format!("/proc/{pid}/task/{tid}/status")) {
            threads.insert(ids.last().copied().unwrap_or(tid), tid);
        }
    }
    Ok(threads)
}

/// Identity of this boot: start times mean something within one boot only.
pub fn boot_id() -> io::Result<String> {
    let text = small("/proc/sys/kernel/random/boot_id")?;
    Ok(String::from_utf8_lossy(&text).trim().to_owned())
}

/// Processes, by id.
pub fn processes() -> io::Result<Vec<u32>> {
    let ids = std::fs::read_dir("/proc")?
        .filter_map(Result::ok)
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    Ok(ids)
}

fn small(path: &str) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(SMALL_FILE).read_to_end(&mut text)?;
    Ok(text)
}

fn malformed(file: &str, pid: u32) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid}/{file} has an unexpected form"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: (u32, u32) = (0, 1);

    #[test]
    fn a_name_cannot_forge_the_fields() {
        let line = b"7 (a) T (b)) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4321 8192 1 2\n";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.state, stat.start, stat.vsize), (b'S', 4321, 8192));
    }

    #[test]
    fn every_truncation_of_a_stat_line_is_refused_or_whole() {
        let line = b"7 (x) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4321 8192";
        for len in 0..line.len() - 4 {
            assert_eq!(Stat::parse(&line[..len]), None, "{len} bytes");
        }
    }

    #[test]
    fn own_stat_can_be_read() {
        let stat = Stat::of(std::process::id()).unwrap();
        assert!(stat.start > 0 && stat.vsize > 0 && !stat.is_gone());
    }

    #[test]
    fn a_table_is_told_from_files_that_only_look_like_one() {
        let map = |line: &str| parse_map(line.as_bytes(), DEVICE);
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
    fn ids_in_namespaces_are_read_outermost_first() {
        assert_eq!(parse_ns_ids("Name:\tx\nNSpid:\t8977\t1\nNSpgid:\t1\n"), [8977, 1]);
        assert!(parse_ns_ids("Name:\tx\n").is_empty());
    }

    #[test]
    fn own_threads_are_found() {
        let own = std::process::id();
        let threads = threads(own).unwrap();
        assert!(threads.values().any(|tid| *tid == own));
    }
}
