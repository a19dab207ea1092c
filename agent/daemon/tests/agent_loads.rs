//! The agent and an engine of which nothing shows but its own count of requests. Needs root.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends by a panic, and its helpers are part of it"
)]

mod agent_support;

use agent_support::{Agent, Worker, of};
use rustix::process::Signal;
use serde_json::Value;

/// A file name that SGLang would give, removed at the end.
struct Snapshot(std::path::PathBuf);

impl Snapshot {
    fn new(name: &str) -> Self {
        let name = format!("sglang_loads_daemon2-{}-{name}_0a1b2c3d.shm", std::process::id());
        Self(std::path::Path::new("/dev/shm").join(name))
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

fn agent(state: &tempfile::TempDir, worker: &Worker) -> Agent {
    let pid = worker.pid().to_string();
    let arguments = ["--listen", "off", "--suspect", "1", "--stall", "4", "--pid", &pid];
    Agent::start(state.path(), &arguments)
}

#[test]
fn an_engine_whose_count_stands_still_is_told_once_and_cleared_when_it_moves() {
    let snapshot = Snapshot::new("stall");
    let mut engine = Worker::sglang(&snapshot.0);
    let pid = engine.pid();
    let state = tempfile::tempdir().unwrap();
    let agent = agent(&state, &engine);
    let coverage = agent.wait_for(pid, "coverage", |_| true);
    assert_eq!(coverage["worker"]["role"], "prefill");
    engine.ask("inflight 7", "done");
    let verdict = agent.wait_for(pid, "verdict", |_| true);
    assert_eq!((&verdict["tier"], &verdict["room"]), (&"node".into(), &Value::Null));
    assert!(verdict["dwell_s"].as_f64().unwrap() >= 4.0, "{verdict}");
    // It stands, and is not told again while nothing changes.
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!((agent.count(pid, "verdict"), agent.count(pid, "clear")), (1, 0));
    engine.ask("inflight 6", "done");
    let clear = agent.wait_for(pid, "clear", |_| true);
    assert_eq!(clear["why"], "progress");
    engine.ask("inflight 0", "done");
    std::thread::sleep(std::time::Duration::from_secs(2));
    let (lines, status) = agent.end(Signal::TERM);
    assert!(status.success());
    assert_eq!((of(&lines, pid, "verdict").len(), of(&lines, pid, "clear").len()), (1, 1));
}

#[test]
fn a_count_that_nobody_renews_accuses_nobody() {
    let snapshot = Snapshot::new("stale");
    let mut engine = Worker::sglang(&snapshot.0);
    let pid = engine.pid();
    let state = tempfile::tempdir().unwrap();
    let agent = agent(&state, &engine);
    agent.wait_for(pid, "coverage", |_| true);
    engine.ask("inflight 7", "done");
    // As releases before 0.5.19 do when no batch comes.
    std::thread::sleep(std::time::Duration::from_millis(300));
    engine.ask("silent", "done");
    std::thread::sleep(std::time::Duration::from_secs(12));
    let (lines, _) = agent.end(Signal::TERM);
    let verdicts = of(&lines, pid, "verdict");
    assert!(verdicts.iter().all(|verdict| verdict["severity"] == "info"), "{verdicts:#?}");
}

#[test]
fn a_table_that_is_opened_before_the_first_snapshot_is_found_before_the_engine_is_told_of() {
    let snapshot = Snapshot::new("starting");
    let mut engine = Worker::sglang(&snapshot.0);
    let pid = engine.pid();
    engine.ask("silent", "done");
    // Its maps are long: by itself the agent does not read them again for some seconds.
    engine.ask("large", "done");
    let state = tempfile::tempdir().unwrap();
    let agent = agent(&state, &engine);
    std::thread::sleep(std::time::Duration::from_millis(1500));
    engine.ask("hook", "done");
    engine.ask("inflight 0", "done");
    agent.wait_for(pid, "coverage", |line| line["worker"]["index"] == 0);
    let (lines, status) = agent.end(Signal::TERM);
    assert!(status.success());
    let told = of(&lines, pid, "coverage");
    let bare = told.iter().find(|line| line["worker"]["index"] != 0);
    assert!(bare.is_none(), "as an engine without a table: {bare:?}");
}
