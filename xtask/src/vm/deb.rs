//! Kernel packages: fetched from the machine's own mirror into a list of their own, and unpacked, not
//! installed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::Kernel;
use crate::shell::Step;
use crate::tree::target;

/// What Debian's packages are signed with.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Where the machine's own mirror is named.
const SOURCES: &str = "/etc/apt/sources.list.d/debian.sources";
/// How long a list of packages is good for, in seconds: a day.
const LISTS_GOOD_S: u64 = 86_400;

/// The package's tree.
pub(super) fn unpacked(kernel: &Kernel) -> Result<PathBuf> {
    let home = target().join("vm").join(&kernel.name);
    let tree = home.join("tree");
    if tree.is_dir() {
        return Ok(tree);
    }
    let apt = Apt::of(&kernel.suite)?;
    apt.refresh()?;
    let package = apt.newest(&kernel.package)?;
    let (fresh, debs) = (home.join("fresh"), home.join("debs"));
    for dir in [&fresh, &debs] {
        // What an earlier try has left.
        drop(fs::remove_dir_all(dir));
        fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    }
    let what = format!("fetching {package}");
    let step = Step { what: &what, fix: "the machine's Debian mirror must be reachable" };
    let mut download = apt.command("apt-get");
    step.run(download.args(["-q", "download"]).args(apt.parts(&package)?).current_dir(&debs))?;
    let step = Step { what: "unpacking it", fix: "dpkg-deb and free disk space are needed" };
    for deb in fs::read_dir(&debs).with_context(|| format!("reading {}", debs.display()))? {
        let deb = deb.with_context(|| format!("reading {}", debs.display()))?.path();
        step.quietly(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&fresh))?;
    }
    // Whole or not there.
    fs::rename(&fresh, &tree).with_context(|| format!("making {}", tree.display()))?;
    drop(fs::remove_dir_all(&debs));
    Ok(tree)
}

/// apt with lists of its own, so that the machine's are left alone.
struct Apt {
    home: PathBuf,
}

impl Apt {
    fn of(suite: &str) -> Result<Self> {
        let home = target().join("vm/apt").join(suite);
        for dir in ["state/lists/partial", "cache/archives/partial"] {
            let dir = home.join(dir);
            fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
        }
        let mirror = mirror(suite)?;
        let line = format!("deb [signed-by={KEYRING}] {mirror} {suite} main\n");
        let file = home.join("sources.list");
        fs::write(&file, line).with_context(|| format!("writing {}", file.display()))?;
        Ok(Self { home })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let home = self.home.display();
        for (key, value) in [
            ("Dir::State", format!("{home}/state")),
            ("Dir::State::status", "/var/lib/dpkg/status".to_owned()),
            ("Dir::Cache", format!("{home}/cache")),
            ("Dir::Etc::sourcelist", format!("{home}/sources.list")),
            ("Dir::Etc::sourceparts", "/dev/null".to_owned()),
        ] {
            command.arg("-o").arg(format!("{key}={value}"));
        }
        command
    }

    fn refresh(&self) -> Result<()> {
        let stamp = self.home.join("refreshed");
        let age = fs::metadata(&stamp).and_then(|meta| meta.modified());
        let age = age.ok().and_then(|at| at.elapsed().ok());
        if age.is_some_and(|age| age.as_secs() < LISTS_GOOD_S) {
            return Ok(());
        }
        let step = Step {
            what: "refreshing the list of kernels",
            fix: "the machine's Debian mirror must be reachable",
        };
        step.run(self.command("apt-get").args(["-q", "update"]))?;
        fs::write(&stamp, "").with_context(|| format!("writing {}", stamp.display()))
    }

    /// Those of a kernel's packages that there are.
    fn parts(&self, image: &str) -> Result<Vec<String>> {
        let step = Step { what: "looking for the kernel's parts", fix: "see the lines above" };
        let names = step.quietly(self.command("apt-cache").args(["pkgnames", "linux-"]))?;
        let known: BTreeSet<&str> = names.lines().collect();
        Ok(parts_of(image).filter(|part| known.contains(part.as_str())).collect())
    }

