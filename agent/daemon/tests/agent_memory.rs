//! What the agent keeps of a burst: the tables are the workers' own memory, and what a burst took
//! goes back once it is over. Needs root.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends by a panic, and its helpers are part of it"
)]

mod agent_support;

use agent_support::{Agent, Worker, inflightd, within_a_minute};

/// The burst takes more than this: half of what its rooms take.
const MIB_OF_ROOMS: u64 = 4;

/// Not a test of its own: what [`Worker::table`] starts.
#[test]
fn as_a_worker() {
    agent_support::worker::main();
}

/// A field of `/proc/PID/status`, in KiB.
fn kib(pid: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn what_a_burst_took_is_given_back() {
    let state = tempfile::tempdir().unwrap();
    let mut worker = Worker::table("bursts");
    // What other workers of the machine do would be counted as well.
    let pid = worker.pid().to_string();
    let mut command = inflightd(&["run", "--json", "--listen", "off", "--pid", &pid]);
    let agent = Agent::of(command.arg("--state-dir").arg(state.path()));
    agent.wait_for(worker.pid(), "coverage", |_| true);
    let before = kib(agent.pid(), "RssAnon");
    let grown = || kib(agent.pid(), "RssAnon").saturating_sub(before);
    worker.ask("open", "opened");
    within_a_minute(|| (grown() > MIB_OF_ROOMS * 1024).then_some(())).expect("rooms take memory");
    // Between two readings of the table nothing of it is held.
    within_a_minute(|| (kib(agent.pid(), "RssShmem") < 1024).then_some(()))
        .expect("the table's pages are given back");
    worker.ask("close", "closed");
    let most = grown();
    within_a_minute(|| (grown() <= most / 2).then_some(()))
        .unwrap_or_else(|| panic!("of {most} KiB {} are kept", grown()));
}
