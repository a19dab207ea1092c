//! `inflight.h` says what this crate says: sizes, offsets and numbers, checked by a C compiler.

use std::fmt::Write as _;
use std::io::Write as _;
use std::mem::{align_of, offset_of, size_of};
use std::process::{Command, Stdio};

use inflightd_abi::table::{
    COMMANDS_VERSION, ENTRIES_MAX, Gauge, Outcome, PEERS_MAX, PeerKind, Phase, Role,
};

use crate::args::{Fail, OpenArgs, Peer, Rank};
use crate::{OpenError, WORKERS_MAX};

/// A C program that compiles only if every pair of an expression and a number is equal.
fn program(facts: &[(String, usize)]) -> String {
    let mut text = String::from("#include \"inflight.h\"\n");
    for (expression, number) in facts {
        writeln!(text, "_Static_assert(({expression}) == {number}, \"{number}\");").unwrap();
    }
    text
}

fn compiles(text: &str) -> bool {
    let mut cc = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"])
        .args(["-x", "c", "-I", concat!(env!("CARGO_MANIFEST_DIR"), "/include"), "-"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("a C compiler");
    cc.stdin.take().expect("its input").write_all(text.as_bytes()).expect("it reads");
    cc.wait().expect("it ends").success()
}

macro_rules! fields {
    ($facts:ident, $rust:ty, $c:literal, $($field:ident),+) => {
        $facts.push((format!("sizeof(struct {})", $c), size_of::<$rust>()));
        $facts.push((format!("_Alignof(struct {})", $c), align_of::<$rust>()));
        $(
            let name = stringify!($field);
            $facts.push((format!("offsetof(struct {}, {name})", $c), offset_of!($rust, $field)));
        )+
    };
}

fn facts() -> Vec<(String, usize)> {
    let mut facts = Vec::new();
    fields!(facts, Peer, "inflight_peer", kind, reserved, value);
    fields!(facts, Rank, "inflight_rank", index, size);
    fields!(facts, Fail, "inflight_fail", dwell_ms, tell_peers, reason);
    fields!(
        facts,
        OpenArgs,
        "inflight_open_args",
        size,
        role,
        nnodes,
        engine,
        version,
        dp,
        pp,
        tp,
        cp,
        identities,
        identities_len
    );
    let mut number = |name: &str, value: u64| {
        facts.push((name.to_owned(), usize::try_from(value).expect("small")));
    };
    number("INFLIGHT_WORKERS_MAX", WORKERS_MAX as u64);
    number("INFLIGHT_ROOMS_MAX", ENTRIES_MAX as u64);
    number("INFLIGHT_PEERS_KEPT", PEERS_MAX as u64);
    number("INFLIGHT_PREFILL", Role::Prefill.code());
    number("INFLIGHT_DECODE", Role::Decode.code());
    number("INFLIGHT_NIXL_AGENT", PeerKind::NixlAgent.code());
    number("INFLIGHT_MOONCAKE_SESSION", PeerKind::MooncakeSession.code());
    number("INFLIGHT_ENDPOINT", PeerKind::Endpoint.code());
    number("INFLIGHT_PARKED", Phase::Parked as u64);
    number("INFLIGHT_PEERS_READY", Phase::PeersReady as u64);
    number("INFLIGHT_TRANSFERRING", Phase::Transferring as u64);
    number("INFLIGHT_PHASE_FAILED", Phase::Failed as u64);
    number("INFLIGHT_EXEMPT", Phase::Exempt as u64);
    number("INFLIGHT_DONE_HERE", Phase::DoneHere as u64);
    number("INFLIGHT_PREALLOC", Phase::Prealloc as u64);
    number("INFLIGHT_KV_FREE", Gauge::KvFree as u64);
    number("INFLIGHT_KV_TOTAL", Gauge::KvTotal as u64);
    number("INFLIGHT_SLOTS_FREE", Gauge::SlotsFree as u64);
    number("INFLIGHT_SLOTS_TOTAL", Gauge::SlotsTotal as u64);
    number("INFLIGHT_THREADS_ALIVE", Gauge::ThreadsAlive as u64);
    number("INFLIGHT_THREADS_STARTED", Gauge::ThreadsStarted as u64);
    number("INFLIGHT_LISTENERS_ALIVE", Gauge::ListenersAlive as u64);
    number("INFLIGHT_FAULTS", Gauge::Faults as u64);
    number("INFLIGHT_MISSING", Gauge::Missing as u64);
    number("INFLIGHT_COMMANDS", Gauge::Commands as u64);
    number("INFLIGHT_OPEN", 0);
    number("INFLIGHT_HELD", 1);
    number("INFLIGHT_COMMITTED", 2);
    number("INFLIGHT_CARRIED_OUT", 3);
    number("INFLIGHT_COMMANDS_VERSION", COMMANDS_VERSION);
    number("INFLIGHT_SUCCESS", Outcome::Success as u64);
    number("INFLIGHT_FAILED", Outcome::Failed as u64);
    number("INFLIGHT_ABORTED", Outcome::Aborted as u64);
    number("INFLIGHT_REQUEUED", Outcome::Requeued as u64);
    number("INFLIGHT_SUPERSEDED", Outcome::Superseded as u64);
    number("INFLIGHT_E_ARGS", OpenError::Args as u64);
    number("INFLIGHT_E_FORKED", OpenError::Forked as u64);
    number("INFLIGHT_E_TOO_MANY", OpenError::TooMany as u64);
    number("INFLIGHT_E_MEMFD", OpenError::Memfd as u64);
    number("INFLIGHT_E_MEMORY", OpenError::Memory as u64);
    number("INFLIGHT_E_SEAL", OpenError::Seal as u64);
    number("INFLIGHT_E_MAP", OpenError::Map as u64);
    number("INFLIGHT_E_FORK_GUARD", OpenError::ForkGuard as u64);
    facts
}

#[test]
fn the_header_has_the_sizes_offsets_and_numbers_of_this_crate() {
    assert!(compiles(&program(&facts())));
}

#[test]
fn a_header_of_other_numbers_would_not_compile() {
    let mut facts = facts();
    facts[0].1 += 1;
    assert!(!compiles(&program(&facts)));
}

#[test]
fn every_constant_of_the_header_is_checked() {
    let header = include_str!("../include/inflight.h");
    let checked = program(&facts());
    let constants = header.lines().filter_map(|line| {
        let (name, _value) = line.trim().strip_prefix("INFLIGHT_")?.split_once(" = ")?;
        Some(format!("(INFLIGHT_{name})"))
    });
    let constants: Vec<_> = constants.collect();
    assert_eq!(constants.len(), 39);
    for constant in constants {
        assert!(checked.contains(&constant), "{constant}");
    }
}

#[test]
fn an_error_has_a_text() {
    for code in -1..=9 {
        // SAFETY: the text is a constant that ends with a NUL.
        let text = unsafe { std::ffi::CStr::from_ptr(crate::inflight_errstr(code)) };
        assert!(!text.is_empty(), "{code}");
    }
}
