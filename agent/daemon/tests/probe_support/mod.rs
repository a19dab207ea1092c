//! What the tests on the real kernel share: rights, a process to probe, waiting with a bound.
#![allow(dead_code, reason = "each test binary includes this file and uses a part of it")]

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Mutex, MutexGuard},
    thread,
    time::Duration,
};

use inflightd::clock::Clock;
use inflightd::probe::{Options, Probes};
use inflightd_abi::record::Record;
use inflightd_core::Nanos;

const MINUTE: Nanos = Nanos::from_secs(60);

/// Loads the probes. Without root that is a failure that says so: a skipped test proves nothing.
pub(crate) fn load(options: Options) -> Probes {
    match Probes::load(options) {
        Ok(probes) => probes,
        Err(error) => panic!("this test needs root on a kernel with BPF and uprobes: {error:?}"),
    }
}

/// Takes turns: the tests of one binary measure the same machine.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Drains until `enough` says so, at most about a minute; gives what came.
pub(crate) fn drain_until(
    probes: &mut Probes,
    mut enough: impl FnMut(&[Record]) -> bool,
) -> Vec<Record> {
    let mut records = Vec::new();
    let begun = Clock::now();
    while Clock::now().since(begun) < MINUTE {
        let stats = probes.drain(&mut |record| records.push(record));
        assert_eq!(stats.malformed, 0);
        if enough(&records) {
            return records;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("not enough records after a minute: {}", summary(&records));
}

/// Records counted by kind.
pub(crate) fn summary(records: &[Record]) -> String {
    let mut kinds: Vec<u32> = records.iter().map(|record| record.head().kind).collect();
    kinds.sort_unstable();
    kinds
        .chunk_by(|a, b| a == b)
        .map(|chunk| format!("{} of kind {}", chunk.len(), chunk[0]))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The test target: `target.c` with the marks of `marks.c`.
pub(crate) struct Target {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    folder: tempfile::TempDir,
}

fn compile(arguments: &[&str], out: &Path) {
    let compiled = Command::new("cc")
        .args(["-O1", "-Wall", "-o"])
        .arg(out)
        .args(arguments)
        .output()
        .expect("these tests need the C compiler `cc`");
    assert!(compiled.status.success(), "cc: {}", String::from_utf8_lossy(&compiled.stderr));
}

/// How the marks come into the target.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// By a library of this name.
    Named(&'static str),
    /// Linked into the program, which exports them.
    Static,
    /// Linked into the program, which exports nothing.
    StaticUnexported,
}

/// A folder with the program `target` and its library.
fn compile_target(shape: Shape, defines: &[&str]) -> tempfile::TempDir {
    let support = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/probe_support");
    let source = |name: &str| support.join(name).to_str().unwrap().to_owned();
    let folder = tempfile::tempdir().unwrap();
    let (main, marks) = (source("target.c"), source("marks.c"));
    let mut whole = vec![main.as_str(), "-Wl,-rpath,$ORIGIN", "-pthread"];
    whole.extend(defines);
    let library = match shape {
        Shape::Named(name) => {
            let library = folder.path().join(name);
            let soname = format!("-Wl,--build-id,-soname,{name}");
            let mut shared = vec!["-shared", "-fPIC", &soname, &marks];
            shared.extend(defines);
            compile(&shared, &library);
            library.to_str().unwrap().to_owned()
        }
        Shape::Static => {
            whole.push("-rdynamic");
            marks
        }
        Shape::StaticUnexported => marks,
    };
    whole.push(&library);
    compile(&whole, &folder.path().join("target"));
    folder
}

const NAMED: Shape = Shape::Named("libinflight-test.so");

impl Target {
    /// Compiles and starts the target; `defines` choose the shape of the marks.
    pub(crate) fn start(defines: &[&str]) -> Self {
        Self::in_folder(compile_target(NAMED, defines))
    }

    /// Compiles and starts the target with its marks in another place.
    pub(crate) fn shaped(shape: Shape) -> Self {
        Self::in_folder(compile_target(shape, &[]))
    }

    fn in_folder(folder: tempfile::TempDir) -> Self {
        let command = Command::new(folder.path().join("target"));
        Self::run(command, folder)
    }

    /// A second process of the same files. The first must outlive it.
    pub(crate) fn again(&self) -> Self {
        let command = Command::new(self.folder.path().join("target"));
        Self::run(command, tempfile::tempdir().unwrap())
    }

    /// Two processes of one program, each in an overlay of its own over the same folder.
    pub(crate) fn in_two_overlays() -> (Self, Self) {
        let folder = compile_target(NAMED, &[]);
        let here = folder.path().display().to_string();
        let start = |name: &str, folder| {
            // The upper layers lie on a tmpfs: not every file system may be one.
            let script = format!(
                "mkdir {here}/{name} && mount -t tmpfs tmpfs {here}/{name} && cd {here}/{name} && \
                 mkdir up work all && mount -t overlay overlay \
                 -o lowerdir={here},upperdir=up,workdir=work all && exec all/target"
            );
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c", &script]);
            Self::run(command, folder)
        };
        let second = start("second", tempfile::tempdir().unwrap());
        (start("first", folder), second)
    }

    /// Puts another file in the place of its library, as an upgrade does.
    pub(crate) fn upgrade(&self) {
        let library = self.folder.path().join("libinflight-test.so");
        std::fs::remove_file(&library).unwrap();
        std::fs::write(&library, "not a library").unwrap();
    }

    /// Becomes another program, in the same process.
    pub(crate) fn exec(&mut self) {
        writeln!(self.stdin.as_mut().unwrap(), "exec").unwrap();
        let name = format!("/proc/{}/comm", self.pid());
        for _ in 0..3000 {
            if std::fs::read(&name).unwrap() == b"sleep\n" {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("the target did not become another program");
    }

    /// Starts the target in a mount namespace of its own, from a file system that only it sees.
    pub(crate) fn start_apart() -> Self {
        let folder = compile_target(NAMED, &[]);
        let here = folder.path().display().to_string();
        let script = format!(
            "mkdir {here}/apart && mount -t tmpfs tmpfs {here}/apart && \
             cp {here}/target {here}/*.so {here}/apart && exec {here}/apart/target"
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script]);
        Self::run(command, folder)
    }

    fn run(mut command: Command, folder: tempfile::TempDir) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut target = Self {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
            folder,
        };
        target.tell("ready");
        target
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives a command and waits for its end; gives the number that it answers with.
    pub(crate) fn tell(&mut self, command: &str) -> f64 {
        writeln!(self.stdin.as_mut().unwrap(), "{command}").unwrap();
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let number = line.trim().strip_prefix("ok ").expect("the target answers");
        number.parse().unwrap()
    }

    /// Closes its standard input and waits for its end.
    pub(crate) fn end(&mut self) {
        drop(self.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
