//! A real NIXL pair in two processes, over UCX on loopback TCP, or a pair of Mooncake.
#![allow(
    dead_code,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends by a panic, and its helpers are part of it"
)]

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::{Value, json};

/// Bytes of memory that each end registers.
const MEMORY: u64 = 256 << 20;

/// One end of the pair.
pub(crate) struct Peer {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    described: Value,
}

/// The Python that has NIXL: `INFLIGHTD_VENV`, else the repository's `.venv`.
fn python() -> PathBuf {
    let venv = std::env::var_os("INFLIGHTD_VENV").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../.venv"),
        PathBuf::from,
    );
    let python = venv.join("bin/python");
    assert!(
        python.exists(),
        "{} does not exist: `cargo xtask setup` makes the environment with NIXL, or INFLIGHTD_VENV \
         names another",
        python.display()
    );
    python
}

impl Peer {
    /// Starts one end and waits until its memory is registered.
    pub(crate) fn start(name: &str) -> Self {
        Self::run("nixl_peer.py", name)
    }

    /// The same of Mooncake's engine over TCP, which names its ends itself.
    pub(crate) fn start_mooncake() -> Self {
        Self::run("mooncake_peer.py", "")
    }

    fn run(script: &str, name: &str) -> Self {
        let support = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/probe_support");
        let mut child = Command::new(python())
            .arg(support.join(script))
            .args([name, &MEMORY.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut peer = Self {
            stdin: child.stdin.take().unwrap(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
            described: Value::Null,
        };
        peer.described = peer.answer();
        peer
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| {
            panic!("the process ended; did `cargo xtask setup` install its library? `{line}`")
        })
    }

    /// Gives a command and waits for its answer.
    pub(crate) fn ask(&mut self, command: &Value) -> Value {
        writeln!(self.stdin, "{command}").unwrap();
        self.answer()
    }

    /// Makes this end know the other.
    pub(crate) fn connect(&mut self, other: &Self) {
        let there = &other.described;
        self.ask(&json!({
            "do": "connect", "metadata": there["metadata"], "address": there["address"],
        }));
    }

    /// Sends a signal: its number.
    pub(crate) fn signal(&self, number: &str) {
        let pid = self.pid().to_string();
        let sent = Command::new("kill").args([number, &pid]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
