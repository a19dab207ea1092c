//! The table's protocol under every interleaving and every allowed reordering, in small models.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p inflightd-abi --release --test model`
#![cfg(loom)]
#![expect(clippy::unwrap_used, reason = "a model says no by panicking")]

use inflightd_abi::sync::AtomicU64;
use inflightd_abi::table::{
    CommandState, Fail, Geometry, NewEntry, Outcome, Phase, Seq, Serve, Serving, State, Table,
    Until,
};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

const FAIL: Fail<'static> = Fail { dwell_ms: 1, tell_peers: false, reason: b"stopped" };

/// A table in memory that the threads of a model share.
#[derive(Clone)]
struct Shared {
    words: Arc<Vec<AtomicU64>>,
    geometry: Geometry,
}

impl Shared {
    fn new(entries: usize, threads: usize) -> Self {
        let geometry = Geometry { entries, threads };
        let words = (0..geometry.words()).map(|_| AtomicU64::new(0)).collect();
        Self { words: Arc::new(words), geometry }
    }

    fn table(&self) -> Table<'_> {
        Table::create(&self.words, self.geometry).unwrap()
    }

    fn append(&self, room: u64) -> Seq {
        self.table().append(room, &new(room))
    }

    fn spawn<T: 'static>(&self, act: impl FnOnce(&Self) -> T + 'static) -> thread::JoinHandle<T> {
        let shared = self.clone();
        thread::spawn(move || act(&shared))
    }

    fn open(&self) -> Vec<(u64, Seq)> {
        let table = self.table();
        let views = table.taken_slots().map(|slot| table.entry(slot).unwrap().unwrap());
        views.filter(|view| view.state == State::Open).map(|view| (view.room, view.seq)).collect()
    }
}

/// Everything of a room follows from its number, so that a mix of two shows.
fn new(room: u64) -> NewEntry<'static> {
    NewEntry { room, expected: room * 3, rid: b"", traceparent: b"", peers: &[] }
}

/// Checks every execution in which threads are preempted at most `preemptions` times.
fn model(preemptions: usize, check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(check);
}

#[test]
fn a_reader_never_sees_a_mix_of_two_rooms() {
    model(3, || {
        let shared = Shared::new(1, 1);
        let first = shared.append(1);
        let writer = shared.spawn(move |shared| {
            assert!(shared.table().remove(9, first, Outcome::Success));
            shared.append(2)
        });
        if let Ok(Some((seq, state, room, expected))) = shared.table().entry_in_brief(0) {
            assert_eq!(expected, room * 3);
            assert_eq!(room, seq.counter());
            assert!(room == 1 || state == State::Open);
        }
        let second = writer.join().unwrap();
        assert_eq!(shared.open(), [(2, second)]);
    });
}

#[test]
fn of_two_appends_of_one_room_one_stays_open() {
    model(2, || {
        let shared = Shared::new(2, 1);
        let other = shared.spawn(|shared| shared.append(7));
        let mine = shared.append(7);
        let theirs = other.join().unwrap();
        assert_eq!(shared.open(), [(7, mine.max(theirs))]);
        let counters = shared.table().counters();
        assert_eq!((counters.appends, counters.removals, counters.stale), (2, 1, 0));
    });
}

#[test]
fn two_appends_of_different_rooms_both_stay() {
    model(2, || {
        let shared = Shared::new(2, 1);
        let other = shared.spawn(|shared| shared.append(8));
        let mine = shared.append(7);
        let theirs = other.join().unwrap();
        let mut open = shared.open();
        open.sort_unstable();
        assert_eq!(open, [(7, mine), (8, theirs)]);
        assert_ne!(mine.slot(), theirs.slot());
    });
}

#[test]
fn when_full_one_append_gets_the_slot_and_the_other_is_counted() {
    model(3, || {
        let shared = Shared::new(1, 1);
        let other = shared.spawn(|shared| shared.append(8));
        let mine = shared.append(7);
        let theirs = other.join().unwrap();
        let placed = [mine, theirs].iter().filter(|seq| seq.slot().is_some()).count();
        assert_eq!((placed, shared.open().len()), (1, 1));
        assert_eq!(shared.table().counters().overflows, 1);
    });
}

