//! What a process uses, from `/proc`.

use std::fs;

use anyhow::{Context as _, Result};

use crate::clock::Moment;

/// Clock ticks a second in `/proc/PID/stat`: `USER_HZ`, part of the kernel's interface.
const TICKS: f64 = 100.0;

/// What a process has used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// When it was read.
    pub(crate) at: Moment,
    /// CPU time so far, in seconds.
    pub(crate) cpu_s: f64,
    /// Resident memory.
    pub(crate) resident_mib: f64,
}

impl Usage {
    /// Of a process, from `/proc`.
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let read = |file| {
            let path = format!("/proc/{pid}/{file}");
            fs::read_to_string(&path).with_context(|| format!("reading {path}"))
        };
        let (stat, status) = (read("stat")?, read("status")?);
        // Fields 14 and 15, counted from behind the name, which may hold anything.
        let fields: Vec<&str> =
            stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
        let ticks = |index: usize| fields.get(index).and_then(|ticks| ticks.parse::<f64>().ok());
        let cpu_s = ticks(11).zip(ticks(12)).map(|(user, system)| (user + system) / TICKS);
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = resident.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        Ok(Self {
            at: Moment::now(),
            cpu_s: cpu_s.context("/proc/PID/stat has an unexpected form")?,
            resident_mib: kib.context("/proc/PID/status tells no VmRSS")? / 1024.0,
        })
    }

    /// CPU seconds since `before`.
    pub(crate) fn cpu_since(&self, before: &Self) -> f64 {
        self.cpu_s - before.cpu_s
    }

    /// Share of one core since `before`.
    pub(crate) fn share_since(&self, before: &Self) -> f64 {
        self.cpu_since(before) / self.at.seconds_after(before.at).max(1e-9)
    }
}
