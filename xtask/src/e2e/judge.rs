//! The judge of the agent: a pure function from what is right and what happened to the faults.

use std::collections::BTreeSet;

use serde::Serialize;
use thiserror::Error;

use super::file::{Case, Right};
use super::record::{Record, Room, SIDES};
use crate::cases::Seen;
use crate::clock::Moment;

/// Something that is not right.
#[derive(Clone, Debug, PartialEq, Error, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Fault {
    #[error("{room}: {expected} is not told")]
    Missing { room: String, expected: String },
    #[error("{room}: {given} is told, which is not right")]
    Wrong { room: String, given: String },
    #[error("{room}: told after {after_s:.1} s, due within {within_s:.1} s")]
    Late { room: String, after_s: f64, within_s: f64 },
    #[error("{room}: the evidence does not name rank {rank} of the prefill")]
    Unnamed { room: String, rank: usize },
    #[error("{room}: the alert is not taken back")]
    NotCleared { room: String },
    #[error("{room}: the alert is taken back ({why}) while its cause still stands")]
    TakenBack { room: String, why: String },
    #[error("{room}: the client got {given} of the {side}, right is {right:?}")]
    Client { room: String, side: String, given: i64, right: Vec<i64> },
    #[error("{room}: the {side} told the client {given:?}, and not {right:?}")]
    Reason { room: String, side: String, given: String, right: String },
    #[error("{room}: {given} appends, {right} are right")]
    Appends { room: String, given: usize, right: usize },
    #[error("{given} incidents, {right} are right")]
    Incidents { given: usize, right: usize },
    #[error("an alert about a room that nobody requested: {given}")]
    Stranger { given: String },
    #[error("an alert about a decode, which has no inflight queue: {given}")]
    Decode { given: String },
    #[error("the engine served {served} of {asked} requests after the case")]
    Ill { served: usize, asked: usize },
    #[error("{differ} of {rooms} requests gave other tokens than without hook and agent")]
    Tokens { differ: usize, rooms: usize },
    #[error("{why}")]
    Process { why: String },
}

/// What was given about one room, for the table.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) room: String,
    pub(super) right: String,
    pub(super) given: String,
    /// Seconds from the injection to what was told first.
    pub(super) after_s: Option<f64>,
    /// What the client got of each side, and when.
    pub(super) client: String,
}

/// What the judge says of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Judgement {
    /// One for each room that the case names, and for each rank with something to say of it.
    pub(super) rows: Vec<Row>,
    /// Healthy requests that were served.
    pub(super) healthy: usize,
    /// What is not right.
    pub(super) faults: Vec<Fault>,
}

/// Judge one run of a case.
pub(super) fn judge(case: &Case, record: &Record) -> Judgement {
    let mut judgement = Judgement::default();
    for (number, room) in &record.rooms {
        let right = |rank| case.right_of(room.name.as_ref()?, rank);
        let name = room.name.clone().unwrap_or_else(|| format!("healthy room {number}"));
        client(&name, room, right(0), &mut judgement.faults);
        judgement.healthy += usize::from(right(0).is_none() && room.is_served());
        for rank in 0..record.ranks.len().max(1) {
            let name = if rank == 0 { name.clone() } else { format!("{name} at rank {rank}") };
            let lines: Vec<&Seen> = record.about(*number, rank).collect();
            // Without the hook no alert is a room's own; those of all rooms are judged below.
            if !record.bare {
                told(&name, &lines, room, right(rank), record, &mut judgement.faults);
            }
            judgement.rows.extend(right(rank).map(|right| row(&name, &lines, room, right)));
        }
    }
    if record.bare {
        by_transfer(case, record, &mut judgement.faults);
    }
    of_all(case, record, &mut judgement.faults);
    judgement
}

fn client(name: &str, room: &Room, right: Option<&Right>, faults: &mut Vec<Fault>) {
    for side in SIDES {
        if room.asked < SIDES.len() && !room.answers.contains_key(side) {
            continue;
        }
        reason(name, (side, room), right, faults);
        let right = right.and_then(|right| match side {
            "prefill" => right.prefill.clone(),
            _ => right.decode.clone(),
        });
        let (given, right) = (room.status(side), right.unwrap_or_else(|| vec![200]));
        if !right.contains(&given) {
            faults.push(Fault::Client {
                room: name.to_owned(),
                side: side.to_owned(),
                given,
                right,
            });
        }
    }
}

/// Whether an error that the client got says what it must.
fn reason(name: &str, (side, room): (&str, &Room), right: Option<&Right>, faults: &mut Vec<Fault>) {
    // 0 is no answer: its server was killed.
    let failed = room.answers.get(side).filter(|answer| ![0, 200].contains(&answer.status));
    let right = right.and_then(|right| right.says.as_ref());
    let (Some(answer), Some(right)) = (failed, right) else { return };
    if !answer.why.contains(right) {
        let (room, side) = (name.to_owned(), side.to_owned());
        let (given, right) = (answer.why.clone(), right.clone());
        faults.push(Fault::Reason { room, side, given, right });
    }
}

