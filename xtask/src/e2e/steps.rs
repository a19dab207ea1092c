//! Running a case: its steps, one after another, and what the engine still does after them.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;

use super::View;
use super::file::Case;
use super::launcher::Launcher;
use super::record::{Record, Room};
use super::step::{self, Load, Step, Who};
use super::world::{Asked, World};
use crate::cases::Scratch;
use crate::clock::Moment;

/// Longest time for a load, and for a first request, on a machine that is busy otherwise.
const SERVED: Duration = Duration::from_mins(4);
/// Longest time for a server to end.
const ENDED: Duration = Duration::from_secs(20);
/// Longest time for an answer to a call that is no request.
const CALLED: Duration = Duration::from_secs(40);
/// Longest time for the agent to speak of what has ended.
const SETTLE: Duration = Duration::from_secs(1);
/// How long after a verdict was due it is still waited for, to tell "late" from "missing".
const GRACE: Duration = Duration::from_secs(5);
/// Requests that the engine has to serve after the steps, and how many of them at a time.
const MORE: (u32, usize) = (20, 4);

/// Run a case to its end. What the launcher could not do makes the run void, not an error.
pub(super) fn run(
    case: &Case,
    scratch: &Scratch,
    view: &View<'_>,
    launcher: &mut Launcher,
) -> Result<Record> {
    let mut world = match World::start(case, scratch, view, launcher) {
        Ok(world) => world,
        Err(error) => {
            launcher.end_all()?;
            let spoilt = vec![format!("{error:#}")];
            return Ok(Record { spoilt, ..Record::default() });
        }
    };
    if let Err(error) = all(case, &mut world) {
        world.record().spoilt.push(format!("{error:#}"));
    }
    world.finish()
}

fn all(case: &Case, world: &mut World<'_>) -> Result<()> {
    for who in &case.pair.decodes {
        ensure!(
            load(&Load::to(*who, 1, 1, &[64]), world)? == 1,
            "the first request to {} was not served",
            who.name()
        );
    }
    world.await_agent()?;
    world.keep_free(0)?;
    for step in &case.steps {
        take(case, step, world)?;
    }
    world.wait(SETTLE, |_| false)?;
    world.keep_free(1)?;
    if case.ill { world.keep_free(2) } else { after(case, world) }
}

/// The engine serves more requests, at the decode that no fault hits where there is one.
fn after(case: &Case, world: &mut World<'_>) -> Result<()> {
    let Some(last) = case.pair.decodes.last() else { bail!("pair.decodes: none") };
    let (rooms, at_once) = MORE;
    let served = load(&Load::to(*last, rooms, at_once, &[64, 300]), world)?;
    world.record().more = (served, rooms as usize);
    world.wait(SETTLE, |_| false)?;
    world.keep_free(2)
}

fn take(case: &Case, step: &Step, world: &mut World<'_>) -> Result<()> {
    match step {
        Step::Request { room, to, prompt, only, new } => {
            let asked = Asked { to: *to, prompt: *prompt, only: *only, seed: None, new: *new };
            world.request(Some(room), &asked).map(drop)
        }
        Step::Load(healthy) => load(healthy, world).map(drop),
        Step::When { room, state, who, hit, rank } => {
            let (room, (name, whole)) = (world.number(room), hit.signal());
            let command = json!({
                "do": "when", "room": room, "state": state, "server": who.name(),
                "name": name, "whole": whole, "rank": rank,
            });
            world.order(&command, "waiting").map(drop)
        }
        Step::Stop { who } => signal(*who, 0, "SIGSTOP", world),
        Step::Continue { who, rank } => {
            world.record().released.get_or_insert(Moment::now());
            signal(*who, *rank, "SIGCONT", world)
        }
        Step::Kill { who } => kill(*who, world),
        Step::Start { who } => {
            world.begin(*who)?;
            world.await_ready(*who)
        }
        Step::Abort { room, who } => {
            let room = world.number(room);
            world.order(&json!({"do": "abort", "room": room, "server": who.name()}), "called")?;
            Ok(())
        }
        Step::Fail { room, decision, refused } => world.fail(room, (decision, refused.as_deref())),
        Step::Ask { who, path, body } => ask(*who, path, body, world),
        Step::Probe { who, path, every_s, times } => world.tell(&json!({
            "do": "probe", "server": who.name(), "path": path, "every": every_s, "times": times,
        })),
        Step::Foreign { who } => {
            let command = json!({"do": "foreign", "server": who.name()});
            world.order(&command, "sent").map(drop)
        }
        Step::Idle { seconds } => world.idle(*seconds),
        Step::Cut => world.cut(),
        Step::Heal => {
            world.record().released.get_or_insert(Moment::now());
            world.net()?.heal()
        }
        Step::Hit { .. }
        | Step::Queued { .. }
        | Step::Drained { .. }
        | Step::Sleep { .. }
        | Step::Verdict { .. }
        | Step::Clear { .. }
        | Step::Answered { .. }
        | Step::Reached { .. } => wait(case, step, world),
    }
}

