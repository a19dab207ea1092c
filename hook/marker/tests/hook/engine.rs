//! The C engine, command by command: what it calls is what the table says and what the marks hit.

use std::fs::OpenOptions;

use inflightd_abi::record::Kind;
use inflightd_abi::table::{Fail, Outcome, PeerKind, Phase, Role, Seq, State, Until};

use crate::probe::Probe;
use crate::setup::{Engine, Mapped, library, table_path};

#[test]
fn the_header_says_who_the_worker_is() {
    let (engine, mapped) = Engine::opened();
    let header = mapped.table().header();
    assert_eq!(header.pid, u64::from(engine.pid()));
    assert_eq!((header.worker, header.role, header.nnodes), (0, Role::Prefill, 1));
    assert_eq!(header.engine.as_str(), Some("engine.c"));
    assert_eq!(header.version.as_str(), Some("1.0"));
    assert_eq!((header.ranks.tp, header.ranks.dp), ((1, 2), (0, 0)));
    assert_eq!(header.identities_stated, 1);
    assert_eq!(header.identities[0].kind, PeerKind::NixlAgent);
    assert_eq!(header.identities[0].value.as_str(), Some("prefill-0"));
}

#[test]
fn a_rooms_life_reads_back_from_outside() {
    let (mut engine, mapped) = Engine::opened();
    let seq = engine.append(42);
    engine.ask(&format!("phase {} 3", seq.0));
    assert_eq!(engine.ask(&format!("serve {}", seq.0)), "1");
    engine.ask(&format!("post {} 100", seq.0));
    engine.ask(&format!("done {} 60 1", seq.0));
    engine.ask(&format!("done {} 40 0", seq.0));
    engine.ask("beat");
    let view = mapped.entry(seq);
    assert_eq!((view.state, view.room, view.expected), (State::Open, 42, 126));
    assert_eq!(view.rid.as_str(), Some("rid-42"));
    assert_eq!(view.peers[0].value.as_str(), Some("decode-42"));
    assert_eq!((view.posts, view.posted_bytes), (1, 100));
    assert_eq!((view.dones, view.done_bytes, view.failures), (2, 60, 1));
    assert_eq!((view.phase, view.command.active), (Phase::Transferring, 1));
    let table = mapped.table();
    let serving: Vec<_> =
        (0..table.geometry().threads).filter_map(|slot| table.serving(slot)).collect();
    assert_eq!(serving.len(), 1);
    assert_eq!((serving[0].tid, serving[0].seq), (engine.pid(), Some(seq)));
    engine.ask("serve_end");
    engine.ask(&format!("remove {} 2", seq.0));
    let view = mapped.entry(seq);
    assert_eq!(
        (view.state, view.outcome, view.command.active),
        (State::Closed, Outcome::Failed, 0)
    );
    assert!(view.appended_at <= view.removed_at);
    let counters = table.counters();
    assert_eq!((counters.beats, counters.appends, counters.removals), (1, 1, 1));
    assert!(counters.beat_at >= view.appended_at && counters.stale == 0);
}

#[test]
fn early_work_shows_with_its_place_and_then_with_its_room() {
    let (mut engine, mapped) = Engine::opened();
    let ends = Probe::attach(library(), "inflight_mark_serve_end", engine.pid());
    let begins = Probe::attach(library(), "inflight_mark_serve", engine.pid());
    let shown = || (0..256).filter_map(|slot| mapped.table().serving(slot)).next_back();
    let first = engine.append(1);
    engine.ask(&format!("serve_early {}", first.0));
    let early = shown().unwrap();
    assert_eq!((early.seq, early.early), (None, Some(first)));
    let late = engine.append(2);
    engine.ask(&format!("serve {}", late.0));
    let adopted = shown().unwrap();
    assert_eq!((adopted.seq, adopted.early), (Some(late), Some(first)));
    assert_eq!(adopted.since, early.since);
    engine.ask("serve_end");
    engine.ask("serve_early 0");
    engine.ask("serve_end");
    engine.ask("serve_end");
    assert_eq!(shown().map(|idle| (idle.seq, idle.early)), Some((None, None)));
    assert_eq!((begins.hits(), ends.hits()), (3, 2));
}

#[test]
fn every_call_hits_its_marker_once() {
    let (mut engine, _mapped) = Engine::opened();
    let attach = |(symbol, kind)| (kind, Probe::attach(library(), symbol, engine.pid()));
    let probes: Vec<_> = Kind::MARKS.into_iter().map(attach).collect();
    let first = engine.append(1);
    let seq = engine.append(1);
    for command in ["serve", "post", "done", "phase"] {
        engine.ask(&format!("{command} {} 1 1", seq.0));
    }
    engine.ask("serve_end");
    engine.ask("serve_end");
    engine.ask("beat");
    engine.ask(&format!("remove {} 1", seq.0));
    engine.ask(&format!("remove {} 1", seq.0));
    engine.ask(&format!("post {} 1", first.0));
    for (kind, probe) in probes {
        let expected = match kind {
            Kind::Open => 0,
            // The first stay of room 1 was superseded; a late remove and post have no mark.
            Kind::Append | Kind::Remove => 2,
            _ => 1,
        };
        assert_eq!(probe.hits(), expected, "{kind:?}");
    }
}

