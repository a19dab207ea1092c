//! Rooms that found the table full: only marks tell of them.
//!
//! Nothing can be read again of such a room. So it is ended by what a mark says, and where a mark
//! may have been missed it is not followed any further: how it ended nobody can know.

use std::ops::Bound;

use inflightd_core::fact::{Outcome, Seq};
use inflightd_core::{Fact, Nanos, Source};

use super::{Out, Tracker, tabled};

impl Tracker {
    /// Whether rooms are open that the table does not show.
    pub fn has_untabled(&self) -> bool {
        !self.untabled.is_empty()
    }

    /// A stay of a room supersedes those before it. Of those with an entry the table says so; it
    /// cannot of those without.
    pub(super) fn supersede(&mut self, room: u64, seq: Seq, at: Nanos, out: &mut Out<'_>) {
        let before: Vec<_> = self.untabled.range((room, Seq(0))..(room, seq)).copied().collect();
        for (_, before) in before {
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
        for (_, seq) in self.untabled.clone() {
            self.finish(seq, at, outcome, out);
        }
    }

    /// Marks were missed: an end of a room without an entry may be among them.
    pub fn lose_untabled(&mut self, at: Nanos, out: &mut Out<'_>) {
        let open = self.untabled.len() as u64;
        if open > 0 {
            self.end_untabled(at, Outcome::Unknown, out);
            self.tally.evicted += open;
            self.tell(out, at, Fact::Lose(Source::Table, open));
        }
    }
}
