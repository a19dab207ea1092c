//! The agent's configuration from outside: checks, reload and what a changed deadline does.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends by a panic, and its helpers are part of it"
)]

mod agent_support;

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use agent_support::{Agent, Worker, inflightd, of, turn, within_a_minute};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;
use serde_json::Value;

/// Not a test of its own: what [`Worker::table`] starts.
#[test]
fn as_a_worker() {
    agent_support::worker::main();
}

/// A directory with a configuration file and places for what an agent writes.
struct Place(tempfile::TempDir);

impl Place {
    fn new(text: &str) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        place.configure(text);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn configure(&self, text: &str) {
        let text = format!("probes = false\nhttp.listen = 'off'\n{text}");
        fs::write(self.path("inflightd.toml"), text).unwrap();
    }

    fn agent(&self, worker: &Worker) -> Agent {
        let pid = worker.pid().to_string();
        let config = self.path("inflightd.toml");
        let arguments = [
            "--log",
            "info",
            "--pid",
            &pid,
            "--config",
            config.to_str().unwrap(),
            "--capture",
            self.path("capture").to_str().unwrap(),
        ]
        .map(str::to_owned);
        let mut command = inflightd(&["run", "--json", "--state-dir"]);
        command.arg(self.path("state")).args(arguments);
        command.stderr(File::create(self.path("log")).unwrap());
        Agent::of(&mut command)
    }

    fn wait_for_log(&self, words: &str) -> String {
        let log = within_a_minute(|| {
            let log = fs::read_to_string(self.path("log")).unwrap();
            log.contains(words).then_some(log)
        });
        log.unwrap_or_else(|| panic!("{}", fs::read_to_string(self.path("log")).unwrap()))
    }
}

