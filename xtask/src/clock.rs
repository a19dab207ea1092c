//! The one place that reads a clock: `CLOCK_MONOTONIC`, which the Python pair stamps its events
//! with too, so that an injection made there and a verdict seen here compare.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A moment: nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(pub(crate) u64);

impl Moment {
    /// This moment.
    pub(crate) fn now() -> Self {
        let time = clock_gettime(ClockId::Monotonic);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
        Self(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    /// The moment `after` later.
    pub(crate) fn plus(self, after: Duration) -> Self {
        let nanos = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }

    /// The moment `before` earlier, at the earliest the clock's begin.
    pub(crate) fn minus(self, before: Duration) -> Self {
        let nanos = u64::try_from(before.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(nanos))
    }

    /// Time since `earlier`; zero where that is later.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Seconds since `earlier`; negative where that is later.
    pub(crate) fn seconds_after(self, earlier: Self) -> f64 {
        if self >= earlier {
            self.since(earlier).as_secs_f64()
        } else {
            -earlier.since(self).as_secs_f64()
        }
    }
}
