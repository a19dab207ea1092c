//! Failing a room on purpose: proven, refused, not carried out, and what is left behind. Needs root.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends by a panic, and its helpers are part of it"
)]

mod agent_support;

use std::path::{Path, PathBuf};

use agent_support::{Agent, Worker, inflightd, sight, turn, within_a_minute};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

/// An engine with the real NIXL, and the agent that watches it with short deadlines.
struct Scene {
    engine: Worker,
    agent: Agent,
    state: TempDir,
    pid: u32,
}

impl Scene {
    fn new(ranks: usize, how: &str) -> Self {
        Self::with(ranks, how, "")
    }

    /// The same with a policy, as the table `force_fail` says.
    fn with(ranks: usize, how: &str, policy: &str) -> Self {
        let state = tempfile::tempdir().unwrap();
        std::fs::write(config(state.path()), format!("[force_fail]\n{policy}")).unwrap();
        let mut engine = Worker::ranks(ranks, how);
        engine.ask("load", "load");
        engine.ask("poll_on on", "poll_on");
        let pid = engine.pid();
        let agent = watch(state.path(), pid);
        Self { engine, agent, state, pid }
    }

    /// Asks that a room be failed: the exit code and the answer.
    fn fail(&self, room: u64, how: &str) -> (Option<i32>, Value) {
        let room = room.to_string();
        let mut command = inflightd(&["fail", &room, how, "--json", "--state-dir"]);
        let output = command.arg(self.state.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), serde_json::from_slice(&output.stdout).expect(&said))
    }

    /// A room enters the queues, and is stuck.
    fn stuck(&mut self, room: u64) {
        self.engine.ask(&format!("enter {room}"), "enter");
        self.verdict(room);
    }

    fn verdict(&self, room: u64) {
        let room = room.to_string();
        self.agent.wait_for(self.pid, "verdict", |line| line["room"] == room.as_str());
    }

    /// What is asked of a room at a rank, as that sees it.
    fn command(&mut self, room: u64, rank: u64) -> String {
        self.engine.ask(&format!("command {room} {rank}"), "command")
    }

    /// It is refused with this word, and nothing is held afterwards.
    fn refused(&mut self, room: u64, code: &str) {
        for how in ["--dry-run", "--yes"] {
            let (exit, line) = self.fail(room, how);
            assert_eq!(line["fail"]["decision"], "refused", "{line:#}");
            assert_eq!(line["fail"]["refused"]["code"], code, "{how}: {line:#}");
            assert_eq!(exit, Some(8));
            // Each decision is recorded. That of a room that nobody has names no process.
            if code != "no_such_room" {
                self.agent.wait_for(self.pid, "fail", |record| *record == line);
            }
        }
        assert!(matches!(self.command(room, 0).as_str(), "open" | "left"));
    }

    fn ends(self) {
        assert!(self.agent.end(Signal::TERM).1.success());
    }
}

fn config(state: &Path) -> PathBuf {
    state.join("inflightd.toml")
}

fn watch(state: &Path, pid: u32) -> Agent {
    let (pid_text, config) = (pid.to_string(), config(state));
    let deadlines = ["--suspect", "0.5", "--stall", "1", "--listen", "off", "--pid", &pid_text];
    let agent =
        Agent::start(state, &[&deadlines[..], &["--config", config.to_str().unwrap()]].concat());
    agent.wait_for(pid, "coverage", |line| {
        ["marks", "transfers", "completions"].iter().all(|of| sight(line, of).0 == "visible")
    });
    agent
}

