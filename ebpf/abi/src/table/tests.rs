//! The table with one thread: what is written is what is read. Threads are model-checked with
//! loom in `tests/model.rs`.

use super::*;
use crate::sync::Ordering;

fn words(geometry: Geometry) -> Vec<AtomicU64> {
    (0..geometry.words()).map(|_| AtomicU64::new(0)).collect()
}

const SMALL: Geometry = Geometry { entries: 4, threads: 2 };

fn room(room: u64) -> NewEntry<'static> {
    NewEntry { room, expected: 100, rid: b"rid", traceparent: b"", peers: &[(1, b"decode-0")] }
}

fn entry(table: &Table<'_>, seq: Seq) -> EntryView {
    table.entry(seq.slot().unwrap()).unwrap().unwrap()
}

#[test]
fn an_appended_room_reads_back() {
    let words = words(SMALL);
    let table = Table::create(&words, SMALL).unwrap();
    let seq = table.append(1000, &room(0));
    table.post(1010, seq, 60);
    table.post(1020, seq, 40);
    table.done(1030, seq, 60, true);
    table.done(1040, seq, 40, false);
    table.phase(seq, Phase::Transferring);
    let view = entry(&table, seq);
    assert_eq!((view.seq, view.state, view.room), (seq, State::Open, 0));
    assert_eq!((view.posts, view.posted_bytes), (2, 100));
    assert_eq!((view.dones, view.done_bytes, view.failures), (2, 60, 1));
    assert_eq!((view.first_post_at, view.last_done_at), (Some(1010), Some(1040)));
    assert_eq!(view.rid.as_str(), Some("rid"));
    assert_eq!(view.peers[0].value.as_str(), Some("decode-0"));
    assert_eq!(view.peers[0].kind, PeerKind::NixlAgent);
    assert_eq!((view.peers_stated, view.peers[1]), (1, Peer::NONE));
    assert_eq!(view.phase, Phase::Transferring);
}

#[test]
fn a_removed_room_stays_readable_and_its_slot_is_taken_last() {
    let words = words(SMALL);
    let table = Table::create(&words, SMALL).unwrap();
    let first = table.append(1, &room(1));
    assert!(table.remove(5, first, Outcome::Failed));
    let view = entry(&table, first);
    assert_eq!((view.state, view.outcome), (State::Closed, Outcome::Failed));
    assert_eq!((view.removed_at, view.removal), (5, 1));
    let next: Vec<_> = (2..6).map(|n| table.append(n, &room(n))).collect();
    assert_eq!(next[3].slot(), first.slot(), "three free slots come before the one just left");
    assert!(next[..3].iter().all(|seq| seq.slot() != first.slot()));
}

#[test]
fn a_full_table_counts_and_never_blocks() {
    let words = words(SMALL);
    let table = Table::create(&words, SMALL).unwrap();
    let seqs: Vec<_> = (0..6).map(|n| table.append(n, &room(n))).collect();
    assert_eq!(seqs[4].slot(), None);
    assert_eq!(table.counters().overflows, 2);
    assert!(!table.post(9, seqs[4], 1), "an untabled room has marks only");
    assert_eq!(table.counters().stale, 0, "and is not a stale call");
    assert_eq!(table.taken_slots().count(), 4);
    assert!(table.remove(10, seqs[0], Outcome::Success));
    assert!(table.append(11, &room(9)).slot().is_some());
}

#[test]
fn the_same_room_again_supersedes() {
    let words = words(SMALL);
    let table = Table::create(&words, SMALL).unwrap();
    let first = table.append(1, &room(7));
    let second = table.append(2, &room(7));
    assert_eq!(entry(&table, first).outcome, Outcome::Superseded);
    assert!(table.is_open(second) && !table.is_open(first));
}

