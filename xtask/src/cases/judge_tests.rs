//! The judge on runs made by hand: one run that is right, and one change at a time.

use std::time::Duration;

use super::super::file::tests::sample;
use super::super::record::{Evidence, KnownBy, Worker};
use super::super::right::Dwell;
use super::*;
use crate::clock::Moment;

const PREFILL: u32 = 77;

fn at(seconds: f64) -> Moment {
    Moment(0).plus(Duration::from_secs_f64(seconds + 10.0))
}

fn stay(room: u64, removed: Option<(f64, &str)>) -> Stay {
    Stay {
        room,
        seq: room + 1,
        bytes: 65536,
        appended: at(0.0),
        injected: at(0.0),
        landed: None,
        released: None,
        removed: removed.map(|(seconds, outcome)| (at(seconds), outcome.to_owned())),
    }
}

fn line(kind: &str, room: u64, seconds: f64) -> Seen {
    let line = Line {
        kind: kind.to_owned(),
        room: Some(room),
        seq: Some(room + 1),
        worker: Some(Worker { pid: PREFILL }),
        ..Line::default()
    };
    Seen { at: at(seconds), line }
}

pub(super) fn verdict(room: u64, seconds: f64, finding: &str, cause: &str) -> Seen {
    let mut seen = line("verdict", room, seconds);
    seen.line.id = Some(format!("{room}-{finding}-{cause}"));
    seen.line.finding = Some(finding.to_owned());
    seen.line.cause = Some(cause.to_owned());
    seen.line.severity = Some("alert".to_owned());
    seen.line.evidence = vec![Evidence { id: "posted".to_owned(), ..Evidence::default() }];
    seen
}

fn dwell(room: u64, seconds: f64, outcome: &str) -> Seen {
    let mut seen = line("dwell", room, seconds);
    seen.line.outcome = Some(outcome.to_owned());
    seen
}

/// The sample case as it should go: the victim (room 5) is alarmed after 3 s, room 1 is healthy.
pub(super) fn good() -> Record {
    let mut record = Record::new(PREFILL, KnownBy::Hook);
    record.agent_ready = Some(at(-1.0));
    record.victims.insert("victim".to_owned(), stay(5, None));
    record.beside.push(stay(1, Some((0.1, "success"))));
    record.lines = vec![
        line("append", 5, 0.0),
        line("append", 1, 0.0),
        dwell(1, 0.2, "success"),
        verdict(5, 3.1, "never_started", "peer_frozen"),
    ];
    record
}

fn faults(change: impl FnOnce(&mut Case, &mut Record)) -> (Vec<Fault>, Option<String>) {
    let (mut case, mut record) = (sample(), good());
    change(&mut case, &mut record);
    let judgement = judge(&case, &record);
    (judgement.faults, judgement.void)
}

#[test]
fn a_right_run_is_right_and_its_times_are_measured() {
    let judgement = judge(&sample(), &good());
    assert_eq!((judgement.faults.as_slice(), &judgement.void), ([].as_slice(), &None));
    let [row] = judgement.rows.as_slice() else { panic!("one row") };
    assert_eq!(row.given, "never_started / peer_frozen");
    assert!((row.after_injection_s.unwrap() - 3.1).abs() < 1e-6);
    assert_eq!(row.while_stalled, Some(true));
    assert_eq!(judgement.healthy, 1);
}

#[test]
fn a_wrong_cause_is_named() {
    let (faults, void) = faults(|_, record| {
        record.lines.pop();
        record.lines.push(verdict(5, 3.1, "never_started", "unknown"));
    });
    assert!(
        matches!(faults.as_slice(), [Fault::Wrong { given, .. }] if given == "never_started / unknown")
    );
    assert_eq!(void, None);
}

#[test]
fn a_missing_alert_is_missing_and_not_void() {
    let (faults, void) = faults(|_, record| drop(record.lines.pop()));
    assert!(matches!(faults.as_slice(), [Fault::Missing { .. }]));
    assert_eq!(void, None);
}

#[test]
fn information_is_no_alert() {
    let (faults, _) = faults(|_, record| {
        let mut slow = verdict(1, 0.1, "moving_slowly", "unknown");
        slow.line.severity = Some("info".to_owned());
        record.lines.push(slow);
    });
    assert_eq!(faults, []);
}

#[test]
fn an_alert_on_a_healthy_room_is_extra() {
    let (faults, _) =
        faults(|_, record| record.lines.push(verdict(1, 0.1, "never_started", "peer_frozen")));
    assert!(matches!(faults.as_slice(), [Fault::Extra { room, .. }] if room == "healthy room 1"));
}

/// A decode keeps no queue here: no alert about it is right, whatever number it names.
#[test]
fn an_alert_about_another_process_of_the_pair_is_a_strangers() {
    let (faults, void) = faults(|_, record| {
        let mut other = verdict(1, 0.1, "never_started", "peer_frozen");
        other.line.worker = Some(Worker { pid: 78 });
        record.lines.push(other);
    });
    assert!(matches!(faults.as_slice(), [Fault::Stranger { pid: 78, .. }]), "{faults:?}");
    assert_eq!(void, None);
}

