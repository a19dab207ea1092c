//! The image in memory: busybox, the agent, an engine with the hook, and what those load.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::price;
use crate::shell::Step;
use crate::tree::{root, target};

/// A static busybox, from Debian's `busybox-static`.
const BUSYBOX: &str = "/bin/busybox";
/// Folders of the image, for `cpio` makes no parents.
const FOLDERS: [&str; 5] = ["bin", "sbin", "lib", "lib64", "etc"];

/// Make the image; its file.
pub(super) fn made() -> Result<PathBuf> {
    let home = target().join("vm/image");
    drop(fs::remove_dir_all(&home));
    for folder in FOLDERS {
        make(&home.join(folder))?;
    }
    copy(Path::new(BUSYBOX), &home.join("bin/busybox"))?;
    symlink("busybox", home.join("bin/sh")).context("linking the image's shell")?;
    copy(&root().join("xtask/vm/init.sh"), &home.join("init"))?;
    let programs = [
        (target().join("release/inflightd"), "bin/inflightd"),
        (price::load_program(), "bin/load"),
        // busybox has an `ip` of its own, which knows less; this one goes by its name.
        (PathBuf::from("/bin/ip"), "sbin/ip"),
        (PathBuf::from("/bin/rdma"), "bin/rdma"),
    ];
    for (from, name) in programs {
        copy(&from, &home.join(name))?;
        for library in libraries(&from)? {
            copy(&library, &place(&home, &library)?)?;
        }
    }
    packed(&home)
}

/// Where a library lies in the image: the loader where programs name it, the rest in one folder.
fn place(home: &Path, library: &Path) -> Result<PathBuf> {
    let name = library.file_name().context("a library has a name")?;
    let loader = name.to_string_lossy().starts_with("ld-linux");
    Ok(home.join(if loader { "lib64" } else { "lib" }).join(name))
}

/// What the loader would load for a program.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let step = Step { what: "looking for libraries", fix: "ldd must know the program" };
    let text = step.quietly(Command::new("ldd").arg(program))?;
    if let Some(line) = text.lines().find(|line| line.contains("not found")) {
        bail!("{}: {}", program.display(), line.trim());
    }
    let paths = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        words.find(|word| word.starts_with('/')).map(PathBuf::from)
    });
    Ok(paths.collect())
}

fn make(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to)
        .map(drop)
        .with_context(|| format!("copying {} to {}", from.display(), to.display()))
}

/// Pack the folder as the kernel unpacks it.
pub(super) fn packed(home: &Path) -> Result<PathBuf> {
    let file = home.with_extension("cpio");
    let out = fs::File::create(&file).with_context(|| format!("making {}", file.display()))?;
    let mut cpio = Command::new("sh");
    cpio.args(["-c", "find . | cpio --quiet -o -H newc -R 0:0"]).current_dir(home);
    let status = cpio.stdin(Stdio::null()).stdout(out).status().context("starting cpio")?;
    if !status.success() {
        bail!("packing the image failed ({status})\nfix: see the lines above");
    }
    Ok(file)
}
