//! What it costs a process that UCX's operations are counted in it, because one of its rooms is a
//! suspect of which nothing else shows whether it moves.

use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::agent::Agent;
use super::transfers::{Side, Stats, field};
use super::{Row, calls};
use crate::say;

/// A transfer: descriptors, the bytes of each, and how many are made.
const SHAPE: (u32, u32, u32) = (3840, 16_384, 30);
/// What UCX chooses from: on one host it then writes from process to process, past its connections.
const TRANSPORTS: &str = "all";
/// A suspect is one after five seconds, and is looked for four times a second.
const ARMED_AFTER: Duration = Duration::from_secs(8);
/// The goal, in percent of the posting CPU.
const GOAL: f64 = 10.0;

pub(super) fn measure() -> Result<Vec<Row>> {
    let [trap, _] = calls::trap()?;
    let decode = Side::start_with("pair/decode.py", "armed-decode", &[], TRANSPORTS)?;
    let mut deaf = Side::start_with("pair/decode.py", "armed-deaf", &["--polled"], TRANSPORTS)?;
    let mut poster = Side::start_with("price/transfers.py", "armed-poster", &[], TRANSPORTS)?;
    poster.tell(&decode.introduced("peer"))?;
    poster.hear("peered")?;
    run(&mut poster)?;
    let off = run(&mut poster)?;
    deaf.tell(&json!({"do": "deafen"}))?;
    deaf.hear("deafened")?;
    let agent = Agent::start(&[poster.pid()], 600.0)?;
    poster.tell(&deaf.introduced("stick"))?;
    poster.hear("stuck")?;
    thread::sleep(ARMED_AFTER);
    let _stats = Stats::on()?;
    let before = agent.hits()?;
    let on = run(&mut poster)?;
    let after = agent.hits()?;
    let (hits, nanos) = (after.0 - before.0, after.1 - before.1);
    let each = nanos / hits.max(1.0) + trap;
    let hits = hits / f64::from(SHAPE.2);
    say::line(format_args!(
        "  {hits:.0} hits a transfer, {each:.0} ns each; µs {off:.0} and {on:.0}"
    ));
    ensure!(hits > f64::from(SHAPE.0), "{hits:.0} hits a transfer: nothing was counted");
    let share = hits * each / 1e3 / off.max(1.0) * 100.0;
    Ok(vec![
        Row::new(
            format!(
                "while a room of the process is a suspect of which nothing else shows whether it \
                 moves: hits of one transfer of {} descriptors over CMA, by that of making and \
                 posting the request",
                SHAPE.0
            ),
            format!("{hits:.0} of {each:.0} ns: {share:.0} % of {off:.0} µs"),
        )
        .goal(format!("≤ {GOAL} %"), share <= GOAL),
    ])
}

/// CPU of the posting thread for one transfer, in microseconds.
fn run(poster: &mut Side) -> Result<f64> {
    let (descriptors, page, transfers) = SHAPE;
    poster.tell(&json!({
        "do": "run", "transfers": transfers, "descriptors": descriptors, "page": page,
    }))?;
    let ran = poster.hear("ran")?;
    let call = field(&ran, "call").as_f64().context("no call was said")?;
    Ok(call / 1e3)
}
