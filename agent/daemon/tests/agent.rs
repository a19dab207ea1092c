//! The agent's binary on a real kernel: what it tells over many lives, and what it makes of
//! workers that lie. Needs root.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends by a panic, and its helpers are part of it"
)]

mod agent_support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::net::SocketAddr;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use agent_support::{Agent, Worker, inflightd, of, sight, turn, within_a_minute};
use inflightd::clock::Clock;
use inflightd::meters::{Sockets, Target, Wanted};
use inflightd_abi::table::WORKERS_MAX;
use inflightd_core::fact::{self, Meter, Peer};
use rustix::process::Signal;
use serde_json::Value;

/// Not a test of its own: what [`Worker::table`] starts.
#[test]
fn as_a_worker() {
    agent_support::worker::main();
}

/// Kills and restarts the agent `count` times while a worker appends and removes rooms; each room
/// must have been told as gone exactly once.
fn each_room_is_told_once(start: impl FnOnce() -> Worker, count: u64) {
    let state = tempfile::tempdir().unwrap();
    // Rooms that were gone before the first agent came would not be its own.
    let first = Agent::start(state.path(), &[]);
    let canary = Worker::table("stay");
    first.wait_for(canary.pid(), "coverage", |_| true);
    let mut worker = start();
    let pid = worker.pid();
    let mut agent = first;
    let mut lines = Vec::new();
    for life in 0..count {
        agent.wait_for(pid, "coverage", |_| true);
        // At moments that have nothing to do with the agent's rounds.
        thread::sleep(Duration::from_millis(life * 137 % 500));
        lines.extend(agent.end(Signal::KILL).0);
        agent = Agent::start(state.path(), &[]);
    }
    agent.wait_for(pid, "coverage", |_| true);
    let seqs = worker.stop();
    // Lines that came twice are no further rooms.
    let mut told = seqs_of(&of(&lines, pid, "dwell"));
    within_a_minute(|| {
        told.extend(seqs_of(&agent.lines(pid, "dwell")));
        (told.len() >= seqs.len()).then_some(())
    });
    lines.extend(agent.end(Signal::TERM).0);
    check_dwells(&of(&lines, pid, "dwell"), &seqs);
}

fn seqs_of(lines: &[Value]) -> BTreeSet<u64> {
    lines.iter().map(|line| line["seq"].as_u64().unwrap()).collect()
}

fn check_dwells(dwells: &[Value], seqs: &[u64]) {
    let mut by_seq: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
    for dwell in dwells {
        by_seq.entry(dwell["seq"].as_u64().unwrap()).or_default().push(dwell);
    }
    for seq in seqs {
        let told = by_seq.get(seq).unwrap_or_else(|| panic!("room {seq} was lost"));
        // A line that an agent wrote in its last moment comes again, and says so.
        let firm = told.iter().filter(|dwell| dwell["maybe_repeated"] != true).count();
        assert!(firm <= 1 && told.iter().all(|dwell| dwell["id"] == told[0]["id"]), "{told:#?}");
        assert!(told.iter().all(|dwell| dwell["outcome"] != "unknown"), "{told:#?}");
    }
    assert!(by_seq.keys().all(|seq| seqs.contains(seq)), "a room that never was");
}

#[test]
fn each_room_is_told_once_over_many_lives_by_the_table_alone() {
    let _turn = turn();
    each_room_is_told_once(|| Worker::table("churn"), 6);
}

#[test]
fn each_room_is_told_once_over_many_lives_with_marks() {
    let _turn = turn();
    each_room_is_told_once(Worker::hooked, 6);
}

