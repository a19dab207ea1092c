//! The launcher of the servers as a process: told in JSON lines, heard in JSON lines.

use std::fs::File;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};

use super::idle::Pair;
use crate::cases::{Said, Scratch, hear};
use crate::clock::Moment;
use crate::setup::{sglang_model, sglang_python};

/// Longest time for SGLang to be imported, on a machine that is busy otherwise.
const IMPORT: Duration = Duration::from_mins(5);
/// Longest time for all servers to end.
const END: Duration = Duration::from_secs(20);

/// What a run's processes tell.
pub(super) enum Message {
    /// An event of the launcher.
    Pair(Box<Event>),
    /// What the agent tells.
    Agent(Said),
}

impl From<Said> for Message {
    fn from(said: Said) -> Self {
        Self::Agent(said)
    }
}

/// An event of the launcher; which fields it has depends on what happened.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Event {
    /// What happened.
    #[serde(rename = "event")]
    pub(super) what: String,
    /// When, nanoseconds of `CLOCK_MONOTONIC`.
    pub(super) at: u64,
    pub(super) server: String,
    /// Of a server: its schedulers by rank.
    pub(super) ranks: Vec<u32>,
    /// Of what one scheduler says: its rank.
    pub(super) rank: usize,
    pub(super) room: u64,
    pub(super) state: String,
    pub(super) side: String,
    pub(super) status: i64,
    pub(super) why: String,
    pub(super) took_s: f64,
    pub(super) tokens: Vec<u32>,
    pub(super) path: String,
    pub(super) pages: u64,
    pub(super) slots: u64,
    pub(super) inflight: u64,
    /// Of what an iteration costs, a pair for each depth of the stack.
    pub(super) pairs: Vec<Pair>,
}

/// The launcher. It lives for all cases of a run: SGLang is imported once.
pub(super) struct Launcher {
    child: Child,
    stdin: ChildStdin,
    inbox: Receiver<Message>,
    outbox: Sender<Message>,
}

impl Launcher {
    /// Start it and wait until SGLang is imported.
    pub(super) fn start(scratch: &Scratch) -> Result<Self> {
        let mut command = sglang_python(&["xtask/sglang/pair.py"]);
        command.arg(sglang_model()).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.env("INFLIGHTD_HOOK", "off").stderr(scratch.file("launcher.err")?);
        let mut child = command.spawn().context("starting the launcher of SGLang")?;
        let stdin = child.stdin.take().context("a piped stdin is always there")?;
        let stdout = child.stdout.take().context("a piped stdout is always there")?;
        let (outbox, inbox) = channel();
        let log = scratch.file("launcher.jsonl")?;
        let teller = outbox.clone();
        thread::spawn(move || listen(BufReader::new(stdout), log, &teller));
        let launcher = Self { child, stdin, inbox, outbox };
        if !launcher.pass_until("imported", IMPORT) {
            bail!("SGLang was not imported: {}", scratch.tail("launcher.err"));
        }
        Ok(launcher)
    }

    /// Send a command.
    pub(super) fn tell(&mut self, command: &Value) -> Result<()> {
        writeln!(self.stdin, "{command}")
            .and_then(|()| self.stdin.flush())
            .with_context(|| format!("telling the launcher to {command}"))
    }

    /// The next message of the launcher or of an agent that speaks to its outbox.
    pub(super) fn next(&self, limit: Duration) -> Option<Message> {
        self.inbox.recv_timeout(limit).ok()
    }

    /// Where an agent tells what it sees.
    pub(super) fn outbox(&self) -> Sender<Message> {
        self.outbox.clone()
    }

    /// End all servers, so that the next case starts new ones.
    pub(super) fn end_all(&mut self) -> Result<()> {
        self.tell(&json!({"do": "end"}))?;
        if !self.pass_until("all_ended", END) {
            bail!("the servers have not ended within {END:?}");
        }
        Ok(())
    }

    /// Drop what is told until that event comes. Says whether it came.
    fn pass_until(&self, what: &str, limit: Duration) -> bool {
        let end = Moment::now().plus(limit);
        while Moment::now() < end {
            match self.inbox.recv_timeout(end.since(Moment::now())) {
                Ok(Message::Pair(event)) if event.what == what => return true,
                Ok(Message::Pair(event)) if event.what == "launcher_ended" => return false,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
        false
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        // Its servers die with it.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn listen(lines: impl BufRead, log: File, inbox: &Sender<Message>) {
    hear(lines, log, |_, line| {
        let event = serde_json::from_str(line).unwrap_or_else(|error| Event {
            what: "refused".to_owned(),
            why: format!("the launcher printed what is no event: {error}: {line}"),
            ..Event::default()
        });
        inbox.send(Message::Pair(Box::new(event))).is_ok()
    });
    let ended = Event { what: "launcher_ended".to_owned(), ..Event::default() };
    drop(inbox.send(Message::Pair(Box::new(ended))));
}
