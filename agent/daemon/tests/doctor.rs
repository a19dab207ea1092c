//! `inflightd doctor` on this machine, with and without rights, and whom `rooms` does not know.
//! Needs root.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends by a panic, and its helpers are part of it"
)]

mod agent_support;

use std::fs;
use std::process::{Command, Output};

use agent_support::{Agent, NIXL, Worker, inflightd, packages, sight, turn};
use rustix::process::Signal;
use serde_json::Value;

/// Not a test of its own: what [`Worker::table`] starts.
#[test]
fn as_a_worker() {
    agent_support::worker::main();
}

fn doctor(worker: &Worker, arguments: &[&str]) -> Output {
    let state = tempfile::tempdir().unwrap();
    inflightd(&["doctor", "--pid", &worker.pid().to_string(), "--state-dir"])
        .arg(state.path())
        .args(arguments)
        .output()
        .unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

fn source<'a>(worker: &'a Value, name: &str) -> &'a Value {
    let sources = worker["sources"].as_array().unwrap();
    sources.iter().find(|row| row["source"] == name).unwrap()
}

#[test]
fn a_worker_with_the_hook_is_seen_by_its_marks_and_what_they_cost_is_told() {
    let _turn = turn();
    let worker = Worker::hooked();
    let report = json(&doctor(&worker, &["--json"]));
    assert_eq!(report["agent"], Value::Null);
    let seen = &report["workers"][0];
    assert_eq!((&seen["pid"], &seen["engine"]), (&worker.pid().into(), &"test".into()));
    for name in ["table", "marks", "exits"] {
        assert_eq!(source(seen, name)["sight"], "visible", "{seen:#}");
    }
    let transfers = source(seen, "transfers");
    assert_eq!(transfers["why"], "library_missing");
    assert!(transfers["fix"].as_str().unwrap().len() > 10);
    let node = report["node"].as_array().unwrap();
    let tried = node.iter().find(|check| check["name"] == "programs and a probe").unwrap();
    assert_eq!(tried["state"], "ok", "{tried:#}");
    let library = &seen["libraries"][0];
    assert_eq!(library["family"], "inflight");
    assert!(library["build_id"].as_str().unwrap().len() >= 16, "{library:#}");
    let points = library["points"].as_array().unwrap();
    assert_eq!(points.len(), 8);
    // No number of another machine: a hit was timed here, and every point is of the kind that was.
    let hit = &report["hit"];
    assert_eq!(hit["measured"], true, "{hit:#}");
    assert!(hit["ns"].as_u64().unwrap() > 0, "{hit:#}");
    assert!(points.iter().all(|point| point["expected_ns"] == hit["ns"]), "{points:#?}");
}

/// A copy of NIXL and UCX as of a wheel that nobody knows: their build-ids are other ones.
fn strange_nixl() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for part in NIXL {
        let mut copy = Command::new("cp");
        let done = copy.arg("-r").arg(packages().join(part)).arg(directory.path()).status();
        assert!(done.unwrap().success());
    }
    let known = include_str!("../src/probe/builds.toml").lines();
    let ids = known.filter_map(|line| line.strip_prefix("build_id = \""));
    let ids: Vec<Vec<u8>> = ids.map(|id| bytes(id.trim_end_matches('"'))).collect();
    let mut changed = 0;
    for folder in [directory.path().join(NIXL[1]), directory.path().join(NIXL[2])] {
        for file in fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()) {
            let name = file.file_name().unwrap().to_str().unwrap();
            if name == "libnixl.so" || name.starts_with("libucp-") {
                let mut text = fs::read(&file).unwrap();
                let at = ids.iter().find_map(|id| memchr::memmem::find(&text, id)).unwrap();
                text[at] ^= 0xff;
                fs::write(&file, text).unwrap();
                changed += 1;
            }
        }
    }
    assert_eq!(changed, 2, "libnixl and libucp");
    directory
}

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digit).collect()
}

#[test]
fn libraries_of_a_build_that_is_not_known_are_seen_less_well_and_that_is_told() {
    let _turn = turn();
    let strange = strange_nixl();
    let mut worker = Worker::nixl(Some(strange.path()));
    worker.ask("load", "loaded");
    let check = |report: &Value, by: &str| {
        let seen = &report["workers"][0];
        assert_eq!(seen["by"], by);
        for name in ["transfers", "completions"] {
            let row = source(seen, name);
            assert_eq!((&row["sight"], &row["why"]), (&"degraded".into(), &"unknown_build".into()));
            assert!(row["fix"].as_str().unwrap().contains("build-id"), "{row:#}");
        }
        for family in ["nixl", "ucp"] {
            let libraries = seen["libraries"].as_array().unwrap();
            let library = libraries.iter().find(|row| row["family"] == family).unwrap();
            let path = library["path"].as_str().unwrap();
            assert!(path.starts_with(strange.path().to_str().unwrap()), "{path}");
            assert_eq!(library["build"], Value::Null, "{library:#}");
        }
    };
    let output = doctor(&worker, &["--json"]);
    assert_eq!(output.status.code(), Some(7), "nobody watches");
    check(&json(&output), "doctor");
    let page = String::from_utf8(doctor(&worker, &[]).stdout).unwrap();
    for part in ["DEGRADED  transfers", "unknown_build", "build not known"] {
        assert!(page.contains(part), "no {part}:\n{page}");
    }
    let state = tempfile::tempdir().unwrap();
    let pid = worker.pid().to_string();
    let agent = Agent::start(state.path(), &["--listen", "off", "--pid", &pid]);
    agent.wait_for(worker.pid(), "coverage", |line| sight(line, "transfers").0 == "degraded");
    let mut ask = inflightd(&["doctor", "--json", "--pid", &pid, "--state-dir"]);
    let output = ask.arg(state.path()).output().unwrap();
    check(&json(&output), "agent");
    assert_eq!(output.status.code(), Some(1), "an agent watches, and sees less than it could");
    assert!(agent.end(Signal::TERM).1.success());
}

