//! `vm`: the real agent on other kernels, in virtual machines under software emulation.
//!
//! Each machine is a Debian kernel with an image in memory that holds busybox, the agent as it is
//! shipped, and an engine with the real hook. Its script tells what it saw on the serial line, and
//! what is right is asked here. Kernels are fetched once, into the target directory.

mod deb;
mod guest;
mod image;
mod judge;
mod modules;
mod nixl;
mod rdma;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use judge::Said;

use crate::clock::Moment;
use crate::{cases, price, say, setup, tree};

/// The kernel of the short form: the newest that Debian calls stable.
const SHORT: &str = "6.12";

/// How often a machine that says nothing is booted again.
const RETRIES: u32 = 2;

/// What a machine runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Engines in C: the hook's marks, and RDMA verbs.
    Engines,
    /// The pair of NIXL agents, over soft-RoCE.
    Pair,
}

impl Kind {
    /// What is behind the kernel's name in a kept serial line's file.
    fn suffix(self) -> &'static str {
        match self {
            Self::Engines => "",
            Self::Pair => "-nixl",
        }
    }

    /// An archive of its own.
    fn archive(self) -> Result<Option<PathBuf>> {
        match self {
            Self::Engines => Ok(None),
            Self::Pair => nixl::archive().map(Some),
        }
    }

    /// How much memory its files and processes need.
    fn memory(self) -> &'static str {
        match self {
            Self::Engines => "1G",
            Self::Pair => "3G",
        }
    }

    /// What is wrong with what a machine said.
    fn faults(self, right: Right, serial: &str) -> Result<Vec<String>> {
        let cases = self.cases()?;
        Ok(match self {
            Self::Engines => judge::faults(right, &cases, serial),
            Self::Pair => judge::pair_faults(&cases, serial),
        })
    }

    /// Why a machine says nothing about the agent, where it does not.
    fn void(self, serial: &str) -> Result<Option<String>> {
        Ok(rdma::void(&self.cases()?, &Said::of(serial)))
    }

    /// What is right in each of its cases.
    fn cases(self) -> Result<Vec<rdma::Case>> {
        rdma::cases(match self {
            Self::Engines => "rdma.toml",
            Self::Pair => "nixl.toml",
        })
    }
}

/// What can be asked of the machines.
#[derive(Args, Default)]
pub(crate) struct Options {
    /// Kernels to run; all when none is named, with --nixl 6.12
    names: Vec<String>,
    /// Run a pair of NIXL agents over soft-RoCE instead, and what may happen to it
    #[arg(long)]
    nixl: bool,
    /// Only list the kernels
    #[arg(long)]
    list: bool,
    /// Keep each machine's serial line in this directory
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

/// A kernel as data.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kernel {
    /// What it is called here.
    name: String,
    /// Why it is tested.
    what: String,
    /// What its package is called, as `apt-cache search` takes it.
    package: String,
    /// The suite that has it.
    suite: String,
    /// What the agent does on it.
    right: Right,
}

/// What is right on a kernel.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Right {
    /// It attaches everything and tells of what stalls.
    Watches,
    /// It names the oldest kernel that it can run on, and ends.
    Refused,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Kernels {
    kernels: Vec<Kernel>,
}

/// Boot the kernels that are asked for; an error unless all is right on each of them.
pub(crate) fn run(options: &Options) -> Result<()> {
    let (kind, names) = match (options.nixl, options.names.is_empty()) {
        (true, true) => (Kind::Pair, vec![SHORT.to_owned()]),
        (true, false) => (Kind::Pair, options.names.clone()),
        (false, _) => (Kind::Engines, options.names.clone()),
    };
    let kernels = wanted(&names)?;
    if options.list {
        for kernel in &kernels {
            say::line(format_args!("{:8} {} ({})", kernel.name, kernel.what, kernel.suite));
        }
        return Ok(());
    }
    setup::run()?;
    cases::build_agent()?;
    let wrong = run_built(kind, &kernels, options.keep.as_ref())?;
    if wrong > 0 {
        bail!("{wrong} of {} kernels are not right", kernels.len());
    }
    Ok(())
}

