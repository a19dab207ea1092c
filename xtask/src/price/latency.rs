//! Time from the deadline, and from hard evidence, to the verdict.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;

use super::Row;
use super::agent::Agent;
use super::load::Load;
use super::sample::quantile;
use crate::clock::Moment;

/// Verdicts of each kind.
const STALLS: usize = 100;
/// The deadline in this run.
const STALL_S: f64 = 1.0;
/// A new one so often: they overlap.
const EVERY: Duration = Duration::from_millis(103);

pub(super) fn measure() -> Result<Vec<Row>> {
    let mut load = Load::start()?;
    let agent = Agent::start(&[load.pid()], STALL_S)?;
    let deadline = delays(&mut load, &agent, "stall", STALL_S)?;
    drop((load, agent));
    let mut load = Load::start()?;
    let agent = Agent::start(&[load.pid()], 600.0)?;
    let hard = delays(&mut load, &agent, "die", 0.0)?;
    let (p50, p99) = (quantile(&deadline, 50), quantile(&deadline, 99));
    let (hard50, hard99) = (quantile(&hard, 50), quantile(&hard, 99));
    Ok(vec![
        Row::new(
            "from the deadline to the verdict, 100 rooms",
            format!("p50 {:.0} ms, p99 {:.0} ms", p50 * 1e3, p99 * 1e3),
        )
        .goal("p99 ≤ 250 ms", p99 <= 0.25),
        Row::new(
            "from hard evidence (a worker thread ends) to the verdict, the engine's 600 ms of \
             grace included, 100 rooms",
            format!("p50 {:.0} ms, p99 {:.0} ms", hard50 * 1e3, hard99 * 1e3),
        )
        .goal("p99 ≤ 1 s", hard99 <= 1.0),
    ])
}

/// Seconds from when each room's verdict was due until it was on the agent's output.
fn delays(load: &mut Load, agent: &Agent, verb: &str, due_s: f64) -> Result<Vec<f64>> {
    let mut given = BTreeMap::new();
    for _ in 0..STALLS {
        let said = load.tell(verb)?;
        given.insert(whole(said.get("room")?), Moment(whole(said.get("at")?)));
        std::thread::sleep(EVERY);
    }
    let mut delays = Vec::new();
    while !given.is_empty() {
        let (heard, line) = agent.wait(|line| line.kind == "verdict")?;
        if let Some(at) = line.room.and_then(|room| given.remove(&room)) {
            delays.push(heard.seconds_after(at) - due_s);
        }
    }
    Ok(delays)
}

#[expect(clippy::cast_possible_truncation, reason = "a room, or nanoseconds since boot")]
#[expect(clippy::cast_sign_loss, reason = "a room, or nanoseconds since boot")]
const fn whole(value: f64) -> u64 {
    value as u64
}
