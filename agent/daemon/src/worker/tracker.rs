//! One worker's queue as facts: the table and the marks made one.
//!
//! The table is the truth about what is open, the marks give time and thread. Whatever order the
//! two come in, and whatever of the marks is lost, each append becomes one `Append` and each
//! removal one `Remove`.

use std::collections::{BTreeMap, BTreeSet};

use inflightd_abi::table::{self, EntryView, State, Table};
use inflightd_core::fact::{Append, Counts, Outcome, Peer, Room, Seq, Tid, Worker};
use inflightd_core::{Event, Fact, Nanos};

mod scan;
mod threads;
mod untabled;

use super::convert::{counts, is_mooncake, outcome};
use super::work::Work;
use super::{Out, Removals};
use crate::journal::OpenRoom;
use crate::names::{PeerName, RoomName};

/// Most rooms of one worker that are held open; the victim is the newcomer, counted.
const OPEN_MAX: usize = 2 * table::ENTRIES_MAX;
/// Most rooms remembered after they left, so that a late mark of theirs is recognised.
const FINISHED_MAX: usize = 2 * table::ENTRIES_MAX;

/// What did not go as it should; all of it only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// A mark and the table said different things about a room; the table was believed.
    pub disagreements: u64,
    /// Marks about rooms that had left or were never there.
    pub unplaced: u64,
    /// Entries that were being written at every try.
    pub torn: u64,
    /// Removals that were never found: their entries had been used again.
    pub evicted: u64,
    /// Rooms beyond the bound.
    pub refused: u64,
}

/// A room in the queue.
#[derive(Clone, Debug)]
pub struct Open {
    /// The engine's id.
    pub room: u64,
    /// When it entered.
    pub appended_at: Nanos,
    /// Counts as last told.
    pub counts: Counts,
    /// The far ends.
    pub peers: Vec<Peer>,
}

/// Follows one worker's queue.
#[derive(Debug)]
pub struct Tracker {
    worker: Worker,
    found_at: Nanos,
    open: BTreeMap<Seq, Open>,
    /// Rooms that found the table full, with their stays.
    untabled: BTreeSet<(u64, Seq)>,
    finished: BTreeSet<Seq>,
    removals: Removals,
    /// Removal numbers of rooms whose last line is still to be written.
    numbers: BTreeMap<Seq, u64>,
    /// Rooms told as removed whose removal number was not readable.
    unnumbered: u64,
    unfound_scans: u32,
    /// Removals were given up, and nobody has noted that yet.
    gave_up: bool,
    serving: BTreeMap<Tid, Work>,
    beat_at: u64,
    /// When it was last read.
    beat_read_at: Nanos,
    tally: Tally,
}

/// A room as a mark or the table describes it.
struct Newcomer<'a> {
    at: Nanos,
    seq: Seq,
    room: u64,
    expected: u64,
    view: Option<&'a EntryView>,
    name: RoomName,
}

impl Tracker {
    /// A worker found at `found_at`; `told` are the removals that need no telling.
    pub fn new(worker: Worker, found_at: Nanos, told: Removals) -> Self {
        Self {
            worker,
            found_at,
            open: BTreeMap::new(),
            untabled: BTreeSet::new(),
            finished: BTreeSet::new(),
            removals: told,
            numbers: BTreeMap::new(),
            unnumbered: 0,
            unfound_scans: 0,
            gave_up: false,
            serving: BTreeMap::new(),
            beat_at: 0,
            beat_read_at: Nanos::ZERO,
            tally: Tally::default(),
        }
    }

    /// When the worker was found.
    pub const fn found_at(&self) -> Nanos {
        self.found_at
    }

    /// Rooms in the queue.
    pub const fn open(&self) -> &BTreeMap<Seq, Open> {
        &self.open
    }

    /// What did not go as it should.
    pub const fn tally(&self) -> Tally {
        self.tally
    }

    /// The removal number of a room whose last line is being written; 0 when it has none.
    pub fn take_number(&mut self, seq: Seq) -> u64 {
        self.numbers.remove(&seq).unwrap_or(0)
    }

    /// Up to which removal no room is looked for any more, where that has changed because some
    /// were given up.
    pub fn take_given_up(&mut self) -> Option<u64> {
        std::mem::take(&mut self.gave_up).then(|| self.removals.unbroken())
    }

