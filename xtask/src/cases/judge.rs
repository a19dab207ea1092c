//! The judge of the agent: a pure function from what is right and what happened to the faults.

mod fault;
mod said;
mod void;

use std::collections::BTreeSet;

pub(super) use fault::Fault;
use serde::Serialize;

use super::file::Case;
use super::record::{KnownBy, Line, Record, Seen, Stay};
use super::right::{Alert, Right};
use crate::clock::Moment;

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
    /// Resident MiB of the agent at the end.
    pub(super) agent_mib: Option<f64>,
    /// How often the agent was killed.
    pub(super) agent_kills: u32,
    /// What is not right.
    pub(super) faults: Vec<Fault>,
    /// What looks as if it were not right, and only the reason to be void made it so.
    pub(super) excused: Vec<Fault>,
    /// Why the run says nothing about the agent, where it does not.
    pub(super) void: Option<String>,
}

/// Judge one run of a case.
pub(super) fn judge(case: &Case, record: &Record) -> Judgement {
    let mut judgement = Judgement {
        healthy: record.beside.iter().filter(|stay| ended(stay) == Some("success")).count(),
        agent_mib: record.agent_mib,
        agent_kills: record.agent_kills,
        ..Judgement::default()
    };
    for (name, stay) in &record.victims {
        let Some(right) = case.right_of(name) else { continue };
        judgement.rows.push(row(case, right, name, stay, record));
        let victim = Victim { name, right, stay, lines: record.about(stay).collect() };
        self::victim(&victim, record, &mut judgement.faults);
    }
    for stay in &record.beside {
        healthy(stay, case.beside.unseen, record, &mut judgement.faults);
    }
    said::strangers(record, &mut judgement.faults);
    said::transfers(record, &mut judgement.faults);
    for why in &record.agent_faults {
        judgement.faults.push(Fault::Process { why: why.clone() });
    }
    if let (Some(mib), Some(most)) = (record.agent_mib, case.agent.most_mib)
        && mib > most
    {
        judgement.faults.push(Fault::Heavy { mib, most });
    }
    void::settle(case, record, &mut judgement);
    judgement
}

/// A victim and what the agent said of it.
struct Victim<'a> {
    name: &'a str,
    right: &'a Right,
    stay: &'a Stay,
    lines: Vec<&'a Seen>,
}

impl Victim<'_> {
    fn room(&self) -> String {
        self.name.to_owned()
    }
}

fn victim(victim: &Victim<'_>, record: &Record, faults: &mut Vec<Fault>) {
    let Victim { right, lines, .. } = victim;
    let alerts: Vec<&Seen> = lines.iter().copied().filter(|seen| seen.line.is_alert()).collect();
    match &right.alert {
        None => faults.extend(
            alerts.iter().map(|seen| Fault::Extra { room: victim.room(), given: seen.line.says() }),
        ),
        Some(alert) => self::alert(alert, victim, record, &alerts, faults),
    }
    said::infos(victim, record, faults);
    said::incident(victim, record, faults);
    let appends: Vec<&Line> =
        lines.iter().map(|seen| &seen.line).filter(|line| line.kind == "append").collect();
    if appends.is_empty() {
        faults.push(Fault::Lost { room: victim.room() });
    } else if right.late && !appends.iter().any(|line| line.late == Some(true)) {
        faults.push(Fault::NotLate { room: victim.room() });
    }
    if let Some(why) = &right.clear {
        let cleared =
            |seen: &&Seen| seen.line.kind == "clear" && seen.line.why.as_ref() == Some(why);
        if !lines.iter().any(cleared) {
            faults.push(Fault::NotCleared { room: victim.room(), why: why.clone() });
        }
    }
    end(victim, faults);
}

fn alert(
    alert: &Alert,
    victim: &Victim<'_>,
    record: &Record,
    alerts: &[&Seen],
    faults: &mut Vec<Fault>,
) {
    let expected = alert.says();
    let good: Vec<&&Seen> = alerts.iter().filter(|seen| seen.line.says() == expected).collect();
    let bad = alerts.iter().filter(|seen| seen.line.says() != expected);
    faults.extend(bad.map(|seen| Fault::Wrong {
        room: victim.room(),
        expected: expected.clone(),
        given: seen.line.says(),
    }));
    let Some(first) = good.first() else {
        if alerts.is_empty() {
            faults.push(Fault::Missing { room: victim.room(), expected });
        }
        return;
    };
    first_said(alert, first, victim, record, faults);
    // What a thread does with a room that was given up is told once the room has gone.
    let after = alert.is_of_a_left_room();
    if victim.stay.removed.as_ref().is_some_and(|(at, _)| !after && first.at > *at) {
        faults.push(Fault::TooLateToHelp { room: victim.room() });
    }
    double(victim.name, &good, faults);
    taken_back(victim.name, &expected, victim.stay, record, faults);
}

