//! The atomics of the shared table: the processor's, or loom's where a model is checked.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(loom)]
pub use model::AtomicU64;

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{Ordering, fence};

#[cfg(loom)]
mod model {
    use loom::sync::atomic::{self, Ordering};

    /// loom's atomic, with a turn that every access takes first.
    ///
    /// loom 0.7 forgets that a thread has read a word as soon as another thread reads it too,
    /// and then never lets that other thread's next write come before the first read: it would
    /// miss interleavings of every load-then-compare-and-swap. It never forgets a write, so a
    /// relaxed write to the turn, which orders nothing else, makes it look at all of them.
    #[derive(Debug)]
    pub struct AtomicU64 {
        word: atomic::AtomicU64,
        turn: atomic::AtomicU64,
    }

    impl AtomicU64 {
        /// A new word.
        pub fn new(value: u64) -> Self {
            Self { word: atomic::AtomicU64::new(value), turn: atomic::AtomicU64::new(0) }
        }

        fn in_turn(&self) -> &atomic::AtomicU64 {
            self.turn.fetch_add(1, Ordering::Relaxed);
            &self.word
        }

        pub(crate) fn load(&self, order: Ordering) -> u64 {
            self.in_turn().load(order)
        }

        pub(crate) fn store(&self, value: u64, order: Ordering) {
            self.in_turn().store(value, order);
        }

        pub(crate) fn swap(&self, value: u64, order: Ordering) -> u64 {
            self.in_turn().swap(value, order)
        }

        pub(crate) fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
            self.in_turn().fetch_add(value, order)
        }

        pub(crate) fn fetch_and(&self, value: u64, order: Ordering) -> u64 {
            self.in_turn().fetch_and(value, order)
        }

        pub(crate) fn compare_exchange(
            &self,
            from: u64,
            to: u64,
            success: Ordering,
            failure: Ordering,
        ) -> Result<u64, u64> {
            self.in_turn().compare_exchange(from, to, success, failure)
        }

        pub(crate) fn compare_exchange_weak(
            &self,
            from: u64,
            to: u64,
            success: Ordering,
            failure: Ordering,
        ) -> Result<u64, u64> {
            self.in_turn().compare_exchange_weak(from, to, success, failure)
        }
    }
}
