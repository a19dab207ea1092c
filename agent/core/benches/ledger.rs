//! What an event costs the ledger, by the number of open rooms: it must not grow but for a
//! logarithm. `cargo xtask bench` runs it.

use std::cell::RefCell;
use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use inflightd_core::fact::{Append, Handle, Life, Meter, Outcome, Peer, Room, Seq, Tid, Worker};
use inflightd_core::{Cause, Event, Fact, Ledger, Nanos, Output, Policy, Sight, Source};

/// Open rooms of all workers.
const SIZES: [u64; 3] = [1_000, 10_000, 100_000];
/// Most open rooms of a worker here: a ledger bounds them at 16,384, and a stay comes beside them.
const PER_WORKER: u64 = 16_383;
/// Threads that work for the rooms of a worker.
const THREADS: u64 = 8;
/// Far ends of a worker.
const PEERS: u64 = 64;
/// Events of one room's stay, and of another that is open.
const EVENTS: u64 = 13;
const BYTES: u64 = 65_536;

fn observe(ledger: &mut Ledger, at: u64, worker: u32, fact: Fact) {
    ledger.observe(&Event { at: Nanos(at), worker: Worker(worker), fact });
}

fn append(seq: u64) -> Fact {
    append_to(seq, Peer(small(seq % PEERS)), false)
}

fn append_to(seq: u64, peer: Peer, patient: bool) -> Fact {
    Fact::Append(Append {
        seq: Seq(seq),
        room: Room(seq),
        expected: BYTES,
        peers: vec![peer],
        peers_whole: true,
        late: false,
        patient,
    })
}

