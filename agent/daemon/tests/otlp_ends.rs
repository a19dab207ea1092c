//! Two nodes with an agent each, and one room between them: what both send belongs together. The
//! nodes are network namespaces. Needs root.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends by a panic, and its helpers are part of it"
)]

mod agent_support;
mod collector_support;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use agent_support::{Agent, inflightd, python};
use collector_support::{Collector, configure};
use rustix::process::Signal;
use serde_json::Value;

/// An engine's end of a room, in a network namespace of its own.
struct End(Child);

impl End {
    fn start(role: &str, address: &str, room: u64) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agent_support/end.py");
        let mut command = Command::new("unshare");
        command.arg("--net").arg(python()).arg(script);
        command.args([role, &format!("the-{role}"), address, &room.to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "@ready");
        Self(child)
    }

    /// The engine gives the room up.
    fn end_room(&mut self) {
        drop(self.0.stdin.take());
    }
}

impl Drop for End {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// An agent of one node: it follows one engine, and sends to the common collector.
fn agent(dir: &Path, collector: &Collector, end: &End) -> Agent {
    let config = configure(dir, &[("endpoint", &collector.endpoint("http", "grpc"))]);
    let mut command = inflightd(&["run", "--json", "--log", "warn", "--config"]);
    command.arg(config).args(["--pid", &end.0.id().to_string()]);
    Agent::of(&mut command)
}

fn role(span: &Value) -> &str {
    span["attributes"]["inflight.worker.role"].as_str().unwrap_or_default()
}

#[test]
fn both_ends_of_a_room_are_one_trace_and_say_how_right_their_clocks_are() {
    const ROOM: u64 = 0x7fff_0000_1234_5678;
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let collector = Collector::start(&[]);
    // Another rank of the same host: a decode may hear from several.
    let mut prefill = End::start("prefill", "10.9.0.1:41001", ROOM);
    let mut decode = End::start("decode", "10.9.0.1:41002", ROOM);
    let agents =
        [agent(here.path(), &collector, &prefill), agent(there.path(), &collector, &decode)];
    for (agent, end) in agents.iter().zip([&prefill, &decode]) {
        agent.wait_for(end.0.id(), "append", |_| true);
    }
    prefill.end_room();
    decode.end_room();
    let span = |of: &str| {
        let found = collector
            .wait_for("traces", |span| span["name"] == "inflight.dwell" && role(span) == of);
        found.1
    };
    let spans = [span("prefill"), span("decode")];
    assert_eq!(spans[0]["traceId"], spans[1]["traceId"], "{spans:#?}");
    assert_ne!(spans[0]["spanId"], spans[1]["spanId"]);
    for span in &spans {
        assert_eq!(span["attributes"]["inflight.room"], ROOM.to_string());
        let attributes = &span["attributes"];
        let error = attributes["inflight.clock.error_s"].as_f64();
        let synchronised = attributes["inflight.clock.synchronised"].as_bool();
        assert!(error.is_some_and(|error| error >= 0.0) != (synchronised == Some(false)), "{span}");
    }
    for agent in agents {
        assert!(agent.end(Signal::TERM).1.success());
    }
}
