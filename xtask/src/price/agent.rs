//! The agent beside the load: its lines, and what it uses.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use tempfile::TempDir;

use crate::clock::Moment;
use crate::tree::target;
use crate::usage::Usage;

/// Longest wait for what must come.
const LIMIT: Duration = Duration::from_mins(1);
/// `BPF_PROG_TYPE_KPROBE` in `linux/bpf.h`: what uprobes run.
const PROG_TYPE_KPROBE: f64 = 2.0;

/// What the measures need of a line.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Line {
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(default, deserialize_with = "crate::room::maybe")]
    pub(super) room: Option<u64>,
    pub(super) lost: Option<u64>,
    pub(super) cause: Option<String>,
    #[serde(default)]
    coverage: Vec<Covered>,
}

#[derive(Clone, Debug, Deserialize)]
struct Covered {
    source: String,
    sight: String,
}

impl Line {
    fn sees_marks(&self) -> bool {
        let seen = |covered: &Covered| covered.source == "marks" && covered.sight == "visible";
        self.kind == "coverage" && self.coverage.iter().any(seen)
    }
}

/// A running agent that watches the given processes.
pub(super) struct Agent {
    child: Child,
    lines: Receiver<(Moment, Line)>,
    _state: TempDir,
}

impl Agent {
    /// Start it and wait until it sees every process's marks.
    pub(super) fn start(pids: &[u32], stall_s: f64) -> Result<Self> {
        let state = tempfile::tempdir().context("making a state directory")?;
        let mut command = Command::new(target().join("release/inflightd"));
        command.args([
            "run",
            "--json",
            "--log",
            "error",
            "--listen",
            "off",
            "--stall",
            &stall_s.to_string(),
        ]);
        for pid in pids {
            command.args(["--pid", &pid.to_string()]);
        }
        command.arg("--state-dir").arg(state.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().context("starting the agent")?;
        let stdout = child.stdout.take().context("a piped stdout is always there")?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            for text in BufReader::new(stdout).lines().map_while(Result::ok) {
                let at = Moment::now();
                // Stays are many and nobody asks for them: they are not even parsed.
                if text.contains("\"type\":\"append\"") || text.contains("\"type\":\"dwell\"") {
                    continue;
                }
                let line = serde_json::from_str(&text).unwrap_or_default();
                if sender.send((at, line)).is_err() {
                    return;
                }
            }
        });
        let agent = Self { child, lines, _state: state };
        for _ in pids {
            agent.wait(Line::sees_marks).context("waiting for the marks to be seen")?;
        }
        Ok(agent)
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has used.
    pub(super) fn usage(&self) -> Result<Usage> {
        Usage::of(self.pid())
    }

    /// The next line that is `wanted`, and when it came; others are passed over.
    pub(super) fn wait(&self, wanted: impl Fn(&Line) -> bool) -> Result<(Moment, Line)> {
        let end = Moment::now().plus(LIMIT);
        while Moment::now() < end {
            match self.lines.recv_timeout(Duration::from_millis(200)) {
                Ok((at, line)) if wanted(&line) => return Ok((at, line)),
                Ok(_) | Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => bail!("the agent ended"),
            }
        }
        bail!("the agent did not say what was expected within {LIMIT:?}")
    }

    /// Events that it has said to be lost since it was last asked.
    pub(super) fn lost(&self) -> u64 {
        self.lines.try_iter().filter_map(|(_, line)| line.lost).sum()
    }

    /// Hits of its uprobes and the run time of their programs in nanoseconds so far; they count only
    /// while `kernel.bpf_stats_enabled` is 1. The exits of threads, which come from the whole
    /// machine, are not among them.
    pub(super) fn hits(&self) -> Result<(f64, f64)> {
        let folder = format!("/proc/{}/fdinfo", self.pid());
        let (mut hits, mut nanos) = (0.0, 0.0);
        let mut seen = std::collections::BTreeSet::new();
        for entry in fs::read_dir(&folder).with_context(|| format!("reading {folder}"))? {
            let Ok(text) = fs::read_to_string(entry?.path()) else { continue };
            let field = |name: &str| {
                let line = text.lines().find_map(|line| line.strip_prefix(name))?;
                line.trim().parse::<f64>().ok()
            };
            let (Some(count), Some(id)) = (field("run_cnt:"), field("prog_id:")) else { continue };
            if field("prog_type:").is_none_or(|kind| (kind - PROG_TYPE_KPROBE).abs() > 0.5) {
                continue;
            }
            #[expect(clippy::cast_possible_truncation, reason = "ids of programs are 32 bits")]
            #[expect(clippy::cast_sign_loss, reason = "ids of programs are not negative")]
            if seen.insert(id as u64) {
                hits += count;
                nanos += field("run_time_ns:").unwrap_or(0.0);
            }
        }
        Ok((hits, nanos))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
