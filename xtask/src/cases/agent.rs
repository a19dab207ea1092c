//! The agent as a process: built, started, killed, its lines collected.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Sender;
use std::thread;

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};

use super::file::Agent as Setting;
use super::pair::hear;
use super::record::{Line, Seen};
use super::scratch::Scratch;
use crate::shell::Step;
use crate::tree::{cargo, target};
use crate::usage::Usage;

const BUILD: Step<'static> =
    Step { what: "building the agent", fix: "`cargo xtask setup`, then see the lines above" };

/// Build the agent, optimised as it is for the measures of the README. What is shipped is built by
/// the profile `dist`, which differs by link-time optimisation and takes minutes.
pub(crate) fn build() -> Result<()> {
    BUILD.run(&mut build_command()).map(drop)
}

/// The same without a word on stdout.
pub(crate) fn build_quietly() -> Result<()> {
    BUILD.quietly(&mut build_command()).map(drop)
}

fn build_command() -> Command {
    cargo(&["build", "--release", "--quiet", "--package", "inflightd"])
}

/// The agent that is built.
pub(super) fn binary() -> PathBuf {
    target().join("release/inflightd")
}

/// What an agent tells.
pub(crate) enum Said {
    /// A line and when it was read.
    Line(Box<Seen>),
    /// Something that should be a line and is not.
    Garbled(String),
}

/// A running agent.
pub(crate) struct Agent {
    child: Child,
}

impl Agent {
    /// Start it, for those processes only where any are named; its lines arrive as messages.
    pub(crate) fn start<Message: From<Said> + Send + 'static>(
        program: Option<&Path>,
        setting: &Setting,
        pids: &[u32],
        capture: Option<PathBuf>,
        scratch: &Scratch,
        inbox: Sender<Message>,
    ) -> Result<Self> {
        // However this program ends, no agent stays behind.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM"]);
        command.arg(program.map_or_else(binary, Path::to_owned));
        // Several agents run side by side: none of them may take the default address.
        command.args(["run", "--json", "--listen", setting.listen.as_deref().unwrap_or("off")]);
        // Each room is looked for in the lines, however many there are.
        command.env("INFLIGHTD_HEALTHY_RATE", "0");
        command.args(["--suspect", &setting.suspect_s.to_string()]);
        command.args(["--stall", &setting.stall_s.to_string()]);
        if !setting.config.is_empty() {
            let path = scratch.path("agent.toml");
            let text = toml::to_string(&setting.config).context("writing the agent's settings")?;
            fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
            command.arg("--config").arg(path);
        }
        if let Some(path) = capture {
            command.arg("--capture").arg(path);
        }
        for pid in pids {
            command.args(["--pid", &pid.to_string()]);
        }
        command.arg("--state-dir").arg(scratch.path("state"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(scratch.file("agent.log")?);
        let mut child = command.spawn().context("starting the agent")?;
        let stdout = child.stdout.take().context("a piped stdout is always there")?;
        let log = scratch.file("agent.jsonl")?;
        thread::spawn(move || listen(BufReader::new(stdout), log, &inbox));
        Ok(Self { child })
    }

    /// Whether it has ended by itself.
    pub(crate) fn is_gone(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// What it has used so far, from `/proc`; none where that cannot be read.
    pub(super) fn usage(&self) -> Option<Usage> {
        Usage::of(self.child.id()).ok()
    }

    /// Its host pid.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Send a signal.
    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).with_context(|| format!("sending {signal:?} to the agent"))
    }

    /// End it with SIGKILL.
    pub(super) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.end();
    }
}

fn listen<Message: From<Said>>(lines: impl BufRead, log: File, inbox: &Sender<Message>) {
    hear(lines, log, |at, text| {
        let said = match serde_json::from_str::<Line>(text) {
            Ok(line) => Said::Line(Box::new(Seen { at, line })),
            Err(error) => Said::Garbled(format!("the agent printed no JSON line: {error}: {text}")),
        };
        inbox.send(said.into()).is_ok()
    });
}
