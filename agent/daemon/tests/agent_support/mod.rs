//! Workers to watch, and the agent's binary to watch them.
#![allow(dead_code, reason = "each test binary includes this file and uses a part of it")]

pub(crate) mod worker;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use inflightd::clock::Clock;
use inflightd_core::Nanos;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const MINUTE: Nanos = Nanos::from_secs(60);

/// Polls `what` every 20 ms, for a minute at most, however long one look takes.
pub(crate) fn within_a_minute<T>(mut what: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Clock::now();
    while Clock::now().since(begun) < MINUTE {
        if let Some(found) = what() {
            return Some(found);
        }
        thread::sleep(Duration::from_millis(20));
    }
    what()
}

/// Takes turns: each test has the machine's probes to itself.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The Python that has the hook: `INFLIGHTD_VENV`, else the repository's `.venv`.
pub(crate) fn python() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let venv = std::env::var_os("INFLIGHTD_VENV").map_or_else(|| root.join(".venv"), PathBuf::from);
    let python = venv.join("bin/python");
    assert!(
        python.exists(),
        "{} does not exist: `cargo xtask setup` makes the environment with the hook, or \
         INFLIGHTD_VENV names another",
        python.display()
    );
    python
}

/// Where that Python has its packages.
pub(crate) fn packages() -> PathBuf {
    let print = "import inflightd_hook as hook; print(hook.__path__[0])";
    let output = Command::new(python()).args(["-c", print]).output().unwrap();
    let hook = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
    // As `/proc` names files.
    std::fs::canonicalize(hook.parent().unwrap()).unwrap()
}

/// NIXL's parts among them, UCX included.
pub(crate) const NIXL: [&str; 3] = ["nixl_cu12", ".nixl_cu12.mesonpy.libs", "nixl_cu12.libs"];

