//! A real NIXL pair whose decode can be stopped.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::setup::venv_python;
use crate::tree;

/// Memory of each side, in bytes.
const MEMORY: u64 = 256 << 20;

/// What a process of the pair says.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Event {
    #[serde(rename = "event")]
    what: String,
    metadata: String,
    address: u64,
    size: u64,
}

/// One process of the pair.
struct Process {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Process {
    fn start(directory: &Path, script: &str, name: &str) -> Result<(Self, Event)> {
        let log = File::create(directory.join(script).with_extension("err"))
            .with_context(|| format!("making the log of {script}"))?;
        // A stopped process would outlive a run that Ctrl-C ends.
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(venv_python())
            .arg(tree::root().join("xtask/pair").join(script))
            .args([name, "--memory", &MEMORY.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {script}"))?;
        let stdin = child.stdin.take().context("a piped stdin is always there")?;
        let stdout = child.stdout.take().context("a piped stdout is always there")?;
        let mut process = Self { child, stdin, stdout: BufReader::new(stdout) };
        let ready = process.answer("ready")?;
        Ok((process, ready))
    }

    fn tell(&mut self, command: &Value) -> Result<()> {
        writeln!(self.stdin, "{command}").with_context(|| format!("telling the pair {command}"))
    }

    /// The next event of that name.
    fn answer(&mut self, event: &str) -> Result<Event> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.stdout.read_line(&mut line).context("hearing the pair")? == 0 {
                bail!("a process of the pair ended before it said {event:?}");
            }
            let said: Event = serde_json::from_str(&line).context("hearing the pair")?;
            match said.what.as_str() {
                "refused" => bail!("the pair refuses: {line}"),
                what if what == event => return Ok(said),
                _ => {}
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A prefill with a queue, and the decode that it sends to.
pub(super) struct Duo {
    prefill: Process,
    decode: Process,
    rooms: u64,
}

impl Duo {
    /// Start both and introduce them; their logs go to `directory`.
    pub(super) fn start(directory: &Path) -> Result<Self> {
        let name = |what: &str| format!("{what}-surroundings-{}", std::process::id());
        let (mut prefill, _) = Process::start(directory, "prefill.py", &name("prefill"))?;
        let (decode, ready) = Process::start(directory, "decode.py", &name("decode"))?;
        prefill.tell(&json!({
            "do": "peer", "name": name("decode"), "metadata": ready.metadata,
            "address": ready.address, "size": ready.size,
        }))?;
        prefill.answer("peered")?;
        Ok(Self { prefill, decode, rooms: 0 })
    }

    /// Pids of prefill and decode.
    pub(super) fn pids(&self) -> [u32; 2] {
        [self.prefill.child.id(), self.decode.child.id()]
    }

    /// One more room enters the queue.
    pub(super) fn append(&mut self, bytes: u64) -> Result<()> {
        self.rooms += 1;
        let to = format!("decode-surroundings-{}", std::process::id());
        let command =
            json!({"do": "append", "room": self.rooms, "to": to, "bytes": bytes, "chunk": 8 << 20});
        self.prefill.tell(&command)
    }

    /// Wait until a room has left the queue.
    pub(super) fn await_removal(&mut self) -> Result<()> {
        self.prefill.answer("removed").map(drop)
    }

    /// Stop the decode, or let it run again.
    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.decode.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.context("a pid is positive")?, signal).context("signalling the decode")
    }
}
