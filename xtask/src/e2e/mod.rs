//! End to end: the agent beside a real engine, with everything as a user has it.
//!
//! SGLang comes from its wheel, unmodified; the hook comes in by its plugin entry point. The cases
//! lie in `xtask/sglang/cases`, the launcher of the servers in `xtask/sglang`.

mod compare;
mod file;
mod idle;
mod judge;
mod launcher;
mod record;
mod report;
mod step;
mod steps;
mod world;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::{Args, Subcommand};

use crate::cases::{Scratch, build_agent, build_agent_quietly, list, load, need_root};
use crate::clock::Moment;
use crate::say;
use crate::setup;
use compare::Compared;
use file::Case;
use launcher::Launcher;
use report::{Report, table};

/// How the engine is run and watched.
struct View<'a> {
    /// Whether the engine runs without the hook.
    bare: bool,
    /// Whether an agent runs beside it.
    watched: bool,
    /// The agent's program, where it is not the one that was built for this.
    agent: Option<&'a Path>,
}

/// How often a void run is tried again.
const RETRIES: u32 = 1;

/// Engines that a run end to end can take.
#[derive(Subcommand)]
pub(crate) enum Engine {
    /// A real SGLang prefill with its decodes on this machine's CPU; 6 GB are installed first
    Sglang(Options),
}

/// Options of `cargo xtask e2e sglang`.
#[derive(Args)]
pub(crate) struct Options {
    /// Cases to run; all when none is named
    names: Vec<String>,
    /// Only list the cases
    #[arg(long)]
    list: bool,
    /// One JSON object a case on stdout instead of text
    #[arg(long)]
    json: bool,
    /// Run the engine without the hook: the agent knows transfers only
    #[arg(long)]
    bare: bool,
    /// Keep each case's logs and agent lines in this directory
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Run this agent rather than build it as it is shipped
    #[arg(long, value_name = "FILE")]
    agent: Option<PathBuf>,
}

/// Set up, build the agent, run the cases; an error unless every case is right.
pub(crate) fn run(engine: &Engine) -> Result<()> {
    let Engine::Sglang(options) = engine;
    // A name that is not known is said before 6 GB are installed.
    let known: Vec<Case> = load(&options.names)?;
    if options.list {
        list(&known);
        return Ok(());
    }
    match (&options.agent, options.json) {
        // The hook that is tested is this tree's, whose agent ever runs.
        (Some(_), false) => setup::sglang()?,
        (Some(_), true) => {}
        (None, true) => build_agent_quietly()?,
        (None, false) => {
            setup::run()?;
            setup::sglang()?;
            build_agent()?;
        }
    }
    let reports = run_built(&known, options)?;
    if !options.json {
        say::line(table(&reports));
    }
    let right = reports.iter().filter(|report| report.is_right()).count();
    if right < reports.len() {
        bail!("{right} of {} cases right", reports.len());
    }
    Ok(())
}

/// The cases that a plain test run takes.
const SHORT: [&str; 2] = ["healthy", "frozen"];

/// Install SGLang where it is missing and run the short choice with the agent that is built; how
/// many of how many are right.
pub(crate) fn run_short() -> Result<(usize, usize)> {
    setup::sglang()?;
    let names = SHORT.map(str::to_owned).to_vec();
    let cases = load(&names)?;
    let (list, json, bare) = (false, false, false);
    let options = Options { names, list, json, bare, keep: None, agent: None };
    let reports = run_built(&cases, &options)?;
    say::line(table(&reports));
    Ok((reports.iter().filter(|report| report.is_right()).count(), reports.len()))
}

/// Run the cases with what is built and installed.
fn run_built(cases: &[Case], options: &Options) -> Result<Vec<Report>> {
    need_root()?;
    let begun = Moment::now();
    let scratch = Scratch::new("launcher", 1, options.keep.as_deref())?;
    let mut launcher = Launcher::start(&scratch)?;
    if !options.json {
        let took = Moment::now().seconds_after(begun);
        say::line(format_args!("  SGLang is imported … {took:.1} s"));
    }
    cases.iter().map(|case| until_not_void(case, options, &mut launcher)).collect()
}

fn until_not_void(case: &Case, options: &Options, launcher: &mut Launcher) -> Result<Report> {
    if !options.json {
        say::line(format_args!("  {}: {}", case.name, case.what));
    }
    let mut retried = 0;
    loop {
        let scratch = Scratch::new(&case.name, 1, options.keep.as_deref())?;
        let begun = Moment::now();
        let view = View { bare: options.bare, watched: true, agent: options.agent.as_deref() };
        let mut runs = Vec::new();
        if case.compare {
            let scratch = Scratch::new(&case.name, 0, options.keep.as_deref())?;
            let bare = View { bare: true, watched: false, agent: None };
            runs.push(steps::run(case, &scratch, &bare, launcher)?);
            runs.push(steps::run(case, &scratch, &bare, launcher)?);
        }
        let mut record = steps::run(case, &scratch, &view, launcher)?;
        record.compared = Compared::of(&runs, &record);
        let took = Moment::now().since(begun);
        let report = Report::new(case, took, &record, judge::judge(case, &record));
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
