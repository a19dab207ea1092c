//! The ends of threads and processes, for watched processes only.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test ends by a panic, and its helpers are part of it"
)]

mod probe_support;

use inflightd::probe::{ExitSource, Options, WatchError};
use inflightd_abi::{
    layout::WATCHED_SLOTS,
    record::{Exit, GROUP_DEAD_UNKNOWN, Record},
};
use probe_support::{Target, drain_until, load, turn};

fn exits(records: &[Record]) -> Vec<Exit> {
    records
        .iter()
        .filter_map(|record| match record {
            Record::Exit(exit) => Some(*exit),
            _ => None,
        })
        .collect()
}

#[test]
fn a_thread_and_then_its_process_end() {
    let _turn = turn();
    let mut probes = load(Options::default());
    let mut watched = Target::start(&[]);
    let mut other = Target::start(&[]);
    let pid = watched.pid();
    probes.watch(pid).unwrap();
    watched.tell("thread");
    other.tell("thread");
    other.end();
    let first = drain_until(&mut probes, |all| !exits(all).is_empty());
    watched.end();
    let second = drain_until(&mut probes, |all| !exits(all).is_empty());

    let (thread, process) = (exits(&first), exits(&second));
    assert_eq!((thread.len(), process.len()), (1, 1), "and nothing of the unwatched process");
    assert_eq!((thread[0].head.tgid, process[0].head.tgid), (pid, pid));
    assert_ne!(thread[0].head.tid, pid);
    assert_eq!(process[0].head.tid, pid);
    let wanted = match probes.exit_source() {
        ExitSource::WithGroupDead => (0, 1),
        ExitSource::Plain => (GROUP_DEAD_UNKNOWN, GROUP_DEAD_UNKNOWN),
    };
    assert_eq!((thread[0].group_dead, process[0].group_dead), wanted);
}

#[test]
fn an_unwatched_process_ends_in_silence() {
    let _turn = turn();
    let mut probes = load(Options::default());
    let mut target = Target::start(&[]);
    probes.watch(target.pid()).unwrap();
    probes.unwatch(target.pid());
    target.end();
    assert_eq!(probes.drain(&mut |_| {}).records, 0);
}

#[test]
fn more_processes_than_fit_are_refused_by_name() {
    let _turn = turn();
    let mut probes = load(Options::default());
    // Pids above the kernel's highest (2^22): nobody has them.
    let pids = (0..WATCHED_SLOTS).map(|n| (1 << 23) + n);
    for pid in pids.clone() {
        probes.watch(pid).unwrap();
    }
    assert!(matches!(probes.watch(1 << 30), Err(WatchError::Full)));
    probes.unwatch(1 << 23);
    probes.watch(1 << 30).unwrap();
}
