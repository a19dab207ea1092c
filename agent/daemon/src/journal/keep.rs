//! Keeps the journal where it belongs: tried again after a failure, and made again where somebody
//! has removed it, its lock or the whole directory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use inflightd_core::Nanos;

use super::lock::is_at;
use super::{Journal, JournalError, failed, lock_in};
use crate::error::chain;

/// So long after a failure the journal is tried again.
pub(super) const MEND_EVERY: Nanos = Nanos::from_secs(1);
/// How often it is looked whether the files are still there.
const LOOK_EVERY: Nanos = Nanos::from_secs(1);

impl Journal {
    /// Tries again to write what could not be written, and looks whether the files are still
    /// there, each about once a second. Call it often. `true` where they were gone.
    pub fn mend(&mut self, now: Nanos) -> bool {
        let mut gone = false;
        if self.failed_at.is_none() && now.since(self.looked_at) >= LOOK_EVERY {
            self.looked_at = now;
            gone = !self.is_in_place();
            if gone {
                tracing::error!(
                    path = %self.path.display(),
                    "the journal or its lock was removed or replaced: it is made again; leave the \
                     state directory alone while the agent runs"
                );
                self.holds.store(false, Ordering::Relaxed);
            }
        }
        if gone || self.failed_at.is_some_and(|at| now.since(at) >= MEND_EVERY) {
            match self.make() {
                Ok(()) => {
                    (self.failed_at, self.problem) = (None, None);
                    tracing::info!(path = %self.path.display(), "the journal is whole again");
                }
                Err(error) => self.has_failed(&error, now),
            }
        }
        gone
    }

    /// Why the journal is not being written; `None`: it is.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Whether this agent holds the state directory: what else it keeps there may be made again
    /// only then.
    pub fn holds(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.holds)
    }

    fn is_in_place(&self) -> bool {
        self.file.as_ref().is_some_and(|file| is_at(file, &self.path)) && self.is_locked()
    }

    fn is_locked(&self) -> bool {
        self.lock.as_ref().is_some_and(|lock| lock.is_in_place(&self.dir))
    }

    /// Takes the lock where it is not held, and writes the journal whole.
    pub(super) fn make(&mut self) -> Result<(), JournalError> {
        if !self.is_locked() {
            self.lock = Some(lock_in(&self.dir)?);
        }
        self.holds.store(true, Ordering::Relaxed);
        self.write_anew().map_err(|source| failed("writing", &self.path, source))
    }

    /// Notes a failure, and says each new reason once.
    pub(super) fn has_failed(&mut self, error: &JournalError, now: Nanos) {
        self.failed_at = Some(now);
        let remedy = match error {
            JournalError::Busy(_) => "another agent has taken it: stop one, or give one its own",
            error if error.is_full() => "make room there",
            JournalError::Io { .. } => "make it writable",
        };
        let problem = format!("{}: {}: {remedy}", self.dir.display(), chain(error));
        if self.problem.as_ref() != Some(&problem) {
            tracing::error!(
                "the journal is not written, tried again each second: killed before, the agent may \
                 tell lines twice. {problem}"
            );
            self.problem = Some(problem);
        }
    }
}
