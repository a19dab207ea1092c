//! One virtual machine, from its boot to its end.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::deb::vmlinuz;

/// Longest life of a machine: emulation on a busy host boots in a minute, and most of what the
/// script waits for takes seconds there. Python and NIXL take half a minute to start, for each case.
const LIFE: Duration = Duration::from_mins(15);

/// Boots a kernel with an image and so much memory; what came over the serial line.
pub(super) fn run(tree: &Path, image: &Path, memory: &str) -> Result<String> {
    let mut qemu = Command::new("timeout");
    qemu.args(["--kill-after=5", &LIFE.as_secs().to_string(), "qemu-system-x86_64"]);
    // Software emulation wherever: the same everywhere, and few machines give their KVM away.
    qemu.args(["-accel", "tcg", "-cpu", "max", "-m", memory, "-smp", "2"]);
    qemu.args(["-nographic", "-no-reboot", "-net", "none"]);
    qemu.args(["-append", "console=ttyS0 quiet panic=-1"]);
    qemu.arg("-kernel").arg(vmlinuz(tree)?).arg("-initrd").arg(image);
    // A file, so that a machine can be watched while it runs.
    let file = image.with_extension("serial");
    let out = fs::File::create(&file).with_context(|| format!("making {}", file.display()))?;
    qemu.stdin(Stdio::null())
        .stdout(out)
        .status()
        .context("starting qemu-system-x86_64\nfix: install qemu-system-x86")?;
    let serial = fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
    Ok(String::from_utf8_lossy(&serial).replace('\r', ""))
}