fn small(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

/// As few workers as can have so many rooms open.
const fn workers(rooms: u64) -> u64 {
    rooms.div_ceil(PER_WORKER)
}

/// Where the n-th of the rooms is: they go to workers, threads and peers in turn.
fn place(n: u64, workers: u64) -> (u32, Tid, Peer) {
    let turn = n / workers;
    (small(n % workers), Tid(small(1 + turn % THREADS)), Peer(small(turn % PEERS)))
}

/// A ledger with so many open rooms in as few workers as can have them: served, posted and under
/// way, and all sources see them.
fn filled(rooms: u64) -> Ledger {
    filled_by(rooms, Policy::DEFAULT, false)
}

fn filled_by(rooms: u64, policy: Policy, patient: bool) -> Ledger {
    let mut ledger = Ledger::new(policy);
    for room in 0..rooms {
        send(&mut ledger, room, room, place(room, workers(rooms)), patient);
    }
    for worker in 0..workers(rooms) {
        for source in Source::ALL {
            observe(&mut ledger, rooms, small(worker), Fact::Cover(source, Sight::Visible));
        }
        for peer in 0..PEERS {
            let meter = Meter { connections: 1, unread: Some(0), ..Meter::default() };
            observe(&mut ledger, rooms, small(worker), Fact::Wire(Peer(small(peer)), meter));
        }
    }
    while ledger.poll().is_some() {}
    ledger
}

/// A room enters, and a thread posts it.
fn send(
    ledger: &mut Ledger,
    at: u64,
    n: u64,
    (worker, tid, peer): (u32, Tid, Peer),
    patient: bool,
) {
    let (seq, handle) = (Seq(n), Handle(n << 6));
    observe(ledger, at, worker, append_to(n, peer, patient));
    for fact in [
        Fact::Serve(tid, seq),
        Fact::Post(seq, BYTES),
        Fact::XferPost {
            tid,
            handle,
            peer: Some(peer),
            bytes: Some(BYTES),
            room: None,
            descs: None,
        },
        Fact::XferRet(tid, handle, 1),
        Fact::ServeEnd(tid),
    ] {
        observe(ledger, at, worker, fact);
    }
}

/// One healthy stay beside the open rooms, and a call for one of those.
fn stay(ledger: &mut Ledger, n: u64, rooms: u64) {
    let at = 1_000_000_000 + n * 1000;
    let (worker, tid, peer) = place(n, workers(rooms));
    let (seq, handle) = (Seq(1 << 40 | n), Handle(1 << 46 | (n % 64) << 6));
    // A prime apart, so that each is another's and none is still in the caches.
    let open = n.wrapping_mul(7_919) % rooms;
    let (open, owner) = (Seq(open), place(open, workers(rooms)).0);
    observe(ledger, at, worker, append_to(seq.0, peer, false));
    for fact in [
        Fact::Serve(tid, seq),
        Fact::Post(seq, BYTES),
        Fact::XferPost {
            tid,
            handle,
            peer: Some(peer),
            bytes: Some(BYTES),
            room: None,
            descs: None,
        },
        Fact::Flush { tid, ep: 9, request: 0x50a0 },
        Fact::XferRet(tid, handle, 1),
        Fact::FlushDone(0x5000, Some(0)),
        Fact::XferRelease(handle, Some(0)),
        Fact::Done(seq, BYTES, true),
        Fact::ServeEnd(tid),
        Fact::Remove(seq, Outcome::Success),
    ] {
        observe(ledger, at, worker, fact);
    }
    observe(ledger, at, owner, Fact::Post(open, 1));
    observe(ledger, at, owner, Fact::Done(open, 1, true));
    ledger.tick(Nanos(at));
    while let Some(output) = ledger.poll() {
        black_box(output);
    }
}

fn events(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("event");
    group.throughput(Throughput::Elements(EVENTS));
    for rooms in SIZES {
        let mut ledger = filled(rooms);
        let mut n = 0;
        group.bench_function(BenchmarkId::new("open_rooms", rooms), |bencher| {
            bencher.iter(|| {
                n += 1;
                stay(&mut ledger, n, rooms);
            });
        });
        assert_eq!(ledger.misfits(), 0, "a stay that the ledger does not follow costs less");
        assert_eq!(ledger.open_rooms() as u64, rooms, "the rooms that are paid for are there");
    }
    group.finish();
}

fn idle_tick(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("tick_with_nothing_due");
    for rooms in SIZES {
        let mut ledger = filled(rooms);
        group.bench_function(BenchmarkId::new("open_rooms", rooms), |bencher| {
            bencher.iter(|| ledger.tick(black_box(Nanos(2_000_000_000))));
        });
    }
    group.finish();
}

/// A tick at which one room of many is due: its stall is told. No other room's deadline comes.
fn due_tick(criterion: &mut Criterion) {
    const NEVER: Nanos = Nanos(1 << 62);
    let policy = Policy { stall_mooncake: NEVER, max_dwell: NEVER, ..Policy::DEFAULT };
    let stall = policy.stall;
    let mut group = criterion.benchmark_group("tick_with_one_due");
    for rooms in SIZES {
        let ledger = RefCell::new(filled_by(rooms, policy, true));
        for worker in 0..workers(rooms) {
            for peer in 0..PEERS {
                let stopped = Fact::Life(Peer(small(peer)), Life::Stopped);
                observe(&mut ledger.borrow_mut(), rooms, small(worker), stopped);
            }
        }
        let (mut n, mut at) = (0, Nanos(rooms));
        group.bench_function(BenchmarkId::new("open_rooms", rooms), |bencher| {
            let enter = || {
                let mut ledger = ledger.borrow_mut();
                let old = Fact::Remove(Seq(1 << 40 | n), Outcome::Success);
                observe(&mut ledger, at.0, place(n, workers(rooms)).0, old);
                while ledger.poll().is_some() {}
                n += 1;
                send(&mut ledger, at.0, 1 << 40 | n, place(n, workers(rooms)), false);
                while ledger.poll().is_some() {}
                at = at.plus(stall);
                at
            };
            let tick = |at| {
                let mut ledger = ledger.borrow_mut();
                ledger.tick(at);
                let told = ledger.poll();
                assert!(
                    matches!(told, Some(Output::Verdict(ref told)) if told.cause == Cause::PeerFrozen),
                    "one is told: {told:?}"
                );
                assert!(ledger.poll().is_none(), "and no other");
            };
            bencher.iter_batched(enter, tick, BatchSize::PerIteration);
        });
    }
    group.finish();
}

/// A reading of the connections to a peer that thousands of rooms have something open to.
fn reading(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("reading");
    for rooms in SIZES {
        let mut ledger = filled(rooms);
        let mut n = 0;
        group.bench_function(BenchmarkId::new("open_rooms", rooms), |bencher| {
            bencher.iter(|| {
                n += 1;
                let meter = Meter {
                    connections: 1,
                    acked: n * 65_536,
                    unread: Some(0),
                    ..Meter::default()
                };
                observe(&mut ledger, 1_000_000_000 + n, 0, Fact::Wire(Peer(1), meter));
            });
        });
    }
    group.finish();
}

/// Whether a worker has suspects, where it has none and where it has.
fn suspects(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("has_suspects");
    for (name, at) in [("none", 2), ("all", 20)] {
        for rooms in [1_000, 10_000] {
            let mut ledger = filled(rooms);
            ledger.tick(Nanos::from_secs(at));
            group.bench_function(BenchmarkId::new(name, rooms), |bencher| {
                bencher.iter(|| black_box(ledger.has_suspects(Worker(0))));
            });
        }
    }
    group.finish();
}

/// Judging rooms that wait behind one head, all due at once: what each of them costs.
fn behind_one_head(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("due_behind_one_head");
    for rooms in [1_000, 10_000] {
        group.throughput(Throughput::Elements(rooms));
        group.bench_function(BenchmarkId::new("rooms", rooms), |bencher| {
            bencher.iter_batched_ref(|| queue(rooms), told, BatchSize::LargeInput);
        });
    }
    for rooms in [1_000, 10_000] {
        let mut ledger = queue(rooms);
        told(&mut ledger);
        let mut at = Nanos::from_secs(31);
        group.bench_function(BenchmarkId::new("looked_at_again", rooms), |bencher| {
            bencher.iter(|| {
                at = at.plus(Nanos::from_millis(1_001));
                ledger.tick(at);
            });
        });
    }
    group.finish();
}

fn queue(rooms: u64) -> Ledger {
    let mut ledger = Ledger::new(Policy::DEFAULT);
    for room in 0..=rooms {
        observe(&mut ledger, room, 0, append(room << 6));
    }
    observe(&mut ledger, 0, 0, Fact::Serve(Tid(7), Seq(0)));
    observe(&mut ledger, 0, 0, Fact::Post(Seq(0), 65_536));
    observe(&mut ledger, 1, 0, Fact::Life(Peer(0), Life::Stopped));
    while ledger.poll().is_some() {}
    ledger
}

fn told(ledger: &mut Ledger) {
    ledger.tick(Nanos::from_secs(31));
    while let Some(output) = ledger.poll() {
        black_box(output);
    }
}

criterion_group!(benches, events, idle_tick, due_tick, reading, suspects, behind_one_head);
criterion_main!(benches);
