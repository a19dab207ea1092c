//! When the ledger wants the meters read: soon after a post that is still open, and not otherwise.

use inflightd_core::fact::{Append, Peer, Room, Seq, Worker};
use inflightd_core::{Event, Fact, Ledger, Nanos, Policy};

const WORKER: Worker = Worker(0);
const POSTED: Nanos = Nanos::from_secs(2);

fn posted() -> Ledger {
    let mut ledger = Ledger::new(Policy::DEFAULT);
    let append = Append {
        seq: Seq(1),
        room: Room(1),
        expected: 10,
        peers: vec![Peer(1)],
        peers_whole: true,
        late: false,
        patient: false,
    };
    for fact in [Fact::Append(append), Fact::Post(Seq(1), 10)] {
        ledger.observe(&Event { at: POSTED, worker: WORKER, fact });
    }
    ledger
}

const fn after(millis: u64) -> Nanos {
    POSTED.plus(Nanos::from_millis(millis))
}

#[test]
fn an_open_transfer_wants_three_early_readings() {
    let ledger = posted();
    let mut read_at = Nanos::from_millis(1900);
    let mut readings = Vec::new();
    for millis in 0..2000 {
        if ledger.wants_reading(WORKER, read_at, after(millis)) {
            readings.push(millis);
            read_at = after(millis);
        }
    }
    assert_eq!(readings, [50, 200, 500]);
}

#[test]
fn a_transfer_that_is_over_wants_none() {
    let mut ledger = posted();
    ledger.observe(&Event { at: after(5), worker: WORKER, fact: Fact::Done(Seq(1), 10, true) });
    assert!(!ledger.wants_reading(WORKER, Nanos::ZERO, after(60)));
    assert!(!ledger.wants_reading(Worker(9), Nanos::ZERO, after(60)));
}
