//! `inflightd fail` beside a case, and whether it says what is right.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::agent::binary;
use super::scratch::Scratch;

/// Asks the agent of a run to fail a room. What it said where that is not `decision`, or not refused
/// with `refused`.
pub(crate) fn ask_to_fail(
    program: Option<&Path>,
    scratch: &Scratch,
    room: u64,
    (decision, refused): (&str, Option<&str>),
) -> Result<Option<String>> {
    let mut command = Command::new(program.map_or_else(binary, Path::to_owned));
    command.args(["fail", &room.to_string(), "--yes", "--json", "--state-dir"]);
    let output = command.arg(scratch.path("state")).output().context("asking the agent")?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let answer: Value = serde_json::from_str(&told).unwrap_or_default();
    let fail = answer.get("fail");
    let given = fail.and_then(|fail| fail.get("decision")?.as_str());
    let code = fail.and_then(|fail| fail.get("refused")?.get("code")?.as_str());
    if given == Some(decision) && code == refused {
        return Ok(None);
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(Some(format!("asked to fail it: {told}{said}, right is {decision} {refused:?}")))
}
