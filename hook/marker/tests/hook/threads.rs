//! Many threads of one worker at once, with a reader looking on from outside.

use inflightd_abi::table::{EntryView, Outcome, State, Table};

use crate::setup::{Engine, Mapped};

/// Everything of a room in `engine.c` follows from its number: a mix of two rooms shows.
pub(crate) fn is_of_one_room(view: &EntryView) {
    let room = view.room;
    assert_eq!(view.expected, room * 3, "{view:?}");
    assert_eq!(view.rid.as_str(), Some(&*format!("rid-{room}")), "{view:?}");
    let peer = view.peers[0].value;
    assert_eq!(peer.as_str(), Some(&*format!("decode-{room}")), "{view:?}");
    assert!(view.posts <= 3 && view.dones <= view.posts, "{view:?}");
    assert!(view.posted_bytes <= room * 3 && view.done_bytes <= view.posted_bytes, "{view:?}");
    assert!(view.posted_bytes >= view.posts * room, "a call without its bytes: {view:?}");
    if view.state == State::Closed {
        assert!(view.removed_at >= view.appended_at && view.outcome != Outcome::Unknown);
    }
}

/// Reads every entry; returns how many were whole and how many were torn.
pub(crate) fn sweep(table: &Table<'_>) -> (usize, usize) {
    let (mut whole, mut torn) = (0, 0);
    for slot in 0..table.geometry().entries {
        match table.entry(slot) {
            Ok(Some(view)) => {
                is_of_one_room(&view);
                whole += 1;
            }
            Ok(None) => {}
            Err(_torn) => torn += 1,
        }
    }
    (whole, torn)
}

fn hammer(shared: bool) -> (Engine, Mapped) {
    let (mut engine, mapped) = Engine::opened();
    engine.tell(&format!("hammer 8 200 {}", u8::from(shared)));
    let table = mapped.table();
    let appends = 8 * 200 * 50;
    let mut seen = 0;
    while table.counters().appends < appends {
        engine.assert_alive();
        seen += sweep(&table).0;
    }
    engine.answer();
    assert!(seen > 0, "the reader saw rooms while they were written");
    let (_whole, torn) = sweep(&table);
    assert_eq!((table.counters().appends, torn), (appends, 0));
    (engine, mapped)
}

#[test]
fn threads_with_rooms_of_their_own_lose_nothing() {
    let (_engine, mapped) = hammer(false);
    let table = mapped.table();
    let counters = table.counters();
    assert_eq!((counters.stale, counters.overflows, counters.threads_overflow), (0, 0, 0));
    assert_eq!((counters.removals, counters.beats), (counters.appends, counters.appends));
    assert_eq!(table.taken_slots().count(), 0, "every room left");
    let entries = (0..8192).filter_map(|slot| table.entry(slot).expect("whole"));
    for view in entries {
        assert_eq!((view.posts, view.dones, view.command.active), (3, 3, 0), "{view:?}");
        assert_eq!(view.done_bytes, view.room * 3);
    }
}

#[test]
fn threads_with_the_same_rooms_supersede_each_other() {
    let (_engine, mapped) = hammer(true);
    let table = mapped.table();
    let counters = table.counters();
    assert_eq!((counters.overflows, counters.threads_overflow), (0, 0));
    assert_eq!(counters.removals, counters.appends, "the last round closes what is left");
    assert_eq!(table.taken_slots().count(), 0);
    assert!(counters.stale > 0, "a superseded stay's calls come late");
}
