//! Whether a run says anything about the agent, and which of its faults that excuses.

use std::collections::BTreeSet;
use std::mem;
use std::time::Duration;

use super::super::file::Case;
use super::super::record::{Record, Stay};
use super::super::right::Right;
use super::super::step::family;
use super::{Fault, Judgement, healthy_name};
use crate::clock::Moment;

/// Above this share of a room's bytes landed at the injection, the load had as good as ended.
const ENDED: f64 = 0.9;
/// With the runner away for longer, lateness says nothing about the agent.
const STARVED: Duration = Duration::from_millis(700);

/// Why a run is void, and what follows from that alone.
struct Reason {
    why: String,
    excuses: Excuses,
}

/// What a reason to be void excuses. All else is the agent's fault on any machine, and is never
/// dropped with a run that is void besides.
enum Excuses {
    /// That something came late.
    Lateness,
    /// That something came late or has not come.
    Absence,
    /// The same, and what was said of the victims: the case has not been played as it is written.
    Victims,
    /// What was said of this victim and of those that wait behind it.
    Victim(String),
    /// That these healthy rooms were alarmed, and absence.
    Alarms(BTreeSet<String>),
}

/// Say why the run is void, where it is, and set aside the faults that this explains.
pub(super) fn settle(case: &Case, record: &Record, judgement: &mut Judgement) {
    let reasons = reasons(case, record, judgement);
    let Some(first) = reasons.first() else { return };
    judgement.void = Some(first.why.clone());
    let excused = |fault: &Fault| reasons.iter().any(|reason| reason.excuses.fault(fault, case));
    (judgement.excused, judgement.faults) =
        mem::take(&mut judgement.faults).into_iter().partition(excused);
}

impl Excuses {
    fn fault(&self, fault: &Fault, case: &Case) -> bool {
        // Said at a wrong moment or more than once: no lateness makes that right.
        let never = matches!(fault, Fault::Early { .. } | Fault::Double { .. });
        let victim = fault.room().filter(|room| !never && case.right_of(room).is_some());
        match self {
            Self::Lateness => matches!(fault, Fault::Late { .. }),
            Self::Absence => fault.is_absence(),
            Self::Victims => fault.is_absence() || victim.is_some(),
            Self::Victim(name) => victim.is_some_and(|room| {
                let head = case.right_of(room).and_then(|right| right.incident.as_deref());
                family(room) == family(name) || head == Some(family(name))
            }),
            Self::Alarms(rooms) => {
                let alarm = matches!(fault, Fault::Extra { room, .. } if rooms.contains(room));
                alarm || fault.is_absence()
            }
        }
    }
}

/// Why the run says nothing about the agent, what matters most first.
fn reasons(case: &Case, record: &Record, judgement: &Judgement) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let mut give = |why: String, excuses| reasons.push(Reason { why, excuses });
    for why in &record.spoilt {
        give(why.clone(), Excuses::Victims);
    }
    for why in &record.slow {
        give(why.clone(), Excuses::Absence);
    }
    if u64::try_from(judgement.healthy).unwrap_or(0) < case.beside.at_least {
        let (ended, wanted) = (judgement.healthy, case.beside.at_least);
        give(format!("{ended} healthy rooms ended, {wanted} are needed"), Excuses::Absence);
    }
    for right in &case.right {
        let mut stays = record.victims.iter().filter(|(name, _)| family(name) == right.room);
        let Some(first) = stays.next() else {
            give(format!("{} was not appended", right.room), Excuses::Victims);
            continue;
        };
        for (name, stay) in std::iter::once(first).chain(stays) {
            if let Some(why) = ended_too_soon(right, name, stay) {
                give(why, Excuses::Victim(name.clone()));
            }
        }
    }
    let overdue = record.beside.iter().filter(|stay| is_overdue(case, stay, record));
    let overdue: BTreeSet<String> = overdue.map(healthy_name).collect();
    if let Some(room) = overdue.first() {
        let why = format!("{room} stood longer than the deadline by itself");
        give(why, Excuses::Alarms(overdue));
    }
    let late = judgement.faults.iter().any(|fault| matches!(fault, Fault::Late { .. }));
    if late && record.starved > STARVED {
        let held_up = record.starved.as_secs_f64();
        give(format!("the runner was held up for {held_up:.1} s"), Excuses::Lateness);
    }
    reasons
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

