//! What `/proc` says about a process. Parsing is apart from reading, and bounded.

mod ending;
pub mod maps;
mod pod;
mod transports;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};

pub use ending::{is_ending, is_gone};
pub use maps::{LoadMap, Mapping, Maps, TableMap};
pub use pod::PodUid;
pub use transports::may_pass_sockets;

/// Longest `/proc/PID/stat` or `status` that is read.
const SMALL_FILE: u64 = 16 * 1024;
/// Fields of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// `R`, `S`, `T`, `Z`, … (field 3).
    pub state: u8,
    /// The kernel's flags of the thread (field 9).
    pub flags: u64,
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
        Self::at(&format!("/proc/{pid}/stat"))?.ok_or_else(|| malformed("stat", pid))
    }

    fn at(path: &str) -> io::Result<Option<Self>> {
        Ok(Self::parse(&small(path)?))
    }

    /// Parses a line of `/proc/PID/stat`. The name in parentheses may hold anything.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let name_end = text.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(text.get(name_end + 1..)?).ok()?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        Some(Self {
            state: *fields.first()?.as_bytes().first()?,
            flags: fields.get(6)?.parse().ok()?,
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

/// Whether the process that was found with this start time is still there.
pub fn lives(pid: u32, start: u64) -> bool {
    Stat::of(pid).is_ok_and(|stat| stat.start == start && !stat.is_gone())
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

/// The command line of a process, its words ended by NUL; the beginning of a long one.
pub fn command_line(pid: u32) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&small(&format!("/proc/{pid}/cmdline"))?).into_owned())
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
