//! Table and marks in every order, on a table in this process's memory.

use std::sync::atomic::{AtomicU64, Ordering};

use inflightd_abi::record::{self, Head};
use inflightd_abi::table::{
    ENTRY_WORDS, Geometry, HEADER_WORDS, NewEntry, NewHeader, Ranks, Role, THREAD_WORDS,
};

use super::scan::GIVE_UP_AFTER;
use super::*;
use crate::names::Names;
use crate::worker::History;

#[path = "scan_tests.rs"]
mod scan_time;
#[path = "untabled_tests.rs"]
mod untabled;

const SMALL: Geometry = Geometry { entries: 4, threads: 2 };
/// Everything here happens before this.
const LATER: Nanos = Nanos(1_000_000);

/// The clock of whoever reads.
const fn clock() -> Nanos {
    Nanos(2_000_000)
}

/// A worker's table and whoever follows it.
struct Bench {
    words: Vec<AtomicU64>,
    names: Names,
    tracker: Tracker,
}

impl Bench {
    fn new(told: Removals) -> Self {
        let bench = Self {
            words: (0..SMALL.words()).map(|_| AtomicU64::new(0)).collect(),
            names: Names::default(),
            tracker: Tracker::new(Worker(0), Nanos(500), told),
        };
        bench.table().write_header(
            1,
            &NewHeader {
                pid: 1,
                worker: 0,
                role: Role::Prefill,
                engine: b"test",
                version: b"1",
                ranks: Ranks::default(),
                nnodes: 1,
                identities: &[],
            },
        );
        bench
    }

    fn table(&self) -> Table<'_> {
        Table::create(&self.words, SMALL).unwrap()
    }

    fn append(&self, at: u64, room: u64) -> Seq {
        let peers: [(u64, &[u8]); 1] = [(1, b"decode")];
        let new = NewEntry { room, expected: 9, rid: b"rid", traceparent: b"", peers: &peers };
        Seq(self.table().append(at, &new).0)
    }

    fn remove(&self, at: u64, seq: Seq) {
        assert!(self.table().remove(at, table::Seq(seq.0), table::Outcome::Success));
    }

    /// What `act` tells, without the beats and readings of which every scan is full.
    fn told(&mut self, act: impl FnOnce(&mut Tracker, &Table<'_>, &mut Out<'_>)) -> Vec<Event> {
        let mut events = Vec::new();
        let table = Table::create(&self.words, SMALL).unwrap();
        let mut out = Out { names: &mut self.names, events: &mut events, clock };
        act(&mut self.tracker, &table, &mut out);
        events.retain(|event| !matches!(event.fact, Fact::Read | Fact::Beat));
        events
    }

    fn scan(&mut self) -> Vec<Event> {
        self.told(|tracker, table, out| tracker.scan(table, LATER, out))
    }

    fn mark_append(&mut self, at: u64, seq: Seq, room: u64) -> Vec<Event> {
        let mut rid = [0; record::RID_BYTES];
        rid[..3].copy_from_slice(b"rid");
        let head = Head { at, tgid: 1, tid: 1, kind: record::Kind::Append as u32, reserved: 0 };
        let append = record::Append { head, worker: 0, seq: seq.0, room, expected: 9, rid };
        self.told(|tracker, table, out| tracker.append_marked(&append, Some(table), out))
    }

    fn mark_remove(&mut self, at: u64, seq: Seq) -> Vec<Event> {
        self.told(|tracker, table, out| {
            tracker.remove_marked(Nanos(at), seq, Outcome::Success, Some(table), out);
        })
    }
}

/// The words for what was told.
fn words(events: &[Event]) -> Vec<String> {
    let of = |event: &Event| match &event.fact {
        Fact::Append(append) => {
            format!(
                "{} append {}{}",
                event.at.0,
                append.room.0,
                if append.late { " late" } else { "" }
            )
        }
        Fact::Entry(_, counts) => format!("{} posted {}", event.at.0, counts.posted_bytes),
        Fact::Remove(_, outcome) => format!("{} {outcome:?}", event.at.0),
        Fact::Lose(source, count) => format!("{} lost {count} of {}", event.at.0, source.name()),
        other => format!("{} {other:?}", event.at.0),
    };
    events.iter().map(of).collect()
}

#[test]
fn a_mark_before_the_scan_and_a_scan_before_the_mark_tell_the_same_once() {
    for mark_first in [true, false] {
        let mut bench = Bench::new(Removals::default());
        let seq = bench.append(600, 7);
        let (first, second) = if mark_first {
            (bench.mark_append(601, seq, 7), bench.scan())
        } else {
            (bench.scan(), bench.mark_append(601, seq, 7))
        };
        assert_eq!(words(&first), ["600 append 7"]);
        assert!(second.is_empty(), "{second:?}");
        bench.remove(700, seq);
        let (first, second) = if mark_first {
            (bench.mark_remove(701, seq), bench.scan())
        } else {
            (bench.scan(), bench.mark_remove(701, seq))
        };
        assert_eq!(words(&first), ["700 Success"]);
        assert!(second.is_empty(), "{second:?}");
        assert_eq!(bench.tracker.take_number(seq), 1);
        assert_eq!(bench.tracker.tally(), Tally::default());
    }
}