#[test]
fn rooms_whose_worker_ended_unseen_are_told_by_the_next_life() {
    let _turn = turn();
    let state = tempfile::tempdir().unwrap();
    let worker = Worker::table("stay");
    let pid = worker.pid();
    let agent = Agent::start(state.path(), &[]);
    let append = agent.wait_for(pid, "append", |line| line["room"] == "2");
    assert_eq!(
        (&append["worker"]["engine"], &append["maybe_repeated"]),
        (&"test".into(), &Value::Null)
    );
    agent.end(Signal::KILL);
    drop(worker);
    let agent = Agent::start(state.path(), &[]);
    for room in 0..3 {
        let dwell =
            agent.wait_for(pid, "dwell", |line| line["room"].as_str() == Some(&*room.to_string()));
        assert_eq!(
            (&dwell["outcome"], &dwell["worker"]["role"]),
            (&"unknown".into(), &"prefill".into())
        );
    }
    let (lines, status) = agent.end(Signal::TERM);
    assert!(status.success());
    assert_eq!(of(&lines, pid, "dwell").len(), 3);
    let appends = of(&lines, pid, "append");
    assert!(appends.iter().all(|line| line["maybe_repeated"] == true), "{appends:#?}");
    let agent = Agent::start(state.path(), &[]);
    thread::sleep(Duration::from_secs(2));
    assert!(of(&agent.end(Signal::TERM).0, pid, "dwell").is_empty(), "told by two lives");
}

#[test]
fn a_peer_that_ended_while_no_agent_was_there_is_known_to_be_gone() {
    let _turn = turn();
    let state = tempfile::tempdir().unwrap();
    let peer = Worker::table("peer");
    let worker = Worker::table("stay");
    let says = |line: &Value, id: &str| {
        line["evidence"].as_array().unwrap().iter().any(|evidence| evidence["id"] == id)
    };
    let deadlines = ["--suspect", "0.5", "--stall", "1"];
    let agent = Agent::start(state.path(), &deadlines);
    let alive = agent.wait_for(worker.pid(), "verdict", |line| line["room"] == "2");
    assert!(!says(&alive, "peer_gone"), "{alive:#}");
    assert_eq!(alive["peers"][0]["pid"], peer.pid());
    agent.end(Signal::KILL);
    drop(peer);
    // The first life without it hears of its end.
    let agent = Agent::start(state.path(), &deadlines);
    let told = agent.wait_for(worker.pid(), "verdict", |line| says(line, "peer_gone"));
    assert_eq!(told["cause"], "peer_dead", "{told:#}");
    // The room that was posted heads the queue. The others wait behind it, which was told before.
    assert_eq!(told["room"], "0", "{told:#}");
    // Killed at once, it could not note that this was told, and the next life would tell it again.
    thread::sleep(Duration::from_secs(1));
    agent.end(Signal::KILL);
    // The second remembers, and has nothing to add to what was told.
    let agent = Agent::start(state.path(), &deadlines);
    agent.wait_for(worker.pid(), "coverage", |_| true);
    thread::sleep(Duration::from_secs(3));
    let (lines, _) = agent.end(Signal::KILL);
    let again = of(&lines, worker.pid(), "verdict");
    // The last line of the life before may have been written and not noted.
    assert!(again.iter().all(|line| line["maybe_repeated"] == true), "{again:#?}");
    assert!(of(&lines, worker.pid(), "clear").is_empty(), "{lines:#?}");
    let agent = Agent::start(tempfile::tempdir().unwrap().path(), &deadlines);
    let unseen = agent.wait_for(worker.pid(), "verdict", |line| line["room"] == "2");
    assert!(!says(&unseen, "peer_gone"), "whoever never saw it cannot know: {unseen:#}");
}

#[test]
fn a_worker_that_lies_is_not_seen_and_harms_nobody() {
    let _turn = turn();
    let state = tempfile::tempdir().unwrap();
    let agent = Agent::start(state.path(), &[]);
    let liars: Vec<(&str, Worker)> =
        ["unsealed", "other_pid", "geometry", "version", "random", "scribble"]
            .map(|kind| (kind, Worker::table(kind)))
            .into();
    for (kind, worker) in &liars {
        let why = match *kind {
            "version" => "abi_mismatch",
            _ => "read_failed",
        };
        if *kind == "scribble" {
            agent.wait_for(worker.pid(), "coverage", |_| true);
        } else {
            let blind = ("blind".to_owned(), Some(why.to_owned()));
            agent.wait_for(worker.pid(), "coverage", |line| sight(line, "table") == blind);
        }
    }
    thread::sleep(Duration::from_secs(2));
    let honest = Worker::table("stay");
    agent.wait_for(honest.pid(), "append", |line| line["room"] == "2");
    drop(liars);
    let (_, status) = agent.end(Signal::TERM);
    assert!(status.success(), "{status}");
}

