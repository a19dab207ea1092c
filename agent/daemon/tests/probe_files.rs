//! Which files get probes, on a real kernel: by what they define, once each, and until nobody
//! uses them any more. Needs root.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test ends by a panic, and its helpers are part of it"
)]

mod probe_support;

use std::{thread, time::Duration};

use inflightd::{
    clock::Clock,
    probe::{Family, Options, Probes},
    proc::Maps,
};
use inflightd_core::Nanos;
use probe_support::{Shape, Target, load, turn};

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Sweeps until no link is left, for a minute at most.
fn sweep_all(probes: &mut Probes) {
    for round in 0..600 {
        probes.sweep(Clock::now().plus(Nanos::from_secs(60 * round)));
        let holdings = probes.holdings();
        if holdings.links + holdings.closing == 0 {
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("{:?}", probes.holdings());
}

/// Attaches to a target, hits its marks and gives the number of records.
fn hits(probes: &mut Probes, target: &mut Target, rounds: usize) -> usize {
    let report = probes.attach_process(target.pid());
    assert_eq!(report.libraries.len(), 1, "{report:#?}");
    assert_eq!(report.libraries[0].family, Family::Inflight);
    assert_eq!(report.libraries[0].attached.len(), 8, "{report:#?}");
    target.tell(&format!("marks {rounds}"));
    probes.drain(&mut |_| {}).records
}

#[test]
fn marks_are_found_under_any_name_and_in_the_program_itself() {
    let _turn = turn();
    let mut probes = load(Options::default());
    for shape in [Shape::Named("vendor.so"), Shape::Static, Shape::StaticUnexported] {
        let mut target = Target::shaped(shape);
        assert_eq!(hits(&mut probes, &mut target, 10), 80, "{shape:?}");
    }
}

#[test]
fn a_library_without_a_name_is_still_probed() {
    let _turn = turn();
    let mut probes = load(Options::default());
    let mut target = Target::start(&[]);
    target.upgrade();
    assert_eq!(hits(&mut probes, &mut target, 10), 80);
}

#[test]
fn a_shared_file_is_probed_once_and_an_own_copy_for_itself() {
    let _turn = turn();
    let mut probes = load(Options::default());
    let mut first = Target::start(&[]);
    let mut second = first.again();
    assert_eq!(hits(&mut probes, &mut first, 10), 80);
    let links = probes.holdings().links;
    assert_eq!(hits(&mut probes, &mut second, 10), 80, "not twice");
    assert_eq!(probes.holdings().links, links);
    let mut copy = Target::start_apart();
    assert_eq!(hits(&mut probes, &mut copy, 10), 80);
    assert_eq!(probes.holdings().links, 2 * links);
    // The first user goes, the second keeps the probes.
    probes.forget(first.pid());
    probes.sweep(Clock::now());
    probes.sweep(Clock::now().plus(Nanos::from_secs(60)));
    second.tell("marks 1");
    assert_eq!(probes.drain(&mut |_| {}).records, 8);
    probes.forget(second.pid());
    probes.forget(copy.pid());
    sweep_all(&mut probes);
}

#[test]
fn containers_that_share_a_layer_are_probed_once() {
    let _turn = turn();
    let mut probes = load(Options::default());
    let (mut first, mut second) = Target::in_two_overlays();
    assert_eq!(hits(&mut probes, &mut first, 10), 80);
    let links = probes.holdings().links;
    assert_eq!(hits(&mut probes, &mut second, 10), 80, "a hit is delivered once");
    first.tell("marks 10");
    assert_eq!(probes.drain(&mut |_| {}).records, 80, "of the first, too");
    assert_eq!(probes.holdings().links, links);
}

#[test]
fn what_a_process_does_not_map_any_more_loses_it_as_a_user() {
    let _turn = turn();
    let mut probes = load(Options::default());
    let mut target = Target::start(&[]);
    assert_eq!(hits(&mut probes, &mut target, 1), 8);
    // The same process, another program.
    target.exec();
    let maps = Maps::of(target.pid(), (0, 0)).unwrap();
    assert_eq!(probes.attach(target.pid(), &maps.objects, true).libraries.len(), 0);
    sweep_all(&mut probes);
}

#[test]
fn a_churn_of_processes_leaves_nothing_behind() {
    let _turn = turn();
    let mut probes = load(Options::default());
    let mut keeper = Target::start(&[]);
    assert_eq!(hits(&mut probes, &mut keeper, 1), 8);
    let (links, before) = (probes.holdings().links, descriptors());
    for n in 0..200 {
        let mut short = keeper.again();
        assert_eq!(probes.attach_process(short.pid()).libraries.len(), 1);
        if n % 2 == 0 {
            short.end();
        }
        probes.forget(short.pid());
        probes.sweep(Clock::now());
    }
    let holdings = probes.holdings();
    assert_eq!((holdings.links, holdings.processes), (links, 1), "{holdings:?}");
    assert_eq!(descriptors(), before);
    // Copies of their own, each gone before the next.
    for _ in 0..5 {
        let apart = Target::start_apart();
        assert_eq!(probes.attach_process(apart.pid()).libraries.len(), 1);
        probes.forget(apart.pid());
    }
    probes.forget(keeper.pid());
    sweep_all(&mut probes);
    assert!(descriptors() < before, "{} of {before}", descriptors());
    assert_eq!(probes.holdings().objects, 0);
}
