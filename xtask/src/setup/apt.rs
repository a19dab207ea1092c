//! System packages: a Rust compiler that knows BPF, LLVM for bpf-linker, tools of the tests.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::clock::Moment;
use crate::shell::{Step, version_of};

/// Debian's compiler, whose standard library for the BPF target is prebuilt.
pub(crate) const BPF_RUSTC: &str = "/usr/bin/rustc";
/// Where its BPF library lies.
const BPF_LIBRARY: &str = "/usr/lib/rustlib/bpfel-unknown-none";

/// What the eBPF tool chain needs on Debian.
const BPF: [&str; 3] = ["rustc-web", "libstd-rust-web-dev-bpf", "llvm-22-dev"];
/// What the tests need anywhere, as Debian calls it, with a program that shows it is there.
const TOOLS: [(&str, &str); 4] =
    [("nftables", "nft"), ("iproute2", "ip"), ("gcc", "gcc"), ("systemd", "systemd-analyze")];

/// Install the packages that are missing.
pub(crate) fn install() -> Result<()> {
    if version_of("dpkg-query").is_none() {
        return without_apt();
    }
    let begun = Moment::now();
    let wanted: Vec<&str> = BPF.iter().copied().chain(TOOLS.map(|(package, _)| package)).collect();
    let missing: Vec<&str> = wanted.into_iter().filter(|package| !installed(package)).collect();
    if missing.is_empty() {
        Step { what: "system packages are there", fix: "" }.tell(begun);
        return Ok(());
    }
    refresh()?;
    let (known, unknown): (Vec<&str>, Vec<&str>) =
        missing.into_iter().partition(|package| candidate(package));
    if let Some(tool) = unknown.iter().find(|package| !BPF.contains(package)) {
        bail!("installing system packages: apt knows no package {tool}\nfix: install it by hand");
    }
    if !unknown.is_empty() && !has_nightly_src() {
        bail!(no_bpf(&format!("apt knows no package {}", unknown.join(", "))));
    }
    fetch(&known)
}

/// Install those packages whose program is missing.
pub(super) fn want(tools: &[(&str, &str)]) -> Result<()> {
    want_where(tools, |tool| version_of(tool).is_some())
}

/// Install those packages whose file is missing.
pub(super) fn want_files(files: &[(&str, &str)]) -> Result<()> {
    want_where(files, |file| Path::new(file).exists())
}

/// Install those packages whose library the loader does not find.
pub(super) fn want_libraries(libraries: &[(&str, &str)]) -> Result<()> {
    // Not in everybody's PATH.
    let loader = ["ldconfig", "/sbin/ldconfig"].into_iter().find_map(|program| {
        let output = Command::new(program).arg("-p").output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    });
    let known = loader.unwrap_or_default();
    want_where(libraries, |library| is_in_cache(&known, library))
}

/// Whether `ldconfig -p` lists the library: its name is the first word of a line.
fn is_in_cache(cache: &str, library: &str) -> bool {
    cache.lines().any(|line| line.split_whitespace().next() == Some(library))
}

/// Install those packages of which the second part is not there.
fn want_where(parts: &[(&str, &str)], there: impl Fn(&str) -> bool) -> Result<()> {
    let missing: Vec<&str> =
        parts.iter().filter(|(_, part)| !there(part)).map(|(package, _)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if version_of("dpkg-query").is_none() {
        bail!("this system has no dpkg\nfix: install by hand: {}", missing.join(", "));
    }
    refresh()?;
    fetch(&missing)
}

/// Whether Debian's compiler and its BPF library are there.
pub(crate) fn has_debian_bpf() -> bool {
    Path::new(BPF_RUSTC).exists() && Path::new(BPF_LIBRARY).exists()
}

/// Whether the other route is open: a nightly toolchain with the sources of its library.
pub(crate) fn has_nightly_src() -> bool {
    let output = Command::new("rustc").args(["+nightly", "--print", "sysroot"]).output();
    output.is_ok_and(|output| {
        let sysroot = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success() && Path::new(&sysroot).join("lib/rustlib/src/rust/library").exists()
    })
}

fn without_apt() -> Result<()> {
    let missing: Vec<&str> = TOOLS
        .iter()
        .filter(|(_, tool)| version_of(tool).is_none())
        .map(|(package, _)| *package)
        .collect();
    if !missing.is_empty() {
        bail!("this system has no dpkg\nfix: install by hand: {}", missing.join(", "));
    }
    if has_nightly_src() {
        return Ok(());
    }
    bail!(no_bpf("this system has no dpkg"))
}

fn no_bpf(why: &str) -> String {
    format!(
        "the eBPF tool chain is missing: {why}, and there is no nightly toolchain with rust-src\n\
         fix: `rustup toolchain install nightly --component rust-src`, or use Debian with {}",
        BPF.join(", ")
    )
}

fn installed(package: &str) -> bool {
    let output = Command::new("dpkg-query").args(["-W", "-f=${Status}", package]).output();
    output.is_ok_and(|output| output.stdout == b"install ok installed")
}

fn candidate(package: &str) -> bool {
    let output = Command::new("apt-cache").args(["show", "--no-all-versions", package]).output();
    output.is_ok_and(|output| output.status.success() && !output.stdout.is_empty())
}

/// Read apt's lists again where they do not know a package.
pub(super) fn refresh_for(package: &str) -> Result<()> {
    if candidate(package) { Ok(()) } else { refresh() }
}

fn refresh() -> Result<()> {
    let step =
        Step { what: "refreshing apt's lists", fix: "run as root, with the registry reachable" };
    step.run(Command::new("apt-get").arg("update")).map(drop)
}

pub(super) fn fetch(packages: &[&str]) -> Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    let what = format!("installing {}", packages.join(" "));
    let step = Step { what: &what, fix: "run as root; `apt-get -f install` mends a broken state" };
    let mut apt = Command::new("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive");
    apt.args(["install", "-y", "--no-install-recommends"]).args(packages);
    step.run(&mut apt).map(drop)
}

#[cfg(test)]
mod tests {
    use super::is_in_cache;

    #[test]
    fn a_library_is_known_by_its_whole_name() {
        let cache = "2 libs found in cache `/etc/ld.so.cache'\n\
                     \tlibnuma.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libnuma.so.1\n\
                     \tlibm.so.6 (libc6,x86-64) => /lib/x86_64-linux-gnu/libm.so.6\n";
        assert!(is_in_cache(cache, "libnuma.so.1"));
        assert!(!is_in_cache(cache, "libnuma.so"));
        assert!(!is_in_cache(cache, "libibverbs.so.1"));
        assert!(!is_in_cache("", "libm.so.6"));
    }
}