    fn tell(&self, out: &mut Out<'_>, at: Nanos, fact: Fact) {
        out.events.push(Event { at, worker: self.worker, fact });
    }

    fn admit_view(&mut self, view: &EntryView, out: &mut Out<'_>) -> bool {
        let newcomer = Newcomer {
            at: out.stated(view.appended_at),
            seq: Seq(view.seq.0),
            room: view.room,
            expected: view.expected,
            view: Some(view),
            name: RoomName::of(view),
        };
        self.admit(newcomer, out)
    }

    /// Takes in a room that was not known. `false` when it is known, gone already, or too many.
    fn admit(&mut self, new: Newcomer<'_>, out: &mut Out<'_>) -> bool {
        if self.open.contains_key(&new.seq) || self.finished.contains(&new.seq) {
            return false;
        }
        if self.open.len() >= OPEN_MAX {
            self.tally.refused += 1;
            return false;
        }
        let stated = new.view.map_or(0, |view| view.peers_stated);
        let peers: Vec<Peer> = new
            .view
            .iter()
            .flat_map(|view| view.peers.iter().filter_map(PeerName::of))
            .filter_map(|name| out.names.peer(name))
            .collect();
        self.supersede(new.room, new.seq, new.at, out);
        if tabled(new.seq).is_none() {
            self.untabled.insert((new.room, new.seq));
        }
        out.names.add_room(self.worker, new.seq, new.name);
        let open = Open {
            room: new.room,
            appended_at: new.at,
            counts: Counts::default(),
            peers: peers.clone(),
        };
        self.open.insert(new.seq, open);
        let append = Append {
            seq: new.seq,
            room: Room(new.room),
            expected: new.expected,
            peers_whole: new.view.is_some() && stated == peers.len() as u64,
            peers,
            late: new.at < self.found_at,
            patient: new.view.is_some_and(is_mooncake),
        };
        self.tell(out, new.at, Fact::Append(append));
        self.yield_to_later(new.room, new.seq, new.at, out);
        true
    }

    /// Tells the counts of an open room where they have changed.
    ///
    /// No fact of a room is told with a time before its append, which the ledger would then take as
    /// the last.
    fn recount(&mut self, view: &EntryView, at: Nanos, out: &mut Out<'_>) {
        let seq = Seq(view.seq.0);
        let Some(open) = self.open.get_mut(&seq) else {
            return;
        };
        let at = at.max(open.appended_at);
        let counts = counts(view, at);
        if open.counts != counts {
            open.counts = counts;
            self.tell(out, at, Fact::Entry(seq, counts));
        }
    }

    fn entry_of(&mut self, table: &Table<'_>, seq: Seq) -> Entry {
        let Some(slot) = tabled(seq).and_then(table::Seq::slot) else {
            return Entry::Evicted;
        };
        match table.entry(slot) {
            Ok(Some(view)) if view.seq.0 == seq.0 => Entry::Here(Box::new(view)),
            Ok(_) => Entry::Evicted,
            Err(table::Torn) => {
                self.tally.torn += 1;
                Entry::Torn
            }
        }
    }

    /// Closes a room as its entry says.
    fn close(&mut self, view: &EntryView, out: &mut Out<'_>) {
        let seq = Seq(view.seq.0);
        if !self.removals.insert(view.removal) {
            // Told by an earlier life, or a worker that gives a number twice: the room ends all
            // the same.
            self.unnumbered += 1;
        }
        let at = out.stated(view.removed_at);
        self.recount(view, at, out);
        self.numbers.insert(seq, view.removal);
        self.finish(seq, at, outcome(view.outcome), out);
    }

    fn finish(&mut self, seq: Seq, at: Nanos, outcome: Outcome, out: &mut Out<'_>) {
        let Some(open) = self.open.remove(&seq) else {
            return;
        };
        self.untabled.remove(&(open.room, seq));
        let at = at.max(open.appended_at);
        if self.finished.len() >= FINISHED_MAX {
            self.finished.pop_first();
        }
        self.finished.insert(seq);
        self.tell(out, at, Fact::Remove(seq, outcome));
    }