/// The time, the evidence and the tier of what was rightly said.
fn first_said(
    alert: &Alert,
    first: &Seen,
    victim: &Victim<'_>,
    record: &Record,
    faults: &mut Vec<Fault>,
) {
    let (room, injected) = (|| victim.room(), victim.stay.injected);
    let after_s = first.at.seconds_after(record.agent_ready.unwrap_or(injected).max(injected));
    if after_s > alert.within_s {
        faults.push(Fault::Late { room: room(), after_s, within_s: alert.within_s });
    }
    let after_s = first.at.seconds_after(injected);
    if after_s < alert.earliest_s {
        faults.push(Fault::Early { room: room(), after_s, earliest_s: alert.earliest_s });
    }
    let unstated = alert.states.iter().filter(|id| !first.line.states(id));
    faults.extend(unstated.map(|id| Fault::Unstated { room: room(), id: id.clone() }));
    if let Some(tier) = alert.tier.as_ref().filter(|tier| first.line.tier.as_ref() != Some(tier)) {
        faults.push(Fault::Tier {
            room: room(),
            given: word(first.line.tier.as_deref()),
            expected: tier.clone(),
        });
    }
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

/// How many of these lines no earlier life of the agent can have written. Of what is told once, one
/// at most is; an agent that was killed before it wrote its line leaves only one that says that it
/// may be a repetition.
fn firm(lines: &[&Line]) -> usize {
    lines.iter().filter(|line| !line.maybe_repeated).count()
}

fn end(victim: &Victim<'_>, faults: &mut Vec<Fault>) {
    let Some(dwell) = &victim.right.dwell else { return };
    let lines = victim.lines.iter().map(|seen| &seen.line);
    let ends: Vec<&Line> = lines.filter(|line| line.kind == "dwell").collect();
    let end = match ends.as_slice() {
        [end, ..] if firm(&ends) <= 1 => end,
        _ => {
            faults.push(Fault::Ends { room: victim.room(), count: ends.len() });
            return;
        }
    };
    let expected = (word(Some(&dwell.outcome)), word(dwell.cause.as_deref()));
    let given_cause = if dwell.cause.is_some() { end.cause.as_deref() } else { None };
    let given = (word(end.outcome.as_deref()), word(given_cause));
    if given != expected {
        let join = |(outcome, cause): (String, String)| format!("{outcome} / {cause}");
        faults.push(Fault::WrongEnd {
            room: victim.room(),
            given: join(given),
            expected: join(expected),
        });
    }
    if let (Some(dwell_s), Some(at_most_s)) = (end.dwell_s, dwell.at_most_s)
        && dwell_s > at_most_s
    {
        faults.push(Fault::Slow { room: victim.room(), dwell_s, at_most_s });
    }
}

/// A healthy room is never alarmed, and its end is told once and as what it was: also by an agent
/// that did not run when it ended, as long as an earlier one did before.
fn healthy(stay: &Stay, unseen: bool, record: &Record, faults: &mut Vec<Fault>) {
    let room = || healthy_name(stay);
    let (mut appends, mut ends) = (0, Vec::new());
    for seen in record.about(stay) {
        let told = &seen.line;
        if told.is_alert() {
            faults.push(Fault::Extra { room: room(), given: told.says() });
        }
        if record.known_by == KnownBy::Handle {
            // Each of its transfers has a beginning and an end of its own: `said::transfers`.
            continue;
        }
        appends += usize::from(told.kind == "append");
        if told.kind == "dwell" && !unseen {
            ends.push(told);
            let (given, expected) = (told.outcome.as_deref(), ended(stay));
            if given != expected {
                let word = |word: Option<&str>| word.unwrap_or("still open").to_owned();
                let (given, expected) = (word(given), word(expected));
                faults.push(Fault::WrongEnd { room: room(), given, expected });
            }
        }
    }
    let one_stay = record.known_by != KnownBy::Handle;
    let seen_whole =
        one_stay && !unseen && record.agent_ready.is_some_and(|ready| stay.appended >= ready);
    if seen_whole && appends == 0 {
        faults.push(Fault::Lost { room: room() });
    }
    if firm(&ends) > 1 || (seen_whole && ended(stay).is_some() && ends.is_empty()) {
        faults.push(Fault::Ends { room: room(), count: ends.len() });
    }
}

fn row(case: &Case, right: &Right, name: &str, stay: &Stay, record: &Record) -> Row {
    let quiet = right.info.is_some();
    let alerts = || {
        let told = |seen: &&Seen| seen.line.is_alert() || (quiet && seen.line.is_info());
        record.about(stay).filter(told)
    };
    let expected = right.expected().map_or_else(|| "no alert".to_owned(), Alert::says);
    let first = alerts().find(|seen| seen.line.says() == expected).or_else(|| alerts().next());
    let end = record.about(stay).find(|seen| seen.line.kind == "dwell").map(|seen| {
        let why = seen.line.cause.as_ref().map_or_else(String::new, |why| format!(" / {why}"));
        format!("no alert, ended {}{why}", seen.line.outcome.as_deref().unwrap_or("?"))
    });
    let since = first.map(|seen| seen.at.seconds_after(stay.injected));
    let hard = right.expected().is_some_and(|alert| alert.earliest_s < 1.0 && !right.late);
    let deadline = if hard { 0.0 } else { case.agent.stall_s };
    Row {
        room: name.to_owned(),
        expected,
        given: first
            .map_or_else(|| end.unwrap_or_else(|| "no alert".to_owned()), |seen| seen.line.says()),
        after_injection_s: since,
        after_deadline_s: since.map(|since| since - deadline),
        while_stalled: first.map(|seen| stay.removed.as_ref().is_none_or(|(at, _)| seen.at < *at)),
    }
}

fn word(word: Option<&str>) -> String {
    word.unwrap_or("none").to_owned()
}

fn healthy_name(stay: &Stay) -> String {
    format!("healthy room {}", stay.room)
}

fn ended(stay: &Stay) -> Option<&str> {
    stay.removed.as_ref().map(|(_, outcome)| outcome.as_str())
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
