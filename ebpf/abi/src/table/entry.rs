//! One room's stay in the queue: where its words are, and how a reader copies them.

use super::command::REASON_BYTES;
use super::{
    Command, ENTRY_WORDS, Outcome, Peer, PeerKind, Phase, Seq, State, Table, Text, tagged,
};
use crate::sync::AtomicU64;
use crate::sync::Ordering::{Acquire, Relaxed};
use crate::sync::fence;

/// Most peers kept of a room; the count that the engine stated is kept as well.
pub const PEERS_MAX: usize = 6;
/// How often a reader tries a description that is being written; a model is kept small.
const READ_TRIES: usize = if cfg!(loom) { 2 } else { 8 };

pub(super) const VERSION: usize = 0;
pub(super) const STATE: usize = 1;
pub(super) const ROOM: usize = 2;
pub(super) const APPENDED_AT: usize = 3;
pub(super) const EXPECTED: usize = 4;
pub(super) const REMOVED_AT: usize = 5;
pub(super) const REMOVAL: usize = 6;
pub(super) const OUTCOME: usize = 7;
pub(super) const COMMAND: usize = 8;
pub(super) const PHASE: usize = 9;
pub(super) const POSTS: usize = 10;
pub(super) const POSTED_BYTES: usize = 11;
pub(super) const DONES: usize = 12;
pub(super) const DONE_BYTES: usize = 13;
pub(super) const FAILURES: usize = 14;
pub(super) const FIRST_POST: usize = 15;
pub(super) const LAST_DONE: usize = 16;
/// What a fail is to say, written under a hold: dwell and whether peers may be told, and the reason.
pub(super) const TOLD: usize = 17;
pub(super) const REASON: usize = 18;
/// The words that carry the generation of their entry.
pub(super) const TAGGED: [usize; 8] =
    [PHASE, POSTS, POSTED_BYTES, DONES, DONE_BYTES, FAILURES, FIRST_POST, LAST_DONE];
pub(super) const RID: usize = 24;
pub(super) const TRACEPARENT: usize = 33;
pub(super) const PEERS: usize = 41;

const _: () = {
    assert!(REASON + Text::<REASON_BYTES>::WORDS <= RID);
    assert!(RID + Text::<64>::WORDS <= TRACEPARENT);
    assert!(TRACEPARENT + Text::<56>::WORDS <= PEERS);
    // At least one word is left over: `Table::spare`.
    assert!(PEERS + 1 + PEERS_MAX * Peer::WORDS < ENTRY_WORDS);
};

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

/// The state word of `seq`'s entry: `seq:62 | state:2`.
pub(super) const fn state_word(seq: Seq, state: State) -> u64 {
    (seq.0 << 2) | state as u64
}

/// The sequence and the state in a state word; `None` for a slot that was never used.
pub(super) const fn state_of(word: u64) -> Option<(Seq, State)> {
    let state = match word & 3 {
        1 => State::Open,
        2 => State::Removing,
        3 => State::Closed,
        _ => return None,
    };
    Some((Seq(word >> 2), state))
}

impl<'m> Table<'m> {
    pub(super) fn entry_at(&self, slot: usize, word: usize) -> usize {
        self.geometry().entries_at() + slot * ENTRY_WORDS + word
    }

