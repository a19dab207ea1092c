//! The judge of the agent: a pure function from what is right and what happened to the faults.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Serialize;
use thiserror::Error;

use super::file::{Alert, Case, Right};
use super::record::{Line, Record, Seen, Stay};
use crate::clock::Moment;

/// Above this share of a room's bytes landed at the injection, the load had as good as ended.
const ENDED: f64 = 0.9;
/// With the runner away for longer, lateness says nothing about the agent.
const STARVED: Duration = Duration::from_millis(700);

/// Something that is not right.
#[derive(Clone, Debug, PartialEq, Error, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Fault {
    #[error("{room}: no alert, expected {expected}")]
    Missing { room: String, expected: String },
    #[error("{room}: {given}, expected {expected}")]
    Wrong { room: String, expected: String, given: String },
    #[error("{room}: alert {given} where none is right")]
    Extra { room: String, given: String },
    #[error("{room}: alert after {after_s:.1} s, due within {within_s:.1} s")]
    Late { room: String, after_s: f64, within_s: f64 },
    #[error("{room}: alert after {after_s:.1} s, not right before {earliest_s:.1} s")]
    Early { room: String, after_s: f64, earliest_s: f64 },
    #[error("{room}: the evidence does not state {id}")]
    Unstated { room: String, id: String },
    #[error("{room}: the alert came when the room had already ended")]
    TooLateToHelp { room: String },
    #[error("{room}: the alert was given {count} times under {ids} ids")]
    Double { room: String, count: usize, ids: usize },
    #[error("{room}: the alert was taken back by {why} while the room still stalled")]
    TakenBack { room: String, why: String },
    #[error("{room}: not taken back by {why}")]
    NotCleared { room: String, why: String },
    #[error("{room}: reported to have ended as {given}, expected {expected}")]
    WrongEnd { room: String, given: String, expected: String },
    #[error("{room}: its end was reported {count} times")]
    Ends { room: String, count: usize },
    #[error("{room}: never reported as open")]
    Lost { room: String },
    #[error("{room}: not said to have been open before the agent came")]
    NotLate { room: String },
    #[error("{why}")]
    Process { why: String },
}

/// What was given about one room, for the table.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) room: String,
    pub(super) expected: String,
    pub(super) given: String,
    /// Seconds from the injection to the alert.
    pub(super) after_injection_s: Option<f64>,
    /// Seconds from the moment it was due (injection + stall, or hard evidence) to the alert.
    pub(super) after_deadline_s: Option<f64>,
    /// Whether the alert came while the room was still in the queue.
    pub(super) while_stalled: Option<bool>,
}

/// What the judge says of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Judgement {
    /// One for each victim.
    pub(super) rows: Vec<Row>,
    /// How many healthy rooms ended beside them.
    pub(super) healthy: usize,
    /// How often the agent was killed.
    pub(super) agent_kills: u32,
    /// What is not right.
    pub(super) faults: Vec<Fault>,
    /// Why the run says nothing about the agent, where it does not.
    pub(super) void: Option<String>,
}

/// Judge one run of a case.
pub(super) fn judge(case: &Case, record: &Record) -> Judgement {
    let mut judgement = Judgement {
        healthy: record.beside.iter().filter(|stay| ended(stay) == Some("success")).count(),
        agent_kills: record.agent_kills,
        ..Judgement::default()
    };
    for right in &case.right {
        let Some(stay) = record.victims.get(&right.room) else { continue };
        judgement.rows.push(row(case, right, stay, record));
        victim(right, stay, record, &mut judgement.faults);
    }
    for stay in &record.beside {
        healthy(stay, record, &mut judgement.faults);
    }
    for why in &record.agent_faults {
        judgement.faults.push(Fault::Process { why: why.clone() });
    }
    judgement.void = void(case, record, &judgement);
    judgement
}

fn victim(right: &Right, stay: &Stay, record: &Record, faults: &mut Vec<Fault>) {
    let room = || right.room.clone();
    let lines: Vec<&Seen> = record.about(stay).collect();
    let alerts: Vec<&Seen> = lines.iter().copied().filter(|seen| seen.line.is_alert()).collect();
    match &right.alert {
        None => faults.extend(
            alerts.iter().map(|seen| Fault::Extra { room: room(), given: seen.line.says() }),
        ),
        Some(alert) => self::alert(right, alert, stay, record, &alerts, faults),
    }
    let appends: Vec<&Line> =
        lines.iter().map(|seen| &seen.line).filter(|line| line.kind == "append").collect();
    if appends.is_empty() {
        faults.push(Fault::Lost { room: room() });
    } else if right.late && !appends.iter().any(|line| line.late == Some(true)) {
        faults.push(Fault::NotLate { room: room() });
    }
    if let Some(why) = &right.clear {
        let cleared =
            |seen: &&Seen| seen.line.kind == "clear" && seen.line.why.as_ref() == Some(why);
        if !lines.iter().any(cleared) {
            faults.push(Fault::NotCleared { room: room(), why: why.clone() });
        }
    }
    end(right, &lines, faults);
}

