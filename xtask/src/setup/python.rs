//! The Python side: a virtual environment with NIXL, numpy and this project's own hook.

use std::hash::{DefaultHasher, Hasher as _};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::clock::Moment;
use crate::shell::{Step, version_of};
use crate::tree;

/// What the hook's wheel is built from.
const HOOK_SOURCES: [&str; 3] = ["hook/", "ebpf/abi/", "Cargo.toml"];

/// The versions of what is installed.
const PINS: [&str; 2] = ["xtask/pair/requirements.txt", "xtask/surroundings/requirements.txt"];

/// The interpreter of the virtual environment.
pub(crate) fn venv_python() -> PathBuf {
    tree::root().join(".venv/bin/python")
}

/// A command of that interpreter in the root.
pub(crate) fn python(args: &[&str]) -> Command {
    let mut command = Command::new(venv_python());
    command.current_dir(tree::root()).args(args);
    command
}

/// Make the environment and install what is missing in it.
pub(crate) fn install() -> Result<()> {
    environment()?;
    parts()?;
    sglang()?;
    hook()
}

/// Where the tests find the sources of SGLang's wheels, which the hook's plugin is tested against.
pub(crate) fn sglang_wheels() -> (&'static str, PathBuf) {
    ("INFLIGHTD_SGLANG_WHEELS", tree::target().join("parts/sglang"))
}

fn sglang() -> Result<()> {
    let step = Step {
        what: "SGLang's sources are there",
        fix: "the Python registry must be reachable: 90 MB of wheels are fetched once",
    };
    let (variable, folder) = sglang_wheels();
    let mut fetch = python(&["hook/python/tests/sglang_fetch.py"]);
    step.run(fetch.env(variable, folder)).map(drop)
}

fn environment() -> Result<()> {
    if venv_python().exists() {
        return Ok(());
    }
    if version_of("python3").is_none() {
        super::apt::fetch(&["python3", "python3-venv"])?;
    }
    let step = Step {
        what: "making the Python environment .venv",
        fix: "Python 3.11 or later with venv is needed (Debian: apt-get install python3-venv)",
    };
    step.run(Command::new("python3").current_dir(tree::root()).args(["-m", "venv", ".venv"]))
        .map(drop)
}

/// The pinned parts, without what they would pull in: NIXL's CPU path needs neither torch nor CUDA.
fn parts() -> Result<()> {
    let mut wanted = String::new();
    for pins in PINS {
        wanted += &std::fs::read_to_string(tree::root().join(pins))
            .with_context(|| format!("reading {pins}"))?;
    }
    let stamp = tree::root().join(".venv/parts");
    let begun = Moment::now();
    if std::fs::read_to_string(&stamp).is_ok_and(|done| done == wanted) {
        Step { what: "Python parts are there", fix: "" }.tell(begun);
        return Ok(());
    }
    let step = Step {
        what: "installing NIXL, numpy, the OTLP stubs, kubernetes-validate and what they need",
        fix: "the Python registry must be reachable; wheels exist for Python 3.11 to 3.13 on x86-64",
    };
    let mut install = python(&["-m", "pip", "install", "--quiet", "--no-deps"]);
    step.run(install.args(PINS.iter().flat_map(|pins| ["-r", pins])))?;
    std::fs::write(&stamp, wanted).with_context(|| format!("writing {}", stamp.display()))
}

/// This project's hook, built again when a file that goes into it has changed.
fn hook() -> Result<()> {
    let begun = Moment::now();
    let wanted = digest()?;
    let stamp = tree::root().join(".venv/hook");
    if std::fs::read_to_string(&stamp).is_ok_and(|done| done == wanted) {
        Step { what: "the Python hook is up to date", fix: "" }.tell(begun);
        return Ok(());
    }
    let step = Step {
        what: "building and installing the Python hook",
        fix: "see the lines above; `cargo build -p libinflight --release` must work",
    };
    step.run(&mut python(&[
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--force-reinstall",
        "./hook/python",
    ]))?;
    std::fs::write(&stamp, wanted).with_context(|| format!("writing {}", stamp.display()))
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
