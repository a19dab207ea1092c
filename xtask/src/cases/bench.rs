//! What hook and agent cost the pair, against the bare pair in the same run.
//!
//! The bare pair is measured twice: what the two differ by is noise, and any cost below it is not
//! shown to exist.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::View;
use super::file::{Agent, Beside, Case, Pair};
use super::record::Record;
use super::scratch::Scratch;
use super::world::World;
use crate::price::quantile;
use crate::say;

/// Longest time for the rooms of one run.
const LIMIT: Duration = Duration::from_mins(5);

/// Rooms of each run.
const ROOMS: u64 = 500;
/// Bytes of each room.
const BYTES: u64 = 1 << 20;
/// Bytes of each transfer call.
const CHUNK: u64 = 1 << 18;
/// Runs of each kind, taken in turn.
const ROUNDS: u32 = 5;

/// What is measured: a name, whether the pair runs without the hook, and with the agent.
const KINDS: [(&str, bool, bool); 4] = [
    ("bare", true, false),
    ("bare again", true, false),
    ("hook", false, false),
    ("hook and agent", false, true),
];

/// One run's numbers, or the medians of several.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) rooms_per_s: f64,
    /// Median time in the queue.
    pub(crate) dwell_ms: f64,
    /// The 99th of a hundred.
    pub(crate) dwell_p99_ms: f64,
    /// CPU seconds of the agent for each second of the run.
    pub(crate) agent_cpu: f64,
    pub(crate) agent_mib: f64,
}

/// Measure: the medians of the bare pair, the same again, with the hook, with hook and agent.
pub(crate) fn run() -> Result<[Sample; 4]> {
    let mut samples: [Vec<Sample>; 4] = Default::default();
    for round in 1..=ROUNDS {
        for ((name, bare, with_agent), taken) in KINDS.iter().zip(&mut samples) {
            let sample = measure(*bare, *with_agent)?;
            let (rooms, dwell) = (sample.rooms_per_s, sample.dwell_ms);
            say::line(format_args!("  {round} {name}: {rooms:.0} rooms/s, {dwell:.2} ms"));
            taken.push(sample);
        }
    }
    Ok(samples.each_ref().map(|taken| medians(taken)))
}

/// What the runs were.
pub(crate) fn load() -> String {
    format!("{ROOMS} rooms of {} MiB in {} transfers each", BYTES >> 20, BYTES / CHUNK)
}

fn measure(bare: bool, with_agent: bool) -> Result<Sample> {
    let case = case(bare);
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
    ensure!(ended, "{ROOMS} rooms have not ended in {LIMIT:?}");
    let after = world.agent_usage();
    let record = world.finish()?;
    let good = [&record.spoilt, &record.slow, &record.agent_faults].iter().all(|it| it.is_empty());
    ensure!(good, "{record:?}");
    let mut sample = sample(&record);
    if let (Some(before), Some(after)) = (before, after) {
        let seconds = after.at.seconds_after(before.at);
        sample.agent_cpu = (after.cpu_s - before.cpu_s) / seconds.max(1e-9);
        sample.agent_mib = after.resident_mib;
    }
    Ok(sample)
}

fn case(bare: bool) -> Case {
    Case {
        name: "bench".to_owned(),
        what: String::new(),
        order: 0,
        agent: Agent { suspect_s: 5.0, stall_s: 30.0, late: true, ..Agent::default() },
        pair: Pair { bare, ..Pair::default() },
        beside: Beside {
            every_ms: 0,
            bytes: vec![BYTES],
            chunk: CHUNK,
            at_most: ROOMS,
            at_least: 0,
            unseen: false,
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
        dwell_ms: quantile(&dwells, 50),
        dwell_p99_ms: quantile(&dwells, 99),
        agent_cpu: 0.0,
        agent_mib: 0.0,
    }
}

fn medians(taken: &[Sample]) -> Sample {
    let median = |of: fn(&Sample) -> f64| quantile(&taken.iter().map(of).collect::<Vec<_>>(), 50);
    Sample {
        rooms_per_s: median(|sample| sample.rooms_per_s),
        dwell_ms: median(|sample| sample.dwell_ms),
        dwell_p99_ms: median(|sample| sample.dwell_p99_ms),
        agent_cpu: median(|sample| sample.agent_cpu),
        agent_mib: median(|sample| sample.agent_mib),
    }
}
