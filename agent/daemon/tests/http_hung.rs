//! What the agent says of itself while its loop does not run: before it has looked at the node for
//! the first time, and long after it last woke. Its main thread is held as a debugger holds one, so
//! that it hangs where a kernel could let it hang; its other threads run on. Needs root.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends by a panic, and its helpers are part of it"
)]

mod agent_support;
mod http_support;

use std::ffi::{c_int, c_uint};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::ptr::null_mut;

use agent_support::{Agent, Worker, turn, within_a_minute};
use http_support::{Response, get};
use rustix::process::Signal;
use serde_json::Value;

/// Not a test of its own: what [`Worker::table`] starts.
#[test]
fn as_a_worker() {
    agent_support::worker::main();
}

/// The main thread of a process, held until this is dropped or the test's own thread has ended.
struct Held(libc::pid_t);

impl Held {
    fn ask(&self, request: c_uint, data: usize) {
        // SAFETY: none of the requests made here has the kernel write to this process's memory.
        let done = unsafe { libc::ptrace(request, self.0, null_mut::<u8>(), data) };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
    }

    /// Waits until it stands still.
    fn wait(&self) {
        let mut status: c_int = 0;
        // SAFETY: `status` lives until the call returns.
        let waited = unsafe { libc::waitpid(self.0, &raw mut status, libc::__WALL) };
        assert_eq!(waited, self.0, "{}", io::Error::last_os_error());
        assert!(libc::WIFSTOPPED(status), "it ended: {status:#x}");
    }

    /// Holds it wherever it is.
    fn anywhere(pid: u32) -> Self {
        let held = Self(pid.cast_signed());
        held.ask(libc::PTRACE_SEIZE, 0);
        held.ask(libc::PTRACE_INTERRUPT, 0);
        held.wait();
        held
    }

    /// Holds it as it lists the processes of the machine: in its first look, where it is a process
    /// that has just been started.
    fn at_the_first_look(pid: u32) -> Self {
        let held = Self::anywhere(pid);
        let call = format!("/proc/{pid}/syscall");
        for _ in 0..1_000_000 {
            held.ask(libc::PTRACE_SYSCALL, 0);
            held.wait();
            let text = std::fs::read_to_string(&call).unwrap();
            let mut words = text.split(' ');
            if words.next() == Some(&libc::SYS_getdents64.to_string()) {
                let fd = words.next().unwrap().trim_start_matches("0x");
                let fd = u32::from_str_radix(fd, 16).unwrap();
                let listed = std::fs::read_link(format!("/proc/{pid}/fd/{fd}"));
                if listed.is_ok_and(|path| path == Path::new("/proc")) {
                    return held;
                }
            }
        }
        panic!("it never lists the processes");
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: it takes no memory of this process's. A process that has gone needs it no more.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, null_mut::<u8>(), 0) };
    }
}

/// An address that was free a moment ago: the agent's own choice could not be asked for.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Asks until the status is this.
fn becomes(at: SocketAddr, path: &str, status: u16) -> Response {
    let told = within_a_minute(|| {
        let response = get(at, path);
        (response.status == status).then_some(response)
    });
    told.unwrap_or_else(|| panic!("{path} is never {status}: {:?}", get(at, path)))
}

fn start(state: &Path, worker: &Worker, at: SocketAddr) -> Agent {
    let (pid, at) = (worker.pid().to_string(), at.to_string());
    Agent::start(state, &["--pid", &pid, "--listen", &at, "--suspect", "3", "--stall", "8"])
}

#[test]
fn an_agent_is_not_ready_before_it_has_looked_around_once() {
    let _turn = turn();
    let (state, at) = (tempfile::tempdir().unwrap(), free());
    let worker = Worker::table("churn");
    let agent = start(state.path(), &worker, at);
    let held = Held::at_the_first_look(agent.pid());
    let response = get(at, "/readyz");
    let view = response.json();
    assert_eq!((response.status, &view["ready"]), (503, &false.into()), "{view:#}");
    assert_eq!(view["why"], "the first census is not done");
    assert_eq!(get(at, "/healthz").status, 200, "it has only just begun");
    drop(held);
    let view = becomes(at, "/readyz", 200).json();
    assert_eq!((&view["ready"], &view["why"]), (&true.into(), &Value::Null), "{view:#}");
    assert!(agent.end(Signal::TERM).1.success());
}

#[test]
fn an_agent_whose_loop_hangs_is_not_well_and_accuses_nobody_when_it_goes_on() {
    let _turn = turn();
    let (state, at) = (tempfile::tempdir().unwrap(), free());
    let mut worker = Worker::table("churn");
    let agent = start(state.path(), &worker, at);
    agent.wait_for(worker.pid(), "dwell", |_| true);
    assert_eq!(get(at, "/readyz").status, 200);
    let held = Held::anywhere(agent.pid());
    let view = becomes(at, "/healthz", 503).json();
    assert_eq!(view["well"], false, "{view:#}");
    assert!(view["loop_age_s"].as_f64().unwrap() >= 10.0, "{view:#}");
    // It was ready once, and metrics need no loop; whoever asks for workers gets no old answer.
    assert_eq!((get(at, "/readyz").status, get(at, "/metrics").status), (200, 200));
    let workers = get(at, "/workers");
    assert_eq!(workers.status, 503, "{workers:?}");
    assert!(workers.json()["error"].is_string(), "{workers:?}");
    drop(held);
    assert_eq!(becomes(at, "/healthz", 200).json()["well"], true);
    assert_eq!(becomes(at, "/workers", 200).json()["workers"][0]["pid"], worker.pid());
    let last = worker.stop().last().copied();
    // Rooms that had ended before the agent came are not its own.
    let all_told = || {
        let ends = agent.lines(worker.pid(), "dwell");
        let is_last = |dwell: &Value| dwell["seq"].as_u64() == last;
        ends.len() == agent.count(worker.pid(), "append") && ends.iter().any(is_last)
    };
    within_a_minute(|| all_told().then_some(())).expect("every room is told");
    let verdicts = agent.lines(worker.pid(), "verdict");
    assert!(verdicts.iter().all(|verdict| verdict["severity"] != "alert"), "{verdicts:#?}");
    assert!(agent.end(Signal::TERM).1.success());
}