#[test]
fn a_late_call_is_counted_and_touches_nothing() {
    let words = words(SMALL);
    let table = Table::create(&words, SMALL).unwrap();
    let first = table.append(1, &room(1));
    table.remove(2, first, Outcome::Success);
    for n in 2..6 {
        table.append(n, &room(n));
    }
    assert!(!table.done(9, first, 50, true));
    assert!(!table.remove(9, first, Outcome::Failed));
    assert_eq!(table.counters().stale, 2);
    let taken: Vec<_> =
        table.taken_slots().map(|slot| table.entry(slot).unwrap().unwrap()).collect();
    assert!(taken.iter().all(|view| view.done_bytes == 0 && view.state == State::Open));
}

#[test]
fn serving_counts_at_the_gate() {
    let words = words(SMALL);
    let table = Table::create(&words, SMALL).unwrap();
    let seq = table.append(1, &room(1));
    let other = table.append(1, &room(2));
    assert_eq!(table.serve(5, 77, seq, |_| true), Serve::Begun);
    assert_eq!(entry(&table, seq).command.active, 1);
    assert_eq!(
        table.serve(6, 77, other, |_| true),
        Serve::Begun,
        "a second serve leaves the first room"
    );
    assert_eq!(entry(&table, seq).command.active, 0);
    assert_eq!(entry(&table, other).command.active, 1);
    let serving: Vec<_> = (0..2).filter_map(|slot| table.serving(slot)).collect();
    assert_eq!(serving, [Serving { tid: 77, seq: Some(other), early: None, since: 6, serves: 2 }]);
    assert_eq!(table.serve_end(77), Some(other));
    assert_eq!(table.serve_end(77), None);
    assert_eq!(entry(&table, other).command.active, 0);
}

#[test]
fn early_work_keeps_its_place_and_its_beginning_when_its_room_enters() {
    let words = words(SMALL);
    let table = Table::create(&words, SMALL).unwrap();
    let shown = |early, seq, since, serves| Serving { tid: 77, seq, early, since, serves };
    assert!(table.serve_early(5, 77, Seq(0), |_| true));
    assert_eq!(table.serving(wrapped(77, 2)), Some(shown(Some(Seq(0)), None, 5, 1)));
    assert_eq!(table.serve_end(77), Some(Seq(0)));
    assert_eq!(table.serve_end(77), None);
    let first = table.append(1, &room(1));
    assert!(table.serve_early(6, 77, first, |_| true));
    let late = table.append(1, &room(2));
    assert_eq!(table.serve(7, 77, late, |_| true), Serve::Begun);
    assert_eq!(table.serving(wrapped(77, 2)), Some(shown(Some(first), Some(late), 6, 2)));
    assert_eq!(entry(&table, late).command.active, 1);
    assert_eq!(table.serve(8, 77, first, |_| true), Serve::Begun, "what follows is no early work");
    assert_eq!(table.serving(wrapped(77, 2)), Some(shown(None, Some(first), 8, 3)));
    assert_eq!(entry(&table, late).command.active, 0);
    assert!(table.serve_early(9, 77, late, |_| true));
    assert_eq!(entry(&table, first).command.active, 0, "the room before is left");
    assert!(table.hold(first, Until::after(0, 7)).is_some());
    assert_eq!(table.serve(10, 77, first, |_| true), Serve::HeldAtWork);
    let still = Some(shown(Some(late), None, 9, 4));
    assert_eq!(table.serving(wrapped(77, 2)), still, "who is at work stays in sight");
    assert!(table.release(first, Until::after(0, 7)));
    assert_eq!(table.serve(11, 77, first, |_| true), Serve::Begun);
    assert_eq!(entry(&table, first).command.active, 1);
}