#[test]
fn an_append_beside_a_removal_gets_its_slot_or_is_counted() {
    model(3, || {
        let shared = Shared::new(1, 1);
        let first = shared.append(1);
        let remover = shared.spawn(move |shared| {
            assert!(shared.table().remove(9, first, Outcome::Success));
        });
        let second = shared.append(2);
        remover.join().unwrap();
        let overflows = shared.table().counters().overflows;
        match second.slot() {
            Some(_) => assert_eq!((shared.open(), overflows), (vec![(2, second)], 0)),
            None => assert_eq!((shared.open(), overflows), (vec![], 1)),
        }
    });
}

#[test]
fn two_removals_of_one_stay_are_one_removal() {
    model(3, || {
        let shared = Shared::new(1, 1);
        let seq = shared.append(1);
        let other = shared.spawn(move |shared| shared.table().remove(8, seq, Outcome::Failed));
        let mine = shared.table().remove(9, seq, Outcome::Success);
        let theirs = other.join().unwrap();
        assert!(mine ^ theirs);
        let view = shared.table().entry(0).unwrap().unwrap();
        assert_eq!(view.outcome, if mine { Outcome::Success } else { Outcome::Failed });
        let counters = shared.table().counters();
        assert_eq!((counters.removals, counters.stale), (1, 1));
    });
}

#[test]
fn a_late_call_never_credits_the_slots_next_room() {
    model(3, || {
        let shared = Shared::new(1, 1);
        let first = shared.append(1);
        let late = shared.spawn(move |shared| {
            shared.table().done(9, first, 50, true);
            shared.table().phase(first, Phase::Failed);
        });
        shared.table().remove(9, first, Outcome::Success);
        let second = shared.append(2);
        assert!(shared.table().done(10, second, 5, true));
        late.join().unwrap();
        let view = shared.table().entry(0).unwrap().unwrap();
        assert_eq!((view.seq, view.dones, view.done_bytes), (second, 1, 5));
        assert_eq!((view.last_done_at, view.phase), (Some(10), Phase::None));
    });
}

#[test]
fn a_copy_never_shows_more_done_than_posted() {
    model(2, || {
        let shared = Shared::new(1, 1);
        let seq = shared.append(1);
        let worker = shared.spawn(move |shared| {
            shared.table().post(2, seq, 10);
            shared.table().done(3, seq, 10, true);
        });
        let view = shared.table().entry(0).unwrap().unwrap();
        assert!(view.dones <= view.posts && view.done_bytes <= view.posted_bytes);
        assert!(view.posted_bytes >= view.posts * 10 && view.done_bytes >= view.dones * 10);
        assert!(view.posts == 0 || view.first_post_at.is_some());
        worker.join().unwrap();
        let view = shared.table().entry(0).unwrap().unwrap();
        assert_eq!((view.posts, view.dones, view.done_bytes), (1, 1, 10));
    });
}

/// Touches what only one may touch at a time: loom says so if two do.
fn at_work(work: &UnsafeCell<u32>) {
    // SAFETY: that nobody else is here is what the model checks.
    work.with_mut(|work| unsafe { *work += 1 });
}

/// The gate's promise: once a hold is in place and nobody is active, nobody is at work for the
/// room until it is released. Who is at work writes `work`; so does the holder, once it may.
#[test]
fn nobody_works_behind_a_hold_that_is_drained() {
    model(3, || {
        let shared = Shared::new(1, 2);
        let seq = shared.append(1);
        let work = Arc::new(UnsafeCell::new(0));
        let theirs = work.clone();
        let server = shared.spawn(move |shared| {
            let table = shared.table();
            for _ in 0..2 {
                if table.serve(5, 77, seq, |_| true) == Serve::Begun {
                    at_work(&theirs);
                    table.serve_end(77);
                }
            }
        });
        let table = shared.table();
        let until = Until::after(0, 7);
        let held = table.hold(seq, until).unwrap();
        let command = table.entry(0).unwrap().unwrap().command;
        assert_eq!(command.state, CommandState::Held);
        assert!(command.active <= held.active);
        if command.active == 0 {
            at_work(&work);
            assert!(table.release(seq, until));
        }
        server.join().unwrap();
        assert_eq!(table.entry(0).unwrap().unwrap().command.active, 0);
    });
}

