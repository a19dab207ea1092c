//! The repository: its root and the files that belong to it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::shell::Step;

/// The root of this checkout.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// The commit that this work tree stands on.
pub(crate) fn commit() -> Result<String> {
    let step = Step { what: "asking git for the commit", fix: "run from a git checkout" };
    let mut git = Command::new("git");
    git.current_dir(root()).args(["rev-parse", "HEAD"]);
    Ok(step.quietly(&mut git)?.trim().to_owned())
}

/// The files that git tracks or would track, relative to the root.
pub(crate) fn files() -> Result<Vec<PathBuf>> {
    let step = Step { what: "listing the repository's files", fix: "run from a git checkout" };
    let mut git = Command::new("git");
    git.current_dir(root());
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let list = step.quietly(&mut git)?;
    Ok(list.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect())
}

/// Where cargo puts what it builds for this workspace.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// The text of one file, or nothing where it is no text or was deleted in the work tree.
pub(crate) fn text(file: &Path) -> Result<Option<String>> {
    match std::fs::read(root().join(file)) {
        Ok(bytes) => Ok(String::from_utf8(bytes).ok()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("reading {}", file.display())),
    }
}

/// A `cargo` command in the root, by the toolchain that runs this task.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(args);
    command
}
