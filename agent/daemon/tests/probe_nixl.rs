//! NIXL and UCX on a real kernel: what the records say of real transfers between two processes.
//!
//! The printed lines are the measurements that the module documentation of `probe` quotes:
//! `cargo test -p inflightd --test probe_nixl -- --nocapture`.

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

use std::collections::BTreeMap;

use inflightd::probe::{Builds, Family, Group, Options, Probes};
use inflightd_abi::{
    layout::{NIXL_IN_PROG, NIXL_NOT_POSTED, NIXL_SUCCESS},
    mishap::Mishap,
    record::{Flush, text},
};
use nixl::Peer;
use pair::{Seen, pair, seen};
use probe_support::{drain_until, load, summary, turn};
use serde_json::json;

#[test]
fn one_transfer_is_seen_from_post_to_release() {
    let _turn = turn();
    let (mut probes, mut prefill, decode) = pair(Options::default());
    let pid = prefill.pid();
    let report = probes.attach_process(pid);
    assert!(report.libraries.iter().all(|library| !library.degraded()), "{report:#?}");
    let mine = prefill.ask(&json!({"do": "tid"}))["tid"].as_u64().unwrap();
    let posted =
        prefill.ask(&json!({"do": "post", "descs": 4, "size": 4096, "notif": "12345_kv_0_1_0"}));
    assert_eq!(prefill.ask(&json!({"do": "wait"}))["state"], "DONE");
    prefill.ask(&json!({"do": "release"}));
    let records = drain_until(&mut probes, |all| !seen(all, pid).releases.is_empty());
    let seen = seen(&records, pid);

    assert_eq!(seen.posts.len(), 1, "{}", summary(&records));
    let post = seen.posts[0];
    assert_eq!(post.handle.to_string(), posted["handle"].as_str().unwrap());
    assert_eq!((post.bytes, post.descs, post.op), (4 * 4096, 4, 1));
    assert_eq!((post.status, post.layout), (NIXL_NOT_POSTED, 1));
    assert_eq!(text(&post.peer), b"decode-agent-with-a-long-name");
    assert_eq!((text(&post.notif), post.notif_len), (&b"12345_kv_0_1_0"[..], 14));
    assert_eq!(u64::from(post.head.tid), mine);

    let ret = seen.returns[0];
    assert_eq!((ret.handle, ret.known, ret.head.tid), (post.handle, 1, post.head.tid));
    assert!(ret.status == NIXL_IN_PROG || ret.status == NIXL_SUCCESS, "{ret:?}");
    assert!(post.head.at < ret.head.at);

    let flush = seen.flushes.iter().find(|flush| flush.handle == post.handle).unwrap();
    assert!(flush.ep != 0 && post.head.at < flush.begun && flush.begun == flush.head.at);
    assert!(flush.head.at < ret.head.at);

    let release = seen.releases[0];
    assert_eq!((release.handle, release.status, release.known), (post.handle, NIXL_SUCCESS, 1));
    assert_eq!(probes.lost(), 0);
    assert!(probes.mishaps().iter().all(|(_, count)| *count == 0), "{:?}", probes.mishaps());
    drop(decode);
}

/// Transfers in one measurement.
const MANY: u64 = 60;

#[test]
fn every_flush_completes_at_a_constant_distance() {
    let _turn = turn();
    let (mut probes, mut prefill, decode) = pair(Options::default());
    let pid = prefill.pid();
    let report = probes.attach_process(pid);
    let ucp = report.libraries.iter().find(|library| library.family == Family::Ucp).unwrap();
    let distance = ucp.distance.expect("the build of the test environment is known");
    for (descs, size) in [(1_u64, 64_u64), (1, 4096), (32, 4096), (1000, 4096), (1, 16 << 20)] {
        let run = json!({"do": "run", "count": MANY, "descs": descs, "size": size});
        let answer = prefill.ask(&run);
        assert!(answer["failed"].is_null(), "{answer}");
        let all = drain_until(&mut probes, |all| seen(all, pid).releases.len() as u64 == MANY);
        let seen = seen(&all, pid);
        check_run(&seen, descs, size, distance);
        check_at_once(&seen);
        tell_run(&seen, descs, size);
    }
    assert_eq!(probes.lost(), 0);
    drop(decode);
}

