//! Running a case: its steps, one after another.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::Signal;
use serde_json::json;

use super::View;
use super::file::{Case, Step};
use super::record::{Record, Scratch, Stay};
use super::world::{ANSWER, World};
use crate::clock::Moment;

/// How long after a verdict was due it is still waited for, to tell "late" from "missing".
const GRACE: Duration = Duration::from_secs(4);

/// Run a case to its end. What the harness itself could not do makes the run void, not an error.
pub(super) fn run(case: &Case, scratch: &Scratch, view: &View) -> Result<Record> {
    let mut world = World::start(case, scratch, view)?;
    if let Err(error) = steps(case, &mut world) {
        world.record().spoilt.push(format!("{error:#}"));
    }
    world.finish()
}

fn steps(case: &Case, world: &mut World<'_>) -> Result<()> {
    if !case.agent.late {
        world.start_agent()?;
        world.await_agent()?;
    }
    world.begin_traffic();
    for step in &case.steps {
        take(case, step, world)?;
    }
    Ok(())
}

fn take(case: &Case, step: &Step, world: &mut World<'_>) -> Result<()> {
    match step {
        Step::Transfer { to, bytes } => world.transfer(*to, *bytes)?,
        Step::Append(append) => world.append(append)?,
        Step::Watch { .. } => watch(step, world)?,
        Step::Landed { room } => landed(room, world)?,
        Step::Stop { who } => world.decode(*who).signal(Signal::STOP)?,
        Step::Continue { who } => {
            world.release();
            world.decode(*who).signal(Signal::CONT)?;
        }
        Step::StartAgent => {
            world.start_agent()?;
            world.await_agent()?;
        }
        Step::KillAgent { times, within_ms } => kill_agent(*times, *within_ms, world)?,
        Step::Sleep { seconds } => drop(world.wait(Duration::from_secs_f64(*seconds), |_| false)?),
        Step::Verdict { room } => verdict(case, room, world)?,
        Step::Clear { room, within_s } => {
            world.wait_for(room, *within_s, |record, stay| {
                record.about(stay).any(|seen| seen.line.kind == "clear")
            })?;
        }
        Step::Removed { room, within_s } => {
            world.wait_for(room, *within_s, |_, stay| stay.removed.is_some())?;
        }
        Step::BesideEnded { within_s } => {
            world.wait(Duration::from_secs_f64(*within_s), World::beside_ended)?;
        }
    }
    Ok(())
}

/// Clear the memory that the room will be written to, then have the decode look at it.
fn watch(step: &Step, world: &mut World<'_>) -> Result<()> {
    let Step::Watch { room, to, bytes, after, then } = step else {
        bail!("not a watch: {step:?}");
    };
    world.decode(*to).tell(&json!({"do": "clear", "offset": 0, "size": bytes}))?;
    world.await_event(to.name(), "cleared", ANSWER)?;
    let room = world.expect_victim(room);
    world.decode(*to).tell(&json!({
        "do": "watch", "room": room, "offset": 0, "size": bytes, "after": after,
        "then": then.word(),
    }))?;
    world.await_event(to.name(), "watching", ANSWER).map(drop)
}

fn landed(room: &str, world: &mut World<'_>) -> Result<()> {
    let seen = world.wait_for(room, ANSWER.as_secs_f64(), |_, stay| stay.landed.is_some())?;
    seen.then_some(()).with_context(|| format!("not enough of {room} has landed in {ANSWER:?}"))
}

/// Wait for the room's alert until it is clearly overdue.
fn verdict(case: &Case, room: &str, world: &mut World<'_>) -> Result<()> {
    let alert = case.right_of(room).and_then(|right| right.alert.as_ref());
    let alert = alert.with_context(|| format!("steps: no alert is expected for {room}"))?;
    let record = world.record();
    let stay = record.victims.get(room).with_context(|| format!("{room} is not appended"))?;
    let from = record.agent_ready.unwrap_or(stay.injected).max(stay.injected);
    let due = from.plus(Duration::from_secs_f64(alert.within_s)).plus(GRACE);
    let limit = due.since(Moment::now()).as_secs_f64();
    let told = |record: &Record, stay: &Stay| record.about(stay).any(|seen| seen.line.is_alert());
    world.wait_for(room, limit, told).map(drop)
}

/// Kill the agent `times` times, each time at a random moment of its stay, and leave it running.
fn kill_agent(times: u32, within_ms: u64, world: &mut World<'_>) -> Result<()> {
    for _ in 0..times {
        let pause = Moment::now().0 % within_ms.max(1);
        world.wait(Duration::from_millis(pause), |_| false)?;
        world.kill_agent();
        world.start_agent()?;
    }
    world.await_agent()
}
