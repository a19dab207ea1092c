//! An agent that follows one engine only, and the far end beside it. Needs root.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends by a panic, and its helpers are part of it"
)]

mod agent_support;

use agent_support::{Agent, Worker, of, sight, turn};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Not a test of its own: what [`Worker::table`] starts.
#[test]
fn as_a_worker() {
    agent_support::worker::main();
}

fn says(line: &Value, id: &str) -> bool {
    line["evidence"].as_array().unwrap().iter().any(|evidence| evidence["id"] == id)
}

fn visible(line: &Value) -> bool {
    sight(line, "peers").0 == "visible"
}

#[test]
fn a_peer_on_this_node_is_found_although_only_the_other_end_is_followed() {
    let _turn = turn();
    let (state, next_state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let peer = Worker::table("peer");
    let worker = Worker::table("stay");
    let pid = worker.pid().to_string();
    let arguments = ["--listen", "off", "--suspect", "0.5", "--stall", "2", "--pid", &pid];
    let agent = Agent::start(state.path(), &arguments);
    agent.wait_for(worker.pid(), "coverage", visible);
    let stopped = Pid::from_raw(peer.pid().cast_signed()).unwrap();
    kill_process(stopped, Signal::STOP).unwrap();
    let told = agent.wait_for(worker.pid(), "verdict", |line| says(line, "peer_stopped"));
    assert_eq!(told["peers"][0]["pid"], peer.pid(), "{told:#}");
    let (lines, _) = agent.end(Signal::TERM);
    assert!(of(&lines, peer.pid(), "coverage").is_empty(), "it is not followed itself");
    // One that dies is known to be dead, for it was there.
    let agent = Agent::start(next_state.path(), &arguments);
    agent.wait_for(worker.pid(), "coverage", visible);
    drop(peer);
    agent.wait_for(worker.pid(), "verdict", |line| says(line, "peer_gone"));
}

#[test]
fn a_process_that_ended_before_a_worker_began_was_never_its_peer() {
    let _turn = turn();
    let state = tempfile::tempdir().unwrap();
    let arguments = ["--listen", "off", "--suspect", "0.5", "--stall", "2"];
    let agent = Agent::start(state.path(), &arguments);
    let former = Worker::table("peer");
    agent.wait_for(former.pid(), "coverage", |_| true);
    drop(former);
    // Until the agent has noticed, it takes the end for later than it was.
    std::thread::sleep(std::time::Duration::from_secs(2));
    let worker = Worker::table("stay");
    // Posted to the name that the former process had: hard evidence would tell within a second.
    let told = agent.wait_for(worker.pid(), "verdict", |line| line["room"] == "0");
    assert!(!says(&told, "peer_gone") && told["cause"] != "peer_dead", "{told:#}");
    assert_eq!(told["peers"][0]["pid"], Value::Null, "{told:#}");
    // One that comes by that name later is taken for it.
    let successor = Worker::table("peer");
    agent.wait_for(worker.pid(), "coverage", visible);
    drop(successor);
    agent.wait_for(worker.pid(), "verdict", |line| says(line, "peer_gone"));
}
