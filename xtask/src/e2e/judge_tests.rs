use std::collections::BTreeMap;

use super::super::file::tests::sample;
use super::super::record::Answer;
use super::*;
use crate::cases::{Evidence, Line, Worker};

const FROZEN: &str = "never_started / peer_frozen";

fn answer(status: i64) -> Answer {
    Answer { status, why: String::new(), tokens: Vec::new(), took_s: 1.0 }
}

fn room(name: Option<&str>, statuses: [Option<i64>; 2]) -> Room {
    let given = SIDES.iter().zip(statuses);
    let answers: BTreeMap<String, Answer> =
        given.filter_map(|(side, status)| Some(((*side).to_owned(), answer(status?)))).collect();
    let name = name.map(str::to_owned);
    Room { name, injected: Moment(0), state: String::new(), asked: 2, answers }
}

fn verdict(room: u64, at_s: u64, finding: &str, cause: &str) -> Seen {
    let line = Line {
        kind: "verdict".to_owned(),
        room: Some(room),
        incident: Some(format!("of {room}")),
        severity: Some("alert".to_owned()),
        finding: Some(finding.to_owned()),
        cause: Some(cause.to_owned()),
        worker: Some(Worker { pid: 7 }),
        ..Line::default()
    };
    Seen { at: Moment(at_s * 1_000_000_000), line }
}

/// The sample case's victim with its alert, a healthy room, an engine that goes on.
fn good() -> Record {
    let victim = room(Some("victim"), [None, Some(200)]);
    let healthy = room(None, [Some(200), Some(200)]);
    Record {
        ranks: vec![7],
        rooms: [(9, victim), (1, healthy)].into_iter().collect(),
        lines: vec![verdict(9, 6, "never_started", "peer_frozen")],
        more: (20, 20),
        ..Record::default()
    }
}

fn faults(change: impl FnOnce(&mut Case, &mut Record)) -> Vec<Fault> {
    let (mut case, mut record) = (sample(), good());
    change(&mut case, &mut record);
    judge(&case, &record).faults
}

#[test]
fn what_is_right_has_no_faults_and_a_row() {
    let judgement = judge(&sample(), &good());
    assert_eq!(judgement.faults, []);
    let [row] = judgement.rows.as_slice() else { panic!("{:?}", judgement.rows) };
    assert_eq!((row.given.as_str(), row.after_s), (FROZEN, Some(6.0)));
    assert_eq!(row.client, "P -, D 200 1.0 s");
    assert_eq!(judgement.healthy, 1);
}

#[test]
fn a_verdict_that_is_missing_late_or_wrong_is_named() {
    let missing = faults(|_, record| record.lines.clear());
    assert!(matches!(missing.as_slice(), [Fault::Missing { .. }]), "{missing:?}");
    let late = faults(|_, record| record.lines[0].at = Moment(60_000_000_000));
    assert!(matches!(late.as_slice(), [Fault::Late { .. }]), "{late:?}");
    let wrong = faults(|_, record| record.lines.push(verdict(9, 7, "blind", "unknown")));
    assert!(matches!(wrong.as_slice(), [Fault::Wrong { .. }]), "{wrong:?}");
}

#[test]
fn an_alert_about_a_healthy_room_or_about_nobody_s_is_named() {
    let healthy = faults(|_, record| record.lines.push(verdict(1, 7, "blind", "unknown")));
    assert!(matches!(healthy.as_slice(), [Fault::Wrong { .. }]), "{healthy:?}");
    let nobody = faults(|_, record| record.lines.push(verdict(3, 7, "blind", "unknown")));
    assert!(matches!(nobody.as_slice(), [Fault::Stranger { .. }]), "{nobody:?}");
}

#[test]
fn each_rank_has_its_own_verdict_and_the_evidence_names_the_one_that_is_not_done() {
    let ranks = |other: u32| {
        faults(|case, record| {
            let mut done = case.right[0].clone();
            done.alert = vec!["completed_not_reaped / remote_rank".to_owned()];
            done.names = Some(1);
            case.right[0].rank = 1;
            case.right.insert(0, done);
            record.ranks = vec![5, 7];
            let mut told = verdict(9, 7, "completed_not_reaped", "remote_rank");
            told.line.worker = Some(Worker { pid: 5 });
            let waits = Worker { pid: other };
            let id = "other_rank_waits".to_owned();
            told.line.evidence = vec![Evidence { id, worker: Some(waits) }];
            record.lines.push(told);
        })
    };
    assert_eq!(ranks(7), []);
    assert_eq!(ranks(8), [Fault::Unnamed { room: "victim".to_owned(), rank: 1 }]);
    let moved = faults(|case, record| {
        case.right[0].rank = 1;
        case.right.insert(0, Right { rank: 0, alert: Vec::new(), ..case.right[0].clone() });
        record.ranks = vec![7, 5];
    });
    assert!(matches!(moved.as_slice(), [Fault::Wrong { .. }, Fault::Missing { .. }]), "{moved:?}");
}

