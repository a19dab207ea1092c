//! The Python side: virtual environments with pinned parts and this project's own hook.

use std::hash::{DefaultHasher, Hasher as _};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::apt;
use crate::clock::Moment;
use crate::shell::{Step, version_of};
use crate::tree;

/// What the hook's wheel is built from.
const HOOK_SOURCES: [&str; 3] = ["hook/", "ebpf/abi/", "Cargo.toml"];

/// A virtual environment of this checkout.
pub(super) struct Venv {
    /// Its directory, below the root.
    pub(super) dir: &'static str,
    /// Files with the pinned versions of what is installed in it.
    pub(super) pins: &'static [&'static str],
    /// What those are, as a person would say it.
    pub(super) parts: &'static str,
}

/// The one that everything but a real SGLang runs in.
const VENV: Venv = Venv {
    dir: ".venv",
    pins: &["xtask/pair/requirements.txt", "xtask/surroundings/requirements.txt"],
    parts: "NIXL, Mooncake, numpy, the OTLP stubs, kubernetes-validate and what they need",
};

/// What Mooncake's engine links and its wheel does not bring: Debian's package, and the library
/// by which it is known to be there.
const LIBRARIES: [(&str, &str); 3] = [
    ("libcurl4", "libcurl.so.4"),
    ("libibverbs1", "libibverbs.so.1"),
    ("libnuma1", "libnuma.so.1"),
];
/// The interpreter of the virtual environment.
pub(crate) fn venv_python() -> PathBuf {
    VENV.interpreter()
}

/// A command of that interpreter in the root.
pub(crate) fn python(args: &[&str]) -> Command {
    VENV.command(args)
}

/// Make the environment and install what is missing in it.
pub(crate) fn install() -> Result<()> {
    apt::want_libraries(&LIBRARIES)?;
    VENV.make()?;
    VENV.install_parts()?;
    fetch_wheels()?;
    VENV.install_hook()
}

/// Where the tests find the sources of SGLang's wheels, which the hook's plugin is tested against.
pub(crate) fn sglang_wheels() -> (&'static str, PathBuf) {
    ("INFLIGHTD_SGLANG_WHEELS", tree::target().join("parts/sglang"))
}

fn fetch_wheels() -> Result<()> {
    let step = Step {
        what: "SGLang's sources are there",
        fix: "the Python registry must be reachable: 90 MB of wheels are fetched once",
    };
    let (variable, folder) = sglang_wheels();
    let mut fetch = python(&["hook/python/tests/sglang_fetch.py"]);
    step.run(fetch.env(variable, folder)).map(drop)
}

impl Venv {
    /// Its interpreter.
    pub(super) fn interpreter(&self) -> PathBuf {
        self.path("bin/python")
    }

    /// A file in it.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        tree::root().join(self.dir).join(name)
    }

    /// A command of its interpreter in the root.
    pub(super) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.interpreter());
        command.current_dir(tree::root()).args(args);
        command
    }

    /// Make it and install what is missing in it.
    pub(super) fn install(&self) -> Result<()> {
        self.make()?;
        self.install_parts()?;
        self.install_hook()
    }

    fn make(&self) -> Result<()> {
        if self.interpreter().exists() {
            return Ok(());
        }
        if version_of("python3").is_none() {
            apt::fetch(&["python3", "python3-venv"])?;
        }
        let what = format!("making the Python environment {}", self.dir);
        let step = Step {
            what: &what,
            fix: "Python 3.11 or later with venv is needed (Debian: apt-get install python3-venv)",
        };
        let mut make = Command::new("python3");
        step.run(make.current_dir(tree::root()).args(["-m", "venv", self.dir])).map(drop)
    }

    /// The pinned parts, without what they would pull in: NIXL's CPU path needs neither torch nor
    /// CUDA.
    fn install_parts(&self) -> Result<()> {
        let mut wanted = String::new();
        for pins in self.pins {
            wanted += &std::fs::read_to_string(tree::root().join(pins))
                .with_context(|| format!("reading {pins}"))?;
        }
        let what = format!("installing {}", self.parts);
        let step = Step {
            what: &what,
            fix: "the Python registry must be reachable; wheels exist for Python 3.11 to 3.13 on \
                  x86-64",
        };
        let mut install = self.command(&["-m", "pip", "install", "--quiet", "--no-deps"]);
        install.arg("--no-compile").args(self.pins.iter().flat_map(|pins| ["-r", pins]));
        self.unless_done("parts", &wanted, "Python parts are there", || step.run(&mut install))
    }

    /// This project's hook, built again when a file that goes into it has changed.
    fn install_hook(&self) -> Result<()> {
        let step = Step {
            what: "building and installing the Python hook",
            fix: "see the lines above; `cargo build -p libinflight --release` must work",
        };
        let mut install = self.command(&["-m", "pip", "install", "--quiet", "--no-deps"]);
        install.args(["--force-reinstall", "./hook/python"]);
        let wanted = digest()?;
        self.unless_done("hook", &wanted, "the Python hook is up to date", || {
            step.run(&mut install)
        })
    }

    /// Do what makes `wanted` true, unless the stamp says that it has been done.
    pub(super) fn unless_done(
        &self,
        stamp: &str,
        wanted: &str,
        there: &str,
        work: impl FnOnce() -> Result<String>,
    ) -> Result<()> {
        let begun = Moment::now();
        let stamp = self.path(stamp);
        if std::fs::read_to_string(&stamp).is_ok_and(|done| done == wanted) {
            Step { what: there, fix: "" }.tell(begun);
            return Ok(());
        }
        work()?;
        std::fs::write(&stamp, wanted).with_context(|| format!("writing {}", stamp.display()))
    }
}

/// A digest of every file that goes into the wheel: names and contents.
fn digest() -> Result<String> {
    let mut hasher = DefaultHasher::new();
    for file in tree::files()? {
        let name = file.to_string_lossy();
        if HOOK_SOURCES.iter().any(|source| name.starts_with(source)) {
            hasher.write(name.as_bytes());
            hasher.write(tree::text(&file)?.unwrap_or_default().as_bytes());
        }
    }
    Ok(format!("{:016x}", hasher.finish()))
}