/// A process that is, or pretends to be, a worker.
pub(crate) struct Worker {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Worker {
    /// This test binary as a worker of a kind that `worker::main` knows: a table without marks.
    pub(crate) fn table(kind: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "as_a_worker", "--nocapture"]).env(worker::KIND, kind);
        Self::start(&mut command)
    }

    /// A Python process with the real hook.
    pub(crate) fn hooked() -> Self {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        Self::start(Command::new(python()).arg(tests.join("agent_support/worker.py")))
    }

    /// The same in mount, pid and network namespaces of its own, with its own copy of the hook on
    /// a file system that only it sees. The worker is the only child of the process started.
    pub(crate) fn apart() -> Self {
        Self::apart_with("worker.py", &["inflightd_hook"])
    }

    /// Such a worker by a script of `agent_support`, with its own copies of these parts of
    /// `site-packages`.
    fn apart_with(script: &str, parts: &[&str]) -> Self {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        let steps = "site=$1; script=$2; shift 2; ip link set lo up && \
                     mount -t tmpfs tmpfs /mnt && for part; do cp -r \"$site/$part\" /mnt; done && \
                     mount -t tmpfs tmpfs /dev/shm && PYTHONPATH=/mnt exec $0 $script";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--net", "--fork", "--kill-child", "--mount-proc"]);
        command.args(["sh", "-c", steps]).arg(python()).arg(packages());
        Self::start(command.arg(tests.join("agent_support").join(script)).args(parts))
    }

    /// A Python process with the real hook that loads the real NIXL when it is told to: that of
    /// another directory where one is given.
    pub(crate) fn nixl(directory: Option<&Path>) -> Self {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        let mut command = Command::new(python());
        if let Some(directory) = directory {
            command.env("PYTHONPATH", directory);
        }
        Self::start(command.arg(tests.join("agent_support/nixl.py")))
    }

    /// An engine of so many ranks in one process that does what the agent asks of a room, or with
    /// `deaf` does not.
    pub(crate) fn ranks(size: usize, how: &str) -> Self {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        let mut command = Command::new(python());
        command.arg(tests.join("agent_support/ranks.py")).arg(size.to_string()).arg(how);
        Self::start(&mut command)
    }

    /// The same in namespaces of its own, with its own copies of hook, NIXL and UCX.
    pub(crate) fn nixl_apart() -> Self {
        Self::apart_with("nixl.py", &[&["inflightd_hook"], &NIXL[..]].concat())
    }

    /// A process with a connection to itself in a network namespace of its own, and its port.
    pub(crate) fn in_namespace() -> (Self, u16) {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        let (worker, port) =
            Self::begin(Command::new(python()).arg(tests.join("agent_support/netns.py")));
        (worker, port.parse().unwrap())
    }

    /// A Python script as a worker, and what it says with `@ready`.
    pub(crate) fn telling(python: &Path, script: &Path) -> (Self, String) {
        Self::begin(Command::new(python).arg(script))
    }

    /// A scheduler of SGLang as far as its load snapshot shows one, without the hook.
    pub(crate) fn sglang(snapshot: &Path) -> Self {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        let mut command = Command::new(python());
        Self::start(command.arg(tests.join("agent_support/sglang.py")).arg(snapshot).arg("run"))
    }

    fn start(command: &mut Command) -> Self {
        Self::begin(command).0
    }

    fn begin(command: &mut Command) -> (Self, String) {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut worker = Self {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
        };
        let ready = worker.answer("ready");
        (worker, ready)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The only child of the process that was started: the worker, where that one is apart.
    pub(crate) fn child(&self) -> u32 {
        let children = format!("/proc/{0}/task/{0}/children", self.pid());
        let child = || std::fs::read_to_string(&children).unwrap().trim().parse().ok();
        within_a_minute(child).expect("the worker runs")
    }

    /// Tells it something; gives the rest of the line that answers with `word`.
    pub(crate) fn ask(&mut self, what: &str, word: &str) -> String {
        writeln!(self.stdin.as_mut().unwrap(), "{what}").unwrap();
        self.answer(word)
    }

    /// Sequences that it appended until now, all removed.
    pub(crate) fn stop(&mut self) -> Vec<u64> {
        let seqs = self.ask("stop", "seqs");
        seqs.split_whitespace().map(|seq| seq.parse().unwrap()).collect()
    }

    fn answer(&mut self, word: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let len = self.stdout.read_line(&mut line).unwrap();
            assert!(len > 0, "the worker ended before it said {word}");
            // The test harness of this binary says more than the worker does.
            if let Some(at) = line.find(&format!("@{word}")) {
                return line[at + word.len() + 1..].trim().to_owned();
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stdin.take();
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A running `inflightd run --json`.
pub(crate) struct Agent {
    child: Child,
    lines: Arc<Mutex<Vec<Value>>>,
    reader: Option<JoinHandle<()>>,
}

/// `inflightd` with these arguments.
pub(crate) fn inflightd(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_inflightd"));
    command.args(arguments);
    command
}

impl Agent {
    /// Starts one on a state directory.
    pub(crate) fn start(state: &Path, arguments: &[&str]) -> Self {
        let mut command = inflightd(&["run", "--json", "--log", "warn", "--state-dir"]);
        Self::of(command.arg(state).args(arguments))
    }

    /// Starts one by a command of the caller's.
    pub(crate) fn of(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&lines);
        let reader = thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                // The last line of a killed agent may be cut.
                if let Ok(line) = serde_json::from_str(&line) {
                    sink.lock().unwrap().push(line);
                }
            }
        });
        Self { child, lines, reader: Some(reader) }
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lines about a process until now, of one type.
    pub(crate) fn lines(&self, pid: u32, kind: &str) -> Vec<Value> {
        of(&self.lines.lock().unwrap(), pid, kind)
    }

    /// How many they are.
    pub(crate) fn count(&self, pid: u32, kind: &str) -> usize {
        self.lines.lock().unwrap().iter().filter(|line| is(line, pid, kind)).count()
    }

    /// Waits for a line about a process, of one type, that `fits`.
    pub(crate) fn wait_for(&self, pid: u32, kind: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let found = within_a_minute(|| {
            let lines = self.lines.lock().unwrap();
            lines.iter().find(|line| is(line, pid, kind) && fits(line)).cloned()
        });
        found.unwrap_or_else(|| panic!("no such {kind} of {pid}: {:#?}", self.lines(pid, kind)))
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Ends it and gives every line that it wrote.
    pub(crate) fn end(mut self, signal: Signal) -> (Vec<Value>, ExitStatus) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
        let status = self.child.wait().unwrap();
        self.reader.take().unwrap().join().unwrap();
        (std::mem::take(&mut *self.lines.lock().unwrap()), status)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Those of the lines that are about a process and of a type.
pub(crate) fn of(lines: &[Value], pid: u32, kind: &str) -> Vec<Value> {
    lines.iter().filter(|line| is(line, pid, kind)).cloned().collect()
}

fn is(line: &Value, pid: u32, kind: &str) -> bool {
    line["type"] == kind && line["worker"]["pid"] == pid
}

/// How a source sees, and why not better, as a coverage line says.
pub(crate) fn sight(coverage: &Value, source: &str) -> (String, Option<String>) {
    let fields = coverage["coverage"].as_array().unwrap();
    let field = fields.iter().find(|field| field["source"] == source).unwrap();
    let text = |key: &str| field[key].as_str().map(str::to_owned);
    (text("sight").unwrap(), text("why"))
}
