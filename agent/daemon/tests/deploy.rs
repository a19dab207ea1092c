//! What `deploy/` ships, on this machine: the rights that the agent is given are those it needs,
//! the unit runs in a real systemd, and the configurations are right. Needs root.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends by a panic, and its helpers are part of it"
)]

mod agent_support;
mod deploy_support;

use std::fs;
use std::path::Path;
use std::process::Command;

use agent_support::{Agent, inflightd, of, sight, turn, within_a_minute};
use deploy_support::systemd::Manager;
use deploy_support::{apart, capabilities, config_map, file, text};
use rustix::process::Signal;
use serde_json::Value;

/// Sources that the worker of these tests can have.
const SOURCES: [&str; 5] = ["table", "marks", "connections", "peers", "exits"];

/// Short deadlines, no port.
const QUICK: &str = "[deadlines]\nsuspect = 0.5\nstall = 1\n[http]\nlisten = \"off\"\n";

/// Not a test of its own: what a worker with a table of its own would start.
#[test]
fn as_a_worker() {
    agent_support::worker::main();
}

/// The agent as a pod has it: a network namespace of its own and these capabilities only.
fn confined(capabilities: &[String]) -> Command {
    let added: Vec<String> = capabilities.iter().map(|name| format!(",+{}", &name[4..])).collect();
    let set = format!("--bounding-set=-all{}", added.concat().to_lowercase());
    let mut command = Command::new("unshare");
    command.args(["--net", "setpriv", &set, "--inh-caps=-all", "--no-new-privs"]);
    command.arg(env!("CARGO_BIN_EXE_inflightd"));
    command
}

/// Starts it like that on two processes.
fn watch(capabilities: &[String], state: &Path, pids: [u32; 2]) -> Agent {
    let mut command = confined(capabilities);
    command.args(["run", "--json", "--log", "warn", "--suspect", "0.5", "--stall", "1"]);
    command.args(["--listen", "off", "--state-dir"]).arg(state);
    Agent::of(command.args(pids.iter().flat_map(|pid| ["--pid".to_owned(), pid.to_string()])))
}

#[test]
fn with_the_capabilities_of_unit_and_manifest_every_source_sees_and_a_stall_is_told() {
    let _turn = turn();
    let state = tempfile::tempdir().unwrap();
    let (worker, peer) = apart();
    let agent = watch(&capabilities(), state.path(), [worker.pid(), peer]);
    let told = agent.wait_for(worker.pid(), "verdict", |line| line["cause"] == "peer_frozen");
    assert_eq!((&told["room"], &told["finding"]), (&"7".into(), &"never_started".into()));
    for source in SOURCES {
        assert_eq!(sight(&told, source), ("visible".to_owned(), None), "{source}: {told:#}");
    }
    let (_, status) = agent.end(Signal::TERM);
    assert!(status.success(), "{status}");
}

/// What `deploy/README.md` says is lost without a capability.
fn lost_without(capability: &str) -> &'static str {
    match capability {
        "CAP_SYS_ADMIN" => "start",
        "CAP_SYS_PTRACE" | "CAP_DAC_READ_SEARCH" => "table",
        other => panic!("deploy/README.md and this test do not say what is lost without {other}"),
    }
}

#[test]
fn without_any_one_of_the_capabilities_something_is_lost_and_named() {
    let _turn = turn();
    let (worker, peer) = apart();
    for without in capabilities() {
        let state = tempfile::tempdir().unwrap();
        let rest: Vec<String> =
            capabilities().into_iter().filter(|capability| *capability != without).collect();
        if lost_without(&without) == "start" {
            let mut command = confined(&rest);
            command.args(["run", "--listen", "off", "--state-dir"]).arg(state.path());
            let output = command.output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(3), "{text}");
            assert!(text.contains(&without), "{text}");
            continue;
        }
        let agent = watch(&rest, state.path(), [worker.pid(), peer]);
        let blind = ("blind".to_owned(), Some("not_permitted".to_owned()));
        agent.wait_for(worker.pid(), "coverage", |line| sight(line, "table") == blind);
        let (lines, _) = agent.end(Signal::TERM);
        assert!(of(&lines, worker.pid(), "append").is_empty(), "{lines:#?}");
    }
}

#[test]
fn the_unit_runs_in_systemd_and_its_sandbox_hides_nothing_that_is_needed() {
    let _turn = turn();
    let (worker, peer) = apart();
    let manager = Manager::start(QUICK, &[worker.pid(), peer]);
    let (good, said) = manager.systemctl(&["start", "inflightd"]);
    assert!(good, "{said}{}", manager.log());
    let told = within_a_minute(|| {
        let verdicts = of(&manager.lines(), worker.pid(), "verdict");
        verdicts.into_iter().find(|line| line["cause"] == "peer_frozen")
    });
    let told = told.unwrap_or_else(|| panic!("{:#?}{}", manager.lines(), manager.log()));
    for source in SOURCES {
        assert_eq!(sight(&told, source), ("visible".to_owned(), None), "{source}: {told:#}");
    }
    assert_is_confined(&manager);
    reload_and_stop(&manager);
    // The next life knows what this one told: the runtime directory has stayed.
    assert!(manager.path("/run/inflightd").exists());
    let firm = |line: &&Value| line["type"] == "verdict" && line["maybe_repeated"] != true;
    let told = manager.lines().iter().filter(firm).count();
    let covered = of(&manager.lines(), worker.pid(), "coverage").len();
    assert!(manager.systemctl(&["start", "inflightd"]).0);
    let again = within_a_minute(|| {
        (of(&manager.lines(), worker.pid(), "coverage").len() > covered).then_some(())
    });
    assert!(again.is_some(), "{}", manager.log());
    let lines = manager.lines();
    assert_eq!(lines.iter().filter(firm).count(), told, "{lines:#?}");
}