#[test]
fn a_beat_is_read_alone_when_the_last_reading_is_old() {
    let mut bench = Bench::new(Removals::default());
    bench.scan();
    let soon = LATER.plus(Nanos::from_millis(1));
    let later = LATER.plus(Nanos::from_secs(1));
    assert!(!bench.tracker.wants_beat(soon) && bench.tracker.wants_beat(later));
    bench.table().beat(LATER.0 + 5);
    let mut events = Vec::new();
    let table = Table::create(&bench.words, SMALL).unwrap();
    let mut out = Out { names: &mut bench.names, events: &mut events, clock };
    bench.tracker.read_beat(&table, later, &mut out);
    bench.tracker.read_beat(&table, later, &mut out);
    let told: Vec<_> = events.iter().map(|event| (event.at.0, event.fact.clone())).collect();
    assert_eq!(told, [(LATER.0 + 5, Fact::Beat)]);
    assert!(!bench.tracker.wants_beat(later));
}

#[test]
fn a_beat_is_not_told_without_what_its_poll_took_out() {
    let mut bench = Bench::new(Removals::default());
    let (first, second) = (bench.append(600, 7), bench.append(601, 8));
    bench.scan();
    bench.remove(LATER.0 + 4, first);
    bench.table().beat(LATER.0 + 5);
    let later = LATER.plus(Nanos::from_secs(1));
    let told = bench.told(|tracker, table, out| tracker.read_beat(table, later, out));
    assert_eq!(words(&told), [format!("{} Success", LATER.0 + 4)]);
    assert!(bench.mark_remove(LATER.0 + 4, first).is_empty(), "the mark is no second removal");
    assert_eq!(bench.tracker.open.keys().copied().collect::<Vec<_>>(), [second]);
}

#[test]
fn a_room_that_came_and_went_without_a_mark_is_found_in_the_table() {
    let mut bench = Bench::new(Removals::default());
    let seq = bench.append(600, 7);
    bench.table().post(610, table::Seq(seq.0), 5);
    bench.remove(700, seq);
    let told = words(&bench.scan());
    assert_eq!(told, ["600 append 7", "700 posted 5", "700 Success"]);
    assert!(bench.scan().is_empty());
    assert!(bench.mark_append(601, seq, 7).is_empty() && bench.mark_remove(701, seq).is_empty());
}

#[test]
fn what_was_before_the_agent_is_late_or_history() {
    let mut bench = Bench::new(Removals::through(1));
    let gone = bench.append(100, 1);
    bench.table().post(110, table::Seq(gone.0), 50);
    bench.table().done(120, table::Seq(gone.0), 50, true);
    bench.remove(200, gone);
    bench.append(300, 2);
    let history = History::read(&bench.table(), &Removals::through(1));
    assert!(history.whole);
    assert_eq!(history.bytes, BTreeMap::from([(PeerName::nixl(b"decode"), 50)]));
    assert_eq!(words(&bench.scan()), ["300 append 2 late"]);
}

#[test]
fn a_history_with_an_evicted_entry_is_not_whole() {
    let bench = Bench::new(Removals::default());
    for room in 0..5 {
        let seq = bench.append(100, room);
        bench.remove(200, seq);
    }
    assert!(!History::read(&bench.table(), &Removals::through(5)).whole);
}

#[test]
fn removals_whose_entries_were_used_again_are_lost_once_and_said_so() {
    let mut bench = Bench::new(Removals::default());
    for room in 0..6 {
        let seq = bench.append(600, room);
        bench.remove(700, seq);
    }
    let told = words(&bench.scan());
    assert_eq!(told.iter().filter(|word| word.ends_with("Success")).count(), 4);
    let later: Vec<String> = (0..2 * GIVE_UP_AFTER).flat_map(|_| words(&bench.scan())).collect();
    assert_eq!(later, ["1000000 lost 2 of table"]);
    assert_eq!(bench.tracker.take_given_up(), Some(6));
    assert_eq!(bench.tracker.take_given_up(), None);
}

#[test]
fn an_open_room_whose_entry_was_used_again_ends_as_unknown() {
    let mut bench = Bench::new(Removals::default());
    let seq = bench.append(600, 0);
    assert_eq!(words(&bench.scan()), ["600 append 0"]);
    bench.remove(700, seq);
    for room in 1..5 {
        bench.append(800, room);
    }
    let told = words(&bench.scan());
    assert!(told.contains(&"2000000 Unknown".to_owned()), "{told:?}");
    let later: Vec<Event> = (0..2 * GIVE_UP_AFTER).flat_map(|_| bench.scan()).collect();
    assert!(later.is_empty(), "that removal is told, if not as what it was: {later:?}");
}

