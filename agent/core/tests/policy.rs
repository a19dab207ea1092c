//! Deadlines that change while rooms are open.

mod common;

use common::{WORKER, alerts, any_story, drive, events};
use inflightd_core::fact::{Append, Peer, Room, Seq};
use inflightd_core::{Event, Fact, Ledger, Nanos, Output, Policy, Sight, Source};
use proptest::prelude::*;

fn append(at: u64, seq: u64, patient: bool) -> Event {
    let append = Append {
        seq: Seq(seq),
        room: Room(seq),
        expected: 1,
        peers: vec![Peer(0)],
        peers_whole: true,
        late: false,
        patient,
    };
    Event { at: Nanos::from_secs(at), worker: WORKER, fact: Fact::Append(append) }
}

/// A ledger whose worker is seen by every source.
fn seeing() -> Ledger {
    let mut ledger = Ledger::new(Policy::DEFAULT);
    for source in Source::ALL {
        let fact = Fact::Cover(source, Sight::Visible);
        ledger.observe(&Event { at: Nanos::ZERO, worker: WORKER, fact });
        while ledger.poll().is_some() {}
    }
    ledger
}

fn verdicts(ledger: &mut Ledger) -> Vec<u64> {
    let outputs: Vec<Output> = std::iter::from_fn(|| ledger.poll()).collect();
    alerts(&outputs).iter().map(|verdict| verdict.seq.0).collect()
}

#[test]
fn a_shorter_stall_reaches_rooms_that_are_open() {
    let mut ledger = seeing();
    ledger.observe(&append(10, 1, false));
    ledger.tick(Nanos::from_secs(20));
    assert_eq!(ledger.deadline(), Some(Nanos::from_secs(40)));
    let short =
        Policy { suspect: Nanos::from_secs(1), stall: Nanos::from_secs(5), ..Policy::DEFAULT };
    ledger.set_policy(short);
    assert_eq!(ledger.deadline(), Some(Nanos::from_secs(20)));
    ledger.tick(Nanos::from_secs(20));
    assert_eq!(verdicts(&mut ledger), [1]);
}

#[test]
fn a_longer_stall_waits_and_takes_no_verdict_back() {
    let mut ledger = seeing();
    ledger.observe(&append(0, 1, false));
    ledger.observe(&append(20, 2, false));
    ledger.tick(Nanos::from_secs(30));
    assert_eq!(verdicts(&mut ledger), [1]);
    ledger.set_policy(Policy { stall: Nanos::from_secs(100), ..Policy::DEFAULT });
    let mut said = Vec::new();
    for at in 31..=120 {
        ledger.tick(Nanos::from_secs(at));
        let outputs: Vec<Output> = std::iter::from_fn(|| ledger.poll()).collect();
        said.extend(outputs.into_iter().map(|output| (at, output)));
    }
    assert!(matches!(said.as_slice(), [(120, Output::Verdict(verdict))] if verdict.seq == Seq(2)));
}

#[test]
fn a_patient_room_has_the_longer_stall() {
    let mut ledger = seeing();
    ledger.observe(&append(0, 1, true));
    ledger.observe(&append(0, 2, false));
    let mut told = Vec::new();
    for at in 1..=40 {
        ledger.tick(Nanos::from_secs(at));
        told.extend(verdicts(&mut ledger).into_iter().map(|seq| (at, seq)));
    }
    assert_eq!(told, [(30, 2), (35, 1)]);
}

proptest! {
    /// After a change each open room is looked at again at the next tick, and none is scheduled
    /// later than the new deadlines allow.
    #[test]
    fn a_change_reschedules_every_open_room(
        stories in prop::collection::vec(any_story(), 1..8),
        at in 1..100_u64,
        stall in 1..60_u64,
    ) {
        let at = Nanos::from_secs(at);
        let events: Vec<Event> = events(&stories).into_iter().map(|(_, event)| event).collect();
        let past = events.iter().take_while(|event| event.at <= at).count();
        let (mut ledger, _) = drive(&events[..past], &[]);
        ledger.tick(at);
        let stall = Nanos::from_secs(stall);
        let new = Policy { suspect: Nanos(stall.0 / 2), stall, ..Policy::DEFAULT };
        ledger.set_policy(new);
        let open = ledger.open_rooms();
        prop_assert_eq!(ledger.agenda().filter(|due| *due <= at).count(), open);
        ledger.tick(at);
        // Quiet until the stall at the latest, or told and looked at soon.
        let latest = at.plus(stall);
        prop_assert!(ledger.agenda().all(|due| due > at && due <= latest));
        prop_assert_eq!(ledger.agenda().count(), open);
    }
}
