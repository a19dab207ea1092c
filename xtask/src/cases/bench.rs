//! `bench`: what hook and agent cost the pair, against the bare pair in the same run.
//!
//! The bare pair is measured twice: what the two differ by is noise, and any cost below it is not
//! shown to exist.

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;

use super::View;
use super::file::{Agent, Beside, Case, Pair};
use super::record::{Record, Scratch};
use super::world::World;
use crate::say;

/// Longest time for the rooms of one run.
const LIMIT: Duration = Duration::from_mins(5);

/// Options of `cargo xtask bench`.
#[derive(Args)]
pub(crate) struct Options {
    /// Rooms of each run
    #[arg(long, default_value_t = 500)]
    rooms: u64,
    /// Bytes of each room
    #[arg(long, default_value_t = 1 << 20)]
    bytes: u64,
    /// Bytes of each transfer call
    #[arg(long, default_value_t = 1 << 18)]
    chunk: u64,
    /// Runs of each kind, taken in turn
    #[arg(long, default_value_t = 5)]
    rounds: u32,
}

/// What is measured: a name, whether the pair runs without the hook, and with the agent.
const KINDS: [(&str, bool, bool); 4] = [
    ("bare", true, false),
    ("bare again", true, false),
    ("hook", false, false),
    ("hook and agent", false, true),
];

/// One run's numbers.
#[derive(Clone, Copy, Debug)]
struct Sample {
    rooms_per_s: f64,
    /// Median time in the queue.
    dwell_ms: f64,
    /// The 99th of a hundred.
    dwell_p99_ms: f64,
    /// CPU seconds of the agent for each second of the run.
    agent_cpu: f64,
    agent_mib: f64,
}

/// Build, measure, and print a table of medians. The set-up is done.
pub(crate) fn run(options: &Options) -> Result<()> {
    super::agent::build()?;
    let mut samples: [Vec<Sample>; 4] = Default::default();
    for round in 1..=options.rounds.max(1) {
        for ((name, bare, with_agent), taken) in KINDS.iter().zip(&mut samples) {
            let sample = measure(options, *bare, *with_agent)?;
            let (rooms, dwell) = (sample.rooms_per_s, sample.dwell_ms);
            say::line(format_args!("  {round} {name}: {rooms:.0} rooms/s, {dwell:.2} ms"));
            taken.push(sample);
        }
    }
    table(options, &samples);
    Ok(())
}

fn measure(options: &Options, bare: bool, with_agent: bool) -> Result<Sample> {
    let case = case(options, bare);
    let scratch = Scratch::new("bench", 1, None)?;
    let view = View { by_pid: true, ..View::default() };
    let mut world = World::start(&case, &scratch, &view)?;
    if with_agent {
        world.start_agent()?;
        world.await_agent()?;
    }
    let before = world.agent_usage();
    world.begin_traffic();
    let ended = world.wait(LIMIT, World::beside_ended)?;
    ensure!(ended, "{} rooms have not ended in {LIMIT:?}", options.rooms);
    let after = world.agent_usage();
    let record = world.finish()?;
    ensure!(record.spoilt.is_empty() && record.agent_faults.is_empty(), "{record:?}");
    let mut sample = sample(&record);
    if let (Some(before), Some(after)) = (before, after) {
        let seconds = after.at.seconds_after(before.at);
        sample.agent_cpu = (after.cpu_s - before.cpu_s) / seconds.max(1e-9);
        sample.agent_mib = after.resident_mib;
    }
    Ok(sample)
}

fn case(options: &Options, bare: bool) -> Case {
    Case {
        name: "bench".to_owned(),
        what: String::new(),
        order: 0,
        agent: Agent { suspect_s: 5.0, stall_s: 30.0, late: true, ..Agent::default() },
        pair: Pair { bare, ..Pair::default() },
        beside: Beside {
            every_ms: 0,
            bytes: vec![options.bytes],
            chunk: options.chunk,
            at_most: options.rooms,
            at_least: 0,
            first: 0,
        },
        steps: Vec::new(),
        right: Vec::new(),
    }
}

fn sample(record: &Record) -> Sample {
    let mut dwells: Vec<f64> = Vec::new();
    let (mut first, mut last) = (None, None);
    for stay in &record.beside {
        let Some((removed, _)) = &stay.removed else { continue };
        dwells.push(removed.seconds_after(stay.appended) * 1e3);
        first = Some(first.map_or(stay.appended, |first| stay.appended.min(first)));
        last = Some(last.map_or(*removed, |last| (*removed).max(last)));
    }
    let seconds = first.zip(last).map_or(0.0, |(first, last)| last.seconds_after(first));
    #[expect(clippy::cast_precision_loss, reason = "a count of rooms")]
    let rooms = dwells.len() as f64;
    Sample {
        rooms_per_s: rooms / seconds.max(1e-9),
        dwell_ms: quantile(&mut dwells, 50),
        dwell_p99_ms: quantile(&mut dwells, 99),
        agent_cpu: 0.0,
        agent_mib: 0.0,
    }
}

/// The value that so many percent of the values do not exceed; 0 of none.
fn quantile(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    let index = values.len().saturating_sub(1) * percent / 100;
    values.get(index).copied().unwrap_or(0.0)
}

fn table(options: &Options, samples: &[Vec<Sample>; 4]) {
    let median = |taken: &[Sample], of: fn(&Sample) -> f64| {
        quantile(&mut taken.iter().map(of).collect::<Vec<_>>(), 50)
    };
    let base = samples.first().map_or(0.0, |bare| median(bare, |sample| sample.rooms_per_s));
    let (rounds, rooms, bytes) = (options.rounds, options.rooms, options.bytes);
    say::line(format_args!(
        "\nmedians of {rounds} runs of {rooms} rooms of {bytes} bytes in chunks of {}",
        options.chunk
    ));
    say::line(
        "pair             rooms/s  against bare  dwell p50  dwell p99  agent CPU  agent memory",
    );
    for ((name, ..), taken) in KINDS.iter().zip(samples) {
        let rooms = median(taken, |sample| sample.rooms_per_s);
        let change = (rooms / base.max(1e-9) - 1.0) * 100.0;
        let (p50, p99) =
            (median(taken, |sample| sample.dwell_ms), median(taken, |sample| sample.dwell_p99_ms));
        let cpu = median(taken, |sample| sample.agent_cpu) * 100.0;
        let mib = median(taken, |sample| sample.agent_mib);
        say::line(format_args!(
            "{name:15} {rooms:8.1} {change:+11.1} % {p50:7.2} ms {p99:7.2} ms {cpu:8.1} % {mib:9.1} MiB"
        ));
    }
    say::line("what \"bare again\" differs by from \"bare\" is noise");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_occur() {
        let mut values = vec![4.0, 1.0, 3.0, 2.0, 5.0];
        assert!((quantile(&mut values, 50) - 3.0).abs() < f64::EPSILON);
        assert!((quantile(&mut values, 99) - 4.0).abs() < f64::EPSILON);
        assert!(quantile(&mut [], 50).abs() < f64::EPSILON);
    }
}
