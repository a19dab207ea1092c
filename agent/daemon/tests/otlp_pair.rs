//! A real NIXL pair whose decode side is stopped in mid transfer: the span must be at the collector
//! while it is. Needs root.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends by a panic, and its helpers are part of it"
)]

mod agent_support;
mod collector_support;

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use agent_support::{Agent, inflightd, python, turn};
use collector_support::{Collector, configure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const ROOM: u64 = 4242;
const BYTES: u64 = 256 << 20;

/// One end of the pair.
struct End {
    child: Child,
    stdin: ChildStdin,
    events: Lines<BufReader<ChildStdout>>,
}

impl End {
    fn start(script: &str, name: &str) -> (Self, Value) {
        let pair = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xtask/pair");
        let mut child = Command::new(python())
            .arg(pair.join(script))
            .args([name, "--memory", &BYTES.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let events = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut end = Self { child, stdin, events };
        let ready = end.hear("ready");
        (end, ready)
    }

    fn tell(&mut self, command: &Value) {
        writeln!(self.stdin, "{command}").unwrap();
    }

    /// The next event of that name.
    fn hear(&mut self, name: &str) -> Value {
        loop {
            let line = self.events.next().expect("it goes on").unwrap();
            let event: Value = serde_json::from_str(&line).unwrap();
            assert_ne!(event["event"], "refused", "{event}");
            if event["event"] == name {
                return event;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id().cast_signed()).unwrap(), signal).unwrap();
    }

    /// `T` while it is stopped.
    fn state(&self) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
    }
}

impl Drop for End {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A pair in mid transfer: the decode side has stopped itself after 64 MiB.
fn frozen_midway(agent_of: impl FnOnce(u32, u32) -> Agent) -> (End, End, Agent) {
    let name = format!("otlp-decode-{}", std::process::id());
    let (mut decode, there) = End::start("decode.py", &name);
    let (mut prefill, _) =
        End::start("prefill.py", &format!("otlp-prefill-{}", std::process::id()));
    prefill.tell(&json!({
        "do": "peer", "name": name, "metadata": there["metadata"],
        "address": there["address"], "size": there["size"],
    }));
    prefill.hear("peered");
    let agent = agent_of(prefill.child.id(), decode.child.id());
    for end in [&prefill, &decode] {
        agent.wait_for(end.child.id(), "coverage", |_| true);
    }
    decode.tell(&json!({
        "do": "watch", "room": ROOM, "offset": 0, "size": BYTES, "after": 64 << 20, "then": "stop",
    }));
    decode.hear("watching");
    prefill.tell(&json!({
        "do": "append", "room": ROOM, "to": name, "bytes": BYTES, "chunk": 8 << 20, "pace": 0.02,
    }));
    decode.hear("landed");
    (prefill, decode, agent)
}

fn the_span_is_there_while_decode_is_frozen(protocol: &str) {
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    let collector = Collector::start(&[]);
    let endpoint = collector.endpoint("http", protocol);
    // No healthy stay is sent: that of the stalled room is, though it ends well.
    let settings = [("endpoint", &*endpoint), ("protocol", protocol), ("healthy_share", "0")];
    let config = configure(dir.path(), &settings);
    let (mut prefill, decode, agent) = frozen_midway(|prefill, decode| {
        let pids = [prefill.to_string(), decode.to_string()];
        let mut command =
            inflightd(&["run", "--json", "--log", "warn", "--stall", "3", "--config"]);
        Agent::of(command.arg(&config).args(["--pid", &pids[0], "--pid", &pids[1]]))
    });
    let (batch, stall) = collector.span("inflight.stall", ROOM);
    assert_eq!(batch["via"], protocol);
    assert_eq!(decode.state(), 'T', "told while it was frozen");
    assert!(agent.lines(prefill.child.id(), "dwell").is_empty(), "and the room waited");
    let attributes = &stall["attributes"];
    assert_eq!(attributes["inflight.finding"], "stopped_midway", "{stall:#}");
    assert_eq!(attributes["inflight.cause"], "peer_frozen", "{stall:#}");
    assert_eq!(stall["status"]["code"], "STATUS_CODE_ERROR");

    decode.signal(Signal::CONT);
    prefill.hear("removed");
    let (_, dwell) = collector.span("inflight.dwell", ROOM);
    assert_eq!(dwell["spanId"], stall["parentSpanId"]);
    assert_eq!(dwell["attributes"]["inflight.outcome"], "success");
    assert_eq!(dwell["attributes"]["inflight.stalled"], true);
    let (_, clear) = collector.wait_for("logs", |record| record["eventName"] == "inflight.clear");
    assert_eq!(clear["spanId"], stall["spanId"]);
    assert!(agent.end(Signal::TERM).1.success());
}

#[test]
fn the_span_is_there_while_decode_is_frozen_over_grpc() {
    the_span_is_there_while_decode_is_frozen("grpc");
}

#[test]
fn the_span_is_there_while_decode_is_frozen_over_http() {
    the_span_is_there_while_decode_is_frozen("http");
}
