//! Time from the deadline, and from hard evidence, to the verdict.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};

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
/// Peers at a time. Each is a process whose worker the agent reads, and their number must not be
/// what is measured.
const PEERS: usize = 10;

pub(super) fn measure() -> Result<Vec<Row>> {
    let mut load = Load::start()?;
    let agent = Agent::start(&[load.pid()], STALL_S)?;
    let deadline = delays(&mut load, &agent, "stall", STALL_S)?;
    drop((load, agent));
    let mut load = Load::start()?;
    let agent = Agent::start(&[load.pid()], 600.0)?;
    let hard = delays(&mut load, &agent, "die", 0.0)?;
    drop((load, agent));
    let unheard = peers_deaths()?;
    Ok(vec![
        row("from the deadline to the verdict, 100 rooms", &deadline, 0.25, "p99 ≤ 250 ms"),
        row(
            "from hard evidence (a worker thread ends) to the verdict, the engine's 600 ms of \
             grace included, 100 rooms",
            &hard,
            1.0,
            "p99 ≤ 1 s",
        ),
        row(
            "from a peer's death of which its library hears nothing to the verdict, 1200 ms of \
             grace for library and engine included, 100 rooms",
            &unheard,
            1.0,
            "p99 ≤ 1 s",
        ),
    ])
}

fn row(what: &str, delays: &[f64], most_s: f64, goal: &str) -> Row {
    let (p50, p99) = (quantile(delays, 50), quantile(delays, 99));
    Row::new(what, format!("p50 {:.0} ms, p99 {:.0} ms", p50 * 1e3, p99 * 1e3))
        .goal(goal, p99 <= most_s)
}

/// Seconds from each kill of a peer to the verdict of the room that was under way to it. There is no
/// connection and no transfer library here: nobody but the kernel tells of the death.
fn peers_deaths() -> Result<Vec<f64>> {
    let mut delays = Vec::new();
    while delays.len() < STALLS {
        let mut load = Load::start()?;
        let mut peers = Vec::new();
        for number in 0..PEERS {
            let name = format!("bench-decode-{}-{number}", load.pid());
            let peer = Load::decode(&name)?;
            peers.push((name, peer));
        }
        let followed: Vec<u32> =
            std::iter::once(load.pid()).chain(peers.iter().map(|(_, peer)| peer.pid())).collect();
        let agent = Agent::start(&followed, 600.0)?;
        let mut given = BTreeMap::new();
        for (name, peer) in peers {
            let room = whole(load.tell(&format!("send {name}"))?.get("room")?);
            // The room is known by then, and its peer has been looked at.
            std::thread::sleep(EVERY);
            given.insert(room, Moment::now());
            drop(peer);
        }
        for (delay, cause) in verdicts(&agent, given)? {
            ensure!(cause == "peer_dead", "a killed peer's room was told as {cause}");
            delays.push(delay);
        }
    }
    Ok(delays)
}

/// Seconds from when each room's verdict was due until it was on the agent's output.
fn delays(load: &mut Load, agent: &Agent, verb: &str, due_s: f64) -> Result<Vec<f64>> {
    let mut given = BTreeMap::new();
    for _ in 0..STALLS {
        let said = load.tell(verb)?;
        given.insert(whole(said.get("room")?), Moment(whole(said.get("at")?)));
        std::thread::sleep(EVERY);
    }
    let told = verdicts(agent, given)?;
    Ok(told.iter().map(|(delay, _)| delay - due_s).collect())
}

/// Seconds from each room's moment to its first verdict, and the cause that this gives.
fn verdicts(agent: &Agent, mut given: BTreeMap<u64, Moment>) -> Result<Vec<(f64, String)>> {
    let mut told = Vec::new();
    while !given.is_empty() {
        let (heard, line) = agent.wait(|line| line.kind == "verdict")?;
        if let Some(at) = line.room.and_then(|room| given.remove(&room)) {
            told.push((heard.seconds_after(at), line.cause.unwrap_or_default()));
        }
    }
    Ok(told)
}

#[expect(clippy::cast_possible_truncation, reason = "a room, or nanoseconds since boot")]
#[expect(clippy::cast_sign_loss, reason = "a room, or nanoseconds since boot")]
const fn whole(value: f64) -> u64 {
    value as u64
}
