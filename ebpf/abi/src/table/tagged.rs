//! Words that are changed by compare-and-swap only and carry the generation of their entry.

use super::Seq;
use crate::sync::AtomicU64;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed};

const TAG_BITS: u32 = 16;
const VALUE_BITS: u32 = 64 - TAG_BITS;
/// Largest value of a tagged word: 281 TB, or 78 hours in nanoseconds. Values saturate.
pub(super) const VALUE_MAX: u64 = (1 << VALUE_BITS) - 1;

const fn tag(seq: Seq) -> u64 {
    seq.counter() << VALUE_BITS
}

/// A tagged word of a fresh entry.
pub(super) const fn fresh(seq: Seq) -> u64 {
    tag(seq)
}

/// The value of a tagged word, or 0 when it belongs to another stay in the slot.
pub(super) const fn value(seq: Seq, word: u64) -> u64 {
    if word & !VALUE_MAX == tag(seq) {
        word & VALUE_MAX
    } else {
        0
    }
}

/// Replaces the value by `change(value)`, unless the slot has moved on. Returns whether it did.
pub(super) fn update(word: &AtomicU64, seq: Seq, change: impl Fn(u64) -> u64) -> bool {
    let mut seen = word.load(Relaxed);
    loop {
        if seen & !VALUE_MAX != tag(seq) {
            return false;
        }
        let next = tag(seq) | change(seen & VALUE_MAX).min(VALUE_MAX);
        match word.compare_exchange_weak(seen, next, AcqRel, Relaxed) {
            Ok(_) => return true,
            Err(now) => seen = now,
        }
    }
}

/// Whether a room's transfer may be worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandState {
    /// Nothing is asked.
    Open,
    /// The agent asks that no thread begins to work for the room.
    Held,
    /// The room is to be failed.
    Committed,
    /// A value that no release writes.
    Unknown,
}

/// An entry's command word: `state:2 | active:14 | generation:24 | epoch:24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// What is asked.
    pub state: CommandState,
    /// Threads that work for the room right now.
    pub active: u16,
    /// Low bits of the append counter of the entry that the word belongs to.
    pub generation: u32,
    /// Counts the holds; a fail is valid for one hold only.
    pub epoch: u32,
}

const ACTIVE_MAX: u64 = (1 << 14) - 1;
const GENERATION_MASK: u64 = (1 << 24) - 1;

impl Command {
    /// Reads a command word.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "each field is masked to its width"
    )]
    pub const fn decode(word: u64) -> Self {
        Self {
            state: match word & 3 {
                0 => CommandState::Open,
                1 => CommandState::Held,
                2 => CommandState::Committed,
                _ => CommandState::Unknown,
            },
            active: ((word >> 2) & ACTIVE_MAX) as u16,
            generation: ((word >> 16) & GENERATION_MASK) as u32,
            epoch: (word >> 40) as u32,
        }
    }

    /// The command word of a fresh entry: open, nobody active.
    pub(super) const fn fresh(seq: Seq) -> u64 {
        (seq.counter() & GENERATION_MASK) << 16
    }

    const fn belongs(word: u64, seq: Seq) -> bool {
        (word >> 16) & GENERATION_MASK == seq.counter() & GENERATION_MASK
    }
}

/// Enters the gate. `false`: held, or the count is at its limit. A word of another stay lets pass.
pub(super) fn enter(word: &AtomicU64, seq: Seq) -> bool {
    let mut seen = word.load(Acquire);
    loop {
        if !Command::belongs(seen, seq) {
            return true;
        }
        if seen & 3 != 0 || (seen >> 2) & ACTIVE_MAX == ACTIVE_MAX {
            return false;
        }
        match word.compare_exchange_weak(seen, seen + 4, AcqRel, Acquire) {
            Ok(_) => return true,
            Err(now) => seen = now,
        }
    }
}

/// Leaves the gate; nothing happens when the slot has moved on.
pub(super) fn leave(word: &AtomicU64, seq: Seq) {
    let mut seen = word.load(Acquire);
    while Command::belongs(seen, seq) && (seen >> 2) & ACTIVE_MAX != 0 {
        match word.compare_exchange_weak(seen, seen - 4, AcqRel, Acquire) {
            Ok(_) => return,
            Err(now) => seen = now,
        }
    }
}
