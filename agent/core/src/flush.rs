//! Which completed flush belongs to which posted transfer.
//!
//! UCX's completion callback gets the address of a structure inside the request that
//! `ucp_ep_flush_nbx` returned: a constant distance apart in one build. The distance is told by
//! the agent for a known build, else found from a flush that was the only one open.

use alloc::collections::{BTreeMap, VecDeque};

use crate::fact::Handle;
use crate::time::Nanos;

/// Most flushes kept open; the victim is the one with the lowest address.
const OPEN_MAX: usize = 4096;
/// Most completions kept whose flush has not returned yet; the victim is the oldest.
const EARLY_MAX: usize = 256;

/// A completion, as reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Completed {
    pub(crate) at: Nanos,
    pub(crate) status: Option<i32>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Flushes {
    open: BTreeMap<u64, Handle>,
    early: VecDeque<(u64, Completed)>,
    distance: Option<i64>,
}

impl Flushes {
    pub(crate) const fn know(&mut self, distance: i64) {
        self.distance = Some(distance);
    }

    /// A flush of `handle` was issued; it was posted at `posted_at`. Returns the completion when
    /// that was reported first: the callback can run before the call has returned.
    pub(crate) fn issue(
        &mut self,
        request: u64,
        handle: Handle,
        posted_at: Nanos,
    ) -> Option<Completed> {
        if let Some(distance) = self.distance {
            let completion = request.wrapping_add_signed(distance);
            let early = self
                .early
                .iter()
                .position(|(address, done)| *address == completion && done.at >= posted_at);
            if let Some((_, done)) = early.and_then(|index| self.early.remove(index)) {
                return Some(done);
            }
        }
        if self.open.len() >= OPEN_MAX {
            self.open.pop_first();
        }
        self.open.insert(request, handle);
        None
    }

    /// A flush completed. Returns whose it was; one that nobody issued yet is kept for a while.
    pub(crate) fn complete(&mut self, completion: u64, done: Completed) -> Option<(u64, Handle)> {
        let request = match self.distance {
            Some(distance) => completion.wrapping_add_signed(-distance),
            None => self.calibrate(completion)?,
        };
        if let Some(handle) = self.open.remove(&request) {
            return Some((request, handle));
        }
        if self.early.len() >= EARLY_MAX {
            self.early.pop_front();
        }
        self.early.push_back((completion, done));
        None
    }

    /// Takes the distance from a flush that is the only one open and lies close by.
    fn calibrate(&mut self, completion: u64) -> Option<u64> {
        /// A request is a few hundred bytes: farther apart, the two do not belong together.
        const NEAR: u64 = 2048;
        let (&request, _) = self.open.first_key_value().filter(|_| self.open.len() == 1)?;
        if completion.abs_diff(request) > NEAR {
            return None;
        }
        self.distance = Some(completion.wrapping_sub(request).cast_signed());
        Some(request)
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// The transfer has ended otherwise: its flush is nobody's any more.
    pub(crate) fn forget(&mut self, request: u64) {
        self.open.remove(&request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DONE: Completed = Completed { at: Nanos(10), status: Some(0) };

    #[test]
    fn one_open_flush_calibrates_and_the_rest_match_exactly() {
        let mut flushes = Flushes::default();
        assert_eq!(flushes.issue(1000, Handle(1), Nanos(1)), None);
        assert_eq!(flushes.complete(840, DONE), Some((1000, Handle(1))));
        flushes.issue(5000, Handle(2), Nanos(1));
        flushes.issue(6000, Handle(3), Nanos(1));
        assert_eq!(flushes.complete(5840, DONE), Some((6000, Handle(3))));
        assert_eq!(flushes.complete(4840, DONE), Some((5000, Handle(2))));
    }

    #[test]
    fn a_stranger_far_away_does_not_calibrate() {
        let mut flushes = Flushes::default();
        flushes.issue(1_000_000, Handle(1), Nanos(1));
        assert_eq!(flushes.complete(5_000, DONE), None);
        assert_eq!(flushes.complete(999_900, DONE), Some((1_000_000, Handle(1))));
    }

    #[test]
    fn a_completion_that_comes_first_is_found_by_the_flush() {
        let mut flushes = Flushes::default();
        flushes.know(-160);
        assert_eq!(flushes.complete(840, DONE), None);
        assert_eq!(flushes.issue(1000, Handle(1), Nanos(9)), Some(DONE));
    }

    #[test]
    fn a_completion_from_before_the_post_is_not_taken() {
        let mut flushes = Flushes::default();
        flushes.know(-160);
        assert_eq!(flushes.complete(840, DONE), None);
        assert_eq!(flushes.issue(1000, Handle(1), Nanos(11)), None);
    }
}
