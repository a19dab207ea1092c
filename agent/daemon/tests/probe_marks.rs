//! The marks on a real kernel: every hit arrives once, with its arguments, or is counted as lost.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test ends by a panic, and its helpers are part of it"
)]

mod probe_support;

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Arc, Mutex},
};

use inflightd::probe::{Family, Gap, Group, Options, Refusal};
use inflightd_abi::{
    mishap::Mishap,
    record::{Kind, Record, text},
};
use probe_support::{Target, drain_until, load, turn};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{self, Attributes, Id},
};

/// Rounds of eight marks.
const ROUNDS: u64 = 2000;

fn of(records: &[Record], pid: u32) -> Vec<Record> {
    let mut records = records.to_vec();
    records.retain(|record| record.head().tgid == pid);
    records
}

#[test]
fn every_mark_arrives_once_with_its_arguments() {
    let _turn = turn();
    let mut probes = load(Options::default());
    let mut target = Target::start(&[]);
    let report = probes.attach_process(target.pid());
    assert_eq!(report.libraries.len(), 1, "{report:?}");
    let library = &report.libraries[0];
    assert_eq!(library.family, Family::Inflight);
    assert!(library.fresh && library.problem.is_none() && library.gaps.is_empty(), "{report:?}");
    assert_eq!(library.attached.len(), 8);

    let pid = target.pid();
    target.tell(&format!("marks {ROUNDS}"));
    let wanted = usize::try_from(8 * ROUNDS).unwrap();
    let records = of(&drain_until(&mut probes, |all| of(all, pid).len() >= wanted), pid);
    assert_eq!(records.len(), wanted);
    assert_eq!(probes.lost(), 0);
    let mut before = 0;
    for (round, eight) in (1..).zip(records.chunks(8)) {
        for (record, (_, kind)) in eight.iter().zip(Kind::MARKS) {
            check(record, kind, round);
            assert_eq!(record.head().tid, pid);
            assert!(record.head().at >= before, "time goes forward");
            before = record.head().at;
        }
    }
    assert!(probes.mishaps().iter().all(|(_, count)| *count == 0));
}

