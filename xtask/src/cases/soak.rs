//! `soak`: the pair under load with faults and decodes that come and go, one agent from the first
//! to the last minute, and what it holds meanwhile.
//!
//! Its metrics are scraped and its spans, logs and metrics exported all the time: what answers whoever
//! asks must not grow either. The round of faults is a case file. Each round is judged like a case and then forgotten, so that
//! the runner itself does not grow either.

mod readers;
mod sample;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::Args;

use super::file::Case;
use super::folder;
use super::judge::judge;
use super::scratch::Scratch;
use super::world::World;
use super::{View, agent, need_root, steps};
use crate::clock::Moment;
use crate::say;
use crate::setup;
use readers::Readers;
use sample::{COUNTS, Sample, growth};

/// The round of faults.
const ROUND: &str = "xtask/cases/soak/round.toml";
/// Time from one sample to the next.
const EVERY: Duration = Duration::from_secs(30);
/// A room that ended earlier than this has been told of, or never will be.
const SETTLED: Duration = Duration::from_secs(10);

/// Options of `cargo xtask soak`.
#[derive(Args)]
pub(crate) struct Options {
    /// How long
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// Keep logs and agent lines in this directory
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Run this agent rather than build one
    #[arg(long, value_name = "FILE")]
    agent: Option<PathBuf>,
}

/// What a soak has come to so far.
#[derive(Default)]
struct Tally {
    rounds: u32,
    /// Rounds that say nothing about the agent.
    void: u32,
    rooms: u64,
    /// What was not right, as text.
    faults: Vec<String>,
    samples: Vec<Sample>,
}

/// Set up, build, soak; an error when the agent grew or said what is not right.
pub(crate) fn run(options: &Options) -> Result<()> {
    need_root()?;
    if options.agent.is_none() {
        setup::run()?;
        agent::build()?;
    }
    let mut case: Case = folder::read(&crate::tree::root().join(ROUND))?;
    let readers = Readers::start(&mut case.agent)?;
    let scratch = Scratch::new("soak", 1, options.keep.as_deref())?;
    let view = View { agent: options.agent.clone(), ..View::default() };
    let mut world = World::start(&case, &scratch, &view)?;
    world.start_agent()?;
    world.await_agent()?;
    readers.begin();
    world.begin_traffic();
    let mut tally = rounds(&case, &scratch, &mut world, options.minutes)?;
    let (line, faults) = readers.end(tally.rooms);
    say::line(line);
    for fault in &faults {
        say::line(format_args!("      {fault}"));
    }
    tally.faults.extend(faults);
    outcome(&tally)
}

fn rounds(case: &Case, scratch: &Scratch, world: &mut World<'_>, minutes: f64) -> Result<Tally> {
    let begun = Moment::now();
    let end = begun.plus(Duration::try_from_secs_f64(minutes * 60.0)?);
    let mut tally = Tally::default();
    say::line(head());
    while Moment::now() < end {
        let due = Moment::now().plus(EVERY);
        if let Err(error) = steps::take_all(case, world) {
            world.record().spoilt.push(format!("{error:#}"));
        }
        // Samples are taken at the same place of each round, when no fault stands.
        world.wait(due.since(Moment::now()), |_| false)?;
        world.await_told()?;
        round(case, world, &mut tally);
        let Some(sample) = sample(world, scratch, begun, tally.rooms) else {
            tally.faults.push("the agent is gone".to_owned());
            break;
        };
        say::line(row(&sample, tally.samples.last()));
        tally.samples.push(sample);
    }
    Ok(tally)
}

/// Judge what has ended, and forget it.
fn round(case: &Case, world: &mut World<'_>, tally: &mut Tally) {
    let before = Moment::now().minus(SETTLED);
    let record = world.forget(before);
    let judgement = judge(case, &record);
    tally.rounds += 1;
    tally.rooms += judgement.healthy as u64;
    if let Some(why) = judgement.void {
        say::line(format_args!("      round {} is void: {why}", tally.rounds));
        tally.void += 1;
    }
    for fault in judgement.faults {
        let text = format!("round {}: {fault}", tally.rounds);
        say::line(format_args!("      {text}"));
        tally.faults.push(text);
    }
}

fn sample(world: &World<'_>, scratch: &Scratch, begun: Moment, rooms: u64) -> Option<Sample> {
    let (pid, usage) = (world.agent_pid()?, world.agent_usage()?);
    let at_s = Moment::now().seconds_after(begun);
    Sample::take(pid, usage, &scratch.path("state"), at_s, rooms)
}

fn head() -> String {
    let cells = COUNTS.iter().map(|what| format!("  {what:>width$}", width = what.len().max(6)));
    format!("  {:>6}  {:>7}  {:>5}{}", "s", "rooms/s", "CPU %", cells.collect::<String>())
}

fn row(sample: &Sample, last: Option<&Sample>) -> String {
    let (at, cpu, rooms) = last.map_or((0.0, 0.0, 0), |last| (last.at_s, last.cpu_s, last.rooms));
    let seconds = (sample.at_s - at).max(1e-9);
    #[expect(clippy::cast_precision_loss, reason = "a rate for a table")]
    let rate = (sample.rooms - rooms) as f64 / seconds;
    let cpu = (sample.cpu_s - cpu) / seconds * 100.0;
    let cells = COUNTS.iter().zip(sample.held).map(|(what, held)| {
        let digits = usize::from(*what == "MiB");
        format!("  {held:>width$.digits$}", width = what.len().max(6))
    });
    format!("  {:>6.0}  {rate:>7.1}  {cpu:>5.1}{}", sample.at_s, cells.collect::<String>())
}

fn outcome(tally: &Tally) -> Result<()> {
    let Some(growth) = growth(&tally.samples) else {
        bail!("{} samples show no growth\nfix: run for at least 4 minutes", tally.samples.len());
    };
    say::line("\n  median of    first third  last third     at most");
    for kind in &growth {
        let word = if kind.is_grown() { "  GROWN" } else { "" };
        say::line(format_args!(
            "  {:11}  {:11.1}  {:10.1}  {:10.1}{word}",
            kind.what, kind.first, kind.last, kind.most
        ));
    }
    let last = tally.samples.last();
    #[expect(clippy::cast_precision_loss, reason = "a rate for a line")]
    let rate = last.map_or(0.0, |last| tally.rooms as f64 / last.at_s.max(1e-9));
    let (rounds, rooms, faults) = (tally.rounds, tally.rooms, tally.faults.len());
    ensure!(tally.void * 2 < rounds, "{} of {rounds} rounds were void", tally.void);
    say::line(format_args!(
        "  {rounds} rounds of faults ({} void), {rooms} healthy rooms ({rate:.0} a second), {faults} not right",
        tally.void
    ));
    let grown: Vec<&str> =
        growth.iter().filter(|kind| kind.is_grown()).map(|kind| kind.what).collect();
    if !grown.is_empty() || faults > 0 {
        bail!(
            "grown: {}; not right: {faults}",
            if grown.is_empty() { "nothing".to_owned() } else { grown.join(", ") }
        );
    }
    Ok(())
}
