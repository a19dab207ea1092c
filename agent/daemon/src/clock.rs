//! The only reader of time.
//!
//! The agent lives on `CLOCK_MONOTONIC`, the clock of the kernel's records and of the shared
//! tables. Wall time is made from it on display only, by one offset.

use std::fmt;

use inflightd_core::Nanos;
use rustix::time::{ClockId, clock_gettime};

const SECOND: u64 = 1_000_000_000;

/// Converts monotonic moments to wall time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    offset: u64,
}

impl Clock {
    /// A clock with the offset between wall and monotonic time as it is now.
    pub fn read() -> Self {
        Self { offset: nanos(ClockId::Realtime).saturating_sub(nanos(ClockId::Monotonic)) }
    }

    /// The clock of a capture: nanoseconds to add to monotonic time.
    pub const fn with_offset(offset: u64) -> Self {
        Self { offset }
    }

    /// Nanoseconds to add to monotonic time.
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// The moment that it is now.
    pub fn now() -> Nanos {
        Nanos(nanos(ClockId::Monotonic))
    }

    /// CPU time that this thread has used.
    pub fn busy() -> Nanos {
        Nanos(nanos(ClockId::ThreadCPUTime))
    }

    /// The moment of a tick since boot, as `/proc/PID/stat` gives the start of a process: at most
    /// a tick (10 ms) before it. Ticks count on while the machine sleeps, monotonic time does not.
    pub fn at_tick(tick: u64) -> Nanos {
        let asleep = nanos(ClockId::Boottime).saturating_sub(nanos(ClockId::Monotonic));
        let length = SECOND / rustix::param::clock_ticks_per_second().max(1);
        Nanos(tick.saturating_mul(length).saturating_sub(asleep))
    }

    /// A monotonic moment as wall time.
    pub const fn wall(&self, at: Nanos) -> Wall {
        Wall(at.0.saturating_add(self.offset))
    }
}

/// How far this node's wall time may be off at most, as the kernel says; `None` where nothing keeps it
/// right. Between the spans of two nodes both of theirs lie.
///
/// Source: `adjtimex(2)`, `maxerror`.
pub fn uncertainty() -> Option<Nanos> {
    // SAFETY: all its fields are integers, of which zeros are values; no mode is set, so that the call
    // only reads.
    let (state, time) = unsafe {
        let mut time: libc::timex = std::mem::zeroed();
        (libc::adjtimex(&raw mut time), time)
    };
    let known = state >= 0 && state != libc::TIME_ERROR && time.status & libc::STA_UNSYNC == 0;
    let micros = u64::try_from(time.maxerror).ok().filter(|_| known)?;
    Some(Nanos(micros.saturating_mul(1000)))
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let secs = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    secs.saturating_mul(SECOND).saturating_add(nanos)
}

/// Nanoseconds since 1970 in UTC; shows as RFC 3339.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wall(pub u64);

impl fmt::Display for Wall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (secs, nanos) = (self.0 / SECOND, self.0 % SECOND);
        let (year, month, day) = civil(secs / 86400);
        let (hour, minute, second) = (secs / 3600 % 24, secs / 60 % 60, secs % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z")
    }
}

/// Year, month and day of a day counted from 1970-01-01.
///
/// Source: H. Hinnant, "chrono-compatible low-level date algorithms", `civil_from_days`, for days
/// that are not negative.
const fn civil(day: u64) -> (u64, u64, u64) {
    let shifted = day + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_began_before_now_and_after_its_parent() {
        let start = |pid| Clock::at_tick(crate::proc::Stat::of(pid).unwrap().start);
        let own = start(std::process::id());
        assert!(own <= Clock::now(), "{own:?}");
        assert!(start(1) <= own);
        let tenth = Nanos::from_millis(100);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let begun = start(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(own.0 <= begun.0 + tenth.0 && begun <= Clock::now());
    }

    #[test]
    fn what_keeps_the_time_right_says_how_well() {
        // The kernel gives itself up to 16 s before it calls the time unsynchronised.
        assert!(uncertainty().is_none_or(|error| error <= Nanos::from_secs(16)));
    }

    #[test]
    fn wall_time_shows_as_rfc_3339() {
        assert_eq!(Wall(0).to_string(), "1970-01-01T00:00:00.000000000Z");
        // date -u -d @1709210096 says 2024-02-29 12:34:56.
        assert_eq!(Wall(1_709_210_096_000_000_007).to_string(), "2024-02-29T12:34:56.000000007Z");
        // date -u -d @4107542399 says 2100-02-28 23:59:59; a year that is not a leap year.
        assert_eq!(Wall(4_107_542_400 * SECOND).to_string(), "2100-03-01T00:00:00.000000000Z");
    }

    #[test]
    fn an_offset_is_added_on_display_only() {
        let clock = Clock::with_offset(SECOND);
        assert_eq!(clock.wall(Nanos(1)).to_string(), "1970-01-01T00:00:01.000000001Z");
    }
}