#[test]
fn a_room_of_which_nothing_was_posted_is_failed_on_all_ranks() {
    let _turn = turn();
    let mut scene = Scene::new(2, "");
    scene.stuck(7);
    let (exit, line) = scene.fail(7, "--dry-run");
    assert_eq!(
        (exit, line["fail"]["decision"].as_str()),
        (Some(0), Some("would_fail")),
        "{line:#}"
    );
    assert_eq!(scene.command(7, 0), "open", "nothing was done");
    let (exit, line) = scene.fail(7, "--yes");
    assert_eq!((exit, line["fail"]["decision"].as_str()), (Some(0), Some("failed")), "{line:#}");
    let ranks = line["fail"]["ranks"].as_array().unwrap();
    assert_eq!(ranks.len(), 2);
    for rank in ranks {
        let shown = ["proof", "outcome"].map(|key| rank[key].as_str().unwrap());
        assert_eq!(shown, ["never_posted", "failed"], "{line:#}");
        assert_eq!((&rank["carried_out"], &rank["pid"]), (&true.into(), &scene.pid.into()));
    }
    let reason = scene.engine.ask("reason 7", "reason");
    let verdict = [&line["finding"], &line["cause"]].map(|word| word.as_str().unwrap());
    assert_eq!(reason, format!("{} after True True", verdict.join(" / ")));
    let decisions: Vec<_> = scene.agent.lines(scene.pid, "fail");
    let decisions: Vec<_> = decisions.iter().map(|line| &line["fail"]["decision"]).collect();
    assert_eq!(decisions, ["would_fail", "committed", "failed"]);
    scene.ends();
}

#[test]
fn a_room_whose_bytes_have_arrived_on_one_rank_and_were_never_posted_on_the_other_is_failed() {
    let _turn = turn();
    let mut scene = Scene::new(2, "");
    scene.engine.ask("enter 7", "enter");
    assert_eq!(scene.engine.ask("send 7 0", "send"), "sent");
    scene.engine.ask("done_here 7 0", "done_here");
    scene.verdict(7);
    let (exit, line) = scene.fail(7, "--yes");
    assert_eq!((exit, line["fail"]["decision"].as_str()), (Some(0), Some("failed")), "{line:#}");
    let ranks = line["fail"]["ranks"].as_array().unwrap().iter();
    let mut proofs: Vec<_> =
        ranks.map(|rank| (rank["index"].as_u64(), rank["proof"].as_str())).collect();
    proofs.sort_unstable();
    assert_eq!(proofs, [(Some(0), Some("arrived")), (Some(1), Some("never_posted"))]);
    scene.ends();
}

#[test]
fn what_may_be_under_way_is_refused_and_the_room_goes_on() {
    let _turn = turn();
    let mut scene = Scene::new(1, "");
    scene.stuck(1);
    scene.engine.ask("serve 1 0", "serve");
    scene.refused(1, "at_work");
    scene.engine.ask("serve_end 0", "serve_end");
    scene.engine.ask("serve_early 0", "serve_early");
    scene.refused(1, "early_work");
    scene.engine.ask("serve_end 0", "serve_end");
    assert_eq!(scene.engine.ask("serve 1 0", "serve"), "go", "it is held no more");
    scene.engine.ask("serve_end 0", "serve_end");
    scene.engine.ask("enter 2", "enter");
    scene.engine.ask("send_unmarked 2 0", "send_unmarked");
    scene.verdict(2);
    scene.refused(2, "miscounted");
    scene.ends();
}

#[test]
fn what_cannot_be_proven_or_asked_for_is_refused() {
    let _turn = turn();
    let mut scene = Scene::new(2, "");
    scene.refused(99, "no_such_room");
    scene.engine.ask("enter 3 0", "enter");
    scene.verdict(3);
    scene.refused(3, "ranks_missing");
    scene.engine.ask("enter 4", "enter");
    scene.verdict(4);
    // Whoever comes later has not seen what was posted before.
    let Scene { mut engine, agent, pid, .. } = scene;
    assert!(agent.end(Signal::TERM).1.success());
    engine.ask("poll_on on", "poll_on");
    let state = tempfile::tempdir().unwrap();
    std::fs::write(config(state.path()), "").unwrap();
    let agent = watch(state.path(), pid);
    let mut later = Scene { engine, agent, state, pid };
    later.verdict(4);
    later.refused(4, "late");
    later.ends();
    let mut deaf = Scene::new(1, "deaf");
    deaf.stuck(7);
    deaf.refused(7, "no_commands");
    deaf.ends();
}