fn check(record: &Record, kind: Kind, i: u64) {
    match record {
        Record::Append(append) => {
            assert_eq!(kind, Kind::Append);
            assert_eq!((append.worker, append.seq), (7, i));
            assert_eq!((append.room, append.expected), (i << 32, 4096 * i));
            assert_eq!(text(&append.rid), format!("rid-{i}").as_bytes());
        }
        Record::Mark(got, mark) => {
            assert_eq!(*got, kind);
            assert_eq!((mark.worker, mark.seq), (7, i));
            let operands = match kind {
                Kind::Open => (1, 0),
                Kind::Serve => (12 * i, 0),
                Kind::Post => (10 * i, 0),
                Kind::Done => (11 * i, i & 1),
                Kind::Phase => (3, 0),
                Kind::Remove => (2, 0),
                _ => (0, 0),
            };
            assert_eq!((mark.a, mark.b), operands, "{kind:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn odd_request_ids_are_cut_or_counted() {
    let _turn = turn();
    let mut probes = load(Options::default());
    let mut target = Target::start(&[]);
    assert!(probes.attach_process(target.pid()).sees(Group::Mark(Kind::Append)));
    target.tell("odd");
    let pid = target.pid();
    let records = of(&drain_until(&mut probes, |all| of(all, pid).len() >= 4), pid);
    let rids: Vec<_> = records
        .iter()
        .map(|record| match record {
            Record::Append(append) => (append.room, text(&append.rid).len()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(rids, [(0, 63), (u64::MAX, 0), (0, 0), (0, 0)]);
    assert_eq!(probes.mishaps()[Mishap::TextUnreadable as usize].1, 1);
}

#[test]
fn an_overflowing_ring_loses_exactly_what_it_counts() {
    let _turn = turn();
    let mut probes = load(Options { ring_bytes: 4096, ..Options::default() });
    let mut target = Target::start(&[]);
    let pid = target.pid();
    assert!(probes.attach_process(pid).sees(Group::Mark(Kind::Remove)));
    // Nobody else calls these marks, so every hit of the machine is this target's.
    target.tell(&format!("marks {ROUNDS}"));
    let mut records = Vec::new();
    let first = probes.drain(&mut |record| records.push(record));
    assert!(first.lost > 0, "a page holds no {ROUNDS} rounds");
    assert_eq!(first.records as u64 + first.lost, 8 * ROUNDS);
    assert_eq!(records.len(), first.records);
    let by_kind: u64 = probes.lost_by_kind().iter().map(|(_, lost)| lost).sum();
    assert_eq!(by_kind, first.lost);
    let why = [Mishap::RingFull, Mishap::OverShare].map(|why| probes.mishaps()[why as usize].1);
    assert_eq!(why.iter().sum::<u64>(), first.lost);
    assert_eq!((first.lost_of, first.lost_full), (vec![(pid, first.lost)], why[0]));
    // Each kind was hit equally often: what came and what was lost add up, kind by kind.
    for (_, kind) in Kind::MARKS {
        let came = records.iter().filter(|r| r.head().kind == kind as u32).count() as u64;
        let lost = probes.lost_by_kind().iter().find(|(k, _)| *k == kind as u32).map_or(0, |l| l.1);
        assert_eq!(came + lost, ROUNDS, "{kind:?}");
    }
    // And it works again once there is room.
    target.tell("odd");
    let second = probes.drain(&mut |_| {});
    assert_eq!((second.records, second.lost), (4, 0));
}

#[test]
fn processes_in_a_tight_loop_leave_room_for_others_and_one_alone_gets_most() {
    let _turn = turn();
    let ring_bytes = 1 << 17;
    let mut probes = load(Options { ring_bytes, ..Options::default() });
    let (mut first, mut calm) = (Target::start(&[]), Target::start(&[]));
    let mut second = first.again();
    for target in [&first, &calm, &second] {
        assert!(probes.attach_process(target.pid()).sees(Group::Mark(Kind::Phase)));
    }
    // A mark is 56 bytes behind a header of 8.
    first.tell("phase 10000");
    let alone = probes.drain(&mut |_| {}).records + probes.drain(&mut |_| {}).records;
    assert!(alone >= ring_bytes as usize / 64 * 4 / 5, "{alone} records");
    // Nobody reads while two rush.
    for flood in [&mut first, &mut second] {
        flood.tell("phase 10000");
    }
    calm.tell("marks 4");
    let (mut came, mut lost_of) = (0, BTreeMap::new());
    loop {
        let stats = probes.drain(&mut |record| came += u64::from(record.head().tgid == calm.pid()));
        assert_eq!((stats.lost_full, stats.lost), (0, stats.lost_of.iter().map(|of| of.1).sum()));
        lost_of.extend(stats.lost_of);
        if !stats.more {
            break;
        }
    }
    assert_eq!(came, 8 * 4);
    assert!(lost_of[&first.pid()] > 0 && lost_of[&second.pid()] > 0, "{lost_of:?}");
    assert!(!lost_of.contains_key(&calm.pid()), "{lost_of:?}");
}

#[test]
fn a_five_byte_nop_is_never_probed() {
    let _turn = turn();
    let mut probes = load(Options::default());
    let target = Target::start(&["-DNOP5"]);
    let report = probes.attach_process(target.pid());
    let library = &report.libraries[0];
    assert_eq!(library.attached, []);
    assert_eq!(library.gaps.len(), 8);
    for (group, gap) in &library.gaps {
        assert!(matches!(gap, Gap::Refused(_, Refusal::FiveByteNop)), "{group:?}: {gap:?}");
    }
}

#[test]
fn an_older_library_has_a_gap_and_the_other_marks() {
    let _turn = turn();
    let mut probes = load(Options::default());
    let target = Target::start(&["-DWITHOUT_REMOVE"]);
    let report = probes.attach_process(target.pid());
    assert!(!report.sees(Group::Mark(Kind::Remove)));
    assert!(report.sees(Group::Mark(Kind::Append)));
    assert_eq!(
        report.libraries[0].gaps,
        [(Group::Mark(Kind::Remove), Gap::Missing("inflight_mark_remove"))]
    );
}

#[test]
fn a_file_is_probed_once_and_until_it_is_detached() {
    let _turn = turn();
    let mut probes = load(Options::default());
    let mut target = Target::start(&[]);
    let pid = target.pid();
    assert!(probes.attach_process(pid).libraries[0].fresh);
    let again = probes.attach_process(pid);
    assert!(!again.libraries[0].fresh);
    target.tell("marks 10");
    let mut seen = 0;
    probes.drain(&mut |record| seen += usize::from(record.head().tgid == pid));
    assert_eq!(seen, 80, "a second visit adds no second probe");

    let released = probes.forget(pid);
    let key = again.libraries[0].key.clone().unwrap();
    assert_eq!(released.unused, std::slice::from_ref(&key));
    assert!(probes.detach(&key));
    assert!(!probes.detach(&key), "it carries none any more");
    // The kernel takes its time to remove the points; then the marks are silent.
    let mut silent = false;
    for _ in 0..100 {
        target.tell("marks 1");
        let stats = probes.drain(&mut |_| {});
        silent = stats.records == 0;
        if silent {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(silent);
    assert!(probes.attach_process(pid).libraries[0].fresh);
    target.tell("marks 1");
    assert_eq!(probes.drain(&mut |_| {}).records, 8);
}

#[test]
fn a_library_in_another_mount_namespace_is_reached() {
    let _turn = turn();
    let mut probes = load(Options::default());
    let mut target = Target::start_apart();
    let report = probes.attach_process(target.pid());
    let path = &report.libraries[0].path;
    assert!(!path.exists(), "only the target sees {}", path.display());
    assert_eq!(report.libraries[0].attached.len(), 8, "{report:?}");
    target.tell("marks 10");
    assert_eq!(probes.drain(&mut |_| {}).records, 80);
}

#[test]
fn a_process_that_has_gone_is_a_problem_not_a_panic() {
    let _turn = turn();
    let mut probes = load(Options::default());
    let mut target = Target::start(&[]);
    let pid = target.pid();
    target.end();
    let report = probes.attach_process(pid);
    assert!(report.problem.is_some() && report.libraries.is_empty(), "{report:?}");
}

/// Collects the debug lines of the kernel programs.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Visit for Lines {
    fn record_debug(&mut self, _: &Field, value: &dyn Debug) {
        self.0.lock().unwrap().push(format!("{value:?}"));
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "inflightd::kernel"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn debug_lines_can_be_switched_on_and_the_verifier_accepts_them() {
    let _turn = turn();
    let mut probes = load(Options { debug: true, ..Options::default() });
    let mut target = Target::start(&[]);
    probes.attach_process(target.pid());
    target.tell("marks 5");
    let lines = Lines::default();
    let stats = tracing::subscriber::with_default(lines.clone(), || probes.drain(&mut |_| {}));
    assert_eq!(stats.records, 40);
    let lines = lines.0.lock().unwrap();
    assert_eq!(lines.len(), 40);
    assert_eq!(lines[1], "append worker 7 seq 1 room 4294967296");
}

/// CPU time of a mark, without and with its probe. Run by hand, on a quiet machine:
/// `cargo test --release -p inflightd --test probe_marks cost -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement, not a check"]
fn cost_of_a_mark() {
    let _turn = turn();
    let mut probes = load(Options { ring_bytes: 16 << 20, ..Options::default() });
    let mut target = Target::start(&[]);
    let sample = |target: &mut Target, command: &str| {
        let mut costs: Vec<f64> = (0..15).map(|_| target.tell(command)).collect();
        costs.sort_by(f64::total_cmp);
        (costs[0], costs[7])
    };
    let bare = sample(&mut target, "phase 20000");
    assert!(probes.attach_process(target.pid()).sees(Group::Mark(Kind::Phase)));
    let mut costs = Vec::new();
    for _ in 0..15 {
        costs.push(target.tell("phase 20000"));
        let (mut records, mut more) = (0, true);
        while more {
            let stats = probes.drain(&mut |_| {});
            assert_eq!(stats.lost, 0);
            (records, more) = (records + stats.records, stats.more);
        }
        assert_eq!(records, 20_000);
    }
    costs.sort_by(f64::total_cmp);
    println!(
        "ns a mark, least and median of 15 x 20000: bare {bare:?}, probed ({}, {})",
        costs[0], costs[7]
    );
}