/// The short form, for a test run: one kernel, beside the agent that is built already. Whether it was
/// right.
pub(crate) fn run_short() -> Result<bool> {
    Ok(run_built(Kind::Engines, &wanted(&[SHORT.to_owned()])?, None)? == 0)
}

fn run_built(kind: Kind, kernels: &[Kernel], keep: Option<&PathBuf>) -> Result<usize> {
    setup::vm_tools()?;
    price::build_load()?;
    image::build_verbs()?;
    let mut image = image::made()?;
    if let Some(own) = kind.archive()? {
        image = joined(&image, &own, &image.with_extension("whole"))?;
    }
    let mut wrong = 0;
    for kernel in kernels {
        say::line(format_args!("  {}: {}", kernel.name, kernel.what));
        let begun = Moment::now();
        let (release, faults) = until_not_void(kind, kernel, &image, keep)?;
        for fault in &faults {
            say::line(format_args!("      {fault}"));
        }
        wrong += usize::from(!faults.is_empty());
        let word = if faults.is_empty() { "right" } else { "WRONG" };
        let took = Moment::now().seconds_after(begun);
        say::line(format_args!("    {} … {word}, {release}, {took:.1} s", kernel.name));
    }
    Ok(wrong)
}

/// Boot a kernel, and again where that says nothing; its release, and what is wrong.
fn until_not_void(
    kind: Kind,
    kernel: &Kernel,
    image: &Path,
    keep: Option<&PathBuf>,
) -> Result<(String, Vec<String>)> {
    let mut serial = boot(kind, kernel, image, keep)?;
    for _ in 0..RETRIES {
        let Some(why) = kind.void(&serial)? else { break };
        say::line(format_args!("      void, once more: {why}"));
        serial = boot(kind, kernel, image, keep)?;
    }
    let mut faults = kind.faults(kernel.right, &serial)?;
    faults.extend(kind.void(&serial)?);
    Ok((judge::release(&serial).to_owned(), faults))
}

/// Boot a kernel; what came over its serial line.
fn boot(kind: Kind, kernel: &Kernel, image: &Path, keep: Option<&PathBuf>) -> Result<String> {
    let tree = deb::unpacked(kernel)?;
    let home = tree.parent().context("a kernel's tree has a folder")?;
    let image = joined(image, &modules::archive(&tree, home)?, &home.join("initrd"))?;
    let serial = guest::run(&tree, &image, kind.memory())?;
    if let Some(dir) = keep {
        std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
        let file = dir.join(format!("{}{}.serial", kernel.name, kind.suffix()));
        std::fs::write(&file, &serial).with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(serial)
}

/// The two archives as one: the kernel unpacks one after the other.
fn joined(common: &Path, own: &Path, to: &Path) -> Result<PathBuf> {
    let read =
        |path: &Path| std::fs::read(path).with_context(|| format!("reading {}", path.display()));
    let whole = [read(common)?, read(own)?].concat();
    std::fs::write(to, whole).with_context(|| format!("writing {}", to.display()))?;
    Ok(to.to_owned())
}

/// A data file of the machines.
fn data<T: DeserializeOwned>(name: &str) -> Result<T> {
    let file = tree::root().join("xtask/vm").join(name);
    let text =
        std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    toml::from_str(&text).with_context(|| file.display().to_string())
}

fn wanted(names: &[String]) -> Result<Vec<Kernel>> {
    let known: Kernels = data("kernels.toml")?;
    let is_known = |name: &&String| known.kernels.iter().any(|kernel| kernel.name == **name);
    if let Some(name) = names.iter().find(|name| !is_known(name)) {
        let all: Vec<&str> = known.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
        bail!("no kernel is called {name}\nfix: one of {}", all.join(", "));
    }
    let all = names.is_empty();
    let asked = |kernel: &Kernel| all || names.contains(&kernel.name);
    Ok(known.kernels.into_iter().filter(asked).collect())
}