#[test]
fn a_filter_of_system_calls_that_forbids_probes_is_told_as_a_missing_right() {
    let _turn = turn();
    let (worker, peer) = apart();
    let unit = text("systemd/inflightd.service");
    let strict = unit.replace(" perf_event_open ", " ");
    assert_ne!(strict, unit);
    let manager = Manager::start_unit(&strict, QUICK, &[worker.pid(), peer]);
    let (good, said) = manager.systemctl(&["start", "inflightd"]);
    assert!(good, "{said}{}", manager.log());
    let blind = ("blind".to_owned(), Some("not_permitted".to_owned()));
    let seen = within_a_minute(|| {
        let coverage = of(&manager.lines(), worker.pid(), "coverage");
        coverage.iter().any(|line| sight(line, "marks") == blind).then_some(())
    });
    assert!(seen.is_some(), "{:#?}{}", manager.lines(), manager.log());
}

/// The sandbox is really on: the capabilities are the unit's, and the root is read-only to it.
fn assert_is_confined(manager: &Manager) {
    let pid = manager.property("MainPID");
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().to_owned()
    };
    // CAP_DAC_READ_SEARCH is 2, CAP_SYS_PTRACE 19, CAP_SYS_ADMIN 21.
    assert_eq!(u64::from_str_radix(&field("CapEff:"), 16).unwrap(), 1 << 2 | 1 << 19 | 1 << 21);
    assert_eq!((field("NoNewPrivs:"), field("Seccomp:")), ("1".to_owned(), "2".to_owned()));
    let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap();
    let root = mounts.lines().rfind(|line| line.split(' ').nth(4) == Some("/")).unwrap();
    assert!(root.split(' ').nth(5).unwrap().split(',').any(|option| option == "ro"), "{root}");
}

fn reload_and_stop(manager: &Manager) {
    let pid = manager.property("MainPID");
    let (good, said) = manager.systemctl(&["reload", "inflightd"]);
    assert!(good, "{said}");
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(manager.property("MainPID"), pid, "reload ended it: {}", manager.log());
    let (good, said) = manager.systemctl(&["stop", "inflightd"]);
    assert!(good, "{said}");
    assert_eq!(manager.property("Result"), "success");
}

#[test]
fn what_cannot_be_mended_by_trying_again_is_not_tried_again() {
    let _turn = turn();
    let manager = Manager::start("[deadlines]\nstal = 1\n", &[]);
    drop(manager.systemctl(&["start", "inflightd"]));
    let ended = within_a_minute(|| (manager.property("ActiveState") == "failed").then_some(()));
    assert!(ended.is_some(), "{}", manager.property("ActiveState"));
    assert_eq!(manager.property("ExecMainStatus"), "2", "{}", manager.log());
    assert_eq!(manager.property("NRestarts"), "0");
}

#[test]
fn an_address_that_is_not_there_yet_is_tried_again() {
    let _turn = turn();
    // Kept for documentation: no machine has it.
    let manager = Manager::start("[http]\nlisten = \"192.0.2.1:9464\"\n", &[]);
    drop(manager.systemctl(&["start", "inflightd"]));
    let again = within_a_minute(|| (manager.property("NRestarts") != "0").then_some(()));
    assert!(again.is_some(), "{}", manager.log());
    assert!(manager.log().contains("http.listen (or --listen) is 192.0.2.1"), "{}", manager.log());
}

/// What `check-config` says of a text: whether it is right, and all it says.
fn check_config(text: &str) -> (bool, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("inflightd.toml");
    fs::write(&path, text).unwrap();
    let output = inflightd(&["check-config"]).arg(&path).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// The values in what `check-config` prints, without where they come from.
fn values(said: &str) -> Vec<String> {
    let value = |line: &str| line.split('#').next().unwrap_or_default().trim_end().to_owned();
    said.lines().map(value).filter(|line| !line.is_empty()).collect()
}

#[test]
fn the_example_is_right_and_is_the_defaults() {
    let example = fs::read_to_string(file("inflightd.toml")).unwrap();
    let (good, said) = check_config(&example);
    assert!(good, "{said}");
    let (good, defaults) = check_config("");
    assert!(good, "{defaults}");
    assert_eq!(values(&said), values(&defaults));
    assert!(!said.contains("# default"), "a value is not in the example:\n{said}");
}

#[test]
fn what_the_example_has_as_comments_is_known_too() {
    let example = fs::read_to_string(file("inflightd.toml")).unwrap();
    let (_, otlp) = example.split_once("# [otlp]\n").unwrap();
    let lines = otlp.lines().map(|line| line.trim_start_matches("# "));
    let text = format!("[otlp]\n{}\n", lines.collect::<Vec<_>>().join("\n"));
    let (_, said) = check_config(&text);
    assert!(!said.contains("unknown"), "{said}");
    let (_, said) = check_config(&text.replace("healthy_share", "healthy_shar"));
    assert!(said.contains("healthy_share"), "a misspelt key must be refused: {said}");
}

#[test]
fn the_config_map_is_right_and_can_be_reached_from_outside_of_its_pod() {
    let (good, said) = check_config(&config_map());
    assert!(good, "{said}");
    assert!(said.contains("listen = \"0.0.0.0:9464\""), "{said}");
}
