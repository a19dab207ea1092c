//! The heap: what a burst has left free goes back to the system.
//!
//! glibc keeps freed memory for itself where anything younger lies behind it, and raises by itself
//! the size from which blocks have a mapping of their own: after one flood of marks the agent kept
//! ten times what it had begun with. Other C libraries are left as they are.

use inflightd_core::Nanos;

/// Blocks of at least so many bytes have a mapping of their own, which goes when they do, and grows
/// without a copy: the longest lists of a flood.
#[cfg(target_env = "gnu")]
const OWN_MAPPING: libc::c_int = 1 << 20;
/// Free bytes at the heap's end that are kept: each round needs about as many again.
#[cfg(target_env = "gnu")]
const KEPT_FREE: libc::c_int = 1 << 20;
/// So much work may have left something worth giving back: each fact and each line takes some
/// hundred bytes for a while.
const WORK_MIN: u64 = 10_000;
/// With more work than this since it was last asked the agent has no time for it: about a tenth of
/// what it can do in the second that lies between.
const BUSY: u64 = 50_000;
/// Given back at most so often.
const EVERY: Nanos = Nanos::from_secs(10);

/// Settles how the heap grows. To be called before there are threads.
pub fn settle() {
    #[cfg(target_env = "gnu")]
    // SAFETY: numbers of the allocator's own, set while nobody else allocates. Where one is refused,
    // the allocator goes on by its default.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_MAPPING);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_FREE);
    }
}

/// Gives back every whole page that is free.
fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes the allocator's own locks, and touches no memory that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// When memory is given back: at a quiet moment after much work.
#[derive(Debug, Default)]
pub struct Heap {
    /// Facts and lines since memory was last given back.
    work: u64,
    /// Of them those since the last [`Heap::tend`].
    recent: u64,
    last: Nanos,
}

impl Heap {
    /// So many more facts were taken in, or lines told.
    pub const fn worked(&mut self, count: u64) {
        self.work = self.work.saturating_add(count);
        self.recent = self.recent.saturating_add(count);
    }

    /// Gives memory back where that is due; returns whether it was. To be called about once a
    /// second. Takes milliseconds after a flood.
    pub fn tend(&mut self, now: Nanos) -> bool {
        let recent = std::mem::take(&mut self.recent);
        if self.work < WORK_MIN || recent > BUSY || now.since(self.last) < EVERY {
            return false;
        }
        give_back();
        *self = Self { last: now, ..Self::default() };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_in_a_quiet_second_after_much_work_and_not_too_often() {
        let mut heap = Heap::default();
        let at = Nanos::from_secs;
        assert!(!heap.tend(at(100)), "nothing was done");
        heap.worked(BUSY + 1);
        assert!(!heap.tend(at(101)), "no quiet second");
        assert!(heap.tend(at(102)), "what was done before counts");
        heap.worked(WORK_MIN);
        assert!(!heap.tend(at(103)), "it was only just done");
        assert!(heap.tend(at(112)));
        assert!(!heap.tend(at(200)));
    }
}