#[test]
fn the_page_fits_a_screen_and_says_what_is_not_seen() {
    let _turn = turn();
    let worker = Worker::table("stay");
    let output = doctor(&worker, &[]);
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(page.lines().all(|line| line.chars().count() <= 100), "{page}");
    for part in ["No agent runs", "NODE", "BLIND     marks", "-> install the hook"] {
        assert!(page.contains(part), "no {part}:\n{page}");
    }
    assert_eq!(output.status.code(), Some(7), "{page}");
}

#[test]
fn a_running_agent_is_asked_what_it_sees() {
    let _turn = turn();
    let state = tempfile::tempdir().unwrap();
    let worker = Worker::hooked();
    let pid = worker.pid().to_string();
    let agent = Agent::start(state.path(), &["--pid", &pid]);
    agent.wait_for(worker.pid(), "coverage", |line| sight(line, "marks").0 == "visible");
    let ask = || {
        let output = inflightd(&["doctor", "--json", "--pid", &pid, "--state-dir"])
            .arg(state.path())
            .output()
            .unwrap();
        json(&output)
    };
    let report = ask();
    assert!(report["agent"]["pid"].is_u64(), "{report:#}");
    let [seen] = report["workers"].as_array().unwrap().as_slice() else { panic!("{report:#}") };
    assert_eq!((&seen["by"], &seen["index"]), (&"agent".into(), &0.into()));
    assert_eq!(source(seen, "marks")["sight"], "visible");
    assert_eq!(source(seen, "peers")["why"], "peer_elsewhere", "{seen:#}");
    assert!(source(seen, "peers")["fix"].as_str().unwrap().contains("peer's node"));
    assert_eq!(seen["libraries"][0]["family"], "inflight");
    agent.end(Signal::KILL);
    assert_eq!(ask()["workers"][0]["by"], "doctor");
}

#[test]
fn a_table_that_cannot_be_read_is_blind() {
    let _turn = turn();
    let worker = Worker::table("version");
    let report = json(&doctor(&worker, &["--json"]));
    let table = source(&report["workers"][0], "table").clone();
    assert_eq!((&table["sight"], &table["why"]), (&"blind".into(), &"abi_mismatch".into()));
}

#[test]
fn without_rights_the_missing_ones_are_named() {
    let output = Command::new("setpriv")
        .args(["--bounding-set=-all", "--inh-caps=-all", env!("CARGO_BIN_EXE_inflightd")])
        .args(["doctor", "--json", "--state-dir", "/tmp/inflightd-unused"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    let report = json(&output);
    let checks = report["node"].as_array().unwrap();
    let missing = checks.iter().find(|check| check["name"] == "CAP_SYS_ADMIN").unwrap();
    assert_eq!(missing["state"], "no_right");
    assert!(report["hindrance"].as_str().unwrap().contains("CAP_SYS_ADMIN"));
}

#[test]
fn who_may_not_look_does_not_find_that_nobody_is_there() {
    let _turn = turn();
    let _worker = Worker::table("stay");
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .args([env!("CARGO_BIN_EXE_inflightd"), "doctor", "--json", "--state-dir", "/nonexistent"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    let report = json(&output);
    assert_eq!(report["workers"], serde_json::json!([]));
    assert!(!report["hidden"].as_array().unwrap().is_empty(), "{report:#}");
}

#[test]
fn a_process_that_is_no_worker_is_told_as_such() {
    let mut other = Command::new("sleep").arg("1000").spawn().unwrap();
    let pid = other.id().to_string();
    let output = inflightd(&["doctor", "--pid", &pid]).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(6), 0), "{told}");
    assert!(told.contains(&format!("--pid {pid}: it is no worker")), "{told}");
    other.kill().unwrap();
    other.wait().unwrap();
    let output = inflightd(&["doctor", "--pid", &pid]).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(6), "{told}");
    assert!(told.contains("no such process"), "{told}");
}

#[test]
fn a_process_that_is_no_worker_is_not_said_to_have_no_rooms() {
    let _turn = turn();
    let state = tempfile::tempdir().unwrap();
    let worker = Worker::table("peer");
    let agent = Agent::start(state.path(), &["--pid", &worker.pid().to_string()]);
    agent.wait_for(worker.pid(), "coverage", |_| true);
    let config = state.path().join("inflightd.toml");
    fs::write(&config, format!("state_dir = {:?}\n", state.path())).unwrap();
    let rooms = |pid: &str| {
        let output = inflightd(&["rooms", "--pid", pid, "--config"]).arg(&config).output().unwrap();
        let [out, err] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.code(), out, err)
    };
    let (code, out, err) = rooms(&worker.pid().to_string());
    assert_eq!((code, out.as_str()), (Some(0), "no open rooms\n"), "{err}");
    let own = std::process::id().to_string();
    // What the first process of a node is may be hidden from who asks.
    for (pid, why) in [("999999999", "no such process"), (&own, "it is no worker"), ("1", "")] {
        let (code, out, err) = rooms(pid);
        assert_eq!((code, out.as_str()), (Some(6), ""), "{err}");
        let told = format!("--pid {pid}: the agent knows no such worker: {why}");
        assert!(err.contains(&told), "{err}");
    }
    agent.end(Signal::TERM);
}
