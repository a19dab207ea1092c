//! The processes of the pair: started, spoken to in JSON lines, ended by pid.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::Value;

use super::file::Pair;
use super::net::Place;
use super::scratch::Scratch;
use super::step::{Who, agent_of};
use super::world::Message;
use crate::clock::Moment;
use crate::setup::venv_python;
use crate::tree;

/// Longest time for all threads of a process to stop.
const STOPS: Duration = Duration::from_secs(2);
/// The prefill's script.
pub(super) const PREFILL: &str = "prefill.py";
/// A decode's script.
pub(super) const DECODE: &str = "decode.py";

/// An event of one of the pair's processes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Event {
    /// What happened.
    #[serde(rename = "event")]
    pub(super) what: String,
    /// When, nanoseconds of `CLOCK_MONOTONIC`.
    pub(super) at: u64,
    pub(super) name: String,
    pub(super) pid: u32,
    pub(super) room: u64,
    pub(super) seq: u64,
    pub(super) bytes: u64,
    pub(super) size: u64,
    pub(super) address: u64,
    /// Where a decode is asked for hand-shakes: a port of this machine.
    pub(super) door: u16,
    pub(super) metadata: String,
    pub(super) outcome: String,
    pub(super) wrong: u64,
    pub(super) handle: u64,
    pub(super) why: String,
}

/// One process of the pair.
pub(super) struct Process {
    name: &'static str,
    child: Child,
    stdin: ChildStdin,
}

impl Process {
    /// Start `script` under `name`; its events arrive as messages.
    pub(super) fn start(
        script: &str,
        name: &'static str,
        pair: &Pair,
        place: &Place<'_>,
        scratch: &Scratch,
        inbox: Sender<Message>,
    ) -> Result<Self> {
        let mut command = python(place);
        command.arg(tree::root().join("xtask/pair").join(script)).arg(agent_of(name));
        command.arg("--memory").arg((pair.memory_mib << 20).to_string());
        if pair.bare {
            command.arg("--bare");
        }
        if script == PREFILL {
            command.args(["--workers", &pair.workers.to_string()]);
            let flags = [
                ("--notify", pair.notify),
                ("--spoil-table", pair.spoil_table),
                ("--unmarked", pair.unmarked),
            ];
            command.args(flags.iter().filter(|(_, wanted)| *wanted).map(|(flag, _)| flag));
        }
        if pair.polled && name == Who::Sick.name() {
            command.arg("--polled");
        }
        // UCX's own choice is `all`; a case is about that or about TCP.
        command.env("UCX_TLS", if pair.any_transport { "all" } else { "tcp,self" });
        command.env("UCX_NET_DEVICES", place.device);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(scratch.file(&format!("{name}.err"))?);
        let mut child = command.spawn().with_context(|| format!("starting {script} as {name}"))?;
        let stdin = child.stdin.take().context("a piped stdin is always there")?;
        let stdout = child.stdout.take().context("a piped stdout is always there")?;
        let log = scratch.file(&format!("{name}.jsonl"))?;
        thread::spawn(move || listen(name, BufReader::new(stdout), log, &inbox));
        Ok(Self { name, child, stdin })
    }

    /// Its host pid.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Send a command.
    pub(super) fn tell(&mut self, command: &Value) -> Result<()> {
        writeln!(self.stdin, "{command}")
            .and_then(|()| self.stdin.flush())
            .with_context(|| format!("telling {} to {command}", self.name))
    }

    /// Send a signal.
    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id())
            .ok()
            .and_then(Pid::from_raw)
            .context("a pid is positive")?;
        kill_process(pid, signal).with_context(|| format!("sending {signal:?} to {}", self.name))
    }

    /// Stop it, and wait until each of its threads is stopped: one that runs on another processor
    /// goes on for a moment.
    pub(super) fn stop(&self) -> Result<()> {
        self.signal(Signal::STOP)?;
        let end = Moment::now().plus(STOPS);
        while !self.is_stopped() {
            ensure!(Moment::now() < end, "{} still runs {STOPS:?} after SIGSTOP", self.name);
            thread::sleep(STOPS / 1000);
        }
        Ok(())
    }

    /// Whether each of its threads is stopped.
    pub(super) fn is_stopped(&self) -> bool {
        is_stopped(self.pid())
    }

    /// Whether it has ended.
    pub(super) fn is_gone(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
}

impl Process {
    /// End it; SIGKILL ends a stopped process too.
    pub(super) fn end(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whether all threads of a process are stopped.
fn is_stopped(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The state stands behind the name, which may hold anything.
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
    })
}

/// Python where the process is to run. `ip netns exec` becomes the program that it starts, so the
/// pid is that program's, and gives it the `/sys` of its network, where UCX looks for devices.
fn python(place: &Place<'_>) -> Command {
    let Some(space) = place.space else { return Command::new(venv_python()) };
    let mut command = Command::new("ip");
    command.args(["netns", "exec", space]).arg(venv_python());
    command
}

fn listen(name: &'static str, lines: impl BufRead, log: File, inbox: &Sender<Message>) {
    hear(lines, log, |_, line| {
        let event = serde_json::from_str(line).unwrap_or_else(|error| Event {
            what: "refused".to_owned(),
            why: format!("{name} printed what is no event: {error}: {line}"),
            ..Event::default()
        });
        inbox.send(Message::Pair(name, event)).is_ok()
    });
}

/// Hears a process until it ends or `take` says that nobody listens: each line, with the moment
/// that it came, is kept in a log and handed on.
pub(crate) fn hear(lines: impl BufRead, mut log: File, mut take: impl FnMut(Moment, &str) -> bool) {
    for line in lines.lines().map_while(Result::ok) {
        let at = Moment::now();
        drop(writeln!(log, "{line}"));
        if !take(at, &line) {
            return;
        }
    }
}