/// Every post has one flush, every pending flush one completion at the distance, with status 0.
fn check_run(seen: &Seen, descs: u64, size: u64, distance: i64) {
    assert_eq!(seen.posts.len() as u64, MANY);
    assert_eq!(seen.returns.len() as u64, MANY);
    for post in &seen.posts {
        assert_eq!((post.bytes, post.descs), (descs * size, descs));
    }
    let mut open: BTreeMap<u64, Vec<Flush>> = BTreeMap::new();
    let flushes: Vec<_> = seen.flushes.iter().filter(|flush| flush.handle != 0).collect();
    assert_eq!(flushes.len() as u64, MANY, "one flush per post");
    for flush in flushes.iter().filter(|flush| flush.request != 0) {
        open.entry(flush.request).or_default().push(**flush);
    }
    assert_eq!(seen.dones.len(), open.values().map(Vec::len).sum::<usize>());
    for done in &seen.dones {
        assert_eq!((done.known, done.status), (1, 0));
        let request = done.completion.wrapping_sub(distance.cast_unsigned());
        assert_eq!(done.request, request);
        let flush =
            open.get_mut(&request).and_then(|queue| (!queue.is_empty()).then(|| queue.remove(0)));
        let flush = flush.unwrap_or_else(|| panic!("{done:?} belongs to no flush"));
        assert!(done.head.at > flush.begun);
    }
}

/// Where a post ended with 0, its completion came before its end.
fn check_at_once(seen: &Seen) {
    for ret in seen.returns.iter().filter(|ret| ret.status == NIXL_SUCCESS) {
        let within = |at: u64, from: u64| from < at && at < ret.head.at;
        let post = seen.posts.iter().rfind(|post| post.head.at < ret.head.at).unwrap();
        let flush = seen.flushes.iter().find(|flush| within(flush.begun, post.head.at)).unwrap();
        assert!(flush.request != 0 && flush.handle == ret.handle);
        assert!(
            seen.dones
                .iter()
                .any(|done| { done.request == flush.request && within(done.head.at, flush.begun) })
        );
    }
}

fn tell_run(seen: &Seen, descs: u64, size: u64) {
    let at_once = seen.returns.iter().filter(|ret| ret.status == NIXL_SUCCESS).count();
    let inline = seen.flushes.iter().filter(|flush| flush.request == 0).count();
    let poster = seen.posts[0].head.tid;
    let on_poster = seen.dones.iter().filter(|done| done.head.tid == poster).count();
    let early = seen.dones.iter().filter(|done| {
        seen.flushes.iter().any(|f| {
            f.request == done.request && f.begun < done.head.at && done.head.at < f.head.at
        })
    });
    println!(
        "{MANY} x {descs} descriptors of {size} B: post returned 0 {at_once} times; flush returned \
         NULL {inline} times; {} completions, {on_poster} on the posting thread, {} before the \
         flush's return",
        seen.dones.len(),
        early.count()
    );
}

#[test]
fn a_transfer_to_itself_is_seen_like_any_other() {
    let _turn = turn();
    let mut probes = load(Options::default());
    let mut alone = Peer::start("alone");
    let pid = alone.pid();
    assert!(probes.attach_process(pid).sees(Group::Flush));
    alone.ask(&json!({"do": "itself"}));
    alone.ask(&json!({"do": "run", "count": 10, "descs": 2, "size": 4096}));
    let records = drain_until(&mut probes, |all| seen(all, pid).releases.len() == 10);
    let seen = seen(&records, pid);
    let pending = seen.flushes.iter().filter(|flush| flush.request != 0).count();
    assert_eq!((seen.flushes.len(), seen.dones.len()), (10, pending));
    let at_once = seen.returns.iter().filter(|ret| ret.status == NIXL_SUCCESS).count();
    assert!(at_once > 0, "a transfer to oneself is done inside its post");
    check_at_once(&seen);
    println!("to itself: {pending} of 10 flushes pending, {at_once} posts done at once");
}

#[test]
fn a_completion_is_seen_though_nobody_polls() {
    let _turn = turn();
    let (mut probes, mut prefill, decode) = pair(Options::default());
    let pid = prefill.pid();
    prefill.ask(&json!({"do": "post", "descs": 8, "size": 1 << 20}));
    let records = drain_until(&mut probes, |all| !seen(all, pid).dones.is_empty());
    let seen = seen(&records, pid);
    let done = seen.dones[0];
    assert_eq!((done.request, done.status), (seen.flushes[0].request, 0));
    assert_eq!(seen.flushes[0].handle, seen.posts[0].handle);
    println!(
        "nobody polls: completed on thread {}, posted on {}, post ended with {}",
        done.head.tid, seen.posts[0].head.tid, seen.returns[0].status
    );
    drop(decode);
}

