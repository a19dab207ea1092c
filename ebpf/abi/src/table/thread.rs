//! What each thread is serving: the join between a room and the calls of the transfer library.

use super::entry::COMMAND;
use super::gate::{self, Gate};
use super::{HEADER_WORDS, Seq, THREAD_WORDS, Table, header, wrapped};
use crate::sync::AtomicU64;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// How many slots a thread tries before it gives up and is counted.
pub const THREAD_PROBES: usize = 16;

const TID: usize = 0;
const SEQ: usize = 1;
const SINCE: usize = 2;
const SERVES: usize = 3;
/// 1 when the thread is counted in the command word of the room that it serves.
const ENTERED: usize = 4;
/// One more than the sequence in [`Serving::early`]; 0 without one.
const EARLY: usize = 5;

/// In the place of a thread id: a dead thread's slot is just being given to another.
const CHANGING_HANDS: u64 = u64::MAX;

/// What became of a thread that asks to work for a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serve {
    /// It works for it.
    Begun,
    /// The room is held: not to be begun. What the thread served before is left.
    Held,
    /// The room is held, and the thread works for it all the same: it has since before the room
    /// entered. It stays in sight as what it was, at early work, and asks again.
    HeldAtWork,
}

/// A thread and the room it works for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Serving {
    /// Thread id in the worker's own pid namespace.
    pub tid: u32,
    /// The room's append sequence; `None` while the thread is idle, and while its room is not in
    /// the queue.
    pub seq: Option<Seq>,
    /// Of work that was taken up before its room was in the queue: the last room that had entered
    /// when that work was queued, `Seq(0)` for none. It comes before all that entered later.
    pub early: Option<Seq>,
    /// When it began, `CLOCK_MONOTONIC` in nanoseconds.
    pub since: u64,
    /// How often this thread has begun to serve.
    pub serves: u64,
}

