//! What the agent keeps: memory with 10,000 open rooms, and CPU where nothing happens.

use std::time::Duration;

use anyhow::Result;

use super::Row;
use super::agent::Agent;
use super::load::Load;
use crate::say;

/// Two workers, since a table holds 8192 rooms.
const ROOMS: [u32; 2] = [5000, 5000];
/// The agent has read every table by then, and its meters a few times.
const SETTLE: Duration = Duration::from_secs(8);
const WORKERS: usize = 8;
const THREADS: u32 = 8;
const WATCH: Duration = Duration::from_secs(20);

pub(super) fn measure() -> Result<Vec<Row>> {
    Ok(vec![open_rooms()?, idle()?])
}

fn open_rooms() -> Result<Row> {
    let mut loads = [Load::start()?, Load::start()?];
    let pids = loads.each_ref().map(Load::pid);
    let agent = Agent::start(&pids, 600.0)?;
    let before = agent.usage()?.resident_mib;
    for (load, rooms) in loads.iter_mut().zip(ROOMS) {
        load.tell(&format!("hold {rooms}"))?;
    }
    std::thread::sleep(SETTLE);
    let after = agent.usage()?.resident_mib;
    say::line(format_args!("  {before:.1} MiB without rooms, {after:.1} MiB with 10,000"));
    Ok(Row::new(
        "resident memory of the agent with 10,000 open rooms",
        format!("{after:.0} MiB ({before:.0} MiB with none)"),
    )
    .goal("≤ 60 MB", after * 1.048_576 <= 60.0))
}

fn idle() -> Result<Row> {
    let mut loads = Vec::new();
    for _ in 0..WORKERS {
        let mut load = Load::start()?;
        load.tell(&format!("idle {THREADS}"))?;
        loads.push(load);
    }
    let pids: Vec<u32> = loads.iter().map(Load::pid).collect();
    let agent = Agent::start(&pids, 600.0)?;
    std::thread::sleep(SETTLE);
    let before = agent.usage()?;
    std::thread::sleep(WATCH);
    let share = agent.usage()?.share_since(&before) * 100.0;
    Ok(Row::new(
        "CPU of the agent with 8 idle workers of 8 threads, each with a room open",
        format!("{share:.2} % of a core"),
    ))
}
