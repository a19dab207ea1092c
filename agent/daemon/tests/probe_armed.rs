//! UCX's operations, counted one by one in a process with a suspect.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test ends by a panic, and its helpers are part of it"
)]

#[path = "probe_support/nixl.rs"]
mod nixl;
#[path = "probe_support/pair.rs"]
mod pair;
mod probe_support;

use inflightd::probe::{Options, Probes};
use nixl::Peer;
use pair::{pair, seen};
use probe_support::{drain_until, turn};
use serde_json::json;

/// What is counted of a process, over all endpoints.
fn counted(probes: &Probes, pid: u32) -> (u64, u64) {
    let of = probes.operations().into_iter().filter(|(of, _)| of.tgid == pid);
    of.fold((0, 0), |(count, bytes), (_, of)| (count + of.count, bytes + of.bytes))
}

#[test]
fn each_operation_of_an_armed_process_is_counted_with_its_bytes() {
    let _turn = turn();
    let (mut probes, mut prefill, decode) = pair(Options::default());
    let pid = prefill.pid();
    let run = |prefill: &mut Peer, descs: u64, size: u64| {
        let run = json!({"do": "run", "count": 3, "descs": descs, "size": size});
        let answer = prefill.ask(&run);
        assert!(answer["failed"].is_null(), "{answer}");
    };
    run(&mut prefill, 4, 65_536);
    assert_eq!(probes.operations(), [], "nothing is counted before it is asked for");
    assert_eq!(probes.arm(pid), Ok(true));
    let links = probes.links();
    assert_eq!((probes.arm(pid), probes.links()), (Ok(true), links), "armed once");
    for (descs, size) in
        [(1_u64, 16_384_u64), (32, 16_384), (500, 16_384), (32, 65_536), (1, 8 << 20)]
    {
        let before = counted(&probes, pid);
        run(&mut prefill, descs, size);
        let after = counted(&probes, pid);
        println!("{descs} x {size}: {} operations", after.0 - before.0);
        let told = (after.0 - before.0, after.1 - before.1);
        assert_eq!(told, (3 * descs, 3 * descs * size));
    }
    let records = drain_until(&mut probes, |all| seen(all, pid).releases.len() == 18);
    let flushed: Vec<u64> = seen(&records, pid).flushes.iter().map(|flush| flush.ep).collect();
    for (of, counted) in probes.operations() {
        assert!(flushed.contains(&of.ep) && counted.errors == 0, "{of:?} {counted:?} {flushed:?}");
    }
    probes.disarm(pid);
    assert_eq!((probes.operations(), probes.links()), (Vec::new(), links - 1));
    run(&mut prefill, 32, 65_536);
    assert_eq!(probes.operations(), []);
    assert!(probes.mishaps().iter().all(|(_, count)| *count == 0), "{:?}", probes.mishaps());
    drop(decode);
}
