//! A third archive for a machine with the pair: Python, numpy, NIXL with its UCX, the hook and the pair's
//! scripts, each file where this machine has it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::image::{copy, libraries, make, packed, place};
use crate::setup;
use crate::shell::Step;
use crate::tree::{root, target};

/// Debian's libibverbs, which soft-RoCE's part registers itself with.
const VERBS: &str = "/lib/libibverbs.so.1";
/// UCX's parts for hardware that no machine here has; they bind to the wheel's own libibverbs.
const LEFT_OUT: [&str; 4] = ["libuct_ib_mlx5", "libuct_ib_efa", "libmlx5-", "libefa."];

/// Make the archive; its file.
pub(super) fn archive() -> Result<PathBuf> {
    let home = target().join("vm/nixl");
    drop(fs::remove_dir_all(&home));
    make(&home)?;
    let (python, site) = interpreter()?;
    for file in loaded()? {
        if !LEFT_OUT.iter().any(|name| file_name(&file).starts_with(name)) {
            keep(&home, &file)?;
        }
    }
    translated(&home, &python)?;
    copy(&root().join("xtask/vm/nixl.sh"), &home.join("nixl.sh"))?;
    // What the script starts.
    let pair = root().join("xtask/pair");
    let text = format!(
        "python={}\nsite={}\nscripts={}\n",
        python.display(),
        site.display(),
        pair.display()
    );
    let file = home.join("nixl.env");
    fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
    packed(&home)
}

/// Every file that an end of the pair loads on this machine.
fn loaded() -> Result<Vec<PathBuf>> {
    let step = Step {
        what: "asking what NIXL loads",
        fix: "`cargo xtask setup` installs the pair; see the lines above",
    };
    let mut python = setup::python(&["xtask/vm/loaded.py"]);
    python.env("PYTHONPATH", root().join("xtask/pair")).env("PYTHONDONTWRITEBYTECODE", "1");
    let text = step.run(&mut python)?;
    Ok(text.lines().map(PathBuf::from).collect())
}

/// The program behind the virtual environment, and where the environment's parts lie.
fn interpreter() -> Result<(PathBuf, PathBuf)> {
    let step =
        Step { what: "looking for Python", fix: "`cargo xtask setup` makes the environment" };
    let ask = "import os, sys, sysconfig; \
               print(os.path.realpath(sys.executable)); print(sysconfig.get_path('purelib'))";
    let text = step.quietly(&mut setup::python(&["-c", ask]))?;
    let mut lines = text.lines().map(PathBuf::from);
    lines.next().zip(lines.next()).context("Python does not say where it lies")
}

/// A file at its own place; what it links of the system goes where the machine's loader looks.
fn keep(home: &Path, file: &Path) -> Result<()> {
    let to = home.join(file.strip_prefix("/").unwrap_or(file));
    if file.starts_with("/usr/lib/x86_64-linux-gnu") || to.exists() {
        // By the name that it is linked by: see below.
        return Ok(());
    }
    make(to.parent().context("a file has a folder")?)?;
    if file_name(file).starts_with("libibverbs-") {
        // Two of them in one process would each have half of the devices.
        return symlink(VERBS, &to).with_context(|| format!("linking {}", to.display()));
    }
    copy(file, &to)?;
    if is_binary(file) {
        for library in libraries(file)?.iter().filter(|library| is_of_system(library)) {
            let to = place(home, library)?;
            make(to.parent().context("a file has a folder")?)?;
            copy(library, &to)?;
        }
    }
    Ok(())
}

fn is_binary(file: &Path) -> bool {
    file.extension().is_none_or(|end| end != "py")
}

fn is_of_system(library: &Path) -> bool {
    ["/lib/", "/lib64/", "/usr/lib/"].iter().any(|dir| library.starts_with(dir))
}

fn file_name(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Translate the Python files here, for a machine under emulation would take its time over it.
fn translated(home: &Path, python: &Path) -> Result<()> {
    let step = Step { what: "translating Python", fix: "see the lines above" };
    let mut compile = Command::new(python);
    compile.args(["-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]).arg(home);
    step.quietly(&mut compile).map(drop)
}