fn told(
    name: &str,
    lines: &[&Seen],
    room: &Room,
    right: Option<&Right>,
    record: &Record,
    faults: &mut Vec<Fault>,
) {
    let is_right = |seen: &Seen| right.is_some_and(|it| it.allows(&seen.line.says()));
    for seen in lines.iter().filter(|seen| seen.line.is_alert() && !is_right(seen)) {
        faults.push(Fault::Wrong { room: name.to_owned(), given: seen.line.says() });
    }
    if let Some(right) = right.and_then(|right| right.appends) {
        let given = lines.iter().filter(|seen| seen.line.kind == "append").count();
        if given != right {
            faults.push(Fault::Appends { room: name.to_owned(), given, right });
        }
    }
    let Some(right) = right.filter(|right| !right.expected().is_empty()) else { return };
    let mut verdicts = lines.iter().filter(|seen| seen.line.kind == "verdict");
    let Some(first) = verdicts.find(|seen| right.expected().contains(&seen.line.says())) else {
        let expected = right.expected().join(" or ");
        faults.push(Fault::Missing { room: name.to_owned(), expected });
        return;
    };
    let after_s = first.at.seconds_after(room.injected);
    if after_s > right.within_s {
        faults.push(Fault::Late { room: name.to_owned(), after_s, within_s: right.within_s });
    }
    if let Some(rank) = right.names.filter(|rank| !names(first, record.ranks.get(*rank))) {
        faults.push(Fault::Unnamed { room: name.to_owned(), rank });
    }
    if !right.then.is_empty() {
        stands(name, lines, &right.then, record, faults);
    }
    if right.clears && !lines.iter().any(|seen| seen.line.kind == "clear") {
        faults.push(Fault::NotCleared { room: name.to_owned() });
    }
}

/// Whether a verdict's evidence names the process as a rank that is not done.
fn names(verdict: &Seen, pid: Option<&u32>) -> bool {
    let mut others = verdict.line.evidence.iter().filter_map(|evidence| evidence.worker.as_ref());
    others.any(|other| Some(&other.pid) == pid)
}

/// The alert has given way to another, which stands until the decode is let run again.
fn stands(name: &str, lines: &[&Seen], then: &[String], record: &Record, faults: &mut Vec<Fault>) {
    let until = record.released.unwrap_or(Moment(u64::MAX));
    let before = lines.iter().filter(|seen| seen.at < until);
    let told: Vec<_> = before.filter(|s| ["verdict", "clear"].contains(&&*s.line.kind)).collect();
    if !told.iter().any(|seen| seen.line.kind == "verdict" && then.contains(&seen.line.says())) {
        faults.push(Fault::Missing { room: name.to_owned(), expected: then.join(" or ") });
    }
    if let Some(clear) = told.last().filter(|seen| seen.line.kind == "clear") {
        let why = clear.line.why.clone().unwrap_or_else(|| "no reason".to_owned());
        faults.push(Fault::TakenBack { room: name.to_owned(), why });
    }
}

/// Without the hook: one of the alerts that are right for some room must be given, and no other.
fn by_transfer(case: &Case, record: &Record, faults: &mut Vec<Fault>) {
    let expected: Vec<&String> = case.right.iter().flat_map(|right| &right.alert).collect();
    let alerts = || record.lines.iter().filter(|seen| seen.line.is_alert());
    let room = "some transfer".to_owned();
    for seen in alerts().filter(|seen| !expected.contains(&&seen.line.says())) {
        faults.push(Fault::Wrong { room: room.clone(), given: seen.line.says() });
    }
    if let (Some(first), None) = (expected.first(), alerts().next()) {
        faults.push(Fault::Missing { room, expected: (*first).clone() });
    }
}

fn of_all(case: &Case, record: &Record, faults: &mut Vec<Fault>) {
    let alerts = || record.lines.iter().filter(|seen| seen.line.is_alert());
    if let Some(right) = case.incidents {
        let incidents: BTreeSet<_> =
            alerts().filter_map(|seen| seen.line.incident.as_ref()).collect();
        if incidents.len() != right {
            faults.push(Fault::Incidents { given: incidents.len(), right });
        }
    }
    if !record.bare {
        let known = |seen: &&Seen| seen.line.room.is_some_and(|it| record.rooms.contains_key(&it));
        let strange = alerts().filter(|seen| !known(seen));
        faults.extend(strange.map(|seen| Fault::Stranger { given: seen.line.says() }));
    }
    let of_decodes = record.of_decodes.iter();
    faults.extend(of_decodes.map(|seen| Fault::Decode { given: seen.line.says() }));
    let (served, asked) = record.more;
    if served < asked {
        faults.push(Fault::Ill { served, asked });
    }
    if let Some(compared) = record.compared.as_ref().filter(|compared| compared.differ > 0) {
        faults.push(Fault::Tokens { differ: compared.differ, rooms: compared.rooms });
    }
    let whys = record.agent_faults.iter().map(|why| Fault::Process { why: why.clone() });
    faults.extend(whys);
}

fn row(name: &str, lines: &[&Seen], room: &Room, right: &Right) -> Row {
    let quiet = right.alert.is_empty() && !right.info.is_empty();
    let said = |seen: &&&Seen| seen.line.is_alert() || (quiet && seen.line.kind == "verdict");
    let first = lines.iter().find(said);
    let expected = right.expected();
    Row {
        room: name.to_owned(),
        right: if expected.is_empty() { "no alert".to_owned() } else { expected.join(" or ") },
        given: first.map_or_else(|| "no alert".to_owned(), |seen| seen.line.says()),
        after_s: first.map(|seen| seen.at.seconds_after(room.injected)),
        client: room.got(),
    }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
