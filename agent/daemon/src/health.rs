//! Whether the agent's own loop runs: written by the loop, read by whoever is asked.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use inflightd_core::Nanos;

/// So old, the loop's last beat means that it hangs: it wakes every 20 ms.
pub const BEAT_MAX: Nanos = Nanos::from_secs(10);

/// The loop's heart.
#[derive(Debug)]
pub struct Health {
    beat_at: AtomicU64,
    ready: AtomicBool,
    /// What the agent does without, and why.
    lacks: Mutex<Vec<String>>,
}

impl Health {
    /// A loop that begins at `now`.
    pub const fn new(now: Nanos) -> Self {
        Self {
            beat_at: AtomicU64::new(now.0),
            ready: AtomicBool::new(false),
            lacks: Mutex::new(Vec::new()),
        }
    }

    /// The loop has woken up.
    pub fn beat(&self, now: Nanos) {
        self.beat_at.store(now.0, Ordering::Relaxed);
    }

    /// The workers that were there when the agent came are known, and what is to be probed is
    /// probed.
    pub fn set_ready(&self) {
        self.ready.store(true, Ordering::Relaxed);
    }

    /// Whether [`Self::set_ready`] was called.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    /// What the agent does without from now on, and why. It watches all the same.
    pub fn set_lacks(&self, lacks: Vec<String>) {
        *self.lacks.lock().unwrap_or_else(PoisonError::into_inner) = lacks;
    }

    /// What was last said to [`Self::set_lacks`].
    pub fn lacks(&self) -> Vec<String> {
        self.lacks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Time since the loop last woke up.
    pub fn age(&self, now: Nanos) -> Nanos {
        now.since(Nanos(self.beat_at.load(Ordering::Relaxed)))
    }

    /// Whether the loop runs.
    pub fn is_well(&self, now: Nanos) -> bool {
        self.age(now) < BEAT_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_does_not_wake_is_not_well() {
        let health = Health::new(Nanos::from_secs(100));
        assert!(health.is_well(Nanos::from_secs(109)));
        assert!(!health.is_well(Nanos::from_secs(110)));
        health.beat(Nanos::from_secs(111));
        assert!(health.is_well(Nanos::from_secs(112)));
        assert_eq!(health.age(Nanos::from_secs(114)), Nanos::from_secs(3));
        assert!(!health.is_ready());
        health.set_ready();
        assert!(health.is_ready());
    }
}