#[test]
fn connections_are_read_in_the_network_namespace_of_their_process() {
    let (process, port) = Worker::in_namespace();
    let pid = process.pid();
    let at = SocketAddr::from(([127, 0, 0, 1], port));
    let peers = vec![(Peer(0), Target::Address(at)), (Peer(1), Target::Process(pid))];
    // The same address in the namespace of this test leads nowhere.
    let own = vec![(Peer(0), Target::Address(at)), (Peer(1), Target::Process(pid))];
    let wanted = [
        Wanted { worker: fact::Worker(0), pid, peers },
        Wanted { worker: fact::Worker(1), pid: std::process::id(), peers: own },
    ];
    let mut sockets = Sockets::default();
    for _ in 0..2 {
        let mut readings = sockets.read(&wanted, Clock::now()).into_iter();
        let inside = readings.next().unwrap().1.unwrap().meters;
        let outside = readings.next().unwrap().1.unwrap().meters;
        let counts = |meter: Meter| (meter.connections, meter.acked >= 1000, meter.unread);
        assert_eq!(counts(inside[0].1), (1, true, Some(1000)));
        // Both ends are its own: the one that sends, and the one that has it all to read.
        assert_eq!(counts(inside[1].1), (2, true, Some(1000)));
        assert!(outside.iter().all(|(_, meter)| meter.connections == 0), "{outside:?}");
    }
}

/// Runs the agent to its end; its exit code and what it says about it.
fn fails(arguments: &[&str]) -> (Option<i32>, String) {
    let output = inflightd(arguments).stdin(Stdio::null()).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_second_agent_names_the_first() {
    let _turn = turn();
    let state = tempfile::tempdir().unwrap();
    let worker = Worker::table("stay");
    let agent = Agent::start(state.path(), &[]);
    agent.wait_for(worker.pid(), "coverage", |_| true);
    let state = state.path().to_str().unwrap();
    let (code, told) = fails(&["run", "--state-dir", state]);
    assert_eq!(code, Some(5), "{told}");
    assert!(told.contains("another agent is running (pid "), "{told}");
}

#[test]
fn what_cannot_be_watched_is_refused_by_name() {
    let state = tempfile::tempdir().unwrap();
    let state = state.path().to_str().unwrap();
    let run = |more: &[&str]| fails(&[&["run", "--state-dir", state], more].concat());
    let own = std::process::id().to_string();
    let cases: [(&[&str], i32, &str); 4] = [
        (&["--pid", "4194305"], 6, "--pid 4194305: no such process"),
        (&["--pid", &own], 6, "it is no worker"),
        (&["--stall", "never"], 2, "flag --stall: `deadlines.stall` is `never`"),
        (&["--config", "/nowhere"], 2, "/nowhere: cannot be opened"),
    ];
    for (arguments, code, told) in cases {
        let (given, text) = run(arguments);
        assert_eq!(given, Some(code), "{text}");
        assert!(text.contains(told), "{text}");
    }
}

#[test]
fn what_cannot_be_opened_is_named_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (file, none, state) = (path("file"), path("none/x"), path("state"));
    std::fs::write(&file, "").unwrap();
    let words = path("words");
    std::fs::write(&words, "hello\n").unwrap();
    let bad = path("bad");
    std::fs::write(&bad, "# inflightd capture 1\n7 w0 what\n").unwrap();
    let folder = dir.path().to_str().unwrap();
    let remedy = "give a file that `inflightd run --capture` has written";
    let cases: [(&[&str], i32, &[&str]); 9] = [
        (&["replay", env!("CARGO_BIN_EXE_inflightd")], 2, &["its first line is not", remedy]),
        (&["replay", folder], 2, &["it is a directory", remedy]),
        (&["runbook", "peer_frosen"], 2, &["peer_frosen", "peer_frozen"]),
        (&["replay", &none], 1, &["opening the capture", &none, "No such file"]),
        (&["replay", &file], 2, &[&file, "its first line is not"]),
        (&["replay", &words], 2, &[&words, "its first line is not"]),
        (&["replay", &bad], 2, &[&bad, "line 2"]),
        (&["run", "--state-dir", &file], 1, &["--state-dir names another", &file]),
        (
            &["run", "--listen", "off", "--state-dir", &state, "--capture", &none],
            1,
            &["writing the capture", &none],
        ),
    ];
    let _turn = turn();
    for (arguments, code, told) in cases {
        let (given, text) = fails(arguments);
        assert_eq!(given, Some(code), "{text}");
        assert!(told.iter().all(|part| text.contains(part)), "{text}");
    }
}