#[test]
fn a_read_is_seen_like_a_write() {
    let _turn = turn();
    let (mut probes, mut prefill, decode) = pair(Options::default());
    let pid = prefill.pid();
    prefill.ask(&json!({"do": "post", "descs": 3, "size": 4096, "op": "READ"}));
    assert_eq!(prefill.ask(&json!({"do": "wait"}))["state"], "DONE");
    prefill.ask(&json!({"do": "release"}));
    let records = drain_until(&mut probes, |all| !seen(all, pid).releases.is_empty());
    let seen = seen(&records, pid);
    assert_eq!((seen.posts[0].op, seen.posts[0].bytes), (0, 3 * 4096));
    let flushes: Vec<_> =
        seen.flushes.iter().filter(|f| f.handle == seen.posts[0].handle).collect();
    assert_eq!(flushes.len(), 1, "{}", summary(&records));
    assert_eq!((seen.dones.len(), seen.dones[0].request), (1, flushes[0].request));
    drop(decode);
}

#[test]
fn a_killed_peer_gives_an_endpoint_error_and_its_exit() {
    let _turn = turn();
    let (mut probes, mut prefill, decode) = pair(Options::default());
    let pid = prefill.pid();
    probes.watch(decode.pid()).unwrap();
    prefill.ask(&json!({"do": "run", "count": 1, "descs": 1, "size": 4096}));
    decode.signal("-STOP");
    let posted = prefill.ask(&json!({"do": "post", "descs": 16, "size": 4 << 20}));
    assert_eq!(posted["state"], "PROC");
    let before = drain_until(&mut probes, |all| seen(all, pid).returns.len() == 2);
    let stuck = seen(&before, pid);
    let flush = stuck.flushes.last().unwrap();
    assert!(flush.request != 0 && stuck.dones.iter().all(|done| done.request != flush.request));

    decode.signal("-KILL");
    let dead = decode.pid();
    let after = drain_until(&mut probes, |all| {
        let last = seen(all, dead).exits.iter().any(|exit| exit.group_dead != 0);
        last && !seen(all, pid).errors.is_empty() && !seen(all, pid).dones.is_empty()
    });
    let ours = seen(&after, pid);
    let error = ours.errors[0];
    println!("err_cb: {error:?}\nflush ep {:x}\nflush_done {:?}", flush.ep, ours.dones);
    assert_eq!(error.ep, flush.ep, "rsi is the endpoint that was flushed");
    assert!(error.status < 0, "{error:?}");
    let done = ours.dones.iter().find(|done| done.request == flush.request).unwrap();
    assert!(done.known == 1 && done.status < 0, "{done:?}");
    let exits = seen(&after, dead).exits;
    println!("{} exit records", exits.len());
    assert_eq!(exits.iter().filter(|exit| exit.group_dead == 1).count(), 1);
    assert!(exits.last().unwrap().group_dead == 1 && exits.len() > 1, "the last thread is last");
    let state = prefill.ask(&json!({"do": "wait"}))["state"].clone();
    println!("the application saw {state}");
    prefill.ask(&json!({"do": "release"}));
    let end = drain_until(&mut probes, |all| !seen(all, pid).releases.is_empty());
    assert!(seen(&end, pid).releases.iter().all(|r| r.known == 1 && r.status < 0));

    // A post to a dead peer fails at once, without a flush: the error path of `postXferReq`.
    prefill.ask(&json!({"do": "post", "descs": 1, "size": 4096}));
    let late = drain_until(&mut probes, |all| !seen(all, pid).returns.is_empty());
    let late = seen(&late, pid);
    println!("a post to a dead peer returned {}", late.returns[0].status);
    assert_eq!((late.returns.len(), late.returns[0].known), (1, 1));
    assert!(late.returns[0].status < 0 && late.flushes.is_empty());
}

#[test]
fn a_handle_released_in_flight_says_so() {
    let _turn = turn();
    let (mut probes, mut prefill, decode) = pair(Options::default());
    let pid = prefill.pid();
    prefill.ask(&json!({"do": "run", "count": 1, "descs": 1, "size": 4096}));
    decode.signal("-STOP");
    prefill.ask(&json!({"do": "post", "descs": 16, "size": 4 << 20}));
    prefill.ask(&json!({"do": "release"}));
    let records = drain_until(&mut probes, |all| seen(all, pid).releases.len() == 2);
    let releases = seen(&records, pid).releases;
    assert_eq!((releases[1].status, releases[1].known), (NIXL_IN_PROG, 1));
}

