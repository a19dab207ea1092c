//! Running a case: its steps, one after another.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::Signal;
use serde_json::json;

use super::View;
use super::file::Case;
use super::record::{Record, Stay};
use super::scratch::Scratch;
use super::step::Step;
use super::world::{ANSWER, World};
use crate::clock::Moment;

/// How long after a verdict was due it is still waited for, to tell "late" from "missing".
const GRACE: Duration = Duration::from_secs(4);

/// Run a case to its end. What the harness itself could not do makes the run void, not an error.
pub(super) fn run(case: &Case, scratch: &Scratch, view: &View) -> Result<Record> {
    let mut world = match World::start(case, scratch, view) {
        Ok(world) => world,
        // On a machine that is too busy for its pair to start, which says nothing of the next run.
        Err(error) => return Ok(Record::unbegun(format!("{error:#}"))),
    };
    if let Err(error) = steps(case, &mut world) {
        world.record().spoilt.push(format!("{error:#}"));
    }
    world.finish()
}

fn steps(case: &Case, world: &mut World<'_>) -> Result<()> {
    if !case.agent.late {
        world.start_agent()?;
        if case.pair.bare {
            // Only what it posts makes such a process known.
            world.begin_traffic();
        }
        world.await_agent()?;
    }
    world.begin_traffic();
    take_all(case, world)
}

/// Take the steps of a case, one after another.
pub(super) fn take_all(case: &Case, world: &mut World<'_>) -> Result<()> {
    case.steps.iter().try_for_each(|step| take(case, step, world))
}

fn take(case: &Case, step: &Step, world: &mut World<'_>) -> Result<()> {
    match step {
        Step::Transfer { to, bytes } => world.transfer(*to, *bytes)?,
        Step::Append(append) => world.append(append)?,
        Step::Watch { .. } => watch(step, world)?,
        Step::Landed { room } => landed(room, world)?,
        Step::Mute { who } => world.tell_decode(*who, "mute", "muted")?,
        Step::Deafen { who } => world.tell_decode(*who, "deafen", "deafened")?,
        Step::Hear { who } => {
            world.release();
            world.tell_decode(*who, "hear", "hears")?;
        }
        Step::CountWrites => world.count_writes()?,
        Step::Complete { who, bytes } => world.complete(*who, *bytes)?,
        Step::Stop { who } => world.decode(*who).stop()?,
        Step::Continue { who } => {
            world.release();
            world.decode(*who).signal(Signal::CONT)?;
        }
        Step::Restart { who } => world.restart(*who)?,
        Step::Guests { times } => world.guests(*times)?,
        Step::Renew { who } => world.introduce_one(*who, true)?,
        Step::Cut { room, way } => world.cut(room, *way)?,
        Step::Heal => {
            world.release();
            world.net()?.heal()?;
        }
        Step::Forward { seconds } => world.forward(*seconds)?,
        Step::Fill { rooms, worker, keep_s } => world.fill(*rooms, *worker, *keep_s)?,
        Step::Burst { room, marks } => world.burst(room, *marks)?,
        Step::Abort { room } => world.abort(room)?,
        Step::Abandon { room } => world.abandon(room)?,
        Step::Fail { room, decision, refused } => {
            world.fail(room, (decision, refused.as_deref()))?;
        }
        Step::Found { who, offset, bytes, written, reused } => {
            world.found(*who, (*offset, *bytes), *written, *reused)?;
        }
        Step::StartAgent => {
            world.start_agent()?;
            world.await_agent()?;
        }
        Step::KillAgent { times, within_ms } => kill_agent(*times, *within_ms, world)?,
        Step::StopAgent => world.signal_agent(Signal::STOP)?,
        Step::ContinueAgent => world.signal_agent(Signal::CONT)?,
        Step::Sleep { .. }
        | Step::Verdict { .. }
        | Step::Clear { .. }
        | Step::Appended { .. }
        | Step::Removed { .. }
        | Step::BesideEnded { .. } => wait(case, step, world)?,
    }
    Ok(())
}

/// The steps that only wait. What does not come in time is for the judge to say.
fn wait(case: &Case, step: &Step, world: &mut World<'_>) -> Result<()> {
    match step {
        Step::Sleep { seconds } => drop(world.wait(Duration::from_secs_f64(*seconds), |_| false)?),
        Step::Verdict { room } => verdict(case, room, world)?,
        Step::Clear { room, within_s } => {
            world.wait_for(room, *within_s, |record, stay| {
                record.about(stay).any(|seen| seen.line.kind == "clear")
            })?;
        }
        Step::Appended { room, within_s } => {
            world.wait_for(room, *within_s, |_, _| true)?;
        }
        Step::Removed { room, within_s } => {
            world.wait_for(room, *within_s, |_, stay| stay.removed.is_some())?;
        }
        Step::BesideEnded { within_s } => {
            world.wait(Duration::from_secs_f64(*within_s), World::beside_ended)?;
        }
        _ => bail!("this step does not wait: {step:?}"),
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

/// Wait for the room's verdict until it is clearly overdue.
fn verdict(case: &Case, room: &str, world: &mut World<'_>) -> Result<()> {
    let right = case.right_of(room).and_then(|right| Some((right, right.expected()?)));
    let (right, expected) =
        right.with_context(|| format!("steps: no verdict is expected for {room}"))?;
    let record = world.record();
    let stay = record.victims.get(room).with_context(|| format!("{room} is not appended"))?;
    let from = record.agent_ready.unwrap_or(stay.injected).max(stay.injected);
    let due = from.plus(Duration::from_secs_f64(expected.within_s)).plus(GRACE);
    let limit = due.since(Moment::now()).as_secs_f64();
    let alarm = right.alert.is_some();
    let told = |record: &Record, stay: &Stay| {
        let mut lines = record.about(stay).map(|seen| &seen.line);
        lines.any(|line| line.is_alert() || (!alarm && line.is_info()))
    };
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
