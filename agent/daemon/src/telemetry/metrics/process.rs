//! The agent as a process, read from `/proc/self` once for each reading of the instruments.

use std::fs;
use std::sync::Mutex;

use super::board::lock;

/// The agent as a process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Process {
    pub(super) cpu_seconds: f64,
    pub(super) resident_bytes: u64,
    pub(super) open_fds: u64,
    /// Seconds since 1970.
    pub(super) started_at: f64,
}

impl Process {
    /// What `/proc` says; `None` where it is not mounted or says something unknown.
    fn read() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let boot = fs::read_to_string("/proc/stat").ok()?;
        let ticks = rustix::param::clock_ticks_per_second();
        let page = rustix::param::page_size();
        let mut process = Self::parse(&stat, &boot, ticks, page)?;
        // The descriptor that lists them is one of them.
        let fds = fs::read_dir("/proc/self/fd").ok()?.count();
        process.open_fds = u64::try_from(fds.saturating_sub(1)).ok()?;
        Some(process)
    }

    /// Fields 14, 15 (CPU), 22 (start) and 24 (resident pages) of `stat`, and `btime`.
    #[expect(clippy::cast_precision_loss, reason = "53 bits of ticks are centuries")]
    fn parse(stat: &str, boot: &str, ticks: u64, page: usize) -> Option<Self> {
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let field = |number: usize| -> Option<u64> { fields.get(number - 3)?.parse().ok() };
        let booted: u64 =
            boot.lines().find_map(|line| line.strip_prefix("btime "))?.parse().ok()?;
        let seconds = |count: u64| count as f64 / ticks.max(1) as f64;
        Some(Self {
            cpu_seconds: seconds(field(14)?.saturating_add(field(15)?)),
            resident_bytes: field(24)?.saturating_mul(u64::try_from(page).ok()?),
            open_fds: 0,
            started_at: booted as f64 + seconds(field(22)?),
        })
    }
}

/// The last reading. The callbacks of one reading run in the order of their definitions: the first
/// reads, the others take what it read.
#[derive(Debug, Default)]
pub(super) struct Reading(Mutex<Option<Process>>);

impl Reading {
    /// Reads anew.
    pub(super) fn fresh(&self) -> Option<Process> {
        let process = Process::read();
        *lock(&self.0) = process;
        process
    }

    /// What was last read.
    pub(super) fn last(&self) -> Option<Process> {
        *lock(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_those_of_the_manual() {
        let head = "42 (a) b) S 1 1 1 0 -1 4194560 1 2 3 4 150 50 7 8 20 0 9 0 1000 123456 300 5";
        let process = Process::parse(head, "cpu 1 2\nbtime 1700000000\n", 100, 4096).unwrap();
        assert!((process.cpu_seconds - 2.0).abs() < 1e-9);
        assert!((process.started_at - 1_700_000_010.0).abs() < 1e-6);
        assert_eq!(process.resident_bytes, 300 * 4096);
        assert_eq!(Process::parse("42 (a) S 1", "btime 1\n", 100, 4096), None);
    }

    #[test]
    fn this_process_is_read() {
        let reading = Reading::default();
        let process = reading.fresh().unwrap();
        assert!(process.resident_bytes > 1 << 20 && process.open_fds >= 3, "{process:?}");
        assert!(process.started_at > 1.6e9, "{process:?}");
        assert_eq!(reading.last(), Some(process));
    }
}