#[test]
fn an_alert_that_must_be_taken_back_and_is_not_is_named() {
    let not = faults(|case, _| case.right[0].clears = true);
    assert!(matches!(not.as_slice(), [Fault::NotCleared { .. }]), "{not:?}");
    let cleared = faults(|case, record| {
        case.right[0].clears = true;
        let mut clear = record.lines[0].clone();
        clear.line.kind = "clear".to_owned();
        record.lines.push(clear);
    });
    assert_eq!(cleared, []);
}

#[test]
fn an_alert_that_must_stand_is_not_taken_back_before_its_cause() {
    let cleared_at = |at_s: u64, captive: bool| {
        faults(|case, record| {
            case.right[0].then = vec!["never_started / worker_thread_captive".to_owned()];
            record.released = Some(Moment(10_000_000_000));
            let clear = |at_s, cause| {
                let mut clear = verdict(9, at_s, "never_started", cause);
                clear.line.kind = "clear".to_owned();
                clear
            };
            record.lines.push(clear(7, "peer_frozen"));
            if captive {
                record.lines.push(verdict(9, 7, "never_started", "worker_thread_captive"));
            }
            record.lines.push(clear(at_s, "worker_thread_captive"));
        })
    };
    let early = cleared_at(8, true);
    assert!(matches!(early.as_slice(), [Fault::TakenBack { .. }]), "{early:?}");
    let missing = cleared_at(11, false);
    assert!(matches!(missing.as_slice(), [Fault::Missing { .. }, _]), "{missing:?}");
    assert_eq!(cleared_at(11, true), []);
}

#[test]
fn a_room_that_enters_less_often_than_it_must_is_named() {
    let once = faults(|case, record| {
        case.right[0].appends = Some(2);
        let mut append = verdict(9, 1, "", "");
        append.line.kind = "append".to_owned();
        record.lines.push(append);
    });
    assert!(matches!(once.as_slice(), [Fault::Appends { given: 1, right: 2, .. }]), "{once:?}");
}

#[test]
fn what_the_client_got_is_judged_on_both_sides() {
    let aborted = room(Some("victim"), [Some(500), Some(200)]);
    let failed = faults(|_, record| drop(record.rooms.insert(9, aborted)));
    assert!(matches!(failed.as_slice(), [Fault::Client { given: 500, .. }]), "{failed:?}");
    let silent = faults(|_, record| drop(record.rooms.insert(1, room(None, [Some(200), None]))));
    assert!(matches!(silent.as_slice(), [Fault::Client { given: 0, .. }]), "{silent:?}");
}

#[test]
fn more_incidents_than_causes_and_an_engine_that_is_ill_are_named() {
    let two = faults(|case, record| {
        case.incidents = Some(1);
        let mut second = record.lines[0].clone();
        second.line.incident = Some("another".to_owned());
        record.lines.push(second);
    });
    assert_eq!(two, [Fault::Incidents { given: 2, right: 1 }]);
    let of_decode = faults(|_, record| {
        record.of_decodes.push(verdict(3, 7, "never_started", "unknown"));
    });
    assert!(matches!(of_decode.as_slice(), [Fault::Decode { .. }]), "{of_decode:?}");
    let ill = faults(|_, record| record.more = (19, 20));
    assert_eq!(ill, [Fault::Ill { served: 19, asked: 20 }]);
}

#[test]
fn without_the_hook_some_transfer_has_to_be_alarmed_and_no_other() {
    let bare = |lines: Vec<Seen>| {
        faults(|_, record| {
            record.bare = true;
            record.lines = lines;
        })
    };
    assert_eq!(bare(vec![verdict(0xabc, 6, "never_started", "peer_frozen")]), []);
    let missing = bare(Vec::new());
    assert!(matches!(missing.as_slice(), [Fault::Missing { .. }]), "{missing:?}");
    let wrong = bare(vec![verdict(0xabc, 6, "never_started", "peer_dead")]);
    assert!(matches!(wrong.as_slice(), [Fault::Wrong { .. }]), "{wrong:?}");
}
