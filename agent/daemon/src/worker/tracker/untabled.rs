//! Rooms that found the table full: only marks tell of them.
//!
//! Nothing can be read again of such a room. So it is ended by what a mark says, and where a mark
//! may have been missed it is not followed any further: how it ended nobody can know.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use inflightd_core::fact::{Outcome, Seq};
use inflightd_core::{Fact, Nanos, Source};

use super::{Out, Tracker, tabled};

/// Those that are in the queue.
#[derive(Debug, Default)]
pub(super) struct Untabled {
    rooms: BTreeMap<Seq, u64>,
    by_room: BTreeSet<(u64, Seq)>,
}

impl Untabled {
    /// A room has entered; nothing where the table has it.
    pub(super) fn add(&mut self, seq: Seq, room: u64) {
        if tabled(seq).is_none() {
            self.rooms.insert(seq, room);
            self.by_room.insert((room, seq));
        }
    }

    pub(super) fn remove(&mut self, seq: Seq) {
        if let Some(room) = self.rooms.remove(&seq) {
            self.by_room.remove(&(room, seq));
        }
    }

    /// Stays of that room that came before this one.
    fn before(&self, room: u64, seq: Seq) -> Vec<Seq> {
        self.by_room.range((room, Seq(0))..(room, seq)).map(|(_, seq)| *seq).collect()
    }
}

impl Tracker {
    /// Whether rooms are open that the table does not show.
    pub fn has_untabled(&self) -> bool {
        !self.untabled.rooms.is_empty()
    }

    /// A stay of a room supersedes those before it. Of those with an entry the table says so; it
    /// cannot of those without.
    pub(super) fn supersede(&mut self, room: u64, seq: Seq, at: Nanos, out: &mut Out<'_>) {
        for before in self.untabled.before(room, seq) {
            self.finish(before, at, Outcome::Superseded, out);
        }
    }

    /// A room without an entry that was read after its next stay, as a scan may be faster than the
    /// mark, has been superseded already.
    pub(super) fn yield_to_later(&mut self, room: u64, seq: Seq, at: Nanos, out: &mut Out<'_>) {
        if tabled(seq).is_some() {
            return;
        }
        let mut later = self.open.range((Bound::Excluded(seq), Bound::Unbounded));
        if later.any(|(_, open)| open.room == room) {
            self.finish(seq, at, Outcome::Superseded, out);
        }
    }

    /// Every room without an entry leaves.
    pub fn end_untabled(&mut self, at: Nanos, outcome: Outcome, out: &mut Out<'_>) {
        let open: Vec<Seq> = self.untabled.rooms.keys().copied().collect();
        for seq in open {
            self.finish(seq, at, outcome, out);
        }
    }

    /// Marks were missed: an end of a room without an entry may be among them.
    pub fn lose_untabled(&mut self, at: Nanos, out: &mut Out<'_>) {
        let open = self.untabled.rooms.len() as u64;
        if open > 0 {
            self.end_untabled(at, Outcome::Unknown, out);
            self.tally.evicted += open;
            self.tell(out, at, Fact::Lose(Source::Table, open));
        }
    }
}
