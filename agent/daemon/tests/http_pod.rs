//! What a liveness probe is told of an engine that is stopped. Needs root.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends by a panic, and its helpers are part of it"
)]

mod agent_support;

use std::fs;
use std::path::{Path, PathBuf};

use agent_support::{Agent, Worker, within_a_minute};
use inflightd::http::client;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const UID: &str = "3f2c6d1e-8a4b-4c7d-9e21-0b5a6f7c8d90";

/// Not a test of its own: what [`Worker::table`] starts.
#[test]
fn as_a_worker() {
    agent_support::worker::main();
}

/// A cgroup as a pod has it, removed in the end.
struct Cgroup(PathBuf);

impl Cgroup {
    /// Where this machine lets one be made.
    fn of(pid: u32) -> Option<Self> {
        let name = format!("test-{}-pod{}.slice", std::process::id(), UID.replace('-', "_"));
        let roots = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"].map(Path::new);
        let root = roots.iter().find(|root| root.join("cgroup.procs").exists())?;
        let cgroup = Self(root.join(name));
        fs::create_dir(&cgroup.0).ok()?;
        fs::write(cgroup.0.join("cgroup.procs"), pid.to_string()).ok()?;
        Some(cgroup)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // It is busy until its last process has been waited for.
        let removed = within_a_minute(|| fs::remove_dir(&self.0).ok());
        assert!(removed.is_some() || std::thread::panicking(), "{} stays", self.0.display());
    }
}

fn ask(state: &Path, path: &str) -> (u16, Value) {
    let answered = client::get(state, path).unwrap();
    (answered.status, serde_json::from_slice(&answered.body).unwrap())
}

/// Asks until the status is this.
fn becomes(state: &Path, path: &str, status: u16) -> Value {
    let told = within_a_minute(|| {
        let (now, view) = ask(state, path);
        (now == status).then_some(view)
    });
    told.unwrap_or_else(|| panic!("{path} never said {status}: {:?}", ask(state, path)))
}

#[test]
fn a_stopped_engine_is_not_well_and_its_pod_hears_of_it() {
    let state = tempfile::tempdir().unwrap();
    let worker = Worker::table("peer");
    let cgroup = Cgroup::of(worker.pid());
    let pid = worker.pid().to_string();
    let agent = Agent::start(state.path(), &["--listen", "off", "--pid", &pid]);
    agent.wait_for(worker.pid(), "coverage", |_| true);
    let (engine, pod) = (format!("/workers/{pid}"), format!("/workers/pod/{UID}?only=own"));
    becomes(state.path(), &engine, 200);
    let (status, view) = ask(state.path(), &pod);
    assert_eq!(status, 200);
    let known = view["workers"].as_array().unwrap().len();
    assert_eq!(known, usize::from(cgroup.is_some()), "{view:#}");
    let process = Pid::from_raw(worker.pid().cast_signed()).unwrap();
    kill_process(process, Signal::STOP).unwrap();
    let view = becomes(state.path(), &engine, 503);
    assert_eq!((&view["workers"][0]["why"], &view["own_fault"]), (&"stopped".into(), &true.into()));
    if cgroup.is_some() {
        becomes(state.path(), &pod, 503);
    }
    let other = pod.replace("3f2c", "0000");
    assert_eq!(ask(state.path(), &other).0, 200, "another pod has nothing to do with it");
    kill_process(process, Signal::CONT).unwrap();
    becomes(state.path(), &engine, 200);
    assert_eq!(ask(state.path(), "/workers/pod/x").0, 404);
    for path in [format!("/workers/pod/{UID}?only=x"), format!("{engine}?only=x")] {
        assert_eq!(ask(state.path(), &path).0, 400, "{path}");
    }
    assert_eq!(ask(state.path(), "/workers?only=own").0, 400, "the list is no probe");
    drop((agent, worker));
}
