//! What can be asked of the ledger about open rooms.

use inflightd_core::fact::{Append, Counts, Peer, Phase, Room, Seq, Tid, Worker};
use inflightd_core::{Cause, Event, Fact, Finding, Ledger, Nanos, Policy};

const WORKER: Worker = Worker(3);

fn ledger(facts: Vec<(u64, Fact)>) -> Ledger {
    let mut ledger = Ledger::new(Policy::DEFAULT);
    for (secs, fact) in facts {
        ledger.observe(&Event { at: Nanos::from_secs(secs), worker: WORKER, fact });
    }
    ledger
}

fn append(seq: u64) -> Fact {
    Fact::Append(Append {
        seq: Seq(seq),
        room: Room(seq * 10),
        expected: 100,
        peers: vec![Peer(1)],
        peers_whole: true,
        late: false,
        patient: false,
    })
}

#[test]
fn an_open_room_shows_what_is_known_of_it() {
    let counts = Counts {
        phase: Phase::Transferring,
        posts: 2,
        posted_bytes: 100,
        dones: 1,
        done_bytes: 40,
        last_done: Some(Nanos::from_secs(4)),
        ..Counts::default()
    };
    let ledger = ledger(vec![
        (1, append(1)),
        (2, append(2)),
        (3, Fact::Serve(Tid(7), Seq(1))),
        (5, Fact::Entry(Seq(1), counts)),
        (6, Fact::Beat),
    ]);
    let view = ledger.view(WORKER).unwrap();
    assert_eq!(view.beat(), Some(Nanos::from_secs(6)));
    let rooms: Vec<_> = view.rooms().collect();
    assert_eq!(rooms.iter().map(|room| room.room.0).collect::<Vec<_>>(), [10, 20]);
    let first = rooms[0];
    assert_eq!((first.phase, first.posts), (Phase::Transferring, 2));
    assert_eq!((first.bytes.expected, first.bytes.posted, first.bytes.completed), (100, 100, 40));
    assert_eq!(first.serving, Some((Tid(7), Nanos::from_secs(3))));
    assert_eq!(first.peers, [Peer(1)]);
    let at = (first.appended_at, first.last_progress);
    assert_eq!(at, (Nanos::from_secs(1), Nanos::from_secs(4)));
    assert_eq!((view.arrived(Seq(1)), view.arrived(Seq(2)), view.arrived(Seq(9))), (40, 0, 0));
    assert_eq!(rooms[1].standing, None);
}

#[test]
fn a_verdict_stands_until_the_room_has_gone() {
    let told = |finding, cause| {
        let ledger = ledger(vec![(1, append(1)), (2, Fact::Told(Seq(1), finding, cause))]);
        ledger.view(WORKER).unwrap().rooms().next().unwrap().standing.unwrap()
    };
    let frozen = told(Finding::StoppedMidway, Cause::PeerFrozen);
    assert_eq!((frozen.finding, frozen.since), (Finding::StoppedMidway, Nanos::from_secs(2)));
    assert!(frozen.is_alert());
    assert!(!told(Finding::NeverStarted, Cause::QueuedBehind).is_alert());
    let gone = ledger(vec![(1, append(1)), (2, Fact::Ended)]);
    assert!(gone.view(WORKER).is_none());
}

#[test]
fn a_worker_without_a_beat_has_none() {
    let ledger = ledger(vec![(1, append(1))]);
    assert_eq!(ledger.view(WORKER).unwrap().beat(), None);
    assert!(ledger.view(Worker(9)).is_none());
}
