//! What is kept has a bound, and who has to go is told.

use inflightd_core::fact::{Append, Handle, Outcome, Peer, Room, Seq, Tid, Worker};
use inflightd_core::{Event, Fact, Ledger, Nanos, Output, Policy};

const ROOMS_MAX: u64 = 16_384;

fn observe(ledger: &mut Ledger, at: u64, worker: u32, fact: Fact) {
    ledger.observe(&Event { at: Nanos(at), worker: Worker(worker), fact });
}

fn append(seq: u64) -> Fact {
    Fact::Append(Append {
        seq: Seq(seq),
        room: Room(seq),
        expected: 0,
        peers: vec![Peer(1)],
        peers_whole: true,
        late: false,
        patient: false,
    })
}

#[test]
fn one_room_too_many_closes_the_oldest_as_unknown() {
    let mut ledger = Ledger::new(Policy::DEFAULT);
    let mut evicted = Vec::new();
    for seq in 0..ROOMS_MAX + 10 {
        observe(&mut ledger, seq, 0, append(seq));
        while let Some(output) = ledger.poll() {
            if let Output::Dwell(dwell) = output {
                evicted.push(dwell.seq.0);
            }
        }
    }
    assert_eq!(evicted, (0..10).collect::<Vec<_>>());
    assert_eq!(ledger.open_rooms() as u64, ROOMS_MAX);
    assert_eq!(ledger.misfits(), 10);
}

#[test]
fn a_room_that_has_left_under_its_thread_keeps_no_other_from_going() {
    let mut ledger = Ledger::new(Policy::DEFAULT);
    observe(&mut ledger, 0, 0, append(0));
    observe(&mut ledger, 0, 0, Fact::Serve(Tid(7), Seq(0)));
    observe(&mut ledger, 0, 0, Fact::Remove(Seq(0), Outcome::Aborted));
    for seq in 1..ROOMS_MAX + 10 {
        observe(&mut ledger, seq, 0, append(seq));
        while ledger.poll().is_some() {}
    }
    assert_eq!(ledger.open_rooms() as u64, ROOMS_MAX - 1);
    observe(&mut ledger, ROOMS_MAX + 10, 0, Fact::ServeEnd(Tid(7)));
    assert_eq!(ledger.take_forgotten(), [(Worker(0), Seq(0))]);
}

#[test]
fn handles_and_threads_that_never_end_do_not_add_up() {
    let mut ledger = Ledger::new(Policy::DEFAULT);
    observe(&mut ledger, 0, 0, append(1));
    for n in 1..100_000_u64 {
        let tid = Tid(u32::try_from(n).unwrap());
        observe(&mut ledger, n, 0, Fact::Serve(tid, Seq(1)));
        let (peer, bytes) = (Some(Peer(1)), Some(1));
        observe(
            &mut ledger,
            n,
            0,
            Fact::XferPost { tid, handle: Handle(n), peer, bytes, room: None, descs: None },
        );
        observe(&mut ledger, n, 0, Fact::Flush { tid, ep: 1, request: n << 8 });
    }
    let kept = ledger.kept();
    assert!(kept.transfers <= 16_384 && kept.threads <= 4096 && kept.flushes <= 4096, "{kept:?}");
}

#[test]
fn one_worker_too_many_is_counted() {
    let mut ledger = Ledger::new(Policy::DEFAULT);
    for worker in 0..1030 {
        observe(&mut ledger, 1, worker, Fact::Found);
    }
    assert_eq!(ledger.misfits(), 6);
}
