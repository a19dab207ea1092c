//! What an event costs the ledger, by the number of open rooms: it must not grow but for a
//! logarithm. `cargo xtask bench` runs it.

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use inflightd_core::fact::{Append, Handle, Life, Meter, Outcome, Peer, Room, Seq, Tid, Worker};
use inflightd_core::{Event, Fact, Ledger, Nanos, Policy};

/// Open rooms per worker: a ledger bounds them at 16,384.
const PER_WORKER: u64 = 10_000;
/// Events of one room's stay.
const EVENTS: u64 = 11;

fn observe(ledger: &mut Ledger, at: u64, worker: u32, fact: Fact) {
    ledger.observe(&Event { at: Nanos(at), worker: Worker(worker), fact });
}

fn append(seq: u64) -> Fact {
    Fact::Append(Append {
        seq: Seq(seq),
        room: Room(seq),
        expected: 65_536,
        peers: vec![Peer(u32::try_from(seq % 64).unwrap_or(0))],
        peers_whole: true,
        late: false,
        patient: false,
    })
}

/// A ledger with so many open rooms, posted and not complete.
fn filled(rooms: u64) -> Ledger {
    let mut ledger = Ledger::new(Policy::DEFAULT);
    for room in 0..rooms {
        let worker = u32::try_from(room / PER_WORKER).unwrap_or(0);
        observe(&mut ledger, room, worker, append(room));
        observe(&mut ledger, room, worker, Fact::Post(Seq(room), 65_536));
    }
    while ledger.poll().is_some() {}
    ledger
}

/// One healthy stay beside them.
fn stay(ledger: &mut Ledger, n: u64) {
    let at = 1_000_000_000 + n * 1000;
    let (seq, tid, handle) = (Seq(1 << 40 | n), Tid(7), Handle(0x1000));
    let (peer, bytes) = (Some(Peer(1)), Some(65_536));
    observe(ledger, at, 0, append(seq.0));
    for fact in [
        Fact::Serve(tid, seq),
        Fact::Post(seq, 65_536),
        Fact::XferPost { tid, handle, peer, bytes, room: None },
        Fact::Flush { tid, ep: 9, request: 0x50a0 },
        Fact::XferRet(tid, handle, 1),
        Fact::FlushDone(0x5000, Some(0)),
        Fact::XferRelease(handle, Some(0)),
        Fact::Done(seq, 65_536, true),
        Fact::ServeEnd(tid),
        Fact::Remove(seq, Outcome::Success),
    ] {
        observe(ledger, at, 0, fact);
    }
    ledger.tick(Nanos(at));
    while let Some(output) = ledger.poll() {
        black_box(output);
    }
}

fn events(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("event");
    group.throughput(Throughput::Elements(EVENTS));
    for rooms in [1_000, 10_000, 100_000] {
        let mut ledger = filled(rooms);
        let mut n = 0;
        group.bench_function(BenchmarkId::new("open_rooms", rooms), |bencher| {
            bencher.iter(|| {
                n += 1;
                stay(&mut ledger, n);
            });
        });
    }
    group.finish();
}

fn idle_tick(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("tick_with_nothing_due");
    for rooms in [1_000, 10_000, 100_000] {
        let mut ledger = filled(rooms);
        group.bench_function(BenchmarkId::new("open_rooms", rooms), |bencher| {
            bencher.iter(|| ledger.tick(black_box(Nanos(2_000_000_000))));
        });
    }
    group.finish();
}

/// A reading of the connections to a peer that thousands of rooms have something open to.
fn reading(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("reading");
    for rooms in [1_000, 10_000, 100_000] {
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

criterion_group!(benches, events, idle_tick, reading, suspects, behind_one_head);
criterion_main!(benches);
