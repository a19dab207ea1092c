//! What an open room takes: thousands may be open on one node for a long time.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use inflightd_core::fact::{Append, Handle, Peer, Room, Seq, Tid, Worker};
use inflightd_core::{Event, Fact, Ledger, Nanos, Policy};

/// Rooms, enough that what the allocator keeps beside them does not show.
const ROOMS: u64 = 60_000;
/// Rooms of one worker: fewer than its bound.
const PER_WORKER: u64 = 10_000;
/// Bytes of memory for each.
const LIMIT: u64 = 1_100;

fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = statm.split(' ').nth(1).expect("a second number");
    pages.parse::<u64>().expect("pages") * 4096
}

/// A room that was served, posted by mark and by handle, flushed, and is open.
fn open(ledger: &mut Ledger, n: u64) {
    let worker = Worker(u32::try_from(n / PER_WORKER).expect("few workers"));
    let (seq, tid, peer) = (Seq(n << 14), Tid(7), Peer(u32::try_from(n % 16).expect("small")));
    let append = Append {
        seq,
        room: Room(n),
        expected: 65_536,
        peers: vec![peer],
        peers_whole: true,
        late: false,
        patient: false,
    };
    let handle = Handle(0x7f00_0000_0000 + n * 256);
    let (peer, bytes) = (Some(peer), Some(65_536));
    for fact in [
        Fact::Append(append),
        Fact::Serve(tid, seq),
        Fact::Post(seq, 65_536),
        Fact::XferPost { tid, handle, peer, bytes, room: None, descs: None },
        Fact::Flush { tid, ep: 9, request: 0x7f10_0000_0000 + n * 512 },
        Fact::XferRet(tid, handle, 1),
        Fact::ServeEnd(tid),
    ] {
        ledger.observe(&Event { at: Nanos(1_000_000 + n), worker, fact });
    }
    while ledger.poll().is_some() {}
}

#[test]
fn an_open_room_takes_about_a_kilobyte() {
    let mut ledger = Ledger::new(Policy::DEFAULT);
    let before = resident();
    for n in 1..=ROOMS {
        open(&mut ledger, n);
    }
    let each = resident().saturating_sub(before) / ROOMS;
    println!("{each} bytes for an open room");
    assert!(ledger.open_rooms() as u64 == ROOMS && each > 100, "{each}: nothing was measured");
    assert!(each <= LIMIT, "{each} bytes for an open room");
}
