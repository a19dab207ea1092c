//! bpf-linker, which turns LLVM bitcode into the object the kernel loads.

use std::process::Command;

use anyhow::Result;

use super::apt::has_debian_bpf;
use crate::clock::Moment;
use crate::shell::{Step, version_of};

/// The release of bpf-linker.
pub(crate) const VERSION: &str = "0.13.0";
/// Where Debian's LLVM 22 lies. bpf-linker's build and `llvm-sys` ask for it under different names.
const LLVM: &str = "/usr/lib/llvm-22";

/// Install bpf-linker where it is missing or another version.
pub(crate) fn install() -> Result<()> {
    let begun = Moment::now();
    if version_of("bpf-linker").is_some_and(|text| text.ends_with(VERSION)) {
        Step { what: "bpf-linker is there", fix: "" }.tell(begun);
        return Ok(());
    }
    let step = Step {
        what: "installing bpf-linker (some minutes)",
        fix: "it needs llvm-22-dev and a C compiler; then run `cargo xtask setup` again",
    };
    let mut cargo = Command::new("cargo");
    cargo.args(["install", "bpf-linker", "--locked", "--version", VERSION]);
    if has_debian_bpf() {
        cargo.args(["--no-default-features", "--features", "llvm-22"]);
        cargo.env("LLVM_PREFIX", LLVM).env("LLVM_SYS_221_PREFIX", LLVM);
    }
    // Not into this workspace's target directory, and not with its flags.
    cargo.env_remove("CARGO_TARGET_DIR").env_remove("RUSTFLAGS").current_dir("/");
    step.run(&mut cargo).map(drop)
}