#[test]
fn a_dead_threads_slot_is_taken_over_and_a_live_ones_is_not() {
    let words = words(SMALL);
    let table = Table::create(&words, SMALL).unwrap();
    let seq = table.append(1, &room(1));
    assert_eq!(table.serve(1, 10, seq, |_| true), Serve::Begun);
    assert_eq!(table.serve(1, 11, seq, |_| true), Serve::Begun);
    assert_eq!(table.serve(2, 12, seq, |_| true), Serve::Begun, "the work goes on without a slot");
    assert_eq!(table.counters().threads_overflow, 1);
    assert_eq!(table.serve(3, 12, seq, |tid| tid != 10), Serve::Begun);
    let tids: Vec<_> = (0..2).filter_map(|slot| table.serving(slot)).map(|s| s.tid).collect();
    assert_eq!(tids, [12, 11]);
}

#[test]
fn texts_and_peers_beyond_their_room_are_cut_and_say_so() {
    let words = words(SMALL);
    let table = Table::create(&words, SMALL).unwrap();
    let long = [b'x'; 300];
    let peers = [(1, &long[..]); 9];
    let new = NewEntry { room: 1, expected: 0, rid: &long, traceparent: &long, peers: &peers };
    let view = entry(&table, table.append(1, &new));
    assert_eq!(view.rid.bytes(), &long[..64]);
    assert!(view.rid.is_cut() && view.peers[5].value.is_cut());
    assert_eq!(view.peers_stated, 9);
}

#[test]
fn the_header_reads_back_and_a_foreign_one_is_refused() {
    let words = words(SMALL);
    assert_eq!(Table::open(&words).unwrap_err(), TableError::NotReady);
    let table = Table::create(&words, SMALL).unwrap();
    let new = NewHeader {
        pid: 42,
        worker: 1,
        role: Role::Prefill,
        engine: b"demo",
        version: b"1.0",
        ranks: Ranks { tp: (1, 2), ..Ranks::default() },
        nnodes: 1,
        identities: &[(1, b"me")],
    };
    table.write_header(5, &new);
    let header = Table::open(&words).unwrap().header();
    assert_eq!((header.pid, header.worker, header.role), (42, 1, Role::Prefill));
    assert_eq!(header.ranks.tp, (1, 2));
    assert_eq!(header.engine.as_str(), Some("demo"));
    assert_eq!(header.identities[0].value.as_str(), Some("me"));
    words[2].store(9_999_999, Ordering::Relaxed);
    assert!(matches!(Table::open(&words), Err(TableError::Geometry { entries: 9_999_999, .. })));
    words[1].store(99, Ordering::Relaxed);
    assert_eq!(Table::open(&words).unwrap_err(), TableError::Version(99));
    words[0].store(1, Ordering::Relaxed);
    assert_eq!(Table::open(&words).unwrap_err(), TableError::NotATable(1));
}

#[test]
fn a_half_written_entry_is_torn_and_the_next_writer_mends_it() {
    let words = words(SMALL);
    let table = Table::create(&words, SMALL).unwrap();
    let seq = table.append(1, &room(1));
    table.entry_word(seq.slot().unwrap(), 0).store(7, Ordering::Relaxed);
    assert_eq!(table.entry(seq.slot().unwrap()), Err(Torn));
    assert!(table.remove(2, seq, Outcome::Success));
    assert!(table.entry(seq.slot().unwrap()).unwrap().is_some());
}

#[test]
fn a_late_server_never_takes_away_anothers_place_at_the_gate() {
    let words = words(SMALL);
    let table = Table::create(&words, SMALL).unwrap();
    let seq = table.append(1, &room(1));
    assert_eq!(table.serve(2, 10, seq, |_| true), Serve::Begun);
    table.remove(3, seq, Outcome::Success);
    assert_eq!(table.serve(4, 11, seq, |_| true), Serve::Begun, "a gone room has no gate");
    assert_eq!(table.serve_end(11), Some(seq));
    assert_eq!(table.serve(5, 12, seq, |_| true), Serve::Begun, "nor for the slotless");
    assert_eq!(entry(&table, seq).command.active, 1);
    assert_eq!(table.serve_end(10), Some(seq));
    assert_eq!(entry(&table, seq).command.active, 0);
}

