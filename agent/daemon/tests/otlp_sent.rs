//! What the agent sends to a collector, as it is on the wire, and what it keeps home. Needs root.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends by a panic, and its helpers are part of it"
)]

mod agent_support;
mod collector_support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use agent_support::worker::TRACEPARENT;
use agent_support::{Agent, Worker, turn, within_a_minute};
use collector_support::wire::Wire;
use collector_support::{Collector, agent, configure};
use rustix::process::Signal;
use serde_json::Value;

/// Not a test of its own: what [`Worker::table`] starts.
#[test]
fn as_a_worker() {
    agent_support::worker::main();
}

#[test]
fn messages_over_grpc_are_packed_and_say_so() {
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    let collector = Collector::start(&[]);
    let wire = Wire::to(collector.grpc());
    let worker = Worker::table("stay");
    let endpoint = wire.endpoint();
    let agent = agent(&configure(dir.path(), &[("endpoint", &endpoint)]), &[&worker]);
    // The receiver could unpack each: what the frames say of themselves is so.
    for signal in ["traces", "logs", "metrics"] {
        collector.wait_for(signal, |_| true);
    }
    assert!(agent.end(Signal::TERM).1.success());
    assert!(wire.says("grpc-encoding", "gzip"), "no such header");
    let messages = wire.messages();
    assert!(messages.len() >= 3, "one of each signal: {}", messages.len());
    for message in &messages {
        let begin = message.body.get(..3).unwrap_or(&message.body);
        assert_eq!((message.flag, begin), (1, &[0x1f, 0x8b, 8][..]), "the flag, and what gzip is");
    }
}

/// FNV-1a of 128 bits and the finaliser of `SplitMix64`, written again from their publications: ids
/// and the choice that rests on them must be the same in every release and on every node.
fn fnv1a(text: &str) -> u128 {
    let step = |hash: u128, byte: u8| {
        (hash ^ u128::from(byte)).wrapping_mul(309_485_009_821_345_068_724_781_371)
    };
    text.bytes().fold(144_066_263_297_769_815_596_495_629_667_062_367_629, step)
}

fn mix(mut word: u64) -> u64 {
    for (shift, factor) in [(30, 0xbf58_476d_1ce4_e5b9), (27, 0x94d0_49bb_1331_11eb)] {
        word = (word ^ (word >> shift)).wrapping_mul(factor);
    }
    word ^ (word >> 31)
}

fn halves(wide: u128) -> (u64, u64) {
    (u64::try_from(wide >> 64).unwrap(), u64::try_from(wide & u128::from(u64::MAX)).unwrap())
}

/// The trace of a stay in the first worker of a process, `engine` being its context where the engine
/// has handed one on.
fn trace(pid: u32, seq: u64, engine: Option<&str>) -> u128 {
    if let Some(context) = engine {
        return u128::from_str_radix(&context[3..35], 16).unwrap();
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let start = text.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap();
    let (high, low) = halves(fnv1a(&format!("stay {} {pid} {start} 0 {seq}", boot.trim())));
    u128::from(mix(high)) << 64 | u128::from(mix(low ^ high).max(1))
}

/// Whether a healthy stay of a trace is among so many in a hundred.
fn is_chosen(trace: u128, percent: u64) -> bool {
    let (high, low) = halves(trace);
    let place = mix(high ^ low.rotate_left(32)) >> 11;
    u128::from(place) * 100 < u128::from(percent) << 53
}

/// Rooms of which something was told besides their coming and going, or whose end was not good.
fn notable(agent: &Agent, pid: u32) -> BTreeSet<String> {
    let room = |line: &Value| line["room"].as_str().unwrap().to_owned();
    let ends = agent.lines(pid, "dwell").into_iter();
    let bad = ends.filter(|dwell| dwell["stalled"] == true || dwell["outcome"] != "success");
    bad.chain(agent.lines(pid, "verdict")).map(|line| room(&line)).collect()
}

/// The traces of the stays of a process that have come to a collector, by room.
fn sent(collector: &Collector, pid: u32) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let spans = collector.items_that("traces", |span| {
        span["name"] == "inflight.dwell" && span["attributes"]["inflight.worker.pid"] == pid
    });
    let of = |span: &Value| (text(&span["attributes"]["inflight.room"]), text(&span["traceId"]));
    spans.iter().map(|(_, span)| of(span)).collect()
}

/// With that share of healthy stays: which of some hundred rooms come, and that all stalled do.
fn healthy_stays_are_sent(percent: u64) {
    let dir = tempfile::tempdir().unwrap();
    let collector = Collector::start(&[]);
    let (endpoint, share) = (collector.endpoint("http", "grpc"), format!("0.{percent:02}"));
    let config = configure(dir.path(), &[("endpoint", &endpoint), ("healthy_share", &share)]);
    let (stuck, mut busy) = (Worker::table("stay"), Worker::table("churn"));
    let agent = agent(&config, &[&stuck, &busy]);
    let (of_stuck, pid) = (stuck.pid(), busy.pid());
    for room in ["0", "1", "2"] {
        agent.wait_for(of_stuck, "verdict", |line| line["room"] == room);
    }
    within_a_minute(|| (agent.count(pid, "dwell") >= 150).then_some(())).expect("rooms end");
    let last = busy.stop().last().copied();
    let stays = within_a_minute(|| {
        let ends = agent.lines(pid, "dwell");
        let is_all = ends.len() == agent.count(pid, "append");
        (is_all && ends.iter().any(|dwell| dwell["seq"].as_u64() == last)).then_some(ends)
    });
    // Those that had ended before the agent came are not its own.
    let stays = stays.expect("every room that was seen is told to its end");
    // What is sent keeps its order: when these are there, so is whatever went before.
    drop(stuck);
    within_a_minute(|| (sent(&collector, of_stuck).len() == 3).then_some(()))
        .expect("every stalled stay is sent");
    let notable = notable(&agent, pid);
    let (mut wanted, mut chosen) = (BTreeMap::new(), 0);
    for stay in &stays {
        let (room, seq) =
            (stay["room"].as_str().unwrap().to_owned(), stay["seq"].as_u64().unwrap());
        let trace = trace(pid, seq, (room == "0").then_some(TRACEPARENT));
        let is_chosen = is_chosen(trace, percent);
        chosen += usize::from(is_chosen);
        if is_chosen || notable.contains(&room) {
            wanted.insert(room, format!("{trace:032x}"));
        }
    }
    assert_eq!(sent(&collector, pid), wanted, "{percent} % of {}", stays.len());
    assert!(notable.len() + 50 < stays.len(), "most were healthy: {notable:?}");
    let (fewest, most) = if percent == 0 { (0, 0) } else { (1, stays.len() - 1) };
    assert!((fewest..=most).contains(&chosen), "{chosen} of {}", stays.len());
    assert!(agent.end(Signal::TERM).1.success());
}

#[test]
fn no_healthy_stay_is_sent_where_none_is_wanted_and_every_stalled_one_is() {
    let _turn = turn();
    healthy_stays_are_sent(0);
}

#[test]
fn of_healthy_stays_exactly_those_are_sent_that_their_traces_choose() {
    let _turn = turn();
    healthy_stays_are_sent(30);
}