fn alert(
    right: &Right,
    alert: &Alert,
    stay: &Stay,
    record: &Record,
    alerts: &[&Seen],
    faults: &mut Vec<Fault>,
) {
    let room = || right.room.clone();
    let expected = says(alert);
    let good: Vec<&&Seen> = alerts.iter().filter(|seen| seen.line.says() == expected).collect();
    let bad = alerts.iter().filter(|seen| seen.line.says() != expected);
    faults.extend(bad.map(|seen| Fault::Wrong {
        room: room(),
        expected: expected.clone(),
        given: seen.line.says(),
    }));
    let Some(first) = good.first() else {
        if alerts.is_empty() {
            faults.push(Fault::Missing { room: room(), expected });
        }
        return;
    };
    let after_s =
        first.at.seconds_after(record.agent_ready.unwrap_or(stay.injected).max(stay.injected));
    if after_s > alert.within_s {
        faults.push(Fault::Late { room: room(), after_s, within_s: alert.within_s });
    }
    let after_s = first.at.seconds_after(stay.injected);
    if after_s < alert.earliest_s {
        faults.push(Fault::Early { room: room(), after_s, earliest_s: alert.earliest_s });
    }
    if stay.removed.as_ref().is_some_and(|(at, _)| first.at > *at) {
        faults.push(Fault::TooLateToHelp { room: room() });
    }
    let unstated = alert.states.iter().filter(|id| !first.line.states(id));
    faults.extend(unstated.map(|id| Fault::Unstated { room: room(), id: id.clone() }));
    double(&right.room, &good, faults);
    taken_back(&right.room, &expected, stay, record, faults);
}

/// While nothing has let the room go on, nothing may take its alert back.
fn taken_back(room: &str, expected: &str, stay: &Stay, record: &Record, faults: &mut Vec<Fault>) {
    let ended = stay.removed.as_ref().map(|(at, _)| *at);
    let until = stay.released.or(ended).unwrap_or(Moment(u64::MAX));
    let clears = record.about(stay).filter(|seen| {
        seen.line.kind == "clear" && seen.line.says() == expected && seen.at < until
    });
    faults.extend(clears.map(|seen| Fault::TakenBack {
        room: room.to_owned(),
        why: seen.line.why.clone().unwrap_or_else(|| "no reason".to_owned()),
    }));
}

/// One alert has one id and is given once, also across restarts of the agent; only what its
/// predecessor may have died over can come again, and says so.
fn double(room: &str, alerts: &[&&Seen], faults: &mut Vec<Fault>) {
    let ids: BTreeSet<&Option<String>> = alerts.iter().map(|seen| &seen.line.id).collect();
    let count = alerts.iter().filter(|seen| !seen.line.maybe_repeated).count();
    if ids.len() != 1 || count > 1 {
        faults.push(Fault::Double { room: room.to_owned(), count, ids: ids.len() });
    }
}

fn end(right: &Right, lines: &[&Seen], faults: &mut Vec<Fault>) {
    let Some(dwell) = &right.dwell else { return };
    let ends: Vec<&Line> =
        lines.iter().map(|seen| &seen.line).filter(|line| line.kind == "dwell").collect();
    let [end] = ends.as_slice() else {
        faults.push(Fault::Ends { room: right.room.clone(), count: ends.len() });
        return;
    };
    let word = |word: Option<&str>| word.unwrap_or("none").to_owned();
    let expected = (word(Some(&dwell.outcome)), word(dwell.cause.as_deref()));
    let given_cause = if dwell.cause.is_some() { end.cause.as_deref() } else { None };
    let given = (word(end.outcome.as_deref()), word(given_cause));
    if given != expected {
        let join = |(outcome, cause): (String, String)| format!("{outcome} / {cause}");
        faults.push(Fault::WrongEnd {
            room: right.room.clone(),
            given: join(given),
            expected: join(expected),
        });
    }
}