#[test]
fn an_alert_where_none_is_right_is_extra() {
    let (faults, _) = faults(|case, _| case.right[0].alert = None);
    assert!(matches!(faults.as_slice(), [Fault::Extra { .. }]));
}

#[test]
fn lateness_counts_from_the_injection_or_from_the_agents_coming() {
    let late = |_: &mut Case, record: &mut Record| record.lines[3].at = at(9.0);
    let (found, void) = faults(late);
    assert!(
        matches!(found.as_slice(), [Fault::Late { after_s, .. }] if (after_s - 9.0).abs() < 1e-6)
    );
    assert_eq!(void, None);
    let (found, _) = faults(|case, record| {
        late(case, record);
        record.agent_ready = Some(at(5.0));
    });
    assert_eq!(found, []);
}

#[test]
fn lateness_of_a_starved_runner_is_void() {
    let (_, void) = faults(|_, record| {
        record.lines[3].at = at(9.0);
        record.starved = Duration::from_secs(2);
    });
    assert!(void.unwrap().contains("held up"));
}

#[test]
fn an_alert_before_its_time_is_early() {
    let (faults, _) = faults(|case, record| {
        case.right[0].alert.as_mut().unwrap().earliest_s = 2.5;
        record.lines[3].at = at(1.0);
    });
    assert!(matches!(faults.as_slice(), [Fault::Early { .. }]));
}

#[test]
fn evidence_that_must_be_stated_must_be_there() {
    let (faults, _) = faults(|_, record| record.lines[3].line.evidence.clear());
    assert!(matches!(faults.as_slice(), [Fault::Unstated { id, .. }] if id == "posted"));
}

#[test]
fn an_alert_is_given_once_under_one_id_also_across_restarts() {
    let again = |record: &mut Record| {
        record.agent_kills = 1;
        record.lines.push(verdict(5, 4.0, "never_started", "peer_frozen"));
    };
    let (found, _) = faults(|_, record| again(record));
    assert!(matches!(found.as_slice(), [Fault::Double { count: 2, ids: 1, .. }]));
    let (found, _) = faults(|_, record| {
        again(record);
        record.lines[4].line.maybe_repeated = true;
    });
    assert_eq!(found, []);
    let (found, _) = faults(|_, record| {
        again(record);
        record.lines[4].line.maybe_repeated = true;
        record.lines[4].line.id = Some("another".to_owned());
    });
    assert!(matches!(found.as_slice(), [Fault::Double { ids: 2, .. }]));
}

#[test]
fn an_alert_stands_for_as_long_as_the_room_stalls() {
    let clear = |record: &mut Record, seconds: f64| {
        let mut clear = line("clear", 5, seconds);
        clear.line.finding = Some("never_started".to_owned());
        clear.line.cause = Some("peer_frozen".to_owned());
        clear.line.why = Some("changed".to_owned());
        record.lines.push(clear);
    };
    let (found, _) = faults(|_, record| clear(record, 4.0));
    assert!(matches!(found.as_slice(), [Fault::TakenBack { why, .. }] if why == "changed"));
    let (found, _) = faults(|_, record| {
        clear(record, 4.0);
        record.victims.get_mut("victim").unwrap().released = Some(at(3.9));
    });
    assert_eq!(found, []);
}

#[test]
fn a_clear_and_an_end_that_are_due_must_come() {
    let due = |case: &mut Case, record: &mut Record| {
        case.right[0].clear = Some("progress".to_owned());
        case.right[0].dwell =
            Some(Dwell { outcome: "success".to_owned(), cause: None, at_most_s: None });
        let stay = record.victims.get_mut("victim").unwrap();
        stay.released = Some(at(2.9));
        stay.removed = Some((at(5.0), "success".to_owned()));
    };
    let (found, void) = faults(due);
    assert!(matches!(found.as_slice(), [Fault::NotCleared { .. }, Fault::Ends { count: 0, .. }]));
    assert_eq!(void, None);
    let (found, _) = faults(|case, record| {
        due(case, record);
        let mut clear = line("clear", 5, 4.9);
        clear.line.why = Some("progress".to_owned());
        record.lines.extend([clear, dwell(5, 5.0, "failed")]);
    });
    assert!(
        matches!(found.as_slice(), [Fault::WrongEnd { given, .. }] if given == "failed / none")
    );
}

#[test]
fn an_end_must_carry_its_cause_where_one_is_due() {
    let (found, _) = faults(|case, record| {
        case.right[0].alert = None;
        case.right[0].dwell = Some(Dwell {
            at_most_s: None,
            outcome: "failed".to_owned(),
            cause: Some("peer_dead".to_owned()),
        });
        record.lines[3] = dwell(5, 1.0, "failed");
    });
    assert!(
        matches!(found.as_slice(), [Fault::WrongEnd { given, .. }] if given == "failed / none")
    );
}

#[test]
fn a_room_that_the_agent_never_names_is_lost() {
    let (faults, _) = faults(|_, record| drop(record.lines.remove(0)));
    assert!(matches!(faults.as_slice(), [Fault::Lost { .. }]));
}

