//! Building the library and the engine, driving the engine, mapping its table.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

use inflightd_abi::table::{EntryView, MEMFD_NAME, Seq, Table};
use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::mm::{MapFlags, ProtFlags};

fn target_dir() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target directory")
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|why| panic!("{command:?}: {why}"));
    assert!(status.success(), "{command:?}: {status}");
}

/// The library as engines load it.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--profile", "hook", "--package", "libinflight"]);
        run(cargo.arg("--target-dir").arg(target_dir()).current_dir(env!("CARGO_MANIFEST_DIR")));
        target_dir().join("hook/libinflight.so")
    })
}

fn engine_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("engine");
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2", "-pthread", "-o"]);
        cc.arg(&program).arg(here.join("tests/engine.c")).arg("-I").arg(here.join("include"));
        run(cc.arg(library()).arg(format!("-Wl,-rpath,{}", target_dir().join("hook").display())));
        program
    })
}

/// A running engine.c.
pub(crate) struct Engine {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Engine {
    pub(crate) fn start() -> Self {
        let mut process = Command::new(engine_program())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("engine.c starts");
        let input = process.stdin.take().expect("its input");
        let output = BufReader::new(process.stdout.take().expect("its output"));
        Self { process, input, output }
    }

    /// An engine that has opened its table, and that table.
    pub(crate) fn opened() -> (Self, Mapped) {
        let mut engine = Self::start();
        assert_eq!(engine.ask("open"), "0");
        let table = Mapped::of(engine.pid());
        (engine, table)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Sends a command without waiting for its answer.
    pub(crate) fn tell(&mut self, command: &str) {
        writeln!(self.input, "{command}").expect("the engine reads");
    }

    /// Sends a command and returns its answer.
    pub(crate) fn ask(&mut self, command: &str) -> String {
        self.tell(command);
        self.answer()
    }

    pub(crate) fn answer(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the engine answers");
        assert!(!line.is_empty(), "the engine died: {:?}", self.process.wait());
        line.trim_end().to_owned()
    }

    pub(crate) fn number(&mut self, command: &str) -> u64 {
        self.ask(command).parse().expect("a number")
    }

    pub(crate) fn append(&mut self, room: u64) -> Seq {
        Seq(self.number(&format!("append {room}")))
    }

    pub(crate) fn assert_alive(&mut self) {
        let ended = self.process.try_wait().expect("the engine is ours");
        assert!(ended.is_none(), "the engine died: {ended:?}");
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("the engine is ours");
        self.process.wait().expect("the engine is ours");
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // It may have been killed already.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// A table mapped from outside, as the agent does it.
pub(crate) struct Mapped {
    words: &'static [AtomicU64],
}

impl Mapped {
    /// The table of the only worker of `pid`.
    pub(crate) fn of(pid: u32) -> Self {
        Self::with(pid, ProtFlags::READ)
    }

    /// The same, to hold its rooms.
    pub(crate) fn writable(pid: u32) -> Self {
        Self::with(pid, ProtFlags::READ | ProtFlags::WRITE)
    }

    fn with(pid: u32, access: ProtFlags) -> Self {
        let mut options = OpenOptions::new();
        options.read(true).write(access.contains(ProtFlags::WRITE));
        let file = options.open(table_path(pid)).expect("map_files opens (are we root?)");
        let seals = fcntl_get_seals(&file).expect("a memfd");
        let needed = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        assert!(seals.contains(needed), "{seals:?}");
        let bytes = usize::try_from(fstat(&file).expect("its size").st_size).expect("its size");
        // SAFETY: a new mapping; the file is sealed, so it cannot shrink under it, and it is
        // never unmapped.
        let words = unsafe {
            let null = std::ptr::null_mut();
            let at = rustix::mm::mmap(null, bytes, access, MapFlags::SHARED, &file, 0);
            std::slice::from_raw_parts(at.expect("mapped").cast(), bytes / 8)
        };
        Self { words }
    }

    pub(crate) fn table(&self) -> Table<'static> {
        Table::open(self.words).expect("a whole table")
    }

    pub(crate) fn entry(&self, seq: Seq) -> EntryView {
        let slot = seq.slot().expect("a slot");
        let view = self.table().entry(slot).expect("not torn").expect("a used slot");
        assert_eq!(view.seq, seq);
        view
    }
}

/// Where the table of `pid` can be opened.
pub(crate) fn table_path(pid: u32) -> PathBuf {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("the engine runs");
    let name = format!("/memfd:{MEMFD_NAME} (deleted)");
    let lines: Vec<_> = maps.lines().filter(|line| line.ends_with(&name)).collect();
    assert_eq!(lines.len(), 1, "{maps}");
    let range = lines[0].split(' ').next().expect("a range");
    PathBuf::from(format!("/proc/{pid}/map_files/{range}"))
}