    pub(super) fn entry_word(&self, slot: usize, word: usize) -> &'m AtomicU64 {
        self.word(self.entry_at(slot, word))
    }

    /// A slot that the table really has: a `seq` comes from a caller and may be anything.
    pub(super) fn slot_of(&self, seq: Seq) -> Option<usize> {
        seq.slot().filter(|slot| *slot < self.geometry().entries)
    }

    /// Whether `seq` is in the queue.
    pub fn is_open(&self, seq: Seq) -> bool {
        self.slot_of(seq).is_some_and(|slot| {
            self.entry_word(slot, STATE).load(Acquire) == state_word(seq, State::Open)
        })
    }

    /// Reads the entry in `slot`; `Ok(None)` for a slot that was never used.
    ///
    /// A slot that is taken and reads as [`State::Closed`] is just being given to its next room.
    ///
    /// # Errors
    ///
    /// [`Torn`] when it was being written at every try, or says that it sits in another slot.
    pub fn entry(&self, slot: usize) -> Result<Option<EntryView>, Torn> {
        if slot >= self.geometry().entries {
            return Ok(None);
        }
        let view = self.read_whole(slot, || self.copy(slot))?;
        // Only a hostile writer names another slot; believing it would let it point elsewhere.
        match view {
            Some(view) if view.seq.slot() != Some(slot) => Err(Torn),
            view => Ok(view),
        }
    }

    /// Runs `read` over an entry's words until no description was written meanwhile.
    fn read_whole<T>(&self, slot: usize, read: impl Fn() -> T) -> Result<T, Torn> {
        let version = self.entry_word(slot, VERSION);
        for _ in 0..READ_TRIES {
            let before = version.load(Acquire);
            if before & 1 == 1 {
                core::hint::spin_loop();
                continue;
            }
            let copy = read();
            fence(Acquire);
            if version.load(Relaxed) == before {
                return Ok(copy);
            }
        }
        Err(Torn)
    }

    /// [`Table::entry`] over three words only, for the model checks: a model in which a reader
    /// takes all of them while they are written would not end.
    #[cfg(loom)]
    pub fn entry_in_brief(&self, slot: usize) -> Result<Option<(Seq, State, u64, u64)>, Torn> {
        self.read_whole(slot, || {
            let get = |word: usize| self.entry_word(slot, word).load(Relaxed);
            state_of(get(STATE)).map(|(seq, state)| (seq, state, get(ROOM), get(EXPECTED)))
        })
    }

    fn copy(&self, slot: usize) -> Option<EntryView> {
        let get = |word: usize| self.entry_word(slot, word).load(Relaxed);
        let (seq, state) = state_of(get(STATE))?;
        let progress = self.progress(slot, seq);
        let appended_at = get(APPENDED_AT);
        let moment = |since: u64| (since != 0).then(|| appended_at.saturating_add(since));
        let peers_stated = get(PEERS);
        Some(EntryView {
            seq,
            state,
            room: get(ROOM),
            appended_at,
            expected: get(EXPECTED),
            rid: self.read_text(self.entry_at(slot, RID)),
            traceparent: self.read_text(self.entry_at(slot, TRACEPARENT)),
            peers_stated,
            peers: self.read_peers(self.entry_at(slot, PEERS + 1), peers_stated),
            phase: Phase::from_code(tagged::value(seq, get(PHASE))),
            posts: progress.posts,
            posted_bytes: progress.posted_bytes,
            dones: progress.dones,
            done_bytes: progress.done_bytes,
            failures: progress.failures,
            first_post_at: moment(progress.first_post),
            last_done_at: moment(progress.last_done),
            removed_at: get(REMOVED_AT),
            removal: get(REMOVAL),
            outcome: Outcome::from_code(get(OUTCOME)),
            command: Command::decode(get(COMMAND)),
        })
    }

    /// The counters, ends before beginnings and counts before bytes: each was written the other
    /// way around, so a copy never shows more done than posted, nor a call without its bytes.
    fn progress(&self, slot: usize, seq: Seq) -> Progress {
        let get = |word: usize| tagged::value(seq, self.entry_word(slot, word).load(Acquire));
        let (dones, failures) = (get(DONES), get(FAILURES));
        let (done_bytes, last_done) = (get(DONE_BYTES), get(LAST_DONE));
        let posts = get(POSTS);
        Progress {
            posts,
            posted_bytes: get(POSTED_BYTES),
            dones,
            done_bytes,
            failures,
            first_post: get(FIRST_POST),
            last_done,
        }
    }

    pub(super) fn write_peers(&self, at: usize, peers: &[(u64, &[u8])]) {
        for (index, (kind, value)) in peers.iter().take(PEERS_MAX).enumerate() {
            let at = at + index * Peer::WORDS;
            self.word(at).store(*kind, Relaxed);
            self.write_text::<96>(at + 1, value);
        }
    }

    pub(super) fn read_peers(&self, at: usize, stated: u64) -> [Peer; PEERS_MAX] {
        let kept = usize::try_from(stated).unwrap_or(PEERS_MAX);
        let mut peers = [Peer::NONE; PEERS_MAX];
        for (index, peer) in peers.iter_mut().take(kept).enumerate() {
            let at = at + index * Peer::WORDS;
            *peer = Peer {
                kind: PeerKind::from_code(self.word(at).load(Relaxed)),
                value: self.read_text(at + 1),
            };
        }
        peers
    }
}

/// An entry's counters, times as nanoseconds since the append (0: not yet).
struct Progress {
    posts: u64,
    posted_bytes: u64,
    dones: u64,
    done_bytes: u64,
    failures: u64,
    first_post: u64,
    last_done: u64,
}
