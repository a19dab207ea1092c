//! `check`: everything that needs no root, no venv and no test run.

mod bounds;
mod hosts;

use std::process::Command;

use anyhow::{Result, bail};

use crate::clock::Moment;
use crate::say;
use crate::setup::{BPF_RUSTC, has_debian_bpf};
use crate::shell::{Step, version_of};
use crate::tree::{cargo, target};

const DENY: &str = "0.20.2";
const BPF_TARGET: &str = "bpfel-unknown-none";
/// The crates that a plain build for this machine leaves out.
const APART: [&str; 4] = ["--exclude", "inflightd-ebpf", "--exclude", "libinflight"];

/// A check by its name.
type Check = (&'static str, fn(Step<'_>) -> Result<()>);

const CHECKS: [Check; 9] = [
    ("formatting", formatting),
    ("registry hosts", |_| hosts::check()),
    ("bounds", |_| bounds::check()),
    ("purity of the core", purity),
    ("lints", lints),
    ("lints of libinflight", lints_of_marker),
    ("lints of the kernel programs", lints_of_probes),
    ("documentation", documentation),
    ("licences and sources", deny),
];

/// Run every check; all of them, so that one run names all that is wrong.
pub(crate) fn run() -> Result<()> {
    let begun = Moment::now();
    let mut bad = Vec::new();
    for (what, check) in CHECKS {
        let begun = Moment::now();
        let step =
            Step { what, fix: "mend what the lines above name, then run `cargo xtask check`" };
        match check(step) {
            Ok(()) => step.tell(begun),
            Err(error) => {
                say::line(format_args!("  {what} … failed\n{error:#}"));
                bad.push(what);
            }
        }
    }
    let took = Moment::now().seconds_after(begun) / 60.0;
    say::line(format_args!("check … {took:.1} min"));
    if !bad.is_empty() {
        bail!("failed: {}", bad.join(", "));
    }
    Ok(())
}

fn formatting(step: Step<'_>) -> Result<()> {
    let step = Step { fix: "`cargo fmt --all`", ..step };
    step.quietly(&mut cargo(&["fmt", "--all", "--check"])).map(drop)
}

fn lints(step: Step<'_>) -> Result<()> {
    let mut clippy = cargo(&["clippy", "--workspace"]);
    clippy.args(APART).args(["--all-targets", "--quiet", "--", "-D", "warnings"]);
    step.quietly(&mut clippy).map(drop)
}

/// Apart from the rest: its panic handler clashes with std's in one build.
fn lints_of_marker(step: Step<'_>) -> Result<()> {
    let mut clippy =
        cargo(&["clippy", "--quiet", "--package", "libinflight", "--", "-D", "warnings"]);
    step.quietly(&mut clippy).map(drop)
}

/// On this machine's target: clippy knows no library for the kernel's. The same sources compile
/// there, and what the kernel's target alone refuses the build of the agent finds.
fn lints_of_probes(step: Step<'_>) -> Result<()> {
    let mut clippy = cargo(&["clippy", "--quiet", "--package", "inflightd-ebpf"]);
    clippy.args(["--target-dir"]).arg(target().join("lint-ebpf"));
    clippy.args(["--", "-D", "warnings"]);
    clippy.env("RUSTC_BOOTSTRAP", "1");
    clippy.env("CARGO_ENCODED_RUSTFLAGS", "--cfg=bpf_target_arch=\"x86_64\"\x1f-Cpanic=abort");
    step.quietly(&mut clippy).map(drop)
}

fn documentation(step: Step<'_>) -> Result<()> {
    let mut doc =
        cargo(&["doc", "--workspace", "--no-deps", "--document-private-items", "--quiet"]);
    doc.args(APART).env("RUSTDOCFLAGS", "-D warnings");
    step.quietly(&mut doc).map(drop)
}

/// The core must not reach for a clock, a file, a thread or the environment. A target that has no
/// standard library proves it.
fn purity(step: Step<'_>) -> Result<()> {
    let mut build = if has_debian_bpf() {
        let mut build = cargo(&["build"]);
        build.env("RUSTC", BPF_RUSTC).env("RUSTC_BOOTSTRAP", "1");
        build
    } else {
        let mut build = Command::new("cargo");
        build.current_dir(crate::tree::root());
        build.args(["+nightly", "build", "-Z", "build-std=core,alloc"]);
        build
    };
    build.args(["--quiet", "--package", "inflightd-core", "--target", BPF_TARGET, "--target-dir"]);
    build.arg(target().join("purity"));
    let step = Step {
        fix: "keep std out of agent/core; the tool chain for the target comes by `cargo xtask setup`",
        ..step
    };
    step.quietly(&mut build).map(drop)
}

fn deny(step: Step<'_>) -> Result<()> {
    if version_of("cargo-deny").is_none_or(|text| !text.ends_with(DENY)) {
        let step =
            Step { what: "installing cargo-deny", fix: "the crate registry must be reachable" };
        let mut install = cargo(&["install", "cargo-deny", "--locked", "--version", DENY]);
        step.run(install.env_remove("CARGO_TARGET_DIR").current_dir("/"))?;
    }
    // cargo-deny reads the crates of every platform, of which a build fetches only its own.
    let fetch = Step {
        what: "fetching the crates of other platforms",
        fix: "the crate registry must be reachable",
    };
    fetch.quietly(&mut cargo(&["fetch", "--locked", "--quiet"]))?;
    let mut check = cargo(&["deny", "--offline", "--log-level", "error", "check"]);
    step.quietly(check.args(["bans", "licenses", "sources"])).map(drop)
}