#[cfg(test)]
mod tests {
    use super::super::super::file::tests::sample;
    use super::super::judge;
    use super::super::tests::{good, verdict};
    use super::*;

    fn judged(change: impl FnOnce(&mut Record)) -> Judgement {
        let mut record = good();
        change(&mut record);
        judge(&sample(), &record)
    }

    fn accuse(record: &mut Record, room: u64, after_s: f64) {
        record.lines.push(verdict(room, after_s, "never_started", "peer_dead"));
    }

    #[test]
    fn a_void_run_keeps_the_faults_that_lateness_does_not_explain() {
        let starved = |record: &mut Record| {
            record.starved = Duration::from_secs(2);
            record.lines[3].at = record.lines[3].at.plus(Duration::from_secs(6));
        };
        let late = judged(starved);
        assert!(late.void.is_some() && late.faults.is_empty());
        assert!(matches!(late.excused.as_slice(), [Fault::Late { .. }]));
        let false_alarm = judged(|record| {
            starved(record);
            accuse(record, 1, 0.05);
        });
        assert!(false_alarm.void.is_some());
        assert!(matches!(false_alarm.faults.as_slice(), [Fault::Extra { .. }]));
        assert!(matches!(false_alarm.excused.as_slice(), [Fault::Late { .. }]));
    }

    #[test]
    fn what_the_harness_has_not_done_excuses_what_was_said_of_the_victims_only() {
        let spoilt = judged(|record| {
            record.spoilt.push("sick: refused".to_owned());
            accuse(record, 5, 3.2);
            accuse(record, 1, 0.05);
            record.agent_faults.push("the agent ended".to_owned());
        });
        assert!(matches!(spoilt.excused.as_slice(), [Fault::Wrong { .. }]), "{spoilt:?}");
        let [Fault::Extra { room, .. }, Fault::Process { .. }] = spoilt.faults.as_slice() else {
            panic!("{spoilt:?}")
        };
        assert_eq!(room, "healthy room 1");
    }

    #[test]
    fn a_pair_that_has_not_started_is_void() {
        let unbegun = judge(&sample(), &Record::unbegun("prefill has not said ready".to_owned()));
        assert_eq!(unbegun.void.as_deref(), Some("prefill has not said ready"));
        assert_eq!(unbegun.faults, []);
    }

    #[test]
    fn a_room_that_stood_for_the_deadline_excuses_its_own_alarm_and_no_other() {
        let stood = judged(|record| {
            let (appended, _) = record.beside[0].removed.take().unwrap();
            let mut other = record.beside[0].clone();
            (other.room, other.seq) = (2, 3);
            other.removed = Some((appended, "success".to_owned()));
            let mut append = record.lines[1].clone();
            (append.line.room, append.line.seq) = (Some(2), Some(3));
            let mut end = record.lines[2].clone();
            (end.line.room, end.line.seq) = (Some(2), Some(3));
            record.beside.push(other);
            record.lines.extend([append, end]);
            record.lines.remove(2);
            accuse(record, 1, 3.5);
            accuse(record, 2, 3.5);
        });
        assert!(stood.void.as_ref().unwrap().contains("healthy room 1 stood"));
        let of = |faults: &[Fault]| {
            faults.iter().filter_map(Fault::room).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(of(&stood.excused), ["healthy room 1"]);
        assert_eq!(of(&stood.faults), ["healthy room 2"]);
    }
}
