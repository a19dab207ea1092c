//! CPU per event, against a bpftrace script with the same probes that prints each event.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::NamedTempFile;

use super::Row;
use super::agent::Agent;
use super::load::{self, Load};
use super::sample::median;
use crate::clock::Moment;
use crate::say;
use crate::usage::Usage;

/// Marks a second: what a script that prints can follow.
const RATE: u32 = 40_000;
const SECONDS: f64 = 3.0;
const SERIES: usize = 3;
/// Pages of bpftrace's buffer on each core: with its own 64 it loses lines wherever it has to wait for
/// its core, and the run is void.
const BUFFER_PAGES: &str = "4096";
/// A process that uses less of a core rests.
const RESTS: f64 = 0.05;
/// Longest wait for bpftrace to attach, and for either to catch up.
const LIMIT: Duration = Duration::from_secs(30);
/// `probe` is a number of the script's own, where `func` is looked up in the process's symbols for each
/// line: 140 µs.
const SCRIPT: &str = r#"{ printf("%llu %d %s %d %d %d\n", nsecs, tid, probe, arg0, arg1, arg2); }"#;

/// bpftrace on all the marks of a library.
pub(super) struct Tracer {
    child: Child,
    out: NamedTempFile,
}

impl Tracer {
    /// Start it; its probes are on when this returns.
    pub(super) fn start(library: &Path, body: &str) -> Result<Self> {
        let out = NamedTempFile::new().context("making a file for bpftrace")?;
        let to = |file: &File| file.try_clone().context("sharing a file with bpftrace");
        let program = format!("uprobe:{}:inflight_mark_* {body}", library.display());
        let mut command = Command::new("bpftrace");
        command.args(["-e", &program]).stdin(Stdio::null());
        command.env("BPFTRACE_PERF_RB_PAGES", BUFFER_PAGES);
        command.stdout(to(out.as_file())?).stderr(to(out.as_file())?);
        let child = command.spawn().context("starting bpftrace")?;
        let tracer = Self { child, out };
        let end = Moment::now().plus(LIMIT);
        while !tracer.said()?.contains("Attaching") {
            if Moment::now() >= end {
                bail!("bpftrace has not attached: {}", tracer.said()?);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        // It says so before it does.
        std::thread::sleep(Duration::from_secs(1));
        Ok(tracer)
    }

    fn said(&self) -> Result<String> {
        std::fs::read_to_string(self.out.path()).context("reading what bpftrace printed")
    }

    /// Ends it; what it printed until then.
    fn finish(mut self) -> Result<String> {
        self.stop();
        self.said()
    }

    fn stop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // By SIGINT it takes its probes away before it ends.
        if let Ok(pid) = i32::try_from(self.child.id())
            && let Some(pid) = rustix::process::Pid::from_raw(pid)
        {
            // One that has ended already needs none.
            rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap_or_default();
        }
        drop(self.child.wait());
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.stop();
    }
}

pub(super) fn measure() -> Result<Vec<Row>> {
    let mut load = Load::start()?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..SERIES {
        let agent = Agent::start(&[load.pid()], 600.0)?;
        ours.push(per_event(&mut load, agent.pid())?.0);
        let lost = agent.lost();
        ensure!(lost == 0, "void: the agent lost {lost} marks, which cost it nothing");
        drop(agent);
        let tracer = Tracer::start(&load::library(), SCRIPT)?;
        let (nanos, marks) = per_event(&mut load, tracer.child.id())?;
        theirs.push(nanos);
        printed_all(&tracer.finish()?, marks)?;
    }
    let (ours, theirs) = (median(&ours), median(&theirs));
    let ratio = ours / theirs.max(1.0);
    Ok(vec![
        Row::new(
            "CPU of the agent per mark, against a bpftrace script that prints each",
            format!("{ours:.0} ns against {theirs:.0} ns: {ratio:.2} ×"),
        )
        .goal("≤ 0.2 ×", ratio <= 0.2),
    ])
}

/// Whether bpftrace printed every mark and says of none that it was lost.
fn printed_all(said: &str, marks: f64) -> Result<()> {
    if let Some(lost) = said.lines().find(|line| line.starts_with("Lost ")) {
        bail!("void: bpftrace says {lost:?}, and what is lost costs it nothing");
    }
    let is_mark = |line: &&str| line.contains("inflight_mark_");
    #[expect(clippy::cast_precision_loss, reason = "far fewer lines than 2^52")]
    let lines = said.lines().filter(is_mark).count() as f64;
    say::line(format_args!("  bpftrace printed {lines} lines for {marks} marks"));
    ensure!(lines >= marks, "void: bpftrace printed {lines} lines for {marks} marks");
    Ok(())
}

/// Waits until a process has done what is left of the marks: it rests. bpftrace needs more than a core
/// for them, and what it has not printed yet has cost it nothing.
fn caught_up(pid: u32) -> Result<()> {
    let end = Moment::now().plus(LIMIT);
    while Moment::now() < end {
        let before = Usage::of(pid)?;
        std::thread::sleep(Duration::from_secs(1));
        if Usage::of(pid)?.share_since(&before) < RESTS {
            return Ok(());
        }
    }
    bail!("void: process {pid} has not caught up with the marks within {LIMIT:?}")
}

/// Nanoseconds of CPU of a process per mark of the load, idle cost included; and the marks.
fn per_event(load: &mut Load, pid: u32) -> Result<(f64, f64)> {
    let before = Usage::of(pid)?;
    let said = load.tell(&format!("stays {RATE} {SECONDS}"))?;
    caught_up(pid)?;
    let cpu = Usage::of(pid)?.cpu_since(&before);
    let marks = said.get("marks")?;
    let nanos = cpu * 1e9 / marks;
    say::line(format_args!("  {nanos:.0} ns a mark"));
    Ok((nanos, marks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_in_which_bpftrace_lost_anything_is_void() {
        let line = "12 34 inflight_mark_post 1 2 3\n";
        assert!(printed_all(&format!("Attaching 8 probes...\n{line}{line}"), 2.0).is_ok());
        assert!(printed_all(&format!("Attaching 8 probes...\n{line}"), 2.0).is_err());
        assert!(printed_all(&format!("Lost 7 events\n{line}{line}"), 2.0).is_err());
    }
}
