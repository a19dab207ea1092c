//! An agent whose state directory is removed under it, or lies on a full disk, and one whose
//! output does. Needs root, for tiny file systems.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends by a panic, and its helpers are part of it"
)]

mod agent_support;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use agent_support::{Worker, inflightd, turn, within_a_minute};
use inflightd::http::client;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Not a test of its own: what [`Worker::table`] starts.
#[test]
fn as_a_worker() {
    agent_support::worker::main();
}

/// A file system of a few pages.
struct Tiny(tempfile::TempDir);

impl Tiny {
    fn new(options: &str) -> Self {
        let tiny = Self(tempfile::tempdir().unwrap());
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]);
        assert!(mount.arg(tiny.0.path()).status().unwrap().success());
        tiny
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Takes all the room that there is.
    fn fill(&self) {
        let room = vec![b'x'; 4096];
        let fits = |n: &u32| fs::write(self.path(&format!("filler{n}")), &room).is_ok();
        (0..1000).take_while(fits).for_each(drop);
        assert!(fs::write(self.path("more"), &room).is_err(), "it is full");
        drop(fs::remove_file(self.path("more")));
        drop(fs::write(self.path("filler-last"), ""));
    }

    fn make_room(&self) {
        for entry in fs::read_dir(self.0.path()).unwrap().map(Result::unwrap) {
            if entry.file_name().to_str().unwrap().starts_with("filler") {
                fs::remove_file(entry.path()).unwrap();
            }
        }
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(self.0.path()).status());
    }
}

/// An agent on the tables alone, its log in a file.
struct Agent {
    child: Child,
    dir: tempfile::TempDir,
}

impl Agent {
    fn start(state: &Path, worker: &Worker, stdout: File) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("inflightd.toml");
        fs::write(&config, "probes = false\nhttp.listen = 'off'\n").unwrap();
        let child = inflightd(&["run", "--json", "--suspect", "0.5", "--stall", "1", "--config"])
            .arg(config)
            .args(["--pid", &worker.pid().to_string(), "--state-dir"])
            .arg(state)
            .stdout(stdout)
            .stderr(File::create(dir.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        Self { child, dir }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    fn wait_for_log(&self, words: &str) {
        let found = within_a_minute(|| self.log().contains(words).then_some(()));
        assert!(found.is_some(), "no `{words}`: {}", self.log());
    }

    fn end(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let status = within_a_minute(|| self.child.try_wait().unwrap());
        assert!(status.expect("it ends").success(), "{}", self.log());
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn nowhere() -> File {
    File::create("/dev/null").unwrap()
}

/// What the agent's socket answers; `None` where nobody does.
fn ask(state: &Path, path: &str) -> Option<String> {
    let answered = client::get(state, path).ok()?;
    (answered.status == 200).then(|| String::from_utf8(answered.body).unwrap())
}

fn lacks(state: &Path) -> Option<Vec<Value>> {
    let ready: Value = serde_json::from_str(&ask(state, "/readyz")?).unwrap();
    Some(ready["lacks"].as_array().unwrap().clone())
}

/// Waits until the metrics have a series with a value above zero.
fn wait_for_count(state: &Path, series: &str) {
    let found = within_a_minute(|| {
        let text = ask(state, "/metrics")?;
        let line = text.lines().find(|line| line.starts_with(series))?.to_owned();
        (!line.ends_with(" 0")).then_some(())
    });
    assert!(found.is_some(), "{series} in {:?}", ask(state, "/metrics"));
}

#[test]
fn a_state_directory_that_is_removed_is_made_again_and_the_agent_can_be_asked() {
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let worker = Worker::table("stay");
    let agent = Agent::start(&state, &worker, nowhere());
    within_a_minute(|| lacks(&state)).expect("it is ready");
    fs::remove_file(state.join("agent.sock")).unwrap();
    within_a_minute(|| ask(&state, "/rooms")).expect("it can be asked again");
    fs::remove_dir_all(&state).unwrap();
    within_a_minute(|| ask(&state, "/rooms")).expect("it can be asked again");
    assert!(inflightd(&["rooms", "--state-dir"]).arg(&state).status().unwrap().success());
    wait_for_count(&state, "inflightd_state_lost_total{what=\"journal\"}");
    wait_for_count(&state, "inflightd_state_lost_total{what=\"socket\"}");
    within_a_minute(|| (fs::metadata(state.join("journal")).ok()?.len() > 0).then_some(()))
        .expect("the journal is written whole");
    assert!(agent.log().contains("leave the state directory alone"), "{}", agent.log());
    agent.end();
}

#[test]
fn an_agent_starts_on_a_full_disk_and_takes_up_its_journal_once_there_is_room() {
    let _turn = turn();
    let worker = Worker::table("stay");
    // No room for bytes, and none for files.
    for options in ["size=16k", "size=64k,nr_inodes=9"] {
        let tiny = Tiny::new(options);
        let state = tiny.path("state");
        fs::create_dir(&state).unwrap();
        tiny.fill();
        let agent = Agent::start(&state, &worker, nowhere());
        agent.wait_for_log("the journal is not written");
        if let Some(lacks) = lacks(&state) {
            assert!(lacks.is_empty() || lacks[0].as_str().unwrap().contains("make room there"));
        }
        tiny.make_room();
        agent.wait_for_log("the journal is whole again");
        let none = within_a_minute(|| lacks(&state)?.is_empty().then_some(()));
        assert!(none.is_some(), "{options}: {:?} {}", lacks(&state), agent.log());
        assert!(fs::metadata(state.join("journal")).unwrap().len() > 0);
        agent.end();
    }
}

#[test]
fn lines_that_a_full_disk_does_not_take_are_counted_and_then_it_goes_on() {
    let _turn = turn();
    let (tiny, dir) = (Tiny::new("size=2m"), tempfile::tempdir().unwrap());
    let (state, out) = (dir.path().join("state"), tiny.path("out"));
    let to = File::options().append(true).create(true).open(&out).unwrap();
    tiny.fill();
    let worker = Worker::table("churn");
    let agent = Agent::start(&state, &worker, to);
    agent.wait_for_log("standard output cannot be written");
    wait_for_count(&state, "inflightd_lines_lost_total");
    let lack = within_a_minute(|| lacks(&state)?.pop()).expect("it says what it lacks");
    assert!(lack.as_str().unwrap().contains("standard output"), "{lack}");
    tiny.make_room();
    agent.wait_for_log("standard output takes lines again");
    let whole = |line: &str| serde_json::from_str::<Value>(line).is_ok();
    within_a_minute(|| fs::read_to_string(&out).unwrap().lines().any(whole).then_some(()))
        .expect("a whole line");
    let said = agent.log().matches("standard output cannot be written").count();
    assert!(said <= 2, "{said} times");
    agent.end();
}