    /// A mark of an append.
    pub fn append_marked(
        &mut self,
        record: &inflightd_abi::record::Append,
        table: Option<&Table<'_>>,
        out: &mut Out<'_>,
    ) {
        let (seq, marked_at) = (Seq(record.seq), Nanos(record.head.at));
        let view = match table.map(|table| self.entry_of(table, seq)) {
            Some(Entry::Here(view)) => Some(view),
            _ => None,
        };
        if view.as_ref().is_some_and(|view| view.room != record.room) {
            self.tally.disagreements += 1;
        }
        let rid = inflightd_abi::record::text(&record.rid);
        let newcomer = Newcomer {
            at: view.as_ref().map_or(marked_at, |view| Nanos(view.appended_at).min(marked_at)),
            seq,
            room: view.as_ref().map_or(record.room, |view| view.room),
            expected: view.as_ref().map_or(record.expected, |view| view.expected),
            view: view.as_deref(),
            name: RoomName::marked(rid, view.as_deref()),
        };
        self.admit(newcomer, out);
    }

    /// A room that an earlier life of the agent has told as appended. Known only where the table
    /// does not show it any more: the next scan finds how it ended, or that nobody can know. So it
    /// is at once with one that never had an entry: its end may have been marked meanwhile.
    pub fn restore(
        &mut self,
        (seq, open): (Seq, OpenRoom),
        name: RoomName,
        now: Nanos,
        out: &mut Out<'_>,
    ) {
        let newcomer = Newcomer {
            at: Nanos(open.at),
            seq,
            room: open.room,
            expected: open.expected,
            view: None,
            name,
        };
        self.admit(newcomer, out);
        if tabled(seq).is_none() {
            self.finish(seq, now, Outcome::Unknown, out);
        }
    }

    /// Whether `seq` is in the queue; an append whose mark was lost is made up for.
    fn is_open(&mut self, seq: Seq, table: Option<&Table<'_>>, out: &mut Out<'_>) -> bool {
        if self.open.contains_key(&seq) {
            return true;
        }
        let admitted = match table.map(|table| self.entry_of(table, seq)) {
            Some(Entry::Here(view)) if view.state == State::Open => self.admit_view(&view, out),
            _ => false,
        };
        // A room whose end a scan has seen before the mark of it was read is in its place.
        self.tally.unplaced += u64::from(!admitted && !self.finished.contains(&seq));
        admitted
    }

    /// A mark about an open room that carries nothing but a fact. A scan may be faster than the mark,
    /// and have seen the room's end: what happened before that is the room's all the same, or the
    /// transfers that its thread posts would be nobody's.
    pub fn room_marked(
        &mut self,
        at: Nanos,
        seq: Seq,
        fact: Fact,
        table: Option<&Table<'_>>,
        out: &mut Out<'_>,
    ) {
        if self.is_open(seq, table, out) || self.finished.contains(&seq) {
            self.tell(out, at, fact);
        }
    }

    /// A mark of a removal.
    pub fn remove_marked(
        &mut self,
        at: Nanos,
        seq: Seq,
        marked: Outcome,
        table: Option<&Table<'_>>,
        out: &mut Out<'_>,
    ) {
        if seq.0 == table::Seq::ALL_UNTABLED.0 {
            return self.end_untabled(at, marked, out);
        }
        if !self.is_open(seq, table, out) {
            return;
        }
        match table.map(|table| self.entry_of(table, seq)) {
            Some(Entry::Here(view)) if view.state == State::Closed => {
                self.tally.disagreements += u64::from(outcome(view.outcome) != marked);
                self.close(&view, out);
            }
            // The table wins: when it closes the entry, a scan sees it.
            Some(Entry::Here(_) | Entry::Torn) => self.tally.disagreements += 1,
            Some(Entry::Evicted) | None => {
                self.unnumbered += u64::from(tabled(seq).is_some());
                self.finish(seq, at, marked, out);
            }
        }
    }
}

enum Entry {
    Here(Box<EntryView>),
    Evicted,
    Torn,
}

/// The table's name of a sequence that has an entry.
const fn tabled(seq: Seq) -> Option<table::Seq> {
    let seq = table::Seq(seq.0);
    match seq.slot() {
        Some(_) => Some(seq),
        None => None,
    }
}

#[cfg(test)]
#[path = "tracker_tests.rs"]
mod tests;
