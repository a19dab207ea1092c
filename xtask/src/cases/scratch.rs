//! Where one run keeps its files.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// The directory of one run: logs of all processes and the agent's lines.
pub(crate) struct Scratch {
    path: PathBuf,
    /// Deletes the directory at the end, unless it is to be kept.
    _temporary: Option<tempfile::TempDir>,
}

impl Scratch {
    /// A directory below `keep`, or one that goes away with the run.
    pub(crate) fn new(case: &str, turn: u32, keep: Option<&Path>) -> Result<Self> {
        if let Some(keep) = keep {
            let path = keep.join(format!("{case}-{turn}"));
            // A void run that is tried again starts clean.
            if path.exists() {
                fs::remove_dir_all(&path)
                    .with_context(|| format!("emptying {}", path.display()))?;
            }
            fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
            return Ok(Self { path, _temporary: None });
        }
        let temporary = tempfile::tempdir().context("making a directory for the run")?;
        Ok(Self { path: temporary.path().to_path_buf(), _temporary: Some(temporary) })
    }

    /// The last lines of a file in it.
    pub(crate) fn tail(&self, name: &str) -> String {
        let text = fs::read_to_string(self.path(name)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines.get(lines.len().saturating_sub(5)..).unwrap_or_default().join(" | ")
    }

    /// The path of a file in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A new file in it, or the old one to append to.
    pub(crate) fn file(&self, name: &str) -> Result<File> {
        let path = self.path(name);
        let mut options = fs::OpenOptions::new();
        options.create(true).append(true);
        options.open(&path).with_context(|| format!("opening {}", path.display()))
    }
}