#[test]
fn a_removal_that_the_table_does_not_know_is_not_believed() {
    let mut bench = Bench::new(Removals::default());
    let seq = bench.append(600, 7);
    bench.scan();
    assert!(bench.mark_remove(650, seq).is_empty());
    assert_eq!(bench.tracker.tally().disagreements, 1);
    bench.remove(700, seq);
    assert_eq!(words(&bench.scan()), ["700 Success"]);
}

#[test]
fn an_untabled_room_lives_by_its_marks() {
    let mut bench = Bench::new(Removals::default());
    for room in 0..4 {
        bench.append(600, room);
    }
    let seq = bench.append(610, 9);
    assert_eq!(tabled(seq), None);
    bench.scan();
    assert_eq!(words(&bench.mark_append(611, seq, 9)), ["611 append 9"]);
    assert!(bench.scan().is_empty(), "no entry, so the table says nothing of it");
    assert_eq!(words(&bench.mark_remove(650, seq)), ["650 Success"]);
}

#[test]
fn a_torn_entry_waits() {
    let mut bench = Bench::new(Removals::default());
    let seq = bench.append(600, 7);
    let slot = table::Seq(seq.0).slot().unwrap();
    let version = HEADER_WORDS + SMALL.threads * THREAD_WORDS + SMALL.entries + slot * ENTRY_WORDS;
    bench.words[version].fetch_add(1, Ordering::AcqRel);
    assert!(bench.scan().is_empty());
    assert_eq!(bench.tracker.tally().torn, 1);
    bench.words[version].fetch_add(1, Ordering::AcqRel);
    assert_eq!(words(&bench.scan()), ["600 append 7"]);
}

#[test]
fn an_earlier_life_left_a_room_that_the_table_has_forgotten() {
    let mut bench = Bench::new(Removals::default());
    let open = OpenRoom { room: 77, at: 400, expected: 1 };
    let seq = Seq(table::Seq::new(999, 2).0);
    let told = bench.told(|tracker, table, out| {
        tracker.scan(table, LATER, out);
        tracker.restore((seq, open), RoomName::default(), LATER, out);
    });
    assert_eq!(words(&told), ["400 append 77 late"]);
    assert_eq!(words(&bench.scan()), ["2000000 Unknown"]);
}

/// What a reading of the threads tells; each has an id in the worker's namespace and one here.
fn scan_threads(bench: &mut Bench, threads: &[(u32, u32)]) -> Vec<(u64, Fact)> {
    let threads = threads.iter().copied().collect();
    let told = bench.told(|tracker, table, out| {
        tracker.scan_threads(table, LATER, &threads, out);
    });
    told.into_iter().map(|event| (event.at.0, event.fact)).collect()
}

#[test]
fn early_work_is_taken_from_the_table_until_its_room_is_known() {
    let mut bench = Bench::new(Removals::default());
    let first = bench.append(600, 7);
    let tid = Tid(1011);
    let scan = |bench: &mut Bench| scan_threads(bench, &[(11, 1011)]);
    let early = (620, Fact::ServeEarly(tid, first));
    assert!(bench.table().serve_early(620, 11, table::Seq(first.0), |_| true));
    bench.scan();
    assert_eq!(scan(&mut bench), std::slice::from_ref(&early));
    assert!(scan(&mut bench).is_empty());
    let late = bench.append(630, 8);
    assert_eq!(bench.table().serve(640, 11, table::Seq(late.0), |_| true), table::Serve::Begun);
    bench.scan();
    let room = (630, Fact::Serve(tid, late));
    assert_eq!(scan(&mut bench), std::slice::from_ref(&room));
    assert!(scan(&mut bench).is_empty());
    let other = scan_threads(&mut bench, &[(11, 1012)]);
    assert_eq!(
        other,
        [(620, Fact::ServeEarly(Tid(1012), first)), (630, Fact::Serve(Tid(1012), late))]
    );
    bench.table().serve_end(11);
    assert_eq!(scan(&mut bench), [(LATER.0, Fact::ServeEnd(tid))]);
}

#[test]
fn threads_are_taken_from_the_table_where_they_are_the_workers_own() {
    let mut bench = Bench::new(Removals::default());
    let seq = bench.append(600, 7);
    assert_eq!(bench.table().serve(620, 11, table::Seq(seq.0), |_| true), table::Serve::Begun);
    bench.scan();
    let scan = scan_threads;
    assert!(scan(&mut bench, &[(12, 1012)]).is_empty(), "nobody else's thread");
    let serves = (620, Fact::Serve(Tid(1011), seq));
    assert_eq!(scan(&mut bench, &[(11, 1011)]), [serves]);
    assert!(scan(&mut bench, &[(11, 1011)]).is_empty());
    bench.table().serve_end(11);
    assert_eq!(scan(&mut bench, &[(11, 1011)]), [(LATER.0, Fact::ServeEnd(Tid(1011)))]);
}
