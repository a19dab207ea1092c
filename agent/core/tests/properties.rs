//! What holds for every script of facts.

#![expect(clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{Story, Way, alerts, any_story, drive, events, healthy_story};
use inflightd_capture::{Input, parse_input, write_input};
use inflightd_core::coverage::{Reason, Sight, Source};
use inflightd_core::fact::{Outcome, Seq, Tid};
use inflightd_core::verdict::{Tier, Verdict};
use inflightd_core::{Event, Fact, Ledger, Nanos, Output, Policy};
use proptest::prelude::*;

fn bare(events: &[(Way, Event)]) -> Vec<Event> {
    events.iter().map(|(_, event)| event.clone()).collect()
}

fn through_text(event: &Event) -> Event {
    let mut line = String::new();
    write_input(&mut line, &Input::Event(event.clone()));
    match parse_input(&line) {
        Ok(Some(Input::Event(event))) => event,
        other => panic!("{line} became {other:?}"),
    }
}

/// The script without the ring records that `lost` names; each gap is told when the next ring
/// record comes through, as the daemon does, which then reads the table's slots of the threads.
fn with_losses(events: &[(Way, Event)], lost: &[bool], table: bool) -> Vec<Event> {
    let mut kept = Vec::new();
    let mut gap = 0;
    let mut slots = BTreeMap::new();
    let mut lost = lost.iter().copied().cycle();
    for (way, event) in events {
        let readable = table || !matches!(event.fact, Fact::Entry(..) | Fact::Remove(..));
        match way {
            Way::Ring if lost.next() == Some(true) => {
                gap += 1;
                if let Some(tid) = slot_of(&event.fact).filter(|_| table) {
                    slots.insert(tid, event.fact.clone());
                }
            }
            Way::Reading if !readable => {}
            _ => {
                if gap > 0 {
                    for source in [Source::Marks, Source::Transfers, Source::Completions] {
                        kept.push(Event { fact: Fact::Lose(source, gap), ..event.clone() });
                    }
                    gap = 0;
                }
                let slots = std::mem::take(&mut slots).into_values();
                kept.extend(slots.map(|fact| Event { fact, ..event.clone() }));
                kept.push(event.clone());
            }
        }
    }
    kept
}

/// The thread whose slot in the table shows the fact.
const fn slot_of(fact: &Fact) -> Option<Tid> {
    match fact {
        Fact::Serve(tid, _) | Fact::ServeEarly(tid, _) | Fact::ServeEnd(tid) => Some(*tid),
        _ => None,
    }
}

/// Rooms on few threads, each of which takes its rooms in the order in which their work was queued
/// and stays with a room until its last byte. `stuck`: these rooms' bytes never move, so that those
/// behind them are never taken.
fn sharded(mut stories: Vec<Story>, shards: u32, stuck: &[bool]) -> Vec<Story> {
    let queued = |story: &Story| story.append_at.saturating_sub(story.early);
    stories.sort_by_key(|story| (queued(story), story.early == 0));
    // When each thread is free; `None`: never again.
    let mut free_at: BTreeMap<u64, Option<u64>> = BTreeMap::new();
    for (index, story) in stories.iter_mut().enumerate() {
        let shard = story.bytes % u64::from(shards);
        story.shard = u32::try_from(shard).ok();
        story.lasts = story.lasts.filter(|_| stuck.get(index) != Some(&true));
        let free = free_at.entry(shard).or_insert(Some(0));
        let taken_at = free.map(|at| at.max(queued(story)));
        story.taken = taken_at.map_or(0, |at| story.append_at.cast_signed() - at.cast_signed());
        let posted_at = taken_at.map(|at| at.max(story.append_at));
        story.post_after = posted_at.map(|at| at - story.append_at);
        *free = posted_at.and_then(|at| Some(at + story.lasts? + 2));
    }
    stories.sort_by_key(|story| story.append_at);
    stories
}