/// Runs it without any capability, as root all the same; its exit code and what it says.
fn powerless(arguments: &[&str]) -> (Option<i32>, String) {
    let output = std::process::Command::new("setpriv")
        .args(["--bounding-set=-all", "--inh-caps=-all", env!("CARGO_BIN_EXE_inflightd")])
        .args(arguments)
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn without_rights_the_missing_ones_are_named() {
    let state = tempfile::tempdir().unwrap();
    let only_its_owner = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(state.path(), only_its_owner).unwrap();
    std::os::unix::fs::chown(state.path(), Some(65534), None).unwrap();
    let state = state.path().to_str().unwrap();
    let own = std::process::id().to_string();
    let unused = "/tmp/inflightd-unused";
    let cases: [(&[&str], &str); 3] = [
        (&["run", "--state-dir", unused], "CAP_SYS_ADMIN"),
        // This process has capabilities that it lacks.
        (&["run", "--state-dir", unused, "--pid", &own], "CAP_SYS_PTRACE"),
        // The directory is another user's.
        (&["rooms", "--state-dir", state], "may be opened by root only"),
    ];
    for (arguments, told) in cases {
        let (code, text) = powerless(arguments);
        assert_eq!(code, Some(3), "{arguments:?}: {text}");
        assert!(text.contains(told), "{text}");
    }
}

#[test]
fn a_closed_output_ends_the_agent_cleanly() {
    let _turn = turn();
    let state = tempfile::tempdir().unwrap();
    let mut child = inflightd(&["run", "--log", "warn", "--state-dir"])
        .arg(state.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut worker = Worker::table("churn");
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 64]).unwrap();
    drop(stdout);
    let status = within_a_minute(|| child.try_wait().unwrap());
    worker.stop();
    assert!(status.expect("the agent ends").success());
}

#[test]
fn a_capture_replays_to_the_very_same_lines() {
    let _turn = turn();
    let state = tempfile::tempdir().unwrap();
    let capture = state.path().join("capture");
    let capture = capture.to_str().unwrap();
    let worker = Worker::table("stay");
    let agent =
        Agent::start(state.path(), &["--capture", capture, "--suspect", "0.5", "--stall", "1"]);
    agent.wait_for(worker.pid(), "verdict", |line| line["room"] == "2");
    let pid = worker.pid();
    drop(worker);
    agent.wait_for(pid, "dwell", |line| line["room"] == "2");
    let (lines, _) = agent.end(Signal::TERM);
    let output = inflightd(&["replay", "--json", capture]).output().unwrap();
    assert!(output.status.success());
    let again: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(again, lines);
}

#[test]
fn of_too_many_workers_in_a_process_the_first_are_watched() {
    let _turn = turn();
    let state = tempfile::tempdir().unwrap();
    let worker = Worker::table("many");
    let pid = worker.pid();
    let mut command = inflightd(&["run", "--json", "--log", "warn", "--listen", "off"]);
    command.arg("--state-dir").arg(state.path()).arg(format!("--pid={pid}"));
    let said = tempfile::NamedTempFile::new().unwrap();
    let agent = Agent::of(command.stderr(said.reopen().unwrap()));
    let indexes = |agent: &Agent| -> BTreeSet<u64> {
        let lines = agent.lines(pid, "coverage");
        lines.iter().map(|line| line["worker"]["index"].as_u64().unwrap()).collect()
    };
    let all = within_a_minute(|| (indexes(&agent).len() >= WORKERS_MAX).then_some(()));
    all.unwrap_or_else(|| panic!("{:?}", indexes(&agent)));
    // Two more looks at the process.
    thread::sleep(Duration::from_secs(3));
    assert_eq!(indexes(&agent), (0..WORKERS_MAX as u64).collect());
    agent.end(Signal::TERM);
    let said = std::fs::read_to_string(said.path()).unwrap();
    let warnings = said.lines().filter(|line| line.contains("more tables than"));
    assert_eq!(warnings.count(), 1, "{said}");
}
