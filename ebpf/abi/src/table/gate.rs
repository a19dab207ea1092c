//! An entry's command word: who may work for the room, and whether it is to be failed.
//!
//! A room may be failed on all its ranks, and on none of them may a transfer of it be under way or
//! begin. So the agent holds it on every rank, proves that nothing is under way on any, and commits
//! the fail on each. All that bears one moment, *until*, at most two seconds off:
//!
//! * a rank carries a committed fail out before *until* or never, on the thread that polls its queue, as
//!   a poll begins: the fail is in what the rank says in that very poll;
//! * a hold ends on a rank, whatever became of the agent, with the first *reduced* poll (the ranks' common
//!   one) that the rank began after *until* and that does not say that the room has failed. What any rank
//!   carried out before *until* it has said by then.
//!
//! So no rank lets anybody work for a room that another has failed, and no hold lasts for longer than two
//! seconds and a poll. Ranks share the clock of their machine; [`MARGIN_MS`] is for what lies between
//! reading it and acting. The models in `gate_model.rs` go through every order of these steps.

use super::Seq;
use crate::sync::AtomicU64;
use crate::sync::Ordering::{AcqRel, Acquire};

/// A hold is ended so much later than a fail may be carried out, in milliseconds.
pub const MARGIN_MS: u64 = 100;

/// A moment of `CLOCK_MONOTONIC` by which a fail is carried out or never, in milliseconds. Kept
/// modulo 2^24, 4.6 hours: it is looked at within half of that, or once all ranks have stood for as long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Until(u32);

const UNTIL_MASK: u64 = (1 << 24) - 1;
const NANOS_PER_MS: u64 = 1_000_000;

impl Until {
    /// So many milliseconds from `now`, in nanoseconds.
    pub const fn after(now: u64, ms: u64) -> Self {
        Self(((now / NANOS_PER_MS).wrapping_add(ms) & UNTIL_MASK) as u32)
    }

    /// Whether it has come, and `ms` milliseconds more.
    pub const fn is_over(self, now: u64, ms: u64) -> bool {
        let passed = (now / NANOS_PER_MS).wrapping_sub(self.0 as u64) & UNTIL_MASK;
        let is_past = passed <= UNTIL_MASK >> 1;
        is_past && passed >= ms
    }
}

/// Whether a room's transfer may be worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CommandState {
    /// Nothing is asked.
    Open = 0,
    /// The agent asks that no thread begins to work for the room.
    Held = 1,
    /// The room is to be failed.
    Committed = 2,
    /// The worker carries the fail out.
    Failed = 3,
}

/// An entry's command word: `state:2 | active:14 | generation:24 | until:24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// What is asked.
    pub state: CommandState,
    /// Threads that work for the room right now.
    pub active: u16,
    /// Low bits of the append counter of the entry that the word belongs to.
    pub generation: u32,
    /// Names the last hold: a fail is valid for one only, and before this moment.
    pub until: Until,
}

const STATE_MASK: u64 = 3;
const OPEN: u64 = CommandState::Open as u64;
const HELD: u64 = CommandState::Held as u64;
const COMMITTED: u64 = CommandState::Committed as u64;
const FAILED: u64 = CommandState::Failed as u64;
const ONE_ACTIVE: u64 = 1 << 2;
const UNTIL_SHIFT: u32 = 40;
const ACTIVE_MAX: u64 = (1 << 14) - 1;
const GENERATION_MASK: u64 = (1 << 24) - 1;

