//! Rooms that found the table full.

use super::*;

/// A bench whose table is full, and two rooms of the same number that came after.
fn crowded() -> (Bench, [Seq; 2], Vec<String>) {
    let mut bench = Bench::new(Removals::default());
    for room in 1..=4 {
        bench.append(600, room);
    }
    bench.scan();
    let twins = [610, 620].map(|at| {
        let seq = bench.append(at, 42);
        (seq, words(&bench.mark_append(at, seq, 42)))
    });
    let told = twins.iter().flat_map(|(_, told)| told.clone()).collect();
    (bench, twins.map(|(seq, _)| seq), told)
}

#[test]
fn of_rooms_without_an_entry_too_the_latest_stays() {
    let (mut bench, [first, second], told) = crowded();
    assert_eq!(told, ["610 append 42", "620 Superseded", "620 append 42"]);
    assert!(bench.tracker.has_untabled());
    assert!(bench.mark_remove(900, first).is_empty());
    assert_eq!(words(&bench.mark_remove(901, second)), ["901 Success"]);
    assert!(!bench.tracker.has_untabled());
}

/// A scan may be faster than the mark of an earlier stay.
#[test]
fn a_room_without_an_entry_yields_to_a_later_stay_that_was_read_before_it() {
    let (mut bench, twins, _) = crowded();
    drop(bench.mark_remove(700, twins[1]));
    let late = bench.append(710, 42);
    bench.remove(720, Seq(bench.tracker.open().keys().next().unwrap().0));
    let tabled = bench.append(730, 42);
    assert!(tabled.0 & 0x3fff != late.0 & 0x3fff, "it has found a place");
    assert!(words(&bench.scan()).contains(&"730 append 42".to_owned()));
    assert_eq!(words(&bench.mark_append(710, late, 42)), ["710 append 42", "710 Superseded"]);
    assert!(!bench.tracker.has_untabled());
}

#[test]
fn rooms_without_an_entry_end_with_the_worker() {
    let (mut bench, _, _) = crowded();
    assert_eq!(words(&bench.mark_remove(900, Seq(table::Seq::ALL_UNTABLED.0))), ["900 Success"]);
    assert!(!bench.tracker.has_untabled());
    assert_eq!(bench.tracker.open().len(), 4, "the table tells of the others");
}

#[test]
fn rooms_without_an_entry_are_given_up_where_marks_were_missed() {
    let (mut bench, _, _) = crowded();
    let told = bench.told(|tracker, _, out| tracker.lose_untabled(Nanos(900), out));
    assert_eq!(words(&told), ["900 Unknown", "900 lost 1 of table"]);
    assert_eq!(bench.tracker.open().len(), 4);
    let told = bench.told(|tracker, _, out| tracker.lose_untabled(Nanos(901), out));
    assert!(told.is_empty());
    // Nor is one of an earlier life followed: its end may have been marked meanwhile.
    let open = OpenRoom { room: 77, at: 400, expected: 1 };
    let seq = Seq(table::Seq::new(999, table::Seq::UNTABLED).0);
    let told = bench.told(|tracker, _, out| {
        tracker.restore((seq, open), RoomName::default(), LATER, out);
    });
    assert_eq!(words(&told), ["400 append 77 late", "1000000 Unknown"]);
}