#[test]
fn a_hold_turns_servers_away_until_it_is_released() {
    let words = words(SMALL);
    let table = Table::create(&words, SMALL).unwrap();
    let seq = table.append(1, &room(1));
    assert_eq!(table.serve(2, 10, seq, |_| true), Serve::Begun);
    let (until, later) = (Until::after(0, 7), Until::after(0, 8));
    let held = table.hold(seq, until).unwrap();
    assert_eq!((held.state, held.active, held.until), (CommandState::Held, 1, until));
    assert_eq!(table.serve(3, 11, seq, |_| true), Serve::Held);
    assert!(table.hold(seq, later).is_none(), "one hold at a time");
    assert!(!table.commit(seq, until, &FAIL), "a thread works for it");
    table.serve_end(10);
    assert_eq!(entry(&table, seq).command.active, 0);
    assert!(!table.release(seq, later));
    assert!(table.release(seq, until));
    assert_eq!(table.serve(4, 11, seq, |_| true), Serve::Begun);
    assert!(table.hold(seq, until).is_none(), "a hold has a name of its own");
    assert_eq!(table.hold(seq, later).unwrap().until, later);
}

const FAIL: Fail<'static> =
    Fail { dwell_ms: 12_345, tell_peers: true, reason: b"stopped_midway / peer_frozen" };

#[test]
fn a_worker_that_looks_at_one_count_misses_no_hold() {
    let words = words(SMALL);
    let table = Table::create(&words, SMALL).unwrap();
    let seq = table.append(1, &room(1));
    let before = table.asked();
    assert_eq!(table.command(seq).unwrap().state, CommandState::Open);
    assert!(table.hold(seq, Until::after(0, 7)).is_some());
    assert!(table.asked() != before);
    assert_eq!(table.command(seq).unwrap().state, CommandState::Held);
    assert!(table.remove(2, seq, Outcome::Failed));
    assert_eq!(table.command(seq), None);
}

#[test]
fn a_fail_is_carried_out_once_and_before_its_moment_or_never() {
    let ms = |ms: u64| ms * 1_000_000;
    let words = words(SMALL);
    let table = Table::create(&words, SMALL).unwrap();
    let [first, second] = [1, 2].map(|number| table.append(1, &room(number)));
    let until = Until::after(ms(1000), 2000);
    for seq in [first, second] {
        assert!(!table.commit(seq, until, &FAIL), "nothing is held");
        table.hold(seq, until).unwrap();
        assert_eq!(table.carry_out(seq, ms(1001)), None, "nothing is committed");
        assert!(table.commit(seq, until, &FAIL) && !table.release(seq, until));
    }
    let ordered = table.carry_out(first, ms(2999)).unwrap();
    assert_eq!((ordered.dwell_ms, ordered.tell_peers), (12_345, true));
    assert_eq!(ordered.reason.as_str(), Some("stopped_midway / peer_frozen"));
    assert_eq!(table.carry_out(first, ms(2999)), None, "once");
    assert_eq!(table.carry_out(second, ms(3000)), None);
    for seq in [first, second] {
        assert!(!table.polled(seq, ms(3000 + MARGIN_MS - 1)));
        assert_eq!(table.serve(4, 11, seq, |_| true), Serve::Held);
        assert!(table.polled(seq, ms(3000 + MARGIN_MS)));
        assert_eq!(table.serve(4, 11, seq, |_| true), Serve::Begun);
        assert!(!table.polled(seq, ms(9000)), "it is open");
    }
    assert!(table.remove(5, first, Outcome::Failed));
    assert!(table.hold(first, Until::after(0, 1)).is_none(), "it has left the queue");
}