impl Command {
    /// Reads a command word.
    pub const fn decode(word: u64) -> Self {
        Self {
            state: match word & STATE_MASK {
                OPEN => CommandState::Open,
                HELD => CommandState::Held,
                COMMITTED => CommandState::Committed,
                _ => CommandState::Failed,
            },
            active: ((word >> 2) & ACTIVE_MAX) as u16,
            generation: ((word >> 16) & GENERATION_MASK) as u32,
            until: Until((word >> UNTIL_SHIFT) as u32),
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

const fn active(word: u64) -> u64 {
    (word >> 2) & ACTIVE_MAX
}

const fn with_state(word: u64, state: u64) -> u64 {
    word & !STATE_MASK | state
}

/// Replaces the word of `seq` by `change(word)`, until that gives nothing.
fn update(word: &AtomicU64, seq: Seq, change: impl Fn(u64) -> Option<u64>) -> Option<u64> {
    let mut seen = word.load(Acquire);
    loop {
        let next = Some(seen).filter(|seen| Command::belongs(*seen, seq)).and_then(&change)?;
        match word.compare_exchange_weak(seen, next, AcqRel, Acquire) {
            Ok(_) => return Some(next),
            Err(now) => seen = now,
        }
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
        if seen & STATE_MASK != OPEN || active(seen) == ACTIVE_MAX {
            return Gate::Held;
        }
        match word.compare_exchange_weak(seen, seen + ONE_ACTIVE, AcqRel, Acquire) {
            Ok(_) => return Gate::Entered,
            Err(now) => seen = now,
        }
    }
}

/// Leaves the gate; nothing happens when the slot has moved on.
pub(super) fn leave(word: &AtomicU64, seq: Seq) {
    update(word, seq, |seen| (active(seen) != 0).then(|| seen - ONE_ACTIVE));
}

/// Asks that no thread begins to work for `seq`. Returns the word as it is after that, or `None` when
/// the room is not open to a hold, or `until` was the last one's too.
pub(super) fn hold(word: &AtomicU64, seq: Seq, until: Until) -> Option<Command> {
    let held = update(word, seq, |seen| {
        let kept = seen & !(UNTIL_MASK << UNTIL_SHIFT);
        let is_free = seen & STATE_MASK == OPEN && Command::decode(seen).until != until;
        is_free.then(|| kept | HELD | u64::from(until.0) << UNTIL_SHIFT)
    });
    held.map(Command::decode)
}

/// The word's state goes from one to another, under the hold `until` and no other.
fn turn(word: &AtomicU64, seq: Seq, until: Until, (from, to): (u64, u64), idle: bool) -> bool {
    let turned = update(word, seq, |seen| {
        let of_this_hold = seen & STATE_MASK == from && Command::decode(seen).until == until;
        (of_this_hold && (!idle || active(seen) == 0)).then(|| with_state(seen, to))
    });
    turned.is_some()
}

/// Ends the hold `until` of `seq`. `false` when it is not held under it.
pub(super) fn release(word: &AtomicU64, seq: Seq, until: Until) -> bool {
    turn(word, seq, until, (HELD, OPEN), false)
}

/// The room is to be failed. `false` when it is not held under `until`, or somebody works for it.
pub(super) fn commit(word: &AtomicU64, seq: Seq, until: Until) -> bool {
    turn(word, seq, until, (HELD, COMMITTED), true)
}

/// Whether the worker has to fail the room now.
pub(super) fn carry_out(word: &AtomicU64, seq: Seq, now: u64) -> bool {
    let failed = update(word, seq, |seen| {
        let is_due = seen & STATE_MASK == COMMITTED && !Command::decode(seen).until.is_over(now, 0);
        is_due.then(|| with_state(seen, FAILED))
    });
    failed.is_some()
}

/// A reduced poll that this rank began at `begun` did not say that the room has failed: a hold that
/// was over by then is ended. Whether one was.
pub(super) fn polled(word: &AtomicU64, seq: Seq, begun: u64) -> bool {
    let opened = update(word, seq, |seen| {
        let is_over = Command::decode(seen).until.is_over(begun, MARGIN_MS);
        (seen & STATE_MASK != OPEN && is_over).then(|| with_state(seen, OPEN))
    });
    opened.is_some()
}

#[cfg(all(test, not(loom)))]
#[path = "gate_model.rs"]
mod model;