#[test]
fn an_engine_that_does_not_poll_fails_nothing_later_and_goes_on() {
    let _turn = turn();
    let mut scene = Scene::new(2, "");
    scene.stuck(7);
    scene.engine.ask("poll_on off", "poll_on");
    let (exit, line) = scene.fail(7, "--yes");
    let decision = line["fail"]["decision"].as_str();
    assert_eq!((exit, decision), (Some(8), Some("not_carried_out")), "{line:#}");
    assert_eq!(scene.command(7, 0), "committed");
    assert_eq!(
        scene.engine.ask("serve 7 0", "serve"),
        "held",
        "nobody begins before a poll says how it is"
    );
    scene.engine.ask("poll_on on", "poll_on");
    within_a_minute(|| {
        (scene.command(7, 0) == "open" && scene.command(7, 1) == "open").then_some(())
    })
    .expect("the hold ends after a poll");
    assert_eq!(scene.engine.ask("reason 7", "reason"), "none", "it was not failed");
    assert_eq!(scene.engine.ask("serve 7 0", "serve"), "go");
    scene.engine.ask("serve_end 0", "serve_end");
    let (exit, line) = scene.fail(7, "--yes");
    assert_eq!((exit, line["fail"]["decision"].as_str()), (Some(0), Some("failed")), "{line:#}");
    scene.ends();
}

/// What was told of rooms by policy: the room and the decision, or why it was refused.
fn told(scene: &Scene) -> Vec<(String, String)> {
    let lines = scene.agent.lines(scene.pid, "fail");
    let word = |line: &Value| {
        let fail = &line["fail"];
        assert_eq!(fail["by"], "policy");
        let word =
            if fail["refused"].is_null() { &fail["decision"] } else { &fail["refused"]["code"] };
        (line["room"].as_str().unwrap().to_owned(), word.as_str().unwrap().to_owned())
    };
    lines.iter().map(word).collect()
}

#[test]
fn a_policy_fails_what_it_allows_as_often_as_it_allows() {
    let _turn = turn();
    let policy = "mode = 'on'\nallow = 'never_started/*'\nmin_dwell = 2\nper_peer = 1\n";
    let mut scene = Scene::with(2, "", policy);
    scene.engine.ask("enter 1", "enter");
    within_a_minute(|| (scene.command(1, 0) == "left").then_some(())).expect("it is failed");
    scene.engine.ask("enter 2", "enter");
    let line = scene.agent.wait_for(scene.pid, "fail", |line| line["room"] == "2");
    assert_eq!(line["fail"]["refused"]["code"], "limited", "{line:#}");
    assert_eq!(scene.command(2, 0), "open");
    scene.agent.wait_for(scene.pid, "fail", |line| line["fail"]["decision"] == "failed");
    let said = |room: &str, word: &str| (room.to_owned(), word.to_owned());
    assert_eq!(told(&scene), [said("1", "committed"), said("1", "failed"), said("2", "limited")]);
    scene.ends();
}

#[test]
fn a_dry_run_tells_once_what_it_would_do_and_does_nothing() {
    let _turn = turn();
    let policy = "mode = 'dry_run'\nallow = 'never_started/*'\nmin_dwell = 1\n";
    let mut scene = Scene::with(1, "", policy);
    scene.stuck(1);
    scene.agent.wait_for(scene.pid, "fail", |line| line["fail"]["decision"] == "would_fail");
    // Another room, whose verdict is not allowed.
    scene.engine.ask("enter 2", "enter");
    assert_eq!(scene.engine.ask("send 2 0", "send"), "sent");
    scene.verdict(2);
    std::thread::sleep(std::time::Duration::from_secs(12));
    assert_eq!(
        told(&scene),
        [("1".to_owned(), "would_fail".to_owned())],
        "looked at again, told once"
    );
    assert_eq!(scene.command(1, 0), "open");
    scene.ends();
}
