//! Words that are changed by compare-and-swap only and carry the generation of their entry.

use super::Seq;
use crate::sync::AtomicU64;
use crate::sync::Ordering::{AcqRel, Relaxed};

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
