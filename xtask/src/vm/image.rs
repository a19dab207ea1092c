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
/// Of libibverbs, from Debian's `ibverbs-providers`.
const PROVIDER: &str = "/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so";
/// The file that names it.
const NAMED: &str = "/etc/libibverbs.d/rxe.driver";
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
    copy(&root().join("xtask/vm/rdma.sh"), &home.join("rdma.sh"))?;
    verbs_provider(&home)?;
    let programs = [
        (target().join("release/inflightd"), "bin/inflightd"),
        (price::load_program(), "bin/load"),
        (verbs(), "bin/verbs"),
        // busybox has an `ip` of its own, which knows less; this one goes by its name.
        (PathBuf::from("/bin/ip"), "sbin/ip"),
        (PathBuf::from("/bin/rdma"), "bin/rdma"),
        (PathBuf::from("/sbin/tc"), "sbin/tc"),
    ];
    for (from, name) in programs {
        copy(&from, &home.join(name))?;
        for library in libraries(&from)? {
            copy(&library, &place(&home, &library)?)?;
        }
    }
    packed(&home)
}

/// The engine over RDMA verbs.
fn verbs() -> PathBuf {
    target().join("vm/verbs")
}

/// Build the engine over RDMA verbs, against the hook as engines load it.
pub(super) fn build_verbs() -> Result<()> {
    // Not there yet in a target directory in which no machine has run.
    make(&target().join("vm"))?;
    price::compile(&root().join("xtask/vm/verbs.c"), &verbs(), &["-libverbs"])
}

/// What libibverbs looks for by itself: soft-RoCE's part, and the file that names it.
fn verbs_provider(home: &Path) -> Result<()> {
    for file in [PROVIDER, NAMED] {
        let to = home.join(file.trim_start_matches('/'));
        make(to.parent().context("a file has a folder")?)?;
        copy(Path::new(file), &to)?;
    }
    for library in libraries(Path::new(PROVIDER))? {
        copy(&library, &place(home, &library)?)?;
    }
    Ok(())
}

/// Where a library lies in the image: the loader where programs name it, the rest in one folder.
pub(super) fn place(home: &Path, library: &Path) -> Result<PathBuf> {
    let name = library.file_name().context("a library has a name")?;
    let loader = name.to_string_lossy().starts_with("ld-linux");
    Ok(home.join(if loader { "lib64" } else { "lib" }).join(name))
}

/// What the loader would load for a program.
pub(super) fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
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

pub(super) fn make(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))
}

pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
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