#[test]
fn a_late_agent_must_say_that_it_is_late() {
    let (found, _) = faults(|case, _| case.right[0].late = true);
    assert!(matches!(found.as_slice(), [Fault::NotLate { .. }]));
}

#[test]
fn a_healthy_room_must_be_told_to_have_ended_once_and_as_it_did() {
    let (found, _) = faults(|_, record| drop(record.lines.remove(2)));
    assert!(matches!(found.as_slice(), [Fault::Ends { count: 0, .. }]));
    let (found, _) = faults(|_, record| drop(record.lines.remove(1)));
    assert!(matches!(found.as_slice(), [Fault::Lost { .. }]));
    let (found, _) = faults(|_, record| {
        record.lines.remove(2);
        record.agent_ready = Some(at(0.05));
    });
    assert_eq!(found, [], "it was appended before the agent came");
    let (found, _) = faults(|_, record| record.lines.push(dwell(1, 0.3, "success")));
    assert!(matches!(found.as_slice(), [Fault::Ends { count: 2, .. }]));
    let (found, _) = faults(|_, record| record.lines[2] = dwell(1, 0.3, "aborted"));
    assert!(matches!(found.as_slice(), [Fault::WrongEnd { .. }]));
}

/// Killed before it wrote the line, an agent leaves only the next one's, which cannot know that.
#[test]
fn an_end_that_may_be_a_repetition_is_one() {
    let (found, _) = faults(|_, record| record.lines[2].line.maybe_repeated = true);
    assert_eq!(found, []);
    let (found, _) = faults(|case, record| {
        case.right[0].dwell =
            Some(Dwell { outcome: "success".to_owned(), cause: None, at_most_s: None });
        let stay = record.victims.get_mut("victim").unwrap();
        stay.released = Some(at(4.0));
        stay.removed = Some((at(5.0), "success".to_owned()));
        record.lines.extend([dwell(5, 5.0, "success"), dwell(5, 5.1, "success")]);
        record.lines[5].line.maybe_repeated = true;
    });
    assert_eq!(found, []);
}

#[test]
fn an_alert_after_the_room_has_ended_helps_nobody() {
    let (faults, _) = faults(|_, record| {
        let stay = record.victims.get_mut("victim").unwrap();
        stay.released = Some(at(2.9));
        stay.removed = Some((at(3.0), "success".to_owned()));
    });
    assert!(matches!(faults.as_slice(), [Fault::TooLateToHelp { .. }]));
}

#[test]
fn a_load_that_ended_too_soon_makes_the_run_void() {
    let voids = |change: &dyn Fn(&mut Stay)| {
        faults(|_, record| change(record.victims.get_mut("victim").unwrap())).1.unwrap()
    };
    let by_landing = voids(&|stay| stay.landed = Some(65000));
    assert!(by_landing.contains("99 % had landed"), "{by_landing}");
    let by_end = voids(&|stay| stay.removed = Some((at(2.0), "success".to_owned())));
    assert!(by_end.contains("did not stall"), "{by_end}");
    let before = voids(&|stay| stay.removed = Some((at(-0.5), "success".to_owned())));
    assert!(before.contains("before the injection"), "{before}");
}

#[test]
fn of_rooms_that_cannot_be_seen_nothing_is_asked_but_that_none_is_alarmed() {
    let (found, _) = faults(|case, record| {
        case.beside.unseen = true;
        record.lines.remove(2);
        record.lines.remove(1);
    });
    assert_eq!(found, []);
    let (found, _) = faults(|case, record| {
        case.beside.unseen = true;
        record.lines.push(verdict(1, 0.2, "never_started", "peer_frozen"));
    });
    assert!(matches!(found.as_slice(), [Fault::Extra { .. }]));
}

#[test]
fn too_few_healthy_rooms_or_a_broken_harness_make_the_run_void() {
    let (_, void) = faults(|case, _| case.beside.at_least = 2);
    assert!(void.unwrap().contains("1 healthy rooms ended, 2"));
    let (_, void) = faults(|_, record| record.spoilt.push("sick: refused".to_owned()));
    assert_eq!(void.unwrap(), "sick: refused");
    let (_, void) = faults(|_, record| record.victims.clear());
    assert!(void.unwrap().contains("was not appended"));
}

#[test]
fn an_agent_that_ended_by_itself_is_a_fault() {
    let (faults, void) = faults(|_, record| record.agent_faults.push("the agent ended".to_owned()));
    assert!(matches!(faults.as_slice(), [Fault::Process { .. }]));
    assert_eq!(void, None);
}

#[test]
fn a_healthy_room_that_stood_for_the_deadline_by_itself_says_nothing_about_the_agent() {
    let stood = |seconds, alert| {
        faults(|_, record| {
            record.beside = vec![stay(1, Some((seconds, "success")))];
            record.lines.push(verdict(1, alert, "completed_not_reaped", "unknown"));
        })
        .1
    };
    assert!(stood(3.5, 3.2).unwrap().contains("healthy room 1 stood longer"));
    assert_eq!(stood(2.9, 3.2), None, "it had ended");
    assert_eq!(stood(3.5, 2.0), None, "it was alarmed too early");
}
