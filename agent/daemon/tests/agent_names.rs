//! The agent and names: of peers that somebody else takes, and of an agent that is just ending. Needs root.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends by a panic, and its helpers are part of it"
)]

mod agent_support;

use std::thread;
use std::time::Duration;

use agent_support::{Agent, Worker, sight, turn};
use rustix::process::Signal;

/// Longer than hard evidence of a peer's end waits for an engine that handles it.
const LONG: Duration = Duration::from_secs(4);

#[test]
fn who_takes_a_peers_name_later_is_not_its_successor() {
    let _turn = turn();
    let state = tempfile::tempdir().unwrap();
    let mut engine = Worker::ranks(1, "");
    engine.ask("poll_on on", "poll_on");
    let agent = Agent::start(state.path(), &["--listen", "off"]);
    agent.wait_for(engine.pid(), "coverage", |line| sight(line, "marks").0 == "visible");
    engine.ask("enter 7", "enter");
    assert_eq!(engine.ask("serve 7 0", "serve"), "go");
    engine.ask("post 7 0", "post");
    agent.wait_for(engine.pid(), "append", |line| line["room"] == "7");
    // Its peer is on another node as far as anybody knows. Then a process here goes by that name.
    thread::sleep(Duration::from_secs(1));
    let other = Worker::nixl(None);
    agent.wait_for(engine.pid(), "coverage", |line| sight(line, "peers").0 == "visible");
    thread::sleep(LONG);
    assert_eq!(agent.lines(engine.pid(), "verdict"), Vec::<serde_json::Value>::new());
    drop(other);
    assert!(agent.end(Signal::TERM).1.success());
}

#[test]
fn an_agent_that_was_just_killed_is_waited_for() {
    let _turn = turn();
    let state = tempfile::tempdir().unwrap();
    let mut worker = Worker::nixl(None);
    worker.ask("load", "loaded");
    for _ in 0..3 {
        let agent = Agent::start(state.path(), &["--listen", "off"]);
        agent.wait_for(worker.pid(), "coverage", |line| sight(line, "transfers").0 == "visible");
        // The kernel takes its probes off before it gives up the lock.
        agent.signal(Signal::KILL);
        let next = Agent::start(state.path(), &["--listen", "off"]);
        next.wait_for(worker.pid(), "coverage", |line| sight(line, "transfers").0 == "visible");
        assert!(next.end(Signal::TERM).1.success());
    }
}