fn check(file: &Path) -> Output {
    inflightd(&["check-config"]).arg(file).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_changed_deadline_reaches_rooms_that_are_open_and_the_capture() {
    let _turn = turn();
    let place = Place::new("deadlines.stall = 600\n");
    let worker = Worker::table("stay");
    let agent = place.agent(&worker);
    for room in 0..3 {
        agent.wait_for(worker.pid(), "append", |line| {
            line["room"].as_str() == Some(&*room.to_string())
        });
    }
    place.configure("deadlines.stall = 0.5\n");
    agent.signal(Signal::HUP);
    for room in 0..3 {
        agent.wait_for(worker.pid(), "verdict", |line| {
            line["room"].as_str() == Some(&*room.to_string())
        });
    }
    place.wait_for_log("is in force");
    let (lines, status) = agent.end(Signal::TERM);
    assert!(status.success());
    let replay = inflightd(&["replay", "--json"]).arg(place.path("capture")).output().unwrap();
    let again: Vec<Value> =
        text(&replay.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(again, lines, "{}", text(&replay.stderr));
}

#[test]
fn a_bad_file_is_told_with_all_its_errors_and_changes_nothing() {
    let _turn = turn();
    let place = Place::new("deadlines.stall = 600\n");
    let worker = Worker::table("stay");
    let agent = place.agent(&worker);
    agent.wait_for(worker.pid(), "append", |line| line["room"] == "2");
    place.configure("deadlines.stall = 0\noutput.line = 'all'\n");
    agent.signal(Signal::HUP);
    let log = place.wait_for_log("`output.line`");
    assert!(log.contains("ERROR") && log.contains("the old one stays"), "{log}");
    assert!(log.contains("inflightd.toml:3:19: `deadlines.stall` is 0"), "{log}");
    // The next good one counts.
    place.configure("deadlines.stall = 0.5\nstate_dir = '/elsewhere'\n");
    agent.signal(Signal::HUP);
    agent.wait_for(worker.pid(), "verdict", |line| line["room"] == "2");
    let (lines, status) = agent.end(Signal::TERM);
    assert!(status.success());
    let verdicts = of(&lines, worker.pid(), "verdict");
    let early = verdicts.iter().find(|line| line["dwell_s"].as_f64().unwrap() < 0.5);
    assert_eq!(early, None);
}

#[test]
fn what_needs_a_restart_is_said() {
    let _turn = turn();
    let place = Place::new("");
    let worker = Worker::table("stay");
    let agent = place.agent(&worker);
    agent.wait_for(worker.pid(), "append", |line| line["room"] == "2");
    fs::write(place.path("inflightd.toml"), "probes = true\nhttp.listen = '127.0.0.1:1'\n")
        .unwrap();
    agent.signal(Signal::HUP);
    let log = place.wait_for_log("needs a restart");
    assert!(log.contains("WARN") && log.contains("probes, http.listen"), "{log}");
    assert!(agent.end(Signal::TERM).1.success());
}

/// A named pipe that nobody writes to.
fn pipe(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

#[test]
fn a_configuration_that_does_not_answer_holds_up_nothing() {
    let _turn = turn();
    let place = Place::new("deadlines.stall = 600\n");
    let worker = Worker::table("stay");
    let agent = place.agent(&worker);
    agent.wait_for(worker.pid(), "append", |line| line["room"] == "2");
    fs::remove_file(place.path("inflightd.toml")).unwrap();
    pipe(&place.path("inflightd.toml"));
    agent.signal(Signal::HUP);
    place.wait_for_log("inflightd.toml: is a pipe: name a regular file");
    let output = check(&place.path("inflightd.toml"));
    assert_eq!(output.status.code(), Some(2));
    fs::remove_file(place.path("inflightd.toml")).unwrap();
    pipe(&place.path("headers"));
    let headers = place.path("headers");
    let otlp = format!("[otlp]\nendpoint = 'http://127.0.0.1:1'\nheaders_file = {headers:?}\n");
    place.configure(&otlp);
    agent.signal(Signal::HUP);
    place.wait_for_log("headers`: it is a pipe: name a regular file");
    place.configure("deadlines.stall = 0.5\n");
    agent.signal(Signal::HUP);
    agent.wait_for(worker.pid(), "verdict", |line| line["room"] == "2");
    assert!(agent.end(Signal::TERM).1.success());
}

#[test]
fn a_log_that_nobody_reads_holds_up_nothing() {
    let _turn = turn();
    let place = Place::new("deadlines.stall = 600\n");
    let worker = Worker::table("stay");
    let (unread, log) = std::io::pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&unread, 4096).unwrap();
    let pid = worker.pid().to_string();
    let mut command = inflightd(&["run", "--json", "--log", "info", "--pid", &pid]);
    command.arg("--state-dir").arg(place.path("state"));
    command.arg("--config").arg(place.path("inflightd.toml")).stderr(log);
    let agent = Agent::of(&mut command);
    drop(command);
    agent.wait_for(worker.pid(), "append", |line| line["room"] == "2");
    // Fifty lines each time: more than the pipe and the queue take.
    let bad: Vec<String> = (0..60).map(|n| format!("key{n} = 1\n")).collect();
    let flood = || {
        place.configure(&bad.concat());
        for _ in 0..60 {
            agent.signal(Signal::HUP);
            std::thread::sleep(Duration::from_millis(60));
        }
    };
    flood();
    place.configure("deadlines.stall = 0.5\n");
    agent.signal(Signal::HUP);
    agent.wait_for(worker.pid(), "verdict", |line| line["room"] == "2");
    // Whoever reads again hears that something is missing.
    let mut lines = BufReader::new(unread).lines().map(Result::unwrap);
    let words = "lines of the log were dropped";
    assert!(lines.by_ref().any(|line| line.contains("WARN") && line.contains(words)));
    flood();
    agent.signal(Signal::TERM);
    let stat = format!("/proc/{}/stat", agent.pid());
    let ended = || fs::read_to_string(&stat).unwrap().contains(") Z ").then_some(());
    within_a_minute(ended).expect("it ends");
    assert!(agent.end(Signal::TERM).1.success());
}

#[test]
fn check_config_tells_everything_at_once() {
    let place = Place::new("deadlines.stall = 20\n");
    let good = check(&place.path("inflightd.toml"));
    assert_eq!(good.status.code(), Some(0));
    let shown = text(&good.stdout);
    assert!(shown.contains("stall = 20") && shown.ends_with("# ok\n"), "{shown}");
    place.configure("stall = 3\nprobes = true\n[deadlines]\nsuspect = 'x'\n");
    let bad = check(&place.path("inflightd.toml"));
    assert_eq!(bad.status.code(), Some(2));
    let told = text(&bad.stderr);
    for part in
        ["did you mean `deadlines.stall`", "duplicate key `probes`", "`deadlines.suspect` is 'x'"]
    {
        assert!(told.contains(part), "{told}");
    }
    let schema = inflightd(&["check-config", "--schema"]).output().unwrap();
    let schema: Value = serde_json::from_slice(&schema.stdout).unwrap();
    assert_eq!(schema["properties"]["deadlines"]["properties"]["stall"]["default"], 30);
}

#[test]
fn flags_and_environment_are_checked_before_anything_starts() {
    let run = |command: &mut Command| {
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        text(&output.stderr)
    };
    let told = run(inflightd(&["run", "--stall", "soon", "--listen", "x", "--otlp", "y"])
        .env("INFLIGHTD_MAX_DWELL", "-1"));
    for part in [
        "flag --stall: `deadlines.stall` is `soon`",
        "flag --listen: `http.listen`",
        "flag --otlp: `otlp.endpoint`",
        "environment INFLIGHTD_MAX_DWELL: `deadlines.max_dwell` is `-1`",
    ] {
        assert!(told.contains(part), "{told}");
    }
    let told = run(&mut inflightd(&["run", "--config", "/nonexistent"]));
    assert!(told.contains("/nonexistent: cannot be opened: there is no such file"), "{told}");
}

#[test]
fn check_config_reads_what_is_no_regular_file_and_says_what_run_would_warn_of() {
    let output = check(Path::new("/dev/null"));
    assert!(output.status.success() && text(&output.stdout).contains("stall = 30"), "{output:?}");
    let (from, mut to) = std::io::pipe().unwrap();
    to.write_all(b"deadlines.stall = 20").unwrap();
    drop(to);
    let mut command = inflightd(&["check-config", "/dev/stdin"]);
    command.env("INFLIGHTD_HEALTHY_BURST", "1").env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://x:1");
    let output = command.env("OTEL_EXPORTER_OTLP_TIMEOUT", "10").stdin(from).output().unwrap();
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    for part in [
        "stall = 20",
        "endpoint = \"http://x:1\"",
        "# note: environment INFLIGHTD_HEALTHY_BURST is not read: only the file sets",
        "# note: environment OTEL_EXPORTER_OTLP_TIMEOUT is 10, in milliseconds: 100 is used",
    ] {
        assert!(shown.contains(part), "{shown}");
    }
}

#[test]
fn what_the_file_says_of_the_export_is_not_asked_of_the_environment() {
    let _turn = turn();
    for own in ["grpc", "http"] {
        for other in ["grpc", "http/protobuf", "http/json"] {
            let otlp = format!("endpoint = 'http://127.0.0.1:1'\nprotocol = '{own}'\n");
            let place = Place::new(&format!("[otlp]\n{otlp}"));
            let mut command = inflightd(&["run", "--json", "--state-dir"]);
            command.arg(place.path("state")).arg("--config").arg(place.path("inflightd.toml"));
            for signal in ["", "TRACES_", "METRICS_", "LOGS_"] {
                let name = |rest: &str| format!("OTEL_EXPORTER_OTLP_{signal}{rest}");
                command.env(name("PROTOCOL"), other).env(name("COMPRESSION"), "zstd");
                command.env(name("HEADERS"), "novalue,host=x").env(name("TIMEOUT"), "1");
                command.env(name("INSECURE"), "true");
            }
            command.stderr(File::create(place.path("log")).unwrap());
            let agent = Agent::of(&mut command);
            // Its socket is made after its exporters.
            let there = || place.path("state/agent.sock").exists().then_some(());
            let log = || fs::read_to_string(place.path("log")).unwrap();
            within_a_minute(there).unwrap_or_else(|| panic!("{own} {other}: {}", log()));
            assert!(agent.end(Signal::TERM).1.success(), "{}", log());
            assert!(log().contains("OTEL_EXPORTER_OTLP_HEADERS: pair 2 is left out"), "{}", log());
        }
    }
}