/// A healthy room is never alarmed, and its end is told once and as what it was: also by an agent
/// that did not run when it ended, as long as an earlier one did before.
fn healthy(stay: &Stay, record: &Record, faults: &mut Vec<Fault>) {
    let room = || format!("healthy room {}", stay.room);
    let (mut appends, mut ends) = (0, 0);
    for seen in record.about(stay) {
        let told = &seen.line;
        if told.is_alert() {
            faults.push(Fault::Extra { room: room(), given: told.says() });
        }
        appends += usize::from(told.kind == "append");
        if told.kind == "dwell" {
            ends += usize::from(!told.maybe_repeated);
            let (given, expected) = (told.outcome.as_deref(), ended(stay));
            if given != expected {
                let word = |word: Option<&str>| word.unwrap_or("still open").to_owned();
                let (given, expected) = (word(given), word(expected));
                faults.push(Fault::WrongEnd { room: room(), given, expected });
            }
        }
    }
    let seen_whole = record.agent_ready.is_some_and(|ready| stay.appended >= ready);
    if seen_whole && appends == 0 {
        faults.push(Fault::Lost { room: room() });
    }
    if ends > 1 || (seen_whole && ended(stay).is_some() && ends != 1) {
        faults.push(Fault::Ends { room: room(), count: ends });
    }
}

/// Why the run says nothing about the agent.
fn void(case: &Case, record: &Record, judgement: &Judgement) -> Option<String> {
    if let Some(why) = record.spoilt.first() {
        return Some(why.clone());
    }
    if u64::try_from(judgement.healthy).unwrap_or(0) < case.beside.at_least {
        let (ended, wanted) = (judgement.healthy, case.beside.at_least);
        return Some(format!("{ended} healthy rooms ended, {wanted} are needed"));
    }
    for right in &case.right {
        let Some(stay) = record.victims.get(&right.room) else {
            return Some(format!("{} was not appended", right.room));
        };
        if let Some(why) = ended_too_soon(right, stay) {
            return Some(why);
        }
    }
    let only_late = !judgement.faults.is_empty()
        && judgement.faults.iter().all(|fault| matches!(fault, Fault::Late { .. }));
    (only_late && record.starved > STARVED)
        .then(|| format!("the runner was held up for {:.1} s", record.starved.as_secs_f64()))
}

fn ended_too_soon(right: &Right, stay: &Stay) -> Option<String> {
    #[expect(clippy::cast_precision_loss, reason = "a share of two sizes")]
    let share = stay.landed.map_or(0.0, |landed| landed as f64 / stay.bytes.max(1) as f64);
    if share > ENDED {
        return Some(format!("{}: {:.0} % had landed at the injection", right.room, share * 100.0));
    }
    let (at, outcome) = stay.removed.as_ref()?;
    if *at < stay.injected {
        return Some(format!("{}: ended as {outcome} before the injection", right.room));
    }
    if right.alert.is_some() && stay.released.is_none() {
        return Some(format!("{}: ended as {outcome}, so it did not stall", right.room));
    }
    None
}

fn row(case: &Case, right: &Right, stay: &Stay, record: &Record) -> Row {
    let alerts = || record.about(stay).filter(|seen| seen.line.is_alert());
    let expected = right.alert.as_ref().map_or_else(|| "no alert".to_owned(), says);
    let first = alerts().find(|seen| seen.line.says() == expected).or_else(|| alerts().next());
    let end = record.about(stay).find(|seen| seen.line.kind == "dwell").map(|seen| {
        let why = seen.line.cause.as_ref().map_or_else(String::new, |why| format!(" / {why}"));
        format!("no alert, ended {}{why}", seen.line.outcome.as_deref().unwrap_or("?"))
    });
    let since = first.map(|seen| seen.at.seconds_after(stay.injected));
    let hard = right.alert.as_ref().is_some_and(|alert| alert.earliest_s == 0.0 && !right.late);
    let deadline = if hard { 0.0 } else { case.agent.stall_s };
    Row {
        room: right.room.clone(),
        expected,
        given: first
            .map_or_else(|| end.unwrap_or_else(|| "no alert".to_owned()), |seen| seen.line.says()),
        after_injection_s: since,
        after_deadline_s: since.map(|since| since - deadline),
        while_stalled: first.map(|seen| stay.removed.as_ref().is_none_or(|(at, _)| seen.at < *at)),
    }
}

fn says(alert: &Alert) -> String {
    format!("{} / {}", alert.finding, alert.cause)
}

fn ended(stay: &Stay) -> Option<&str> {
    stay.removed.as_ref().map(|(_, outcome)| outcome.as_str())
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