#[test]
fn an_unknown_build_gives_addresses_and_completions() {
    let _turn = turn();
    let options = Options { builds: Some(Builds::none()), ..Options::default() };
    let (mut probes, mut prefill, decode) = pair(options);
    let pid = prefill.pid();
    let report = probes.attach_process(pid);
    let degraded = |family| {
        report.libraries.iter().any(|library| library.family == family && library.degraded())
    };
    assert!(degraded(Family::Nixl) && degraded(Family::Ucp));
    assert!(!report.sees(Group::XferRet), "no return probe on C++ of an unknown build");
    let seen = three_transfers(&mut probes, &mut prefill);
    assert_eq!((seen.posts.len(), seen.returns.len(), seen.flushes.len()), (3, 0, 3));
    assert!(seen.flushes.iter().all(|flush| flush.handle == 0 && flush.begun < flush.head.at));
    drop(decode);
}

#[test]
fn an_unknown_build_gives_return_codes_where_the_risk_is_taken() {
    let _turn = turn();
    let options =
        Options { builds: Some(Builds::none()), risk_returns: true, ..Options::default() };
    let (mut probes, mut prefill, decode) = pair(options);
    assert!(probes.attach_process(prefill.pid()).sees(Group::XferRet));
    let seen = three_transfers(&mut probes, &mut prefill);
    assert_eq!((seen.posts.len(), seen.returns.len()), (3, 3));
    for (post, ret) in seen.posts.iter().zip(&seen.returns) {
        assert_eq!((ret.handle, ret.known), (post.handle, 1));
        assert!(ret.status == NIXL_IN_PROG || ret.status == NIXL_SUCCESS);
        assert!(seen.flushes.iter().any(|flush| flush.handle == post.handle));
    }
    drop(decode);
}

/// Three transfers in an unknown build: what can be known of them at all.
fn three_transfers(probes: &mut Probes, prefill: &mut Peer) -> Seen {
    let pid = prefill.pid();
    prefill.ask(&json!({"do": "run", "count": 3, "descs": 2, "size": 4096}));
    let records = drain_until(probes, |all| seen(all, pid).releases.len() == 3);
    let seen = seen(&records, pid);
    for post in &seen.posts {
        assert_eq!((post.layout, post.bytes, post.op), (0, 0, -1));
        assert_eq!((text(&post.peer), post.notif_len), (&b""[..], 0));
    }
    assert!(seen.releases.iter().all(|release| release.known == 0));
    assert!(seen.dones.iter().all(|done| done.request == 0 && done.known == 1));
    let pending = seen.flushes.iter().filter(|flush| flush.request != 0).count();
    assert_eq!(seen.dones.len(), pending);
    seen
}

#[test]
fn a_wrong_layout_fails_its_self_check() {
    let _turn = turn();
    let wrong = "[[nixl]]\nname = 'wrong'\n\
         build_id = 'c60ac851fdd67a4d9738b5b2f53bd4849505f241'\n\
         remote_agent = 0x58\nnotif = 0x88\nhas_notif = 0xa8\nop = 0xac\nstatus = 0xb0\n\
         total_bytes = 0xd0\ndesc_count = 0xd8\nend = 0x38a\nend_status = -248\n";
    let (mut probes, mut prefill, decode) =
        pair(Options { builds: Some(Builds::parse(wrong).unwrap()), ..Options::default() });
    let pid = prefill.pid();
    prefill.ask(&json!({"do": "run", "count": 3, "descs": 2, "size": 4096}));
    let records = drain_until(&mut probes, |all| seen(all, pid).releases.len() == 3);
    let seen = seen(&records, pid);
    assert!(seen.posts.iter().all(|post| post.layout == 0 && post.bytes == 0 && post.op == -1));
    assert!(seen.releases.iter().all(|release| release.known == 0));
    assert_eq!(probes.mishaps()[Mishap::HandleImplausible as usize].1, 6);
    assert!(seen.returns.len() == 3 && seen.returns.iter().all(|ret| ret.known == 0));
    assert_eq!(probes.mishaps()[Mishap::EndImplausible as usize].1, 3);
    drop(decode);
}
