//! The agent and a worker that lives in mount, pid and network namespaces of its own, with its
//! own copy of the hook, as in a container. Needs root.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends by a panic, and its helpers are part of it"
)]

mod agent_support;

use agent_support::{Agent, Worker, of, sight, within_a_minute};
use rustix::process::Signal;

/// Not a test of its own: what [`Worker::table`] starts.
#[test]
fn as_a_worker() {
    agent_support::worker::main();
}

#[test]
fn a_worker_in_namespaces_of_its_own_is_seen_like_any_other() {
    let state = tempfile::tempdir().unwrap();
    let agent = Agent::start(state.path(), &["--listen", "off"]);
    // Rooms that were gone before the agent came would not be its own.
    let canary = Worker::table("stay");
    agent.wait_for(canary.pid(), "coverage", |_| true);
    let mut worker = Worker::apart();
    let pid = worker.child();
    let visible = ("visible".to_owned(), None);
    let seen = |line: &serde_json::Value, source| sight(line, source) == visible;
    agent.wait_for(pid, "coverage", |line| seen(line, "marks") && seen(line, "table"));
    agent.wait_for(pid, "dwell", |line| line["outcome"] == "success");
    let seqs = worker.stop();
    within_a_minute(|| (agent.count(pid, "dwell") >= seqs.len()).then_some(()))
        .expect("every room is told");
    drop(worker);
    let (lines, status) = agent.end(Signal::TERM);
    assert!(status.success());
    let dwells = of(&lines, pid, "dwell");
    assert_eq!(dwells.len(), seqs.len(), "each once");
    assert!(dwells.iter().all(|dwell| dwell["outcome"] != "unknown"));
}
