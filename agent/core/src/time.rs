//! The kernel's monotonic time, as a number.

use core::fmt;
use core::time::Duration;

/// A moment or a span on `CLOCK_MONOTONIC`, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The beginning of time; as a span, none.
    pub const ZERO: Self = Self(0);
    /// Later than every moment.
    pub const MAX: Self = Self(u64::MAX);

    /// A span of whole seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// A span of whole milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// The span from `earlier` to this moment; none when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// The moment `span` after this one; saturates.
    #[must_use]
    pub const fn plus(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// As a [`Duration`].
    pub const fn duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// In seconds.
    #[expect(clippy::cast_precision_loss, reason = "for people to read: 53 bits are 104 days")]
    pub const fn secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl From<Duration> for Nanos {
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} s", self.secs_f64())
    }
}