    fn newest(&self, pattern: &str) -> Result<String> {
        let step = Step { what: "looking for the kernel", fix: "see xtask/vm/kernels.toml" };
        let mut search = self.command("apt-cache");
        let found = step.quietly(search.args(["search", "--names-only", pattern]))?;
        let names = found.lines().filter_map(|line| line.split_whitespace().next());
        let newest = names.max_by_key(|name| numbers(name));
        newest.map(str::to_owned).with_context(|| {
            format!("no package is called {pattern}\nfix: correct xtask/vm/kernels.toml")
        })
    }
}

/// The packages that a kernel of this name may consist of: since 7.3 it is split.
fn parts_of(image: &str) -> impl Iterator<Item = String> {
    let version = image.trim_start_matches("linux-image-");
    ["image", "binary", "modules"].into_iter().map(move |part| format!("linux-{part}-{version}"))
}

/// The numbers in a name, in their order: how versions compare.
fn numbers(name: &str) -> Vec<u64> {
    let parts = name.split(|c: char| !c.is_ascii_digit());
    parts.filter_map(|part| part.parse().ok()).collect()
}

/// The machine's own mirror of a suite: those with security updates have one of their own.
fn mirror(suite: &str) -> Result<String> {
    let text = fs::read_to_string(SOURCES)
        .with_context(|| format!("reading {SOURCES}\nfix: kernels are fetched on Debian only"))?;
    mirror_in(&text, suite.ends_with("-security"))
        .with_context(|| format!("{SOURCES} names no mirror for {suite}"))
}

fn mirror_in(sources: &str, security: bool) -> Option<String> {
    let stanzas = sources.split("\n\n");
    let mut fits = stanzas.filter(|stanza| {
        let suites = stanza.lines().find_map(|line| line.strip_prefix("Suites:"));
        suites.is_some_and(|suites| suites.contains("-security") == security)
    });
    let uris = fits.find_map(|stanza| stanza.lines().find_map(|l| l.strip_prefix("URIs:")))?;
    uris.split_whitespace().next().map(str::to_owned)
}

/// The kernel in a package's tree: in `boot`, or, since 7.3, with its modules.
pub(super) fn vmlinuz(tree: &Path) -> Result<PathBuf> {
    let modules = tree.join("usr/lib/modules");
    let versions = fs::read_dir(&modules).into_iter().flatten();
    let versions = versions.filter_map(|version| Some(version.ok()?.path()));
    let kernel = [tree.join("boot")].into_iter().chain(versions).find_map(|dir| {
        let files = fs::read_dir(dir).ok()?.filter_map(|file| Some(file.ok()?.path()));
        let is_kernel = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz"))
        };
        files.into_iter().find(is_kernel)
    });
    kernel.with_context(|| {
        format!("{} has no kernel\nfix: remove it and run this again", tree.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_their_numbers() {
        let mut names = [
            "linux-image-6.18.9+deb13-amd64",
            "linux-image-6.18.12+deb13-amd64",
            "linux-image-7.3.4+deb13-amd64",
        ];
        names.sort_by_key(|name| std::cmp::Reverse(numbers(name)));
        assert_eq!(names.map(|name| &name[12..16]), ["7.3.", "6.18", "6.18"]);
        assert!(names[1].contains("6.18.12"));
    }

    #[test]
    fn a_kernel_may_be_split() {
        let parts: Vec<String> = parts_of("linux-image-7.3.4+deb13-amd64").collect();
        assert_eq!(
            parts[1..],
            ["linux-binary-7.3.4+deb13-amd64", "linux-modules-7.3.4+deb13-amd64"]
        );
    }

    #[test]
    fn security_updates_have_a_mirror_of_their_own() {
        let sources = "Types: deb\nURIs: http://a/debian\nSuites: bookworm bookworm-updates\n\n\
                       Types: deb\nURIs: http://a/security\nSuites: bookworm-security\n";
        assert_eq!(mirror_in(sources, false).as_deref(), Some("http://a/debian"));
        assert_eq!(mirror_in(sources, true).as_deref(), Some("http://a/security"));
        assert_eq!(mirror_in("", true), None);
    }
}
