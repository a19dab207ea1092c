//! One room's stay in the queue.

use super::{Command, Outcome, Peer, PeerKind, Phase, Seq, State, Table, Text, tagged};
use crate::sync::AtomicU64;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sync::fence;

/// Most peers kept of a room; the count that the engine stated is kept as well.
pub const PEERS_MAX: usize = 6;
/// How often a reader tries a description that is being written.
const READ_TRIES: usize = 8;

const VERSION: usize = 0;
const STATE: usize = 1;
const ROOM: usize = 2;
const APPENDED_AT: usize = 3;
const EXPECTED: usize = 4;
const REMOVED_AT: usize = 5;
const REMOVAL: usize = 6;
const OUTCOME: usize = 7;
const COMMAND: usize = 8;
const PHASE: usize = 9;
const POSTS: usize = 10;
const POSTED_BYTES: usize = 11;
const DONES: usize = 12;
const DONE_BYTES: usize = 13;
const FAILURES: usize = 14;
const FIRST_POST: usize = 15;
const LAST_DONE: usize = 16;
const TAGGED: [usize; 8] = [
    PHASE,
    POSTS,
    POSTED_BYTES,
    DONES,
    DONE_BYTES,
    FAILURES,
    FIRST_POST,
    LAST_DONE,
];
const RID: usize = 24;
const TRACEPARENT: usize = 33;
const PEERS: usize = 41;

/// What is known of a room when it enters the queue.
#[derive(Clone, Copy, Debug)]
pub struct NewEntry<'a> {
    /// The engine's id of the transfer. Any value is a real room.
    pub room: u64,
    /// Bytes that the engine expects to move; 0 when it does not say.
    pub expected: u64,
    /// Request id; 64 bytes are kept.
    pub rid: &'a [u8],
    /// W3C `traceparent`, or empty.
    pub traceparent: &'a [u8],
    /// Far ends: (kind's number, value); [`PEERS_MAX`] are kept.
    pub peers: &'a [(u64, &'a [u8])],
}

/// A room as read from the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryView {
    /// Append sequence.
    pub seq: Seq,
    /// Where it is in its life.
    pub state: State,
    /// The engine's id of the transfer.
    pub room: u64,
    /// `CLOCK_MONOTONIC` of the append, in nanoseconds.
    pub appended_at: u64,
    /// Bytes that the engine expects to move; 0 when it does not say.
    pub expected: u64,
    /// Request id.
    pub rid: Text<64>,
    /// W3C `traceparent`.
    pub traceparent: Text<56>,
    /// How many peers the engine stated; at most [`PEERS_MAX`] are kept.
    pub peers_stated: u64,
    /// Far ends; unused places are [`Peer::NONE`].
    pub peers: [Peer; PEERS_MAX],
    /// What the engine says.
    pub phase: Phase,
    /// Transfer calls begun.
    pub posts: u64,
    /// Bytes in them.
    pub posted_bytes: u64,
    /// Transfer calls ended.
    pub dones: u64,
    /// Bytes in those that went well.
    pub done_bytes: u64,
    /// Transfer calls that ended badly.
    pub failures: u64,
    /// `CLOCK_MONOTONIC` of the first post, in nanoseconds.
    pub first_post_at: Option<u64>,
    /// `CLOCK_MONOTONIC` of the last transfer call that ended.
    pub last_done_at: Option<u64>,
    /// `CLOCK_MONOTONIC` of the removal; meaningful when closed.
    pub removed_at: u64,
    /// Which removal of the worker it was, from 1; meaningful when closed.
    pub removal: u64,
    /// How it left; meaningful when closed.
    pub outcome: Outcome,
    /// The command word.
    pub command: Command,
}

/// The description was being written at every try: unknown for now, or its writer died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Torn;

const fn state_word(seq: Seq, state: State) -> u64 {
    (seq.0 << 2) | state as u64
}

