//! Where lines go: readers that do not read, and workers that say too much.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends by a panic, and its helpers are part of it"
)]

mod agent_support;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::thread;
use std::time::Duration;

use agent_support::{Agent, Worker, inflightd, of, turn, within_a_minute};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Not a test of its own: what [`Worker::table`] starts.
#[test]
fn as_a_worker() {
    agent_support::worker::main();
}

const DEADLINES: [&str; 4] = ["--suspect", "0.5", "--stall", "1"];

/// Only these: whatever else runs on this machine would be counted too.
fn pids(workers: &[&Worker]) -> Vec<String> {
    workers.iter().flat_map(|worker| ["--pid".to_owned(), worker.pid().to_string()]).collect()
}

/// An agent whose output nobody reads, through the smallest pipe there is.
fn unread(state: &Path, workers: &[&Worker]) -> (Child, ChildStdout) {
    let mut child = inflightd(&["run", "--json", "--listen", "off", "--log", "warn"])
        .args(DEADLINES)
        .args(pids(workers))
        .arg("--state-dir")
        .arg(state)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = child.stdout.take().unwrap();
    rustix::pipe::fcntl_setpipe_size(&stdout, 4096).unwrap();
    (child, stdout)
}

fn terminate(child: &mut Child) {
    kill_process(Pid::from_child(child), Signal::TERM).unwrap();
    let status = within_a_minute(|| child.try_wait().unwrap());
    assert!(status.expect("the agent ends").success());
}

/// Lines that the journal has as begun.
fn begun(state: &Path, what: &str) -> usize {
    let journal = fs::read_to_string(state.join("journal")).unwrap_or_default();
    journal.lines().filter(|line| line.contains("will") && line.contains(what)).count()
}

#[test]
fn a_reader_that_stands_still_keeps_no_room_from_being_judged() {
    let _turn = turn();
    let state = tempfile::tempdir().unwrap();
    let mut flood = Worker::table("churn");
    let stuck = Worker::table("stay");
    let (mut child, stdout) = unread(state.path(), &[&flood, &stuck]);
    within_a_minute(|| (begun(state.path(), "dwell") > 20).then_some(())).expect("it begins");
    within_a_minute(|| (begun(state.path(), "verdict") >= 3).then_some(()))
        .expect("it judges although nobody reads");
    // What was said meanwhile is there for a reader that reads again.
    let pid = stuck.pid();
    let rooms = thread::spawn(move || {
        let lines = BufReader::new(stdout).lines().map_while(Result::ok);
        let lines = lines.filter_map(|line| serde_json::from_str::<Value>(&line).ok());
        let lines: Vec<Value> = lines.collect();
        of(&lines, pid, "verdict").len()
    });
    flood.stop();
    terminate(&mut child);
    assert!(rooms.join().unwrap() >= 3);
}

#[test]
fn an_agent_whose_output_nobody_reads_can_be_ended_and_the_next_tells_the_rest() {
    let _turn = turn();
    let state = tempfile::tempdir().unwrap();
    let worker = Worker::table("stay");
    let (mut child, mut stdout) = unread(state.path(), &[&worker]);
    within_a_minute(|| (begun(state.path(), "verdict") >= 3).then_some(())).expect("it judges");
    terminate(&mut child);
    let mut first = String::new();
    stdout.read_to_string(&mut first).unwrap();
    let whole = first.lines().filter_map(|line| serde_json::from_str(line).ok());
    let mut lines: Vec<Value> = whole.collect();
    // Three verdicts do not fit the pipe.
    let told = of(&lines, worker.pid(), "verdict").len();
    assert!(told < 3, "{told}");
    let pid = worker.pid().to_string();
    let next = Agent::start(state.path(), &[&DEADLINES[..], &["--pid", &pid]].concat());
    for room in 0..3 {
        let told = |line: &Value| {
            line["room"].as_str() == Some(&*room.to_string()) && line["type"] == "verdict"
        };
        if !lines.iter().any(told) {
            next.wait_for(worker.pid(), "verdict", |line| {
                line["room"].as_str() == Some(&*room.to_string())
            });
        }
    }
    lines.extend(next.end(Signal::TERM).0);
    for room in 0..3 {
        let verdicts = of(&lines, worker.pid(), "verdict");
        let of_room =
            verdicts.iter().filter(|line| line["room"].as_str() == Some(&*room.to_string()));
        let firm = of_room.filter(|line| line["maybe_repeated"] != true).count();
        assert!(firm <= 1, "{verdicts:#?}");
    }
}

#[test]
fn a_flood_is_cut_summed_up_and_hides_no_verdict() {
    let _turn = turn();
    let state = tempfile::tempdir().unwrap();
    let config = state.path().join("inflightd.toml");
    fs::write(&config, "output.healthy_rate = 1\noutput.healthy_burst = 5\n").unwrap();
    let config = ["--config", config.to_str().unwrap()];
    let stuck = Worker::table("stay");
    let agent = Agent::start(state.path(), &[&DEADLINES[..], &config].concat());
    agent.wait_for(stuck.pid(), "coverage", |_| true);
    // Not before the agent: what left before it came is not told.
    let mut flood = Worker::table("churn");
    let pid = flood.pid();
    for room in 0..3 {
        agent.wait_for(stuck.pid(), "verdict", |line| {
            line["room"].as_str() == Some(&*room.to_string())
        });
    }
    let sum = agent.wait_for(pid, "suppressed", |_| true);
    assert!(sum["lines"].as_u64().unwrap() > 100, "{sum:#}");
    let seqs = flood.stop();
    thread::sleep(Duration::from_secs(2));
    let (lines, _) = agent.end(Signal::TERM);
    let left_out: u64 =
        of(&lines, pid, "suppressed").iter().map(|line| line["lines"].as_u64().unwrap()).sum();
    let count = |kind| of(&lines, pid, kind).len() as u64;
    // Each room was told or counted, once as it came and once as it went.
    let said = count("append") + count("dwell") + left_out;
    assert!(count("append") + count("dwell") < 200, "{} lines", lines.len());
    assert_eq!(said, 2 * seqs.len() as u64);
    // What was left out is over: the next life has nothing to tell of it.
    let agent = Agent::start(state.path(), &[]);
    agent.wait_for(pid, "coverage", |_| true);
    thread::sleep(Duration::from_secs(2));
    assert_eq!(agent.count(pid, "dwell"), 0);
}

/// Whether the lock of a state directory is free.
fn is_free(state: &Path) -> bool {
    let lock = fs::File::open(state.join("lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok()
}

#[test]
fn an_end_is_told_and_written_before_the_probes_are_waited_for() {
    let _turn = turn();
    let state = tempfile::tempdir().unwrap();
    let worker = Worker::hooked();
    let mut child = inflightd(&["run", "--json", "--listen", "off", "--log", "info"])
        .args(["--pid", &worker.pid().to_string(), "--state-dir"])
        .arg(state.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut lines = stdout.lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("dwell")), "it watches");
    let rest = thread::spawn(move || lines.count());
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(log.any(|line| line.contains("all is told and written")), "it says what it waits for");
    assert!(is_free(state.path()), "the next agent need not wait for the kernel");
    let journal = fs::read_to_string(state.path().join("journal")).unwrap();
    let count = |what: &str| journal.lines().filter(|line| line.contains(what)).count();
    assert_eq!(count("will"), count("did"), "what was begun is done");
    assert!(within_a_minute(|| child.try_wait().unwrap()).expect("it ends").success());
    rest.join().unwrap();
}
