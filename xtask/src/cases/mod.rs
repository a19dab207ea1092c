//! Fault cases on a real NIXL pair: each is a file in `xtask/cases`, run and judged here.

mod agent;
pub(crate) mod bench;
mod file;
mod folder;
mod force;
mod foreign;
mod judge;
mod net;
mod pair;
mod record;
mod report;
mod right;
mod scratch;
pub(crate) mod soak;
mod step;
mod steps;
mod traffic;
mod world;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;

pub(crate) use agent::{Agent, Said, build as build_agent, build_quietly as build_agent_quietly};
pub(crate) use file::Agent as AgentSetting;
pub(crate) use folder::{CaseFile, Head, list, load};
pub(crate) use force::ask_to_fail;
pub(crate) use net::{HERE, Net, Place, Way};
pub(crate) use pair::hear;
pub(crate) use record::Seen;
#[cfg(test)]
pub(crate) use record::{Evidence, Line, Worker};
pub(crate) use report::{Report, table, verdict};
pub(crate) use scratch::Scratch;

use crate::clock::Moment;
use crate::say;
use crate::setup;
use file::Case;

/// How a run is watched.
#[derive(Default)]
struct View {
    /// Whether the agent's verdicts are printed as they come.
    live: bool,
    /// Whether the agent is told the pair's processes.
    by_pid: bool,
    /// Whether the agent records what it is given.
    capture: bool,
    /// The agent's program, where it is not the one that was built for this.
    agent: Option<PathBuf>,
}

/// How often a void run is tried again.
const RETRIES: u32 = 2;

/// Options of `cargo xtask cases`.
#[derive(Args, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag that stands for itself")]
pub(crate) struct Options {
    /// Cases to run; all when none is named
    names: Vec<String>,
    /// Print the cases there are and what each is, and run none
    #[arg(long)]
    list: bool,
    /// Run each case so many times
    #[arg(long, default_value_t = 1)]
    repeat: u32,
    /// One JSON object a run on stdout instead of text
    #[arg(long)]
    json: bool,
    /// Name the pair's processes to the agent rather than let it find them: for a machine on which
    /// other workers run too
    #[arg(long)]
    by_pid: bool,
    /// Keep each run's logs and agent lines in this directory
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Keep what the agents were given, too, for `inflightd replay`
    #[arg(long, requires = "keep")]
    capture: bool,
    /// Run this agent rather than build one
    #[arg(long, value_name = "FILE")]
    agent: Option<PathBuf>,
}

impl Options {
    /// The named cases, once each.
    pub(crate) fn of(names: Vec<String>) -> Self {
        Self { names, ..Self::default() }
    }
}

/// The names of all cases, in their order.
pub(crate) fn names() -> Result<Vec<String>> {
    let known: Vec<Case> = load(&[])?;
    Ok(known.into_iter().map(|case| case.name).collect())
}

/// Set up, build the agent, run the cases; an error unless every run is right.
pub(crate) fn run(options: &Options) -> Result<()> {
    // A name that is not known is said before minutes are spent on building.
    let known: Vec<Case> = load(&options.names)?;
    if options.list {
        list(&known);
        return Ok(());
    }
    match (&options.agent, options.json) {
        (Some(_), _) => {}
        (None, true) => build_agent_quietly()?,
        (None, false) => {
            setup::run()?;
            build_agent()?;
        }
    }
    let reports = run_built(options, false)?;
    if !options.json {
        say::line(table(&reports));
    }
    verdict(&reports)
}

/// An error for whoever may not run an agent.
pub(crate) fn need_root() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("the agent loads probes into the kernel\nfix: run as root");
    }
    Ok(())
}

/// Run the cases with what is built; `live` prints each verdict of the agent as it comes.
pub(crate) fn run_built(options: &Options, live: bool) -> Result<Vec<Report>> {
    need_root()?;
    let cases: Vec<Case> = load(&options.names)?;
    let mut reports = Vec::new();
    for case in &cases {
        if !options.json {
            say::line(format_args!("  {}: {}", case.name, case.what));
        }
        for turn in 1..=options.repeat.max(1) {
            reports.push(until_not_void(case, turn, options, live)?);
        }
    }
    Ok(reports)
}

/// Run one case, again while it is void.
fn until_not_void(case: &Case, turn: u32, options: &Options, live: bool) -> Result<Report> {
    let mut retried = 0;
    loop {
        let scratch = Scratch::new(&case.name, turn, options.keep.as_deref())?;
        let begun = Moment::now();
        let view = View {
            live,
            by_pid: options.by_pid,
            capture: options.capture,
            agent: options.agent.clone(),
        };
        let record = steps::run(case, &scratch, &view)?;
        let took = Moment::now().since(begun);
        let report = Report::new(case, turn, retried, took, judge::judge(case, &record));
        if options.json {
            say::line(serde_json::to_string(&report)?);
        } else {
            say::line(report.line());
        }
        if !report.is_void() || retried == RETRIES {
            return Ok(report);
        }
        retried += 1;
    }
}
