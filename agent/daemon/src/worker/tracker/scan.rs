//! The table's side: what opened, changed and closed between two readings of it.

use std::collections::BTreeMap;

use inflightd_abi::table::{self, EntryView, State, Table};
use inflightd_core::fact::{Outcome, Seq, Tid};
use inflightd_core::{Fact, Nanos, Source};

use super::{Entry, Out, Tracker, tabled};
use crate::worker::Work;

/// Scans for which a removal may stay unfound before it counts as lost.
pub(super) const GIVE_UP_AFTER: u32 = 4;

/// A beat is not read alone more often than this.
const BEAT_EVERY: Nanos = Nanos::from_millis(100);

impl Tracker {
    /// Whether the beat was last read so long ago that it is worth a look.
    pub const fn wants_beat(&self, now: Nanos) -> bool {
        self.beat_read_at.plus(BEAT_EVERY).0 <= now.0
    }

    /// Reads when the scheduler last polled its queue, and then what has left it: a poll after which
    /// a room is still there must not be told of one that it took out.
    pub fn read_beat(&mut self, table: &Table<'_>, now: Nanos, out: &mut Out<'_>) {
        self.note_beat(table.counters().beat_at, now, out);
        self.close_missing(table, out);
    }

    fn note_beat(&mut self, beat_at: u64, now: Nanos, out: &mut Out<'_>) {
        self.beat_read_at = now;
        if beat_at != self.beat_at {
            self.beat_at = beat_at;
            self.tell(out, out.stated(beat_at), Fact::Beat);
        }
    }

    /// Reads the whole table: what opened, changed and closed since the last scan.
    pub fn scan(&mut self, table: &Table<'_>, now: Nanos, out: &mut Out<'_>) {
        let counters = table.counters();
        self.note_beat(counters.beat_at, now, out);
        let torn = self.tally.torn;
        for slot in table.taken_slots() {
            match table.entry(slot) {
                Ok(Some(view)) if view.state == State::Open => self.refresh(&view, out),
                Ok(_) => {}
                Err(table::Torn) => self.tally.torn += 1,
            }
        }
        self.close_missing(table, out);
        self.find_removed(table, counters.removals, now, out);
        if self.tally.torn == torn {
            self.tell(out, now, Fact::Read);
        }
    }

    fn refresh(&mut self, view: &EntryView, out: &mut Out<'_>) {
        let seq = Seq(view.seq.0);
        if !self.open.contains_key(&seq) {
            self.admit_view(view, out);
        }
        self.recount(view, (out.clock)(), out);
    }

    /// Closes the rooms whose entries are no longer open.
    fn close_missing(&mut self, table: &Table<'_>, out: &mut Out<'_>) {
        let missing: Vec<Seq> = self
            .open
            .keys()
            .filter(|seq| tabled(**seq).is_some_and(|seq| !table.is_open(seq)))
            .copied()
            .collect();
        for seq in missing {
            match self.entry_of(table, seq) {
                Entry::Here(view) if view.state == State::Closed => self.close(&view, out),
                // Just being closed, or being written: the next scan sees how.
                Entry::Here(_) | Entry::Torn => {}
                Entry::Evicted => {
                    self.unnumbered += 1;
                    self.finish(seq, (out.clock)(), Outcome::Unknown, out);
                }
            }
        }
    }

    /// Looks for rooms that came and went without a mark that was seen.
    fn find_removed(&mut self, table: &Table<'_>, removals: u64, now: Nanos, out: &mut Out<'_>) {
        if self.removals.unbroken() >= removals {
            self.unfound_scans = 0;
            return;
        }
        for slot in 0..table.geometry().entries {
            let Ok(Some(view)) = table.entry(slot) else {
                continue;
            };
            let counts = view.state == State::Closed && (1..=removals).contains(&view.removal);
            if counts && !self.removals.contains(view.removal) {
                self.take_removed(&view, out);
            }
        }
        self.unfound_scans += 1;
        if self.removals.unbroken() >= removals || self.unfound_scans < GIVE_UP_AFTER {
            return;
        }
        self.unfound_scans = 0;
        self.gave_up = true;
        let missing = self.removals.give_up(removals);
        let lost = missing.saturating_sub(self.unnumbered);
        self.unnumbered = self.unnumbered.saturating_sub(missing);
        if lost > 0 {
            self.tally.evicted += lost;
            self.tell(out, now, Fact::Lose(Source::Table, lost));
        }
    }

    fn take_removed(&mut self, view: &EntryView, out: &mut Out<'_>) {
        if self.finished.contains(&Seq(view.seq.0)) {
            // A mark was faster than the table: only the number was missing.
            self.removals.insert(view.removal);
            self.unnumbered = self.unnumbered.saturating_sub(1);
            return;
        }
        self.admit_view(view, out);
        self.close(view, out);
    }

    /// Takes what the threads are doing from the table: at discovery, and after marks were lost.
    ///
    /// `threads` gives a thread's id in the host's namespace by the one in the worker's own; a
    /// thread that is not in it is not the worker's.
    pub fn scan_threads(
        &mut self,
        table: &Table<'_>,
        now: Nanos,
        threads: &BTreeMap<u32, u32>,
        out: &mut Out<'_>,
    ) {
        for slot in 0..table.geometry().threads {
            let Some(serving) = table.serving(slot) else {
                continue;
            };
            let Some(tid) = threads.get(&serving.tid).copied().map(Tid) else {
                continue;
            };
            let after = serving.early.map(|after| Seq(after.0));
            let work = match (serving.seq, after) {
                (Some(seq), after) => Work::Room(Seq(seq.0), after),
                (None, Some(after)) => Work::Early(after),
                (None, None) => Work::None,
            };
            let known = self.serving.get(&tid).copied();
            if known != Some(work) {
                let since = out.stated(serving.since);
                self.take_work(tid, (work, known), (since, now), table, out);
            }
        }
    }

    /// Tells what a thread works for `since`, and what that comes after where it was not known.
    fn take_work(
        &mut self,
        tid: Tid,
        (work, known): (Work, Option<Work>),
        (since, now): (Nanos, Nanos),
        table: &Table<'_>,
        out: &mut Out<'_>,
    ) {
        match work {
            Work::None => self.serve_marked(now, tid, work, Some(table), out),
            Work::Early(_) => self.serve_marked(since, tid, work, Some(table), out),
            Work::Room(seq, after) => {
                if let Some(after) = after.filter(|after| known != Some(Work::Early(*after))) {
                    self.serve_marked(since, tid, Work::Early(after), Some(table), out);
                }
                // The work may be older than the room's entry.
                let entered = self.open.get(&seq).map_or(since, |open| open.appended_at);
                self.serve_marked(since.max(entered), tid, work, Some(table), out);
            }
        }
    }
}
