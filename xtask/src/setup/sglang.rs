//! A real SGLang on this machine's CPU: an environment of its own, for `e2e sglang` only.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::python::Venv;
use crate::shell::Step;
use crate::tree;

/// 6 GB, half of it libraries for GPUs: there is no torch without them in the registry, and torch
/// links them.
const VENV: Venv = Venv {
    dir: ".venv-sglang",
    pins: &["xtask/sglang/requirements.txt"],
    parts: "SGLang 0.5.23, torch and what they need, 6 GB",
};
/// What makes the model.
const MODEL: &str = "xtask/sglang/model.py";

/// A command of the interpreter that has SGLang, in the root.
pub(crate) fn sglang_python(args: &[&str]) -> Command {
    VENV.command(args)
}

/// Where the tiny model lies.
pub(crate) fn sglang_model() -> PathBuf {
    VENV.path("model")
}

/// Install SGLang with the hook, and make the model, where they are missing.
pub(crate) fn sglang() -> Result<()> {
    VENV.install()?;
    let wanted = tree::text(MODEL.as_ref())?.with_context(|| format!("{MODEL} is not there"))?;
    let step = Step { what: "making a tiny model", fix: "see the lines above" };
    VENV.unless_done("model.made", &wanted, "the tiny model is there", || {
        step.run(VENV.command(&[MODEL]).arg(sglang_model()))
    })
}
