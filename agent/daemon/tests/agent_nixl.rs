//! The agent and an engine's own libraries: loaded long after the engine was found, and copies that
//! only its container has. Needs root.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends by a panic, and its helpers are part of it"
)]

mod agent_support;

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use agent_support::{Agent, Worker, packages, sight, turn, within_a_minute};
use rustix::process::Signal;
use serde_json::Value;

/// Sources that rest on probes on NIXL and UCX.
const PROBED: [&str; 3] = ["transfers", "completions", "endpoint_errors"];
/// Rooms that are sent at a time, of so many bytes each.
const ROOMS: usize = 5;
const BYTES: u64 = 65_536;

fn sees_nixl(coverage: &Value) -> bool {
    PROBED.iter().all(|source| sight(coverage, source).0 == "visible")
}

/// Sends rooms of which the engine marks neither posts nor completions: what is known of them is
/// known by the probes on NIXL and UCX.
fn send(worker: &mut Worker, pid: u32, agent: &Agent) {
    worker.ask(&format!("send {ROOMS}"), "sent");
    within_a_minute(|| (agent.count(pid, "dwell") >= ROOMS).then_some(())).expect("rooms end");
    for dwell in agent.lines(pid, "dwell") {
        assert_eq!(dwell["outcome"], "success", "{dwell:#}");
        let bytes = ["posted", "completed"].map(|key| dwell["bytes"][key].as_u64());
        assert_eq!(bytes, [Some(BYTES); 2], "{dwell:#}");
    }
}

#[test]
fn libraries_that_come_after_the_engine_was_found_are_probed() {
    let _turn = turn();
    let state = tempfile::tempdir().unwrap();
    let mut worker = Worker::nixl(None);
    let pid = worker.pid();
    let agent = Agent::start(state.path(), &["--listen", "off", "--pid", &pid.to_string()]);
    let before = agent.wait_for(pid, "coverage", |line| sight(line, "marks").0 == "visible");
    for source in PROBED {
        let missing = Some("library_missing".to_owned());
        assert_eq!(sight(&before, source), ("blind".to_owned(), missing), "{source}");
    }
    worker.ask("load", "loaded");
    agent.wait_for(pid, "coverage", sees_nixl);
    send(&mut worker, pid, &agent);
    assert!(agent.end(Signal::TERM).1.success());
}

/// The files of NIXL's wheel that a process maps, as it names them, with device and inode.
fn mapped(pid: u32) -> Vec<(String, (u64, u64))> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let paths = maps.lines().filter(|line| line.contains(" r-xp ")).filter_map(|line| {
        let path = &line[line.find('/')?..];
        ["/libnixl.so", "/libucp-"].iter().any(|name| path.contains(name)).then(|| path.to_owned())
    });
    let place = |path: &str| {
        let file = fs::metadata(format!("/proc/{pid}/root{path}")).unwrap();
        (file.dev(), file.ino())
    };
    paths.map(|path| (path.clone(), place(&path))).collect()
}

#[test]
fn libraries_that_only_a_container_has_are_probed_there() {
    let _turn = turn();
    let state = tempfile::tempdir().unwrap();
    let agent = Agent::start(state.path(), &["--listen", "off"]);
    // One with the libraries that everybody has: what is probed there says nothing of the copies.
    let mut other = Worker::nixl(None);
    other.ask("load", "loaded");
    agent.wait_for(other.pid(), "coverage", sees_nixl);
    let mut worker = Worker::nixl_apart();
    let pid = worker.child();
    worker.ask("load", "loaded");
    agent.wait_for(pid, "coverage", sees_nixl);
    let (own, shared) = (mapped(pid), mapped(other.pid()));
    assert_eq!((own.len(), shared.len()), (2, 2), "libnixl and libucp: {own:?} {shared:?}");
    for (path, place) in &own {
        assert!(path.starts_with("/mnt/"), "{path}");
        assert!(shared.iter().all(|(_, other)| other != place), "{path}");
    }
    for (path, _) in &shared {
        assert!(path.starts_with(packages().to_str().unwrap()), "{path}");
    }
    send(&mut worker, pid, &agent);
    let pid = other.pid();
    send(&mut other, pid, &agent);
    assert!(agent.end(Signal::TERM).1.success());
}
