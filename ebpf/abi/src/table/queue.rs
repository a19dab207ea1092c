//! What libinflight does to the queue: append, post, done, phase, remove.

use super::entry::{
    APPENDED_AT, COMMAND, DONE_BYTES, DONES, EXPECTED, FAILURES, FIRST_POST, LAST_DONE, OUTCOME,
    PEERS, PHASE, POSTED_BYTES, POSTS, REMOVAL, REMOVED_AT, RID, ROOM, STATE, TAGGED, TRACEPARENT,
    VERSION, state_of, state_word,
};
use super::{Command, NewEntry, Outcome, Phase, Seq, State, Table, tagged};
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use crate::sync::fence;

/// What an append did to the queue, told in the order in which it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The room is in the queue under this sequence.
    Entered(Seq),
    /// An earlier stay of the same room was closed as [`Outcome::Superseded`]. It can be the
    /// stay just entered, when another thread appends the same room at the same time.
    Superseded(Seq),
}

impl Table<'_> {
    /// A room enters the queue. An open entry of the same room is closed as superseded. When
    /// every slot is taken the sequence is untabled: the caller's marks still go out.
    pub fn append(&self, now: u64, new: &NewEntry<'_>) -> Seq {
        self.append_telling(now, new, |_| ())
    }

    /// [`Table::append`], telling every change right after it was made.
    pub fn append_telling(
        &self,
        now: u64,
        new: &NewEntry<'_>,
        mut tell: impl FnMut(Change),
    ) -> Seq {
        self.supersede(now, new.room, None, &mut tell);
        let slot = self.claim_slot();
        let seq = Seq::new(self.next_append(), slot.unwrap_or(Seq::UNTABLED));
        let Some(slot) = slot else {
            tell(Change::Entered(seq));
            return seq;
        };
        self.describe(slot, seq, now, new);
        tell(Change::Entered(seq));
        // Threads that append the same room at once each looked before the others' entries were
        // there. Between publishing and looking again, this fence makes sure that of any two at
        // least one sees the other, so that only the latest stays open.
        fence(SeqCst);
        self.supersede(now, new.room, Some(seq), &mut tell);
        seq
    }

    /// Closes the open stays of `room`; with `mine`, all but the latest of them and `mine`.
    fn supersede(&self, now: u64, room: u64, mine: Option<Seq>, tell: &mut impl FnMut(Change)) {
        for slot in self.taken_slots() {
            if self.room_word(slot).load(Relaxed) != room {
                continue;
            }
            let word = self.entry_word(slot, STATE).load(Acquire);
            let same = self.entry_word(slot, ROOM).load(Relaxed) == room;
            let Some((found, State::Open)) = state_of(word).filter(|_| same) else {
                continue;
            };
            let older = mine.map_or(found, |mine| mine.min(found));
            if mine != Some(found) && self.close(now, older, Outcome::Superseded) {
                tell(Change::Superseded(older));
            }
        }
    }

    fn describe(&self, slot: usize, seq: Seq, now: u64, new: &NewEntry<'_>) {
        let set = |word: usize, value: u64| self.entry_word(slot, word).store(value, Relaxed);
        self.write_locked(slot, || {
            set(ROOM, new.room);
            set(APPENDED_AT, now);
            set(EXPECTED, new.expected);
            set(REMOVED_AT, 0);
            set(REMOVAL, 0);
            set(OUTCOME, Outcome::Unknown as u64);
            tagged::begin(self.entry_word(slot, COMMAND), Command::fresh(seq));
            for word in TAGGED {
                tagged::begin(self.entry_word(slot, word), tagged::fresh(seq));
            }
            self.write_text::<64>(self.entry_at(slot, RID), new.rid);
            self.write_text::<56>(self.entry_at(slot, TRACEPARENT), new.traceparent);
            set(PEERS, new.peers.len() as u64);
            self.write_peers(self.entry_at(slot, PEERS + 1), new.peers);
            self.room_word(slot).store(new.room, Relaxed);
            self.entry_word(slot, STATE).store(state_word(seq, State::Open), Release);
        });
    }

    /// Runs `write` with the description marked as being written. The caller is the only writer.
    fn write_locked(&self, slot: usize, write: impl FnOnce()) {
        let version = self.entry_word(slot, VERSION);
        // An odd value was left by a writer that died: it stays odd while we write.
        let odd = version.load(Relaxed) | 1;
        version.store(odd, Relaxed);
        fence(Release);
        write();
        version.store(odd.wrapping_add(1), Release);
    }

    /// A room leaves the queue. `false`, and a count, when it was not open.
    pub fn remove(&self, now: u64, seq: Seq, outcome: Outcome) -> bool {
        seq.slot().is_some() && (self.close(now, seq, outcome) || self.count_stale())
    }

    /// Closes the stay `seq`. `false` when it was not open, or another thread closes it.
    fn close(&self, now: u64, seq: Seq, outcome: Outcome) -> bool {
        let Some(slot) = self.slot_of(seq) else {
            return false;
        };
        let state = self.entry_word(slot, STATE);
        let open = state_word(seq, State::Open);
        let removing = state_word(seq, State::Removing);
        if state.compare_exchange(open, removing, AcqRel, Relaxed).is_err() {
            return false;
        }
        let set = |word: usize, value: u64| self.entry_word(slot, word).store(value, Relaxed);
        // A thread that supersedes took its time before the other thread's append.
        let appended_at = self.entry_word(slot, APPENDED_AT).load(Relaxed);
        self.write_locked(slot, || {
            set(REMOVED_AT, now.max(appended_at));
            set(REMOVAL, self.next_removal());
            set(OUTCOME, outcome as u64);
            state.store(state_word(seq, State::Closed), Release);
        });
        self.free_slot(slot);
        true
    }

    /// Closes every open room with `outcome`, telling each: the worker itself ends.
    pub fn remove_all(&self, now: u64, outcome: Outcome, mut tell: impl FnMut(Seq)) {
        for slot in self.taken_slots() {
            let word = self.entry_word(slot, STATE).load(Acquire);
            if let Some((seq, State::Open)) = state_of(word)
                && self.close(now, seq, outcome)
            {
                tell(seq);
            }
        }
    }

    /// Whether `seq` is in the queue as far as this table can tell: a room that found the table
    /// full has no entry and is not counted as stale.
    fn admit(&self, seq: Seq) -> Option<usize> {
        if self.is_open(seq) {
            return self.slot_of(seq);
        }
        if seq.slot().is_some() {
            self.count_stale();
        }
        None
    }

    /// A transfer call begins. `false`, and a count, when the room is not open.
    pub fn post(&self, now: u64, seq: Seq, bytes: u64) -> bool {
        let Some(slot) = self.admit(seq) else {
            return false;
        };
        let since = self.since_append(slot, now);
        self.change(slot, FIRST_POST, seq, |first| if first == 0 { since } else { first })
            && self.change(slot, POSTED_BYTES, seq, |sum| sum.saturating_add(bytes))
            && self.change(slot, POSTS, seq, |count| count + 1)
            || self.count_stale()
    }

    /// A transfer call ends. `false`, and a count, when the room is not open.
    pub fn done(&self, now: u64, seq: Seq, bytes: u64, ok: bool) -> bool {
        let Some(slot) = self.admit(seq) else {
            return false;
        };
        let since = self.since_append(slot, now);
        self.change(slot, LAST_DONE, seq, |last| last.max(since))
            && (if ok {
                self.change(slot, DONE_BYTES, seq, |sum| sum.saturating_add(bytes))
            } else {
                self.change(slot, FAILURES, seq, |count| count + 1)
            })
            && self.change(slot, DONES, seq, |count| count + 1)
            || self.count_stale()
    }

    /// The engine says where the room is. `false`, and a count, when the room is not open.
    pub fn phase(&self, seq: Seq, phase: Phase) -> bool {
        let Some(slot) = self.admit(seq) else {
            return false;
        };
        self.change(slot, PHASE, seq, |_| phase as u64) || self.count_stale()
    }

    /// Changes a tagged word; `false` when the slot has moved on to another room.
    fn change(&self, slot: usize, word: usize, seq: Seq, by: impl Fn(u64) -> u64) -> bool {
        tagged::update(self.entry_word(slot, word), seq, by)
    }

    /// Nanoseconds from the append to `now`, at least 1: 0 means "not yet" in a tagged word.
    ///
    /// Should the slot move on meanwhile, the time is of another room, but so is the tag, and
    /// the word that the time is meant for is left alone.
    fn since_append(&self, slot: usize, now: u64) -> u64 {
        let appended_at = self.entry_word(slot, APPENDED_AT).load(Relaxed);
        now.saturating_sub(appended_at).clamp(1, tagged::VALUE_MAX)
    }
}
