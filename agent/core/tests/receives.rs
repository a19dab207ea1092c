//! Rooms that a worker receives.

mod common;

use common::{WORKER, alerts};
use inflightd_core::fact::{Append, Counts, Peer, Phase, Room, Seq};
use inflightd_core::{Event, Fact, Ledger, Nanos, Output, Policy, Sight, Source};

/// What is said of a room that waits for its bytes for ten minutes, by a worker that sends or one
/// that receives.
fn told(receives: bool) -> Vec<Output> {
    let mut ledger = Ledger::new(Policy::DEFAULT);
    let say = |ledger: &mut Ledger, at: u64, fact: Fact| {
        ledger.observe(&Event { at: Nanos::from_secs(at), worker: WORKER, fact });
    };
    say(&mut ledger, 1, Fact::Found);
    for source in Source::ALL {
        say(&mut ledger, 1, Fact::Cover(source, Sight::Visible));
    }
    if receives {
        say(&mut ledger, 1, Fact::Receives);
    }
    let append = Append {
        seq: Seq(1 << 14),
        room: Room(7),
        expected: 0,
        peers: vec![Peer(0)],
        peers_whole: true,
        late: false,
        patient: false,
    };
    let seq = append.seq;
    say(&mut ledger, 2, Fact::Append(append));
    let counts = Counts { phase: Phase::Prealloc, ..Counts::default() };
    say(&mut ledger, 3, Fact::Entry(seq, counts));
    for at in 3..600 {
        say(&mut ledger, at, Fact::Beat);
        say(&mut ledger, at, Fact::Read);
        ledger.tick(Nanos::from_secs(at));
    }
    assert!(!ledger.has_suspects(WORKER) || !receives);
    let view = ledger.view(WORKER).expect("a worker");
    assert_eq!(view.rooms().map(|room| room.judged).collect::<Vec<_>>(), [!receives]);
    std::iter::from_fn(|| ledger.poll()).collect()
}

#[test]
fn a_room_that_is_received_gets_no_verdict() {
    assert_eq!(alerts(&told(true)).len(), 0);
    assert_eq!(alerts(&told(false)).len(), 1);
}