#[test]
fn a_full_table_is_counted_and_blocks_nobody() {
    let (mut engine, mapped) = Engine::opened();
    let last = Seq(engine.number("fill 8200"));
    assert_eq!(last.slot(), None);
    let table = mapped.table();
    assert_eq!((table.counters().appends, table.counters().overflows), (8200, 8));
    assert_eq!(table.taken_slots().count(), 8192);
    let marks = Probe::attach(library(), "inflight_mark_remove", engine.pid());
    assert_eq!(engine.ask(&format!("serve {}", last.0)), "1");
    engine.ask("serve_end");
    engine.ask(&format!("remove {} 1", last.0));
    assert_eq!(marks.hits(), 1, "a room without an entry still has its marks");
    assert_eq!(table.counters().stale, 0);
    let slot = engine.append(0).slot();
    assert!(slot.is_some(), "an open room of the same number makes place");
}

#[test]
fn a_closed_worker_leaves_an_empty_queue_and_is_off() {
    let (mut engine, mapped) = Engine::opened();
    let seq = engine.append(1);
    engine.ask("close");
    assert_eq!(mapped.entry(seq).outcome, Outcome::Aborted);
    assert_eq!(mapped.table().taken_slots().count(), 0);
    assert_eq!(engine.number("append 2"), 0);
    engine.ask("beat");
    assert_eq!(mapped.table().counters().beats, 0);
}

#[test]
fn a_process_has_sixteen_workers_and_no_more() {
    let mut engine = Engine::start();
    for _ in 0..16 {
        assert_eq!(engine.ask("open"), "0");
    }
    assert_eq!(engine.ask("open"), "3");
    assert_eq!(engine.number("append 1"), 0, "no handle, so off");
}

/// Nobody can take the memory away under the engine, or under the agent.
#[test]
fn the_table_cannot_be_truncated_from_outside() {
    let (mut engine, mapped) = Engine::opened();
    let path = table_path(engine.pid());
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("opens for writing");
    let len = file.metadata().expect("its size").len();
    for size in [0, len - 4096, len + 4096] {
        let why = file.set_len(size).expect_err("sealed");
        assert_eq!(why.raw_os_error(), Some(libc::EPERM), "to {size}");
    }
    let seq = engine.append(1);
    assert_eq!(mapped.entry(seq).room, 1);
}

#[test]
fn a_hold_from_outside_turns_the_thread_away() {
    let (mut engine, mapped) = Engine::opened();
    let writable = Mapped::writable(engine.pid());
    let seq = engine.append(1);
    let until = Until::after(0, 7);
    assert!(writable.table().hold(seq, until).is_some());
    assert_eq!(engine.ask(&format!("serve {}", seq.0)), "0");
    assert_eq!(mapped.entry(seq).command.active, 0);
    assert!(writable.table().release(seq, until));
    assert_eq!(engine.ask(&format!("serve {}", seq.0)), "1");
    assert_eq!(mapped.entry(seq).command.active, 1);
}

#[test]
fn a_fail_from_outside_is_carried_out_as_a_poll_begins_and_its_hold_ends_after_one() {
    let (mut engine, mapped) = Engine::opened();
    let writable = Mapped::writable(engine.pid());
    let (seq, other) = (engine.append(1), engine.append(2));
    let asked = engine.number("asked");
    let long = Until::after(mapped.entry(seq).appended_at, 600_000);
    let over = Until::after(mapped.entry(seq).appended_at, 0);
    let reason = b"stopped_midway / peer_frozen, with a peer that has a long name";
    let fail = Fail { dwell_ms: 4321, tell_peers: true, reason };
    for (seq, until) in [(seq, long), (other, over)] {
        assert_eq!(engine.number(&format!("command {}", seq.0)), 0);
        assert!(writable.table().hold(seq, until).is_some());
        assert_eq!(engine.number(&format!("command {}", seq.0)), 1);
        assert_eq!(engine.ask(&format!("carry_out {}", seq.0)), "0 0 0");
        assert!(writable.table().commit(seq, until, &fail));
        assert_eq!(engine.number(&format!("command {}", seq.0)), 2);
    }
    assert_eq!(engine.number("asked"), asked + 2);
    let kept = String::from_utf8_lossy(&reason[..40]);
    assert_eq!(engine.ask(&format!("carry_out {}", seq.0)), format!("1 4321 1 {kept}"));
    assert_eq!(engine.ask(&format!("carry_out {}", seq.0)), "0 0 0", "once");
    assert_eq!(engine.number(&format!("command {}", seq.0)), 3);
    assert_eq!(engine.ask(&format!("carry_out {}", other.0)), "0 0 0", "too late");
    let begun = mapped.entry(other).appended_at + 200_000_000;
    assert_eq!(
        engine.number(&format!("polled {} {begun}", seq.0)),
        0,
        "its moment is still to come"
    );
    assert_eq!(engine.number(&format!("polled {} {begun}", other.0)), 1);
    assert_eq!(engine.number(&format!("command {}", other.0)), 0);
    assert_eq!(engine.ask(&format!("serve {}", other.0)), "1");
    engine.ask(&format!("remove {} 2", seq.0));
    assert_eq!(engine.number(&format!("command {}", seq.0)), 0);
}
