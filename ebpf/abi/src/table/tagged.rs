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
    if word & !VALUE_MAX == tag(seq) { word & VALUE_MAX } else { 0 }
}

/// Gives a word its first value of a new stay, whatever is being done to it.
///
/// A plain store: a compare-and-swap that read the old value comes before it, and one that comes
/// after it fails. loom does not know the first half (that nothing comes between what a
/// compare-and-swap reads and what it writes) of a plain store, but of a swap.
pub(super) fn begin(word: &AtomicU64, value: u64) {
    #[cfg(not(loom))]
    word.store(value, Relaxed);
    #[cfg(loom)]
    word.swap(value, Relaxed);
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

const STATE_MASK: u64 = 3;
const HELD: u64 = 1;
const ONE_ACTIVE: u64 = 1 << 2;
const EPOCH_SHIFT: u32 = 40;
const ACTIVE_MAX: u64 = (1 << 14) - 1;
const GENERATION_MASK: u64 = (1 << 24) - 1;

impl Command {
    /// Reads a command word.
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
            epoch: (word >> EPOCH_SHIFT) as u32,
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

/// What the gate answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// Go: this thread is counted as active, and must [`leave`].
    Entered,
    /// The room is held (or its count is at its limit): do not begin.
    Held,
    /// The word is of another stay: the room has left the queue, nothing is counted.
    Gone,
}

/// Enters the gate.
pub(super) fn enter(word: &AtomicU64, seq: Seq) -> Gate {
    let mut seen = word.load(Acquire);
    loop {
        if !Command::belongs(seen, seq) {
            return Gate::Gone;
        }
        if seen & STATE_MASK != 0 || (seen >> 2) & ACTIVE_MAX == ACTIVE_MAX {
            return Gate::Held;
        }
        match word.compare_exchange_weak(seen, seen + ONE_ACTIVE, AcqRel, Acquire) {
            Ok(_) => return Gate::Entered,
            Err(now) => seen = now,
        }
    }
}

/// Asks that no thread begins to work for `seq`, under a new epoch. Returns the word as it is
/// after that, or `None` when the room is not open to a hold.
pub(super) fn hold(word: &AtomicU64, seq: Seq) -> Option<Command> {
    let mut seen = word.load(Acquire);
    loop {
        if !Command::belongs(seen, seq) || seen & STATE_MASK != 0 {
            return None;
        }
        // The epoch has the top bits, so that it wraps without touching its neighbours.
        let held = (seen | HELD).wrapping_add(1 << EPOCH_SHIFT);
        match word.compare_exchange_weak(seen, held, AcqRel, Acquire) {
            Ok(_) => return Some(Command::decode(held)),
            Err(now) => seen = now,
        }
    }
}

/// Ends the hold `epoch` of `seq`. `false` when it is not held under that epoch.
pub(super) fn release(word: &AtomicU64, seq: Seq, epoch: u32) -> bool {
    let mut seen = word.load(Acquire);
    loop {
        let of_this_hold = Command::belongs(seen, seq)
            && seen & STATE_MASK == HELD
            && Command::decode(seen).epoch == epoch;
        if !of_this_hold {
            return false;
        }
        match word.compare_exchange_weak(seen, seen - HELD, AcqRel, Acquire) {
            Ok(_) => return true,
            Err(now) => seen = now,
        }
    }
}

/// Leaves the gate; nothing happens when the slot has moved on.
pub(super) fn leave(word: &AtomicU64, seq: Seq) {
    let mut seen = word.load(Acquire);
    while Command::belongs(seen, seq) && (seen >> 2) & ACTIVE_MAX != 0 {
        match word.compare_exchange_weak(seen, seen - ONE_ACTIVE, AcqRel, Acquire) {
            Ok(_) => return,
            Err(now) => seen = now,
        }
    }
}