/// A room is committed to be failed only where nobody works for it, and nobody begins after that.
#[test]
fn nobody_works_for_a_room_that_is_to_be_failed() {
    model(3, || {
        let shared = Shared::new(1, 2);
        let seq = shared.append(1);
        let work = Arc::new(UnsafeCell::new(0));
        let theirs = work.clone();
        let server = shared.spawn(move |shared| {
            let table = shared.table();
            if table.serve(5, 77, seq, |_| true) == Serve::Begun {
                at_work(&theirs);
                table.serve_end(77);
            }
        });
        let table = shared.table();
        let until = Until::after(0, 7);
        assert!(table.hold(seq, until).is_some());
        if table.commit(seq, until, &FAIL) {
            at_work(&work);
            assert!(table.carry_out(seq, 0).is_some() && !table.release(seq, until));
        } else {
            assert!(table.release(seq, until));
        }
        server.join().unwrap();
    });
}

/// The agent takes its hold back while the worker looks whether it is over: one of them ends it.
#[test]
fn a_hold_is_ended_once() {
    model(3, || {
        let shared = Shared::new(1, 1);
        let seq = shared.append(1);
        let until = Until::after(0, 7);
        assert!(shared.table().hold(seq, until).is_some());
        let agent = shared.spawn(move |shared| shared.table().release(seq, until));
        let worker = shared.table().polled(seq, 1_000_000_000);
        assert!(agent.join().unwrap() != worker);
        assert_eq!(shared.table().entry(0).unwrap().unwrap().command.state, CommandState::Open);
    });
}

/// A thread that comes after the removal must not take away the count of one that is still in.
#[test]
fn a_gate_is_left_only_by_who_entered_it() {
    model(3, || {
        let shared = Shared::new(1, 2);
        let seq = shared.append(1);
        assert!(shared.table().serve(2, 10, seq, |_| true) == Serve::Begun);
        let server = shared.spawn(move |shared| {
            assert!(shared.table().serve(5, 11, seq, |_| true) == Serve::Begun);
            shared.table().serve_end(11);
        });
        shared.table().remove(9, seq, Outcome::Success);
        server.join().unwrap();
        assert_eq!(shared.table().entry(0).unwrap().unwrap().command.active, 1);
    });
}

/// A room is removed and its slot given to another while a thread passes the gate.
#[test]
fn a_late_server_never_counts_at_the_next_rooms_gate() {
    model(3, || {
        let shared = Shared::new(1, 1);
        let first = shared.append(1);
        let server = shared.spawn(move |shared| {
            let table = shared.table();
            assert!(table.serve(5, 77, first, |_| true) == Serve::Begun);
            table.serve_end(77)
        });
        shared.table().remove(9, first, Outcome::Success);
        let second = shared.append(2);
        assert_eq!(server.join().unwrap(), Some(first));
        let view = shared.table().entry(0).unwrap().unwrap();
        assert_eq!((view.seq, view.command.active), (second, 0));
    });
}

#[test]
fn a_slot_that_changes_hands_never_shows_the_dead_threads_room_as_the_new_ones() {
    model(3, || {
        let shared = Shared::new(2, 1);
        let (first, second) = (shared.append(1), shared.append(2));
        assert!(shared.table().serve(1, 10, first, |_| true) == Serve::Begun);
        let heir = shared.spawn(move |shared| {
            assert!(shared.table().serve(5, 11, second, |tid| tid != 10) == Serve::Begun);
        });
        if let Some(Serving { tid, seq, since, .. }) = shared.table().serving(0) {
            match seq {
                Some(seq) if seq == first => assert_eq!((tid, since), (10, 1)),
                Some(seq) => assert_eq!((tid, seq, since), (11, second, 5)),
                None => {}
            }
        }
        heir.join().unwrap();
        let view = shared.table().entry(first.slot().unwrap()).unwrap().unwrap();
        assert_eq!(view.command.active, 0, "the dead thread left the gate");
    });
}
