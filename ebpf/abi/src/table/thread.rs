//! What each thread is serving: the join between a room and the calls of the transfer library.

use super::{HEADER_WORDS, Seq, THREAD_WORDS, Table, header, tagged};
use crate::sync::AtomicU64;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// How many slots a thread tries before it gives up and is counted.
pub const THREAD_PROBES: usize = 16;

const TID: usize = 0;
const SEQ: usize = 1;
const SINCE: usize = 2;
const SERVES: usize = 3;

/// A thread and the room it works for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Serving {
    /// Thread id in the worker's own pid namespace.
    pub tid: u32,
    /// The room's append sequence; `None` while the thread is idle.
    pub seq: Option<Seq>,
    /// When it began, `CLOCK_MONOTONIC` in nanoseconds.
    pub since: u64,
    /// How often this thread has begun to serve.
    pub serves: u64,
}

impl<'m> Table<'m> {
    fn thread_word(&self, slot: usize, word: usize) -> &'m AtomicU64 {
        self.word(HEADER_WORDS + slot * THREAD_WORDS + word)
    }

    /// This thread's slot: its own, else a free one, else one whose thread is gone.
    fn thread_slot(&self, tid: u32, alive: impl Fn(u32) -> bool) -> Option<usize> {
        let threads = self.geometry().threads;
        let start = tid as usize % threads;
        let probes = || (0..THREAD_PROBES.min(threads)).map(|step| (start + step) % threads);
        let held_by = |slot| self.thread_word(slot, TID).load(Acquire);
        let claim = |slot, from| {
            let word = self.thread_word(slot, TID);
            word.compare_exchange(from, u64::from(tid), AcqRel, Relaxed)
                .is_ok()
        };
        if let Some(own) = probes().find(|slot| held_by(*slot) == u64::from(tid)) {
            return Some(own);
        }
        if let Some(free) = probes().find(|slot| held_by(*slot) == 0 && claim(*slot, 0)) {
            return Some(free);
        }
        // Only a dead thread's slot may be taken over: a live owner writes without looking again.
        let dead = |slot: &usize| {
            let holder = held_by(*slot);
            u32::try_from(holder).is_ok_and(|holder| !alive(holder)) && claim(*slot, holder)
        };
        probes().find(dead)
    }

    /// This thread begins to work for `seq`; an earlier room is left first. `false`: the room is
    /// held, do not begin.
    ///
    /// `alive` says whether a thread of this process still exists; it is asked only when all
    /// slots that the thread may use are taken.
    pub fn serve(&self, now: u64, tid: u32, seq: Seq, alive: impl Fn(u32) -> bool) -> bool {
        let slot = self.thread_slot(tid, alive);
        if let Some(slot) = slot {
            self.leave_slot(slot);
        }
        if self.is_open(seq)
            && let Some(entry) = seq.slot()
            && !tagged::enter(self.command_word(entry), seq)
        {
            return false;
        }
        let Some(slot) = slot else {
            // Without a slot nobody would leave the gate again, so it is left at once: the agent
            // sees `threads_overflow` and proves nothing about this table.
            self.bump(header::THREADS_OVERFLOW);
            if let Some(entry) = seq.slot() {
                tagged::leave(self.command_word(entry), seq);
            }
            return true;
        };
        self.thread_word(slot, SINCE).store(now, Relaxed);
        let serves = self.thread_word(slot, SERVES);
        serves.store(serves.load(Relaxed) + 1, Relaxed);
        self.thread_word(slot, SEQ).store(seq.0, Release);
        true
    }

    /// This thread ends its work for the room it was serving, if any. Returns that room.
    pub fn serve_end(&self, tid: u32) -> Option<Seq> {
        let threads = self.geometry().threads;
        let start = tid as usize % threads;
        let slot = (0..THREAD_PROBES.min(threads))
            .map(|step| (start + step) % threads)
            .find(|slot| self.thread_word(*slot, TID).load(Acquire) == u64::from(tid))?;
        self.leave_slot(slot)
    }

    fn leave_slot(&self, slot: usize) -> Option<Seq> {
        let word = self.thread_word(slot, SEQ);
        let seq = Seq(word.load(Relaxed));
        if seq.0 == 0 {
            return None;
        }
        word.store(0, Release);
        if let Some(entry) = seq.slot().filter(|entry| *entry < self.geometry().entries) {
            tagged::leave(self.command_word(entry), seq);
        }
        Some(seq)
    }

    /// What the thread in `slot` is doing; `None` for a slot that no thread has taken, or one
    /// that changed while it was read (read it again at the next tick).
    pub fn serving(&self, slot: usize) -> Option<Serving> {
        if slot >= self.geometry().threads {
            return None;
        }
        let tid = self.thread_word(slot, TID).load(Acquire);
        let seq = self.thread_word(slot, SEQ).load(Acquire);
        let since = self.thread_word(slot, SINCE).load(Acquire);
        let serves = self.thread_word(slot, SERVES).load(Acquire);
        let same = self.thread_word(slot, TID).load(Relaxed) == tid
            && self.thread_word(slot, SEQ).load(Relaxed) == seq;
        let tid = u32::try_from(tid).ok().filter(|tid| *tid != 0 && same)?;
        Some(Serving {
            tid,
            seq: (seq != 0).then_some(Seq(seq)),
            since,
            serves,
        })
    }
}