#[test]
fn a_moment_is_compared_within_half_of_its_range() {
    let ms = |ms: u64| ms * 1_000_000;
    for now in [0, 5, (1 << 24) - 1, 1 << 24, (1 << 40) + 77] {
        let until = Until::after(ms(now), 2000);
        assert!(!until.is_over(ms(now), 0) && !until.is_over(ms(now + 1999), 0));
        assert!(until.is_over(ms(now + 2000), 0) && !until.is_over(ms(now + 2000), 1));
        assert!(until.is_over(ms(now + (1 << 23)), 100));
    }
}

#[test]
fn an_append_tells_what_it_closed() {
    let words = words(SMALL);
    let table = Table::create(&words, SMALL).unwrap();
    let first = table.append(1, &room(7));
    let mut told = Vec::new();
    let second = table.append_telling(2, &room(7), |change| told.push(change));
    assert_eq!(told, [Change::Superseded(first), Change::Entered(second)]);
    let mut left = Vec::new();
    table.remove_all(3, Outcome::Aborted, |seq| left.push(seq));
    assert_eq!(left, [second]);
    assert_eq!(table.taken_slots().count(), 0);
}

#[test]
fn an_entry_that_names_another_slot_is_not_believed() {
    let words = words(SMALL);
    let table = Table::create(&words, SMALL).unwrap();
    let seq = table.append(1, &room(1));
    let forged = Seq::new(seq.counter(), 3);
    let state = table.entry_word(seq.slot().unwrap(), 1);
    state.store((forged.0 << 2) | 1, Ordering::Relaxed);
    assert_eq!(table.entry(seq.slot().unwrap()), Err(Torn));
}

/// Every word of a table full of a hostile worker's numbers: reading must end and must not panic.
#[test]
fn a_table_of_any_content_is_read_without_harm() {
    let words = words(SMALL);
    Table::create(&words, SMALL).unwrap().append(1, &room(1));
    for fill in [0, 1, 2, 3, 0x5555_5555_5555_5555, u64::MAX, u64::MAX - 1] {
        for word in words.iter().skip(5) {
            word.store(fill, Ordering::Relaxed);
        }
        let table = Table::create(&words, SMALL).unwrap();
        assert!(table.taken_slots().all(|slot| slot < SMALL.entries));
        for slot in 0..=SMALL.entries {
            if let Ok(Some(view)) = table.entry(slot) {
                assert_eq!(view.seq.slot(), Some(slot));
            }
        }
        assert!((0..3).filter_map(|slot| table.serving(slot)).count() <= 2);
        assert!(table.header().engine.bytes().len() <= 56);
        let _ = table.counters();
    }
    for geometry in [(0, 1), (1, 0), (usize::MAX, 1), (1, usize::MAX)] {
        let (entries, threads) = geometry;
        let made = Table::create(&words, Geometry { entries, threads });
        assert!(matches!(made, Err(TableError::Geometry { .. })));
    }
}

#[test]
fn a_gauge_is_unknown_until_it_is_said() {
    let words = words(SMALL);
    let table = Table::create(&words, SMALL).unwrap();
    assert!(Gauge::ALL.iter().all(|gauge| table.gauge(*gauge).is_none()));
    let before = (table.header(), table.counters());
    for (value, gauge) in Gauge::ALL.into_iter().enumerate() {
        table.set_gauge(gauge, value as u64);
        assert_eq!(Gauge::from_code(gauge as u64), Some(gauge));
    }
    let values: Vec<_> = Gauge::ALL.iter().filter_map(|gauge| table.gauge(*gauge)).collect();
    assert_eq!(values, (0..Gauge::ALL.len() as u64).collect::<Vec<_>>());
    assert_eq!((table.header(), table.counters()), before);
    table.set_gauge(Gauge::KvFree, u64::MAX);
    assert_eq!(table.gauge(Gauge::KvFree), Some(u64::MAX - 1));
    assert_eq!((Gauge::from_code(0), Gauge::from_code(11)), (None, None));
}
