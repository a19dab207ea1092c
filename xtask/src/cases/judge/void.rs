//! Whether a run says anything about the agent.

use std::time::Duration;

use super::super::file::Case;
use super::super::record::{Record, Stay};
use super::super::right::Right;
use super::super::step::family;
use super::{Fault, Judgement};
use crate::clock::Moment;

/// Above this share of a room's bytes landed at the injection, the load had as good as ended.
const ENDED: f64 = 0.9;
/// With the runner away for longer, lateness says nothing about the agent.
const STARVED: Duration = Duration::from_millis(700);

/// Why the run says nothing about the agent.
pub(super) fn void(case: &Case, record: &Record, judgement: &Judgement) -> Option<String> {
    if let Some(why) = record.spoilt.first() {
        return Some(why.clone());
    }
    if u64::try_from(judgement.healthy).unwrap_or(0) < case.beside.at_least {
        let (ended, wanted) = (judgement.healthy, case.beside.at_least);
        return Some(format!("{ended} healthy rooms ended, {wanted} are needed"));
    }
    for right in &case.right {
        let mut stays = record.victims.iter().filter(|(name, _)| family(name) == right.room);
        let Some(first) = stays.next() else {
            return Some(format!("{} was not appended", right.room));
        };
        let soon = |(name, stay): (&String, &Stay)| ended_too_soon(right, name, stay);
        if let Some(why) = std::iter::once(first).chain(stays).find_map(soon) {
            return Some(why);
        }
    }
    if let Some(stay) = record.beside.iter().find(|stay| is_overdue(case, stay, record)) {
        let room = stay.room;
        return Some(format!("healthy room {room} stood longer than the deadline by itself"));
    }
    let only_late = !judgement.faults.is_empty()
        && judgement.faults.iter().all(|fault| matches!(fault, Fault::Late { .. }));
    (only_late && record.starved > STARVED)
        .then(|| format!("the runner was held up for {:.1} s", record.starved.as_secs_f64()))
}

/// Whether a room that nothing was done to was alarmed after it had stood in the queue for the
/// whole deadline, by the engine's own clock: this machine was too busy for it to be healthy.
fn is_overdue(case: &Case, stay: &Stay, record: &Record) -> bool {
    let stood = |at: Moment| at.seconds_after(stay.appended);
    let overdue = stay.removed.as_ref().is_none_or(|(at, _)| stood(*at) >= case.agent.stall_s);
    let mut alerts = record.about(stay).filter(|seen| seen.line.is_alert());
    overdue && alerts.next().is_some_and(|seen| stood(seen.at) >= case.agent.stall_s)
}

fn ended_too_soon(right: &Right, name: &str, stay: &Stay) -> Option<String> {
    #[expect(clippy::cast_precision_loss, reason = "a share of two sizes")]
    let share = stay.landed.map_or(0.0, |landed| landed as f64 / stay.bytes.max(1) as f64);
    if share > ENDED {
        return Some(format!("{name}: {:.0} % had landed at the injection", share * 100.0));
    }
    let (at, outcome) = stay.removed.as_ref()?;
    if *at < stay.injected {
        return Some(format!("{name}: ended as {outcome} before the injection"));
    }
    let must_stay = right.alert.as_ref().is_some_and(|alert| !alert.is_of_a_left_room());
    if must_stay && stay.released.is_none_or(|released| *at < released) {
        return Some(format!("{name}: ended as {outcome}, so it did not stall"));
    }
    None
}
