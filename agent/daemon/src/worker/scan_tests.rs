//! When what a scan reads happened.

use super::*;

#[test]
fn what_a_scan_reads_is_told_as_of_when_it_was_and_not_of_when_the_scan_was_begun() {
    // The scan was begun at 640; it reads what happened up to 700. What the ring tells of 651 to 690
    // is read after it, and belongs to the room all the same.
    for marked in [true, false] {
        let mut bench = Bench::new(Removals::default());
        let seq = bench.append(630, 7);
        let mut events = if marked { bench.mark_append(631, seq, 7) } else { Vec::new() };
        bench.table().post(660, table::Seq(seq.0), 5);
        bench.remove(700, seq);
        events.extend(bench.told(|tracker, table, out| tracker.scan(table, Nanos(640), out)));
        // As the agent does before the ledger sees them.
        events.sort_by_key(|event| event.at);
        assert_eq!(words(&events), ["630 append 7", "700 posted 5", "700 Success"]);
    }
}

#[test]
fn marks_that_are_read_after_a_scan_has_seen_their_room_leave_are_its_own_all_the_same() {
    let mut bench = Bench::new(Removals::default());
    let seq = bench.append(630, 7);
    bench.remove(700, seq);
    let mut events = bench.told(|tracker, table, out| tracker.scan(table, Nanos(640), out));
    events.extend(bench.mark_append(631, seq, 7));
    events.extend(bench.told(|tracker, table, out| {
        let work = Work::Room(seq, None);
        tracker.serve_marked(Nanos(650), Tid(9), work, Some(table), out);
        tracker.room_marked(Nanos(660), seq, Fact::Post(seq, 5), Some(table), out);
        tracker.serve_marked(Nanos(690), Tid(9), Work::None, Some(table), out);
    }));
    events.extend(bench.mark_remove(701, seq));
    events.sort_by_key(|event| event.at);
    let told: Vec<(u64, Fact)> = events.into_iter().map(|event| (event.at.0, event.fact)).collect();
    assert!(matches!(told.first(), Some((630, Fact::Append(_)))));
    let between = [
        (650, Fact::Serve(Tid(9), seq)),
        (660, Fact::Post(seq, 5)),
        (690, Fact::ServeEnd(Tid(9))),
        (700, Fact::Remove(seq, Outcome::Success)),
    ];
    assert_eq!(told.get(1..), Some(&between[..]));
    assert_eq!(bench.tracker.tally(), Tally::default());
}

#[test]
fn what_a_table_states_of_the_future_is_cut_to_the_present() {
    let mut bench = Bench::new(Removals::default());
    let seq = bench.append(clock().0 + 5, 7);
    assert_eq!(words(&bench.scan()), ["2000000 append 7"]);
    bench.remove(u64::MAX, seq);
    assert_eq!(words(&bench.scan()), ["2000000 Success"]);
}

#[test]
fn a_room_whose_entry_was_used_again_ends_after_its_append() {
    let mut bench = Bench::new(Removals::default());
    let seq = bench.append(650, 7);
    let mut events = bench.mark_append(651, seq, 7);
    bench.remove(660, seq);
    for turn in 0..4 {
        // Each of the four entries is used again.
        let next = bench.append(661 + turn, 8 + turn);
        bench.remove(670 + turn, next);
    }
    let told = bench.told(|tracker, table, out| tracker.scan(table, Nanos(640), out));
    events.extend(
        told.into_iter().filter(|event| matches!(event.fact, Fact::Remove(it, _) if it == seq)),
    );
    events.sort_by_key(|event| event.at);
    assert_eq!(words(&events), ["650 append 7", "2000000 Unknown"]);
}
