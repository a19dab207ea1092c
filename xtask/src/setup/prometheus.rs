//! Prometheus and promtool, taken out of Debian's package: installed, it would start a server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::apt;
use crate::shell::{Step, version_of};
use crate::tree::target;

/// A program of the package: the system's own, or the one that [`install`] has unpacked.
pub(crate) fn prometheus(program: &str) -> PathBuf {
    if version_of(program).is_some() {
        return PathBuf::from(program);
    }
    unpacked().join("usr/bin").join(program)
}

fn unpacked() -> PathBuf {
    target().join("parts/prometheus")
}

/// Unpack the package where no promtool is there.
pub(super) fn install() -> Result<()> {
    if version_of("promtool").is_some() && version_of("prometheus").is_some() {
        return Ok(());
    }
    if unpacked().join("usr/bin/promtool").exists() {
        return Ok(());
    }
    if version_of("dpkg-deb").is_none() {
        bail!("this system has no dpkg\nfix: install Prometheus 2.42 or later by hand");
    }
    let parts = target().join("parts");
    fs::create_dir_all(&parts).with_context(|| format!("making {}", parts.display()))?;
    apt::refresh_for("prometheus")?;
    let step = Step {
        what: "unpacking prometheus",
        fix: "Debian's package registry must be reachable; or install Prometheus by hand",
    };
    step.quietly(Command::new("apt-get").current_dir(&parts).args(["download", "prometheus"]))?;
    let package = downloaded(&parts)?;
    step.run(Command::new("dpkg-deb").arg("-x").arg(&package).arg(unpacked()))?;
    fs::remove_file(&package).with_context(|| format!("removing {}", package.display()))
}

fn downloaded(parts: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(parts).with_context(|| format!("reading {}", parts.display()))?;
    let is_package = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("prometheus_") && name.ends_with(".deb")
    };
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(is_package)
        .context("apt-get download left no package of prometheus")
}
