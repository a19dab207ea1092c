//! Mooncake on a real kernel: what the records say of real batches, and what their memory says.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends by a panic, and its helpers are part of it"
)]

#[path = "probe_support/nixl.rs"]
mod nixl;
mod probe_support;

use std::{fs::File, thread, time::Duration};

use inflightd::clock::Clock;
use inflightd::meters::batch::arrived;
use inflightd::probe::{Family, Group, Options, Probes};
use inflightd_abi::record::{Batch, Record};
use inflightd_core::Nanos;
use nixl::Peer;
use probe_support::{drain_until, load, turn};
use serde_json::json;

const MIB: u64 = 1 << 20;

fn pair() -> (Probes, Peer, Peer) {
    let mut probes = load(Options::default());
    let decode = Peer::start_mooncake();
    let mut prefill = Peer::start_mooncake();
    let report = probes.attach_process(prefill.pid());
    assert!(report.sees(Group::Batch), "{report:#?}");
    let of_mooncake =
        |library: &&inflightd::probe::LibraryReport| library.family == Family::Mooncake;
    let library = report.libraries.iter().find(of_mooncake).expect("its engine");
    assert!(!library.degraded() && library.gaps.is_empty(), "{library:#?}");
    prefill.connect(&decode);
    (probes, prefill, decode)
}

/// Batches that a process submitted, and freed.
fn batches(records: &[Record], pid: u32) -> (Vec<Batch>, Vec<Batch>) {
    let (mut begun, mut ended) = (Vec::new(), Vec::new());
    for record in records.iter().filter(|record| record.head().tgid == pid) {
        match record {
            Record::Batch(batch) => begun.push(*batch),
            Record::BatchEnd(batch) => ended.push(*batch),
            _ => {}
        }
    }
    (begun, ended)
}

#[test]
fn a_batch_is_seen_from_its_submission_to_its_end_on_the_thread_that_waits_for_it() {
    let _turn = turn();
    let (mut probes, mut prefill, _decode) = pair();
    let pid = prefill.pid();
    let mine = prefill.ask(&json!({"do": "tid"}))["tid"].as_u64().unwrap();
    for _ in 0..3 {
        assert_eq!(prefill.ask(&json!({"do": "write", "descs": 32, "size": 65_536}))["status"], 0);
    }
    let records = drain_until(&mut probes, |all| batches(all, pid).1.len() >= 3);
    let (begun, ended) = batches(&records, pid);
    assert_eq!((begun.len(), ended.len()), (3, 3), "two hits a batch, whatever its size");
    for (begin, end) in begun.iter().zip(&ended) {
        assert_eq!(begin.batch, end.batch);
        assert!(begin.head.at < end.head.at);
        assert_eq!((u64::from(begin.head.tid), u64::from(end.head.tid)), (mine, mine));
    }
    assert_eq!(probes.lost(), 0);
}

/// Reads until `enough`, at most about a minute.
fn read_until(probes: &Probes, pid: u32, batch: u64, enough: impl Fn(u64) -> bool) -> u64 {
    let layout = probes.batch_layout(pid).expect("a build that is known");
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let begun = Clock::now();
    let mut last = 0;
    while Clock::now().since(begun) < Nanos::from_secs(60) {
        let now = arrived(&memory, batch, layout).unwrap();
        assert!(now >= last, "it only grows: {last}, then {now}");
        last = now;
        if enough(now) {
            return now;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("{last} bytes after a minute");
}

#[test]
fn the_memory_of_a_batch_tells_how_much_of_it_has_arrived() {
    let _turn = turn();
    let (mut probes, mut prefill, decode) = pair();
    let pid = prefill.pid();
    // The first opens the connections, which a stopped peer could not.
    assert_eq!(prefill.ask(&json!({"do": "write", "descs": 1, "size": 4096}))["status"], 0);
    decode.signal("-STOP");
    let all = 64 * MIB;
    prefill.ask(&json!({"do": "submit", "descs": 64, "size": MIB}));
    let records = drain_until(&mut probes, |all| batches(all, pid).0.len() >= 2);
    let batch = batches(&records, pid).0[1].batch;
    let stopped = read_until(&probes, pid, batch, |_| true);
    thread::sleep(Duration::from_millis(500));
    let later = read_until(&probes, pid, batch, |_| true);
    assert_eq!((stopped, later), (0, 0), "nobody has answered for a byte");
    decode.signal("-CONT");
    assert_eq!(read_until(&probes, pid, batch, |bytes| bytes >= all), all, "each byte once");
    assert_eq!(prefill.ask(&json!({"do": "finish"}))["status"], 0);
    let records = drain_until(&mut probes, |all| !batches(all, pid).1.is_empty());
    assert_eq!(batches(&records, pid).1[0].batch, batch);
}
