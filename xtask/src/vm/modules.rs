//! The modules of a kernel that an image needs, as a second archive behind the common one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::image;
use crate::shell::Step;

/// What soft-RoCE over a pair of interfaces needs, what the agent reads sockets by, and whether the
/// machine must have it: what is built in is no module. `rdma_rxe` asks for its checksum by a name
/// that only `crc32_generic` answers to, and says nothing but "no such file" without it.
const WANTED: [(&str, bool); 8] = [
    ("crc32_generic", false),
    ("inet_diag", false),
    ("tcp_diag", false),
    ("sch_netem", true),
    ("veth", true),
    ("ib_uverbs", true),
    ("rdma_rxe", true),
    // Without its hardware: for the probe on its commands.
    ("mlx5_core", true),
];

/// An archive with the modules of a kernel's tree, in the order in which they load.
pub(super) fn archive(tree: &Path, home: &Path) -> Result<PathBuf> {
    let base = [tree.join("usr"), tree.to_owned()]
        .into_iter()
        .find(|base| base.join("lib/modules").is_dir())
        .with_context(|| format!("{} has no modules\nfix: remove it", tree.display()))?;
    let version = only_entry(&base.join("lib/modules"))?;
    let step = Step { what: "sorting the kernel's modules", fix: "depmod must know the tree" };
    let mut depmod = Command::new("/sbin/depmod");
    let text = step.quietly(depmod.args(["-n", "-b"]).arg(&base).arg(&version))?;
    let known = Known::of(&text);
    let folder = home.join("modules");
    drop(fs::remove_dir_all(&folder));
    let inside = folder.join("modules");
    fs::create_dir_all(&inside).with_context(|| format!("making {}", inside.display()))?;
    for (number, path) in known.closure(&WANTED)?.into_iter().enumerate() {
        let from = base.join("lib/modules").join(&version).join(path);
        unpack(&from, &inside.join(format!("{number:02}-{}.ko", name(path))))?;
    }
    image::packed(&folder)
}

/// The version of the one kernel of a tree.
fn only_entry(dir: &Path) -> Result<String> {
    let entry = fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))?.next();
    let entry = entry.with_context(|| format!("{} is empty", dir.display()))?;
    let entry = entry.with_context(|| format!("reading {}", dir.display()))?;
    Ok(entry.file_name().to_string_lossy().into_owned())
}

/// Modules by their names: where each is, and what has to be loaded before it, the first last.
struct Known<'a>(BTreeMap<String, (&'a str, Vec<&'a str>)>);

impl<'a> Known<'a> {
    /// From the lines `path: path path …` that `modules.dep` has.
    fn of(text: &'a str) -> Self {
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let modules = lines.filter(|(path, _)| path.contains(".ko"));
        Self(
            modules
                .map(|(path, needs)| (name(path), (path, needs.split_whitespace().collect())))
                .collect(),
        )
    }

    fn closure(&self, wanted: &[(&str, bool)]) -> Result<Vec<&'a str>> {
        let (mut order, mut seen) = (Vec::new(), BTreeSet::new());
        for (wanted, must) in wanted {
            let Some((path, needs)) = self.0.get(*wanted) else {
                if *must {
                    bail!(
                        "the kernel has no module {wanted}\nfix: choose one that is no cloud kernel"
                    );
                }
                continue;
            };
            let first_last = needs.iter().rev().chain([path]);
            order.extend(first_last.copied().filter(|path| seen.insert(*path)));
        }
        Ok(order)
    }
}

/// A module's name: its file's, without what follows.
fn name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split('.').next().unwrap_or(file).replace('-', "_")
}

fn unpack(from: &Path, to: &Path) -> Result<()> {
    let program = match from.extension().and_then(|end| end.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        _ => {
            let copied = fs::copy(from, to).map(drop);
            return copied.with_context(|| format!("copying {}", from.display()));
        }
    };
    let out = fs::File::create(to).with_context(|| format!("making {}", to.display()))?;
    let status = Command::new(program).arg("-dc").arg(from).stdout(out).status();
    let status = status.with_context(|| format!("starting {program}\nfix: install it"))?;
    if !status.success() {
        bail!("unpacking {} failed ({status})", from.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEP: &str = "\
kernel/net/ipv4/udp_tunnel.ko.xz:
kernel/drivers/infiniband/core/ib_core.ko.xz:
kernel/drivers/infiniband/core/ib_uverbs.ko.xz: kernel/drivers/infiniband/core/ib_core.ko.xz
kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko.xz: kernel/drivers/infiniband/core/ib_uverbs.ko.xz kernel/net/ipv4/udp_tunnel.ko.xz kernel/drivers/infiniband/core/ib_core.ko.xz
alias crypto-crc32 crc32_generic
";

    #[test]
    fn what_a_module_needs_comes_before_it_and_once() {
        let known = Known::of(DEP);
        let order = known.closure(&[("ib_uverbs", true), ("rdma_rxe", true)]).unwrap();
        let names: Vec<String> = order.into_iter().map(name).collect();
        assert_eq!(names, ["ib_core", "ib_uverbs", "udp_tunnel", "rdma_rxe"]);
    }

    #[test]
    fn what_is_built_in_may_be_missing_and_soft_roce_may_not() {
        let known = Known::of("kernel/a-b.ko: ");
        assert_eq!(known.closure(&[("veth", false), ("a_b", true)]).unwrap(), ["kernel/a-b.ko"]);
        assert!(known.closure(&[("rdma_rxe", true)]).unwrap_err().to_string().contains("rdma_rxe"));
    }
}