impl<'m> Table<'m> {
    fn thread_word(&self, slot: usize, word: usize) -> &'m AtomicU64 {
        self.word(HEADER_WORDS + slot * THREAD_WORDS + word)
    }

    /// The slots that a thread may use, the likeliest first.
    fn thread_slots(&self, tid: u32) -> impl Iterator<Item = usize> + use<> {
        let threads = self.geometry().threads;
        let start = wrapped(tid as usize, threads);
        (0..THREAD_PROBES.min(threads)).map(move |step| wrapped(start + step, threads))
    }

    fn own_slot(&self, tid: u32) -> Option<usize> {
        self.thread_slots(tid)
            .find(|slot| self.thread_word(*slot, TID).load(Acquire) == u64::from(tid))
    }

    /// This thread's slot: its own, else a free one, else one whose thread is gone.
    fn thread_slot(&self, tid: u32, alive: impl Fn(u32) -> bool) -> Option<usize> {
        let claim = |slot: usize, from: u64, to: u64| {
            let word = self.thread_word(slot, TID);
            word.compare_exchange(from, to, AcqRel, Relaxed).is_ok()
        };
        let own = self.own_slot(tid);
        own.or_else(|| self.thread_slots(tid).find(|slot| claim(*slot, 0, u64::from(tid)))).or_else(
            || {
                // Only a dead thread's slot may be taken over: a live owner writes without looking
                // again. It shows no thread until the dead one's room is left, lest a reader think
                // that its new owner serves that room.
                let dead = self.thread_slots(tid).find(|slot| {
                    let holder = self.thread_word(*slot, TID).load(Acquire);
                    u32::try_from(holder).is_ok_and(|holder| !alive(holder))
                        && claim(*slot, holder, CHANGING_HANDS)
                })?;
                self.leave_slot(dead);
                self.thread_word(dead, TID).store(u64::from(tid), Release);
                Some(dead)
            },
        )
    }

    /// This thread begins to work for `seq`; an earlier room is left first.
    ///
    /// `alive` says whether a thread of this process still exists; it is asked only when all
    /// slots that the thread may use are taken.
    pub fn serve(&self, now: u64, tid: u32, seq: Seq, alive: impl Fn(u32) -> bool) -> Serve {
        let slot = self.thread_slot(tid, alive);
        if let Some(slot) = slot {
            // Early work whose room has entered goes on.
            if self.thread_word(slot, SEQ).load(Relaxed) != 0 {
                self.leave_slot(slot);
            }
        }
        // A room that has left the queue has no gate any more, and one that found the table
        // full never had one.
        let entry = self.slot_of(seq).filter(|_| self.is_open(seq));
        let gate =
            entry.map_or(Gate::Gone, |entry| gate::enter(self.entry_word(entry, COMMAND), seq));
        match (slot, gate) {
            (Some(slot), Gate::Held) if self.thread_word(slot, EARLY).load(Relaxed) != 0 => {
                return Serve::HeldAtWork;
            }
            (_, Gate::Held) => return Serve::Held,
            (Some(slot), gate) => self.take_up(slot, now, seq, gate),
            (None, gate) => {
                // Without a slot nobody would leave the gate again, so it is left at once: the
                // agent sees `threads_overflow` and proves nothing about this table.
                self.bump(header::THREADS_OVERFLOW);
                self.leave_gate(seq, gate == Gate::Entered);
            }
        }
        Serve::Begun
    }

    /// This thread begins to work for a room that is not in the queue yet; an earlier one is left
    /// first. `after` is the last room that had entered when the work was queued, `Seq(0)` for none.
    /// `false`: no slot was free, which is counted, and nothing is shown. [`Table::serve`] says
    /// later which room it was.
    pub fn serve_early(&self, now: u64, tid: u32, after: Seq, alive: impl Fn(u32) -> bool) -> bool {
        let Some(slot) = self.thread_slot(tid, alive) else {
            self.bump(header::THREADS_OVERFLOW);
            return false;
        };
        self.leave_slot(slot);
        self.begin(slot, now);
        self.thread_word(slot, EARLY).store(after.0.saturating_add(1), Release);
        true
    }

    /// Shows `seq` in the thread's own slot, which is idle or at early work.
    fn take_up(&self, slot: usize, now: u64, seq: Seq, gate: Gate) {
        let entered = u64::from(gate == Gate::Entered);
        self.thread_word(slot, ENTERED).store(entered, Relaxed);
        if self.thread_word(slot, EARLY).load(Relaxed) == 0 {
            self.begin(slot, now);
        }
        self.thread_word(slot, SEQ).store(seq.0, Release);
    }

    /// Release, so that a reader that sees these words also sees that the slot was idle before.
    fn begin(&self, slot: usize, now: u64) {
        self.thread_word(slot, SINCE).store(now, Release);
        let serves = self.thread_word(slot, SERVES);
        serves.store(serves.load(Relaxed).wrapping_add(1), Release);
    }

    /// This thread ends its work for the room it was serving, if any. Returns that room; `Seq(0)`
    /// for one that is not in the queue yet.
    pub fn serve_end(&self, tid: u32) -> Option<Seq> {
        self.leave_slot(self.own_slot(tid)?)
    }

    fn leave_slot(&self, slot: usize) -> Option<Seq> {
        let early = self.thread_word(slot, EARLY);
        let was_early = early.load(Relaxed) != 0;
        if was_early {
            early.store(0, Release);
        }
        let word = self.thread_word(slot, SEQ);
        let seq = Seq(word.load(Relaxed));
        if seq.0 == 0 {
            return was_early.then_some(seq);
        }
        let entered = self.thread_word(slot, ENTERED).load(Relaxed) != 0;
        word.store(0, Release);
        self.leave_gate(seq, entered);
        Some(seq)
    }

    /// Leaves the gate of `seq`, unless this thread was never counted in it: it would take away
    /// another thread's count.
    fn leave_gate(&self, seq: Seq, entered: bool) {
        if let Some(entry) = self.slot_of(seq).filter(|_| entered) {
            gate::leave(self.entry_word(entry, COMMAND), seq);
        }
    }

    /// What the thread in `slot` is doing; `None` for a slot that no thread has taken, or one
    /// that changed while it was read (read it again at the next tick).
    pub fn serving(&self, slot: usize) -> Option<Serving> {
        if slot >= self.geometry().threads {
            return None;
        }
        let tid = self.thread_word(slot, TID).load(Acquire);
        let seq = self.thread_word(slot, SEQ).load(Acquire);
        let early = self.thread_word(slot, EARLY).load(Acquire);
        let since = self.thread_word(slot, SINCE).load(Acquire);
        let serves = self.thread_word(slot, SERVES).load(Acquire);
        let same = |word: usize, value| self.thread_word(slot, word).load(Relaxed) == value;
        let same = same(TID, tid) && same(SEQ, seq) && same(EARLY, early);
        let tid = u32::try_from(tid).ok().filter(|tid| *tid != 0 && same)?;
        let early = early.checked_sub(1).map(Seq);
        Some(Serving { tid, seq: (seq != 0).then_some(Seq(seq)), early, since, serves })
    }
}