impl<'m> Table<'m> {
    pub(super) fn command_word(&self, slot: usize) -> &'m AtomicU64 {
        self.entry_word(slot, COMMAND)
    }

    /// A slot that the table really has: a `seq` comes from the caller and may be anything.
    fn slot_of(&self, seq: Seq) -> Option<usize> {
        seq.slot().filter(|slot| *slot < self.geometry().entries)
    }

    /// Whether `seq` is in the queue.
    pub fn is_open(&self, seq: Seq) -> bool {
        let Some(slot) = self.slot_of(seq) else {
            return false;
        };
        self.entry_word(slot, STATE).load(Acquire) == state_word(seq, State::Open)
    }

    /// Whether `seq` is in the queue as far as this table can tell: a room that found the table
    /// full has no entry and is believed.
    fn admit(&self, seq: Seq) -> Option<usize> {
        if self.is_open(seq) {
            return self.slot_of(seq);
        }
        if seq.slot().is_some() {
            self.count_stale();
        }
        None
    }

    /// A room enters the queue. An open entry of the same room is closed as superseded. When
    /// every slot is taken the sequence is untabled: the caller's marks still go out.
    pub fn append(&self, now: u64, new: &NewEntry<'_>) -> Seq {
        self.supersede(now, new.room);
        let slot = self.claim_slot();
        let seq = Seq::new(self.next_append(), slot.unwrap_or(Seq::UNTABLED));
        if let Some(slot) = slot {
            self.describe(slot, seq, now, new);
        }
        seq
    }

    fn supersede(&self, now: u64, room: u64) {
        for slot in self.taken_slots() {
            if self.room_word(slot).load(Relaxed) != room {
                continue;
            }
            let state = self.entry_word(slot, STATE).load(Acquire);
            let same = self.entry_word(slot, ROOM).load(Relaxed) == room;
            if same && state & 3 == State::Open as u64 {
                self.remove(now, Seq(state >> 2), Outcome::Superseded);
            }
        }
    }

    fn describe(&self, slot: usize, seq: Seq, now: u64, new: &NewEntry<'_>) {
        let set = |word: usize, value: u64| self.entry_word(slot, word).store(value, Relaxed);
        let at = |word: usize| self.geometry().entries_at() + slot * super::ENTRY_WORDS + word;
        self.write_locked(slot, || {
            set(ROOM, new.room);
            set(APPENDED_AT, now);
            set(EXPECTED, new.expected);
            set(REMOVED_AT, 0);
            set(REMOVAL, 0);
            set(OUTCOME, Outcome::Unknown as u64);
            set(COMMAND, Command::fresh(seq));
            for word in TAGGED {
                set(word, tagged::fresh(seq));
            }
            self.write_text::<64>(at(RID), new.rid);
            self.write_text::<56>(at(TRACEPARENT), new.traceparent);
            set(PEERS, new.peers.len() as u64);
            for (index, (kind, value)) in new.peers.iter().take(PEERS_MAX).enumerate() {
                self.write_peer(at(PEERS + 1 + index * Peer::WORDS), *kind, value);
            }
            self.room_word(slot).store(new.room, Relaxed);
            self.entry_word(slot, STATE)
                .store(state_word(seq, State::Open), Release);
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
        let Some(slot) = self.admit(seq) else {
            return false;
        };
        let state = self.entry_word(slot, STATE);
        let (open, removing) = (
            state_word(seq, State::Open),
            state_word(seq, State::Removing),
        );
        if state
            .compare_exchange(open, removing, AcqRel, Relaxed)
            .is_err()
        {
            return self.count_stale();
        }
        let set = |word: usize, value: u64| self.entry_word(slot, word).store(value, Relaxed);
        self.write_locked(slot, || {
            set(REMOVED_AT, now);
            set(REMOVAL, self.next_removal());
            set(OUTCOME, outcome as u64);
            state.store(state_word(seq, State::Closed), Release);
        });
        self.free_slot(slot);
        true
    }

    /// A transfer call begins. `false`, and a count, when the room is not open.
    pub fn post(&self, now: u64, seq: Seq, bytes: u64) -> bool {
        let Some(slot) = self.admit(seq) else {
            return false;
        };
        let since = self.since_append(slot, now);
        self.change(slot, FIRST_POST, seq, |first| {
            if first == 0 { since } else { first }
        });
        self.change(slot, POSTED_BYTES, seq, |sum| sum.saturating_add(bytes))
            && self.change(slot, POSTS, seq, |count| count + 1)
    }

    /// A transfer call ends. `false`, and a count, when the room is not open.
    pub fn done(&self, now: u64, seq: Seq, bytes: u64, ok: bool) -> bool {
        let Some(slot) = self.admit(seq) else {
            return false;
        };
        let since = self.since_append(slot, now);
        self.change(slot, LAST_DONE, seq, |last| last.max(since));
        if ok {
            self.change(slot, DONE_BYTES, seq, |sum| sum.saturating_add(bytes));
        } else {
            self.change(slot, FAILURES, seq, |count| count + 1);
        }
        self.change(slot, DONES, seq, |count| count + 1)
    }

    /// The engine says where the room is. `false`, and a count, when the room is not open.
    pub fn phase(&self, seq: Seq, phase: Phase) -> bool {
        let Some(slot) = self.admit(seq) else {
            return false;
        };
        self.change(slot, PHASE, seq, |_| phase as u64)
    }

    fn change(&self, slot: usize, word: usize, seq: Seq, by: impl Fn(u64) -> u64) -> bool {
        tagged::update(self.entry_word(slot, word), seq, by) || self.count_stale()
    }

    /// Nanoseconds from the append to `now`, at least 1: 0 means "not yet" in a tagged word.
    fn since_append(&self, slot: usize, now: u64) -> u64 {
        let appended_at = self.entry_word(slot, APPENDED_AT).load(Relaxed);
        now.saturating_sub(appended_at).clamp(1, tagged::VALUE_MAX)
    }

    /// Reads the entry in `slot`; `Ok(None)` for a slot that was never used.
    ///
    /// # Errors
    ///
    /// [`Torn`] when it was being written at every try.
    pub fn entry(&self, slot: usize) -> Result<Option<EntryView>, Torn> {
        if slot >= self.geometry().entries {
            return Ok(None);
        }
        let version = self.entry_word(slot, VERSION);
        for _ in 0..READ_TRIES {
            let before = version.load(Acquire);
            if before & 1 == 1 {
                core::hint::spin_loop();
                continue;
            }
            let view = self.copy(slot);
            fence(Acquire);
            if version.load(Relaxed) == before {
                return Ok(view);
            }
        }
        Err(Torn)
    }

    fn copy(&self, slot: usize) -> Option<EntryView> {
        let get = |word: usize| self.entry_word(slot, word).load(Relaxed);
        let at = |word: usize| self.geometry().entries_at() + slot * super::ENTRY_WORDS + word;
        let state_and_seq = get(STATE);
        let seq = Seq(state_and_seq >> 2);
        let state = match state_and_seq & 3 {
            1 => State::Open,
            2 => State::Removing,
            3 => State::Closed,
            _ => return None,
        };
        let count = |word: usize| tagged::value(seq, get(word));
        let appended_at = get(APPENDED_AT);
        let moment = |word: usize| match count(word) {
            0 => None,
            since => Some(appended_at.saturating_add(since)),
        };
        let peers_stated = get(PEERS);
        let mut peers = [Peer::NONE; PEERS_MAX];
        for (index, peer) in (0..peers_stated).zip(peers.iter_mut()) {
            *peer = self.read_peer(at(PEERS + 1 + index as usize * Peer::WORDS));
        }
        Some(EntryView {
            seq,
            state,
            room: get(ROOM),
            appended_at,
            expected: get(EXPECTED),
            rid: self.read_text(at(RID)),
            traceparent: self.read_text(at(TRACEPARENT)),
            peers_stated,
            peers,
            phase: Phase::from_code(count(PHASE)),
            posts: count(POSTS),
            posted_bytes: count(POSTED_BYTES),
            dones: count(DONES),
            done_bytes: count(DONE_BYTES),
            failures: count(FAILURES),
            first_post_at: moment(FIRST_POST),
            last_done_at: moment(LAST_DONE),
            removed_at: get(REMOVED_AT),
            removal: get(REMOVAL),
            outcome: Outcome::from_code(get(OUTCOME)),
            command: Command::decode(get(COMMAND)),
        })
    }

    pub(super) fn write_peer(&self, at: usize, kind: u64, value: &[u8]) {
        self.word(at).store(kind, Relaxed);
        self.write_text::<96>(at + 1, value);
    }

    pub(super) fn read_peer(&self, at: usize) -> Peer {
        Peer {
            kind: PeerKind::from_code(self.word(at).load(Relaxed)),
            value: self.read_text(at + 1),
        }
    }
}
