//! Failing a room: what the agent asks of a worker, and what the worker answers.
//!
//! The agent's calls are its only writes to a table. [`super::gate`] says why their order is safe.

use super::entry::{COMMAND, REASON, TOLD};
use super::{Command, Seq, Table, Text, Until, gate, header};
use crate::sync::AtomicU64;
use crate::sync::Ordering::{Acquire, Relaxed};

/// Version of what a worker does that states [`super::Gauge::Commands`]: the gate before each chunk,
/// fails carried out as a poll begins, holds ended after a reduced poll.
pub const COMMANDS_VERSION: u64 = 1;
/// Most bytes of a reason that are kept.
pub const REASON_BYTES: usize = 40;

/// Why a room is to be failed, and what may be said of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fail<'a> {
    /// How long the room had been in the queue, in milliseconds; 2^63 and more are cut.
    pub dwell_ms: u64,
    /// Its far ends may be told: none of their memory can be written for this room any more.
    pub tell_peers: bool,
    /// The finding and its cause, UTF-8; [`REASON_BYTES`] are kept.
    pub reason: &'a [u8],
}

/// A fail that the worker has to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ordered {
    /// How long the room had been in the queue, in milliseconds.
    pub dwell_ms: u64,
    /// Its far ends may be told.
    pub tell_peers: bool,
    /// The finding and its cause.
    pub reason: Text<REASON_BYTES>,
}

impl<'m> Table<'m> {
    /// Asks that no thread begins to work for `seq`, until a fail under this hold cannot be carried out
    /// any more: see [`Table::polled`]. The agent's. From then on the count of active threads only falls:
    /// once it is 0, and no thread is at work that began before its room entered
    /// ([`super::Serving::early`]), nobody works for the room. Returns the command as it stands then, or
    /// `None` when the room is not in the queue or is held already.
    pub fn hold(&self, seq: Seq, until: Until) -> Option<Command> {
        let held = gate::hold(self.command_word(seq)?, seq, until);
        // After the hold: whoever sees the new count sees the hold. An agent that dies in between leaves
        // a hold that its worker meets at the gate.
        self.bump(header::ASKED);
        held
    }

    /// Ends the hold `until` of `seq`: of one of which no rank has a commit. The agent's. `false` when
    /// it is not held under it.
    pub fn release(&self, seq: Seq, until: Until) -> bool {
        self.command_word(seq).is_some_and(|word| gate::release(word, seq, until))
    }

    /// Asks that the room be failed. The agent's, once nothing of it is under way on any rank. `false`
    /// when it is not held under `until`, or a thread works for it.
    pub fn commit(&self, seq: Seq, until: Until, fail: &Fail<'_>) -> bool {
        let (Some(word), Some(slot)) = (self.command_word(seq), self.slot_of(seq)) else {
            return false;
        };
        let held = Command::decode(word.load(Acquire));
        if held.state != super::CommandState::Held || held.until != until {
            return false;
        }
        // Only who holds the room writes these, and nobody reads them before the commit.
        let told = (fail.dwell_ms << 1) | u64::from(fail.tell_peers);
        self.entry_word(slot, TOLD).store(told, Relaxed);
        self.write_text::<REASON_BYTES>(self.entry_at(slot, REASON), fail.reason);
        gate::commit(word, seq, until)
    }

    /// Whether the room has to be failed now, by the thread that polls the queue, before what it says in
    /// the poll that it begins: says so once. `now` is read before the call.
    pub fn carry_out(&self, seq: Seq, now: u64) -> Option<Ordered> {
        let (word, slot) = (self.command_word(seq)?, self.slot_of(seq)?);
        if !gate::carry_out(word, seq, now) {
            return None;
        }
        let told = self.entry_word(slot, TOLD).load(Relaxed);
        let reason = self.read_text::<REASON_BYTES>(self.entry_at(slot, REASON));
        Some(Ordered { dwell_ms: told >> 1, tell_peers: told & 1 == 1, reason })
    }

    /// A poll that was reduced over all ranks, and that this one began at `begun`, does not say that
    /// the room has failed: a hold that was over by then is ended. Whether one was.
    pub fn polled(&self, seq: Seq, begun: u64) -> bool {
        self.command_word(seq).is_some_and(|word| gate::polled(word, seq, begun))
    }

    /// How often rooms of this worker have been held: while it is the same, no room has been held that
    /// was not before.
    pub fn asked(&self) -> u64 {
        self.word(header::ASKED).load(Acquire)
    }

    /// The command of a room; `None` for one that is not in the queue, or has no entry.
    pub fn command(&self, seq: Seq) -> Option<Command> {
        self.command_word(seq).map(|word| Command::decode(word.load(Acquire)))
    }

    /// The command word of a room that is in the queue.
    fn command_word(&self, seq: Seq) -> Option<&'m AtomicU64> {
        let slot = self.slot_of(seq).filter(|_| self.is_open(seq))?;
        Some(self.entry_word(slot, COMMAND))
    }
}