/// What is left of a script where the worker marks no queue.
fn unhooked(script: &[Event]) -> Vec<Event> {
    let seen = |event: &&Event| {
        let Event { fact, .. } = event;
        matches!(fact, Fact::Found | Fact::Cover(..) | Fact::Life(..) | Fact::Wire(..))
            || matches!(fact, Fact::XferPost { .. } | Fact::XferRet(..) | Fact::XferRelease(..))
            || matches!(fact, Fact::Flush { .. } | Fact::FlushDone(..))
    };
    let mut kept: Vec<Event> = script.iter().filter(seen).cloned().collect();
    let first = kept.first().cloned().map(|found| Event { fact: Fact::Unhooked, ..found });
    kept.splice(1..1, first);
    kept
}

/// The verdicts that stand at the end.
fn standing(outputs: &[Output]) -> BTreeMap<Seq, &Verdict> {
    let mut standing = BTreeMap::new();
    for output in outputs {
        match output {
            Output::Verdict(verdict) => drop(standing.insert(verdict.seq, verdict)),
            Output::Clear(clear) => drop(standing.remove(&clear.seq)),
            _ => {}
        }
    }
    standing
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// The same inputs give the same outputs, also by way of a capture's text.
    #[test]
    fn replay_is_equal(stories in prop::collection::vec(any_story(), 1..6)) {
        let script = bare(&events(&stories));
        let copied: Vec<Event> = script.iter().map(through_text).collect();
        prop_assert_eq!(drive(&script, &[]).1, drive(&copied, &[]).1);
    }

    /// Ticks before the deadline change nothing.
    #[test]
    fn spurious_ticks_are_silent(
        stories in prop::collection::vec(any_story(), 1..6),
        spurious in prop::collection::vec(0..200_000_u64, 0..200),
    ) {
        let script = bare(&events(&stories));
        let mut spurious: Vec<Nanos> = spurious.into_iter().map(Nanos::from_millis).collect();
        spurious.sort();
        prop_assert_eq!(drive(&script, &[]).1, drive(&script, &spurious).1);
    }

    /// Each append ends in exactly one stay or is still open, whatever is lost.
    #[test]
    fn every_append_is_closed_once_or_open(
        stories in prop::collection::vec(any_story(), 1..8),
        lost in prop::collection::vec(any::<bool>(), 1..50),
    ) {
        let script = with_losses(&events(&stories), &lost, true);
        let (ledger, outputs) = drive(&script, &[]);
        let mut balance = BTreeMap::new();
        for output in &outputs {
            match output {
                Output::Append(append) => *balance.entry(append.seq).or_insert(0) += 1,
                Output::Dwell(dwell) => *balance.entry(dwell.seq).or_insert(0) -= 1,
                _ => {}
            }
        }
        prop_assert!(balance.values().all(|open| *open == 0 || *open == 1), "{:?}", balance);
        prop_assert_eq!(balance.values().sum::<i32>(), i32::try_from(ledger.open_rooms()).unwrap());
        let stuck = stories.iter().filter(|s| s.post_after.is_none() || s.lasts.is_none()).count();
        prop_assert_eq!(ledger.open_rooms(), stuck, "what was removed is closed");
    }

    /// A healthy world, however slow, makes no alert.
    #[test]
    fn healthy_rooms_are_never_accused(stories in prop::collection::vec(healthy_story(), 1..8)) {
        let (_, outputs) = drive(&bare(&events(&stories)), &[]);
        prop_assert!(alerts(&outputs).is_empty(), "{:#?}", alerts(&outputs));
    }

    /// Losing ring records never makes an accusation: the table is read again.
    #[test]
    fn loss_never_accuses(
        stories in prop::collection::vec(healthy_story(), 1..6),
        lost in prop::collection::vec(any::<bool>(), 1..50),
    ) {
        let script = with_losses(&events(&stories), &lost, true);
        let (_, outputs) = drive(&script, &[]);
        prop_assert!(alerts(&outputs).is_empty(), "{:#?}", alerts(&outputs));
    }

    /// Nor where there is no table: then nothing is known after a loss.
    #[test]
    fn loss_without_a_table_never_accuses(
        stories in prop::collection::vec(healthy_story(), 1..6),
        lost in prop::collection::vec(any::<bool>(), 1..50),
    ) {
        let mut script = with_losses(&events(&stories), &lost, false);
        for event in &mut script {
            if let Fact::Cover(source @ Source::Table, _) = event.fact {
                event.fact = Fact::Cover(source, Sight::Blind(Reason::AbiMismatch));
            }
        }
        let (_, outputs) = drive(&script, &[]);
        prop_assert!(alerts(&outputs).is_empty(), "{:#?}", alerts(&outputs));
    }

    /// Rooms that wait their turn behind others are nobody's fault, however long that takes.
    #[test]
    fn queues_that_move_are_never_accused(
        stories in prop::collection::vec(healthy_story(), 1..12),
        shards in 1..4_u32,
    ) {
        let stories = sharded(stories, shards, &[]);
        let (_, outputs) = drive(&bare(&events(&stories)), &[]);
        prop_assert!(alerts(&outputs).is_empty(), "{:#?}", alerts(&outputs));
    }

    /// One alert for each stuck head; what waits behind it is told as that, in its incident.
    #[test]
    fn a_stuck_queue_is_one_incident(
        stories in prop::collection::vec(healthy_story(), 1..12),
        shards in 1..4_u32,
        stuck in prop::collection::vec(any::<bool>(), 12),
    ) {
        let stories = sharded(stories, shards, &stuck);
        let heads = stories.iter().filter(|s| s.post_after.is_some() && s.lasts.is_none()).count();
        let (_, outputs) = drive(&bare(&events(&stories)), &[]);
        let alerts = alerts(&outputs);
        // What moves on other threads to the same peer may take an alert back for a while.
        let open: BTreeSet<_> = alerts.iter().map(|verdict| verdict.seq).collect();
        prop_assert_eq!(open.len(), heads, "{:#?}", alerts);
        let waiting: Vec<_> = stories.iter().filter(|story| story.post_after.is_none()).collect();
        let standing = standing(&outputs);
        let queued = standing.values().filter(|verdict| verdict.head.is_some());
        prop_assert!(queued.clone().all(|verdict| open.contains(&verdict.incident())));
        prop_assert_eq!(queued.count(), waiting.len(), "{:#?}", outputs);
        let named: u64 = standing.values().map(|verdict| verdict.behind_count).sum();
// One whose work began before it entered takes followers over that another was told with.
        let takes_over = stories.iter().any(|story| story.early > 0);
        prop_assert!(takes_over || named <= waiting.len() as u64, "each waits behind one head");
    }

    /// A room that is stuck is told of, once, and stays told.
    #[test]
    fn a_stuck_room_is_told_once(mut story in any_story(), posted in any::<bool>()) {
        story.lasts = None;
        story.post_after = posted.then_some(story.post_after.unwrap_or(5));
        let (_, outputs) = drive(&bare(&events(&[story])), &[]);
        prop_assert_eq!(alerts(&outputs).len(), 1, "{:#?}", outputs);
    }

    /// Without the hook each transfer is a stay of its own, and a healthy one ends well.
    #[test]
    fn without_the_hook_transfers_are_told(
        stories in prop::collection::vec(healthy_story(), 1..8),
    ) {
        let (ledger, outputs) = drive(&unhooked(&bare(&events(&stories))), &[]);
        prop_assert!(alerts(&outputs).is_empty(), "{:#?}", alerts(&outputs));
        let well = |output: &&Output| {
            matches!(output, Output::Dwell(dwell)
                if dwell.outcome == Outcome::Success && dwell.tier == Tier::Transfer)
        };
        prop_assert_eq!(outputs.iter().filter(well).count(), stories.len(), "{:#?}", outputs);
        prop_assert_eq!(ledger.open_rooms(), 0);
    }

    /// Facts without sense break nothing, and what is kept of them is bounded.
    #[test]
    fn nonsense_is_counted_and_bounded(
        stories in prop::collection::vec(any_story(), 1..5),
        order in any::<u64>(),
    ) {
        let mut script = bare(&events(&stories));
        let len = script.len() as u64;
        // Each event in a place where it does not belong.
        for index in 0..script.len() {
            let other = (order.wrapping_mul(index as u64 + 1) >> 7) % len;
            script.swap(index, usize::try_from(other).unwrap());
        }
        let mut ledger = Ledger::new(Policy::DEFAULT);
        for event in &script {
            ledger.observe(event);
            ledger.tick(event.at);
            while ledger.poll().is_some() {}
        }
        prop_assert!(ledger.open_rooms() <= stories.len());
    }
}