/// The steps that only wait. What does not come in time is for the judge to say, but for what the
/// case itself rests on.
fn wait(case: &Case, step: &Step, world: &mut World<'_>) -> Result<()> {
    match step {
        Step::Sleep { seconds } => drop(world.wait(Duration::from_secs_f64(*seconds), |_| false)?),
        Step::Queued { rooms, within_s } => {
            world.queued(*rooms, Duration::from_secs_f64(*within_s))?;
        }
        Step::Drained { within_s } => {
            let open = |world: &World<'_>| world.seen().rooms.values().any(|it| !it.is_answered());
            world.wait(Duration::from_secs_f64(*within_s), |world| !open(world))?;
        }
        Step::Verdict { room, rank } => verdict(case, room, *rank, world)?,
        Step::Clear { room, within_s, rank } => {
            let number = world.number(room);
            let clear =
                |record: &Record| record.about(number, *rank).any(|seen| seen.line.kind == "clear");
            world.wait(Duration::from_secs_f64(*within_s), |world| clear(world.seen()))?;
        }
        Step::Answered { room, within_s } => {
            wait_for(room, *within_s, world, Room::is_answered)?;
        }
        Step::Hit { room, within_s } => {
            let (number, limit) = (world.number(room), Duration::from_secs_f64(*within_s));
            world.await_event(limit, "hit", |event| event.room == number)?;
        }
        Step::Reached { room, state, within_s } => {
            let there = wait_for(room, *within_s, world, |room| room.state == *state)?;
            ensure!(there, "{room} did not come to be {state} within {within_s} s");
        }
        _ => bail!("this step does not wait: {step:?}"),
    }
    Ok(())
}

fn wait_for(
    name: &str,
    within_s: f64,
    world: &mut World<'_>,
    done: impl Fn(&Room) -> bool,
) -> Result<bool> {
    world.wait(Duration::from_secs_f64(within_s), |world| {
        world.seen().room(name).is_some_and(|(_, room)| done(room))
    })
}

/// Wait for what is to be told of the room until it is clearly overdue.
fn verdict(case: &Case, name: &str, rank: usize, world: &mut World<'_>) -> Result<()> {
    let right =
        case.right_of(name, rank).with_context(|| format!("steps: nothing is right for {name}"))?;
    let (number, room) =
        world.seen().room(name).with_context(|| format!("{name} is not requested"))?;
    let due = room.injected.plus(Duration::from_secs_f64(right.within_s)).plus(GRACE);
    let alarm = !right.alert.is_empty();
    let told = |record: &Record| {
        record
            .about(number, rank)
            .any(|seen| seen.line.is_alert() || (!alarm && seen.line.kind == "verdict"))
    };
    world.wait(due.since(Moment::now()), |world| told(world.seen())).map(drop)
}

fn signal(who: Who, rank: usize, name: &str, world: &mut World<'_>) -> Result<()> {
    let command = json!({"do": "signal", "server": who.name(), "name": name, "rank": rank});
    world.order(&command, "signalled").map(drop)
}

fn kill(who: Who, world: &mut World<'_>) -> Result<()> {
    world.tell(&json!({"do": "kill", "server": who.name()}))?;
    world.await_event(ENDED, "ended", |event| event.server == who.name()).map(drop)
}

fn ask(who: Who, path: &str, body: &toml::Table, world: &mut World<'_>) -> Result<()> {
    let command = json!({
        "do": "ask", "server": who.name(), "method": "POST", "path": path, "body": body,
    });
    world.tell(&command)?;
    let answer = world.await_event(CALLED, "called", |event| event.path == path)?;
    ensure!(answer.status == 200, "{path} of {}: {} {}", who.name(), answer.status, answer.why);
    Ok(())
}

/// Send healthy requests, so many at a time, and wait for their answers; how many were served.
fn load(load: &Load, world: &mut World<'_>) -> Result<usize> {
    let end = Moment::now().plus(SERVED);
    let mut sent: Vec<u64> = Vec::new();
    let turns = load.prompts.iter().cycle().zip(load.to.iter().cycle());
    for (prompt, to) in turns.take(load.rooms as usize) {
        let open = |world: &World<'_>| count(&sent, world, |room| !room.is_answered());
        world.wait(end.since(Moment::now()), |world| open(world) < load.at_once)?;
        let seed = load.seed.map(|seed| seed + sent.len() as u64);
        let asked = Asked { to: *to, prompt: *prompt, only: None, seed, new: step::few() };
        sent.push(world.request(None, &asked)?);
    }
    if !load.answered {
        return Ok(0);
    }
    let open = |world: &World<'_>| count(&sent, world, |room| !room.is_answered());
    world.wait(end.since(Moment::now()), |world| open(world) == 0)?;
    Ok(count(&sent, world, Room::is_served))
}

fn count(rooms: &[u64], world: &World<'_>, which: impl Fn(&Room) -> bool) -> usize {
    let known = &world.seen().rooms;
    rooms.iter().filter(|number| known.get(number).is_some_and(&which)).count()
}
