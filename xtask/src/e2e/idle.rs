//! What an iteration of an idle scheduler costs, with the hook's part and without it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::launcher::Event;

/// Polls of the inflight queue, one an iteration, and the CPU time of the thread that made them in
/// nanoseconds. They come as a list of these two.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(from = "(u64, u64)")]
pub(super) struct Slices {
    polls: u64,
    cpu_ns: u64,
}

impl From<(u64, u64)> for Slices {
    fn from((polls, cpu_ns): (u64, u64)) -> Self {
        Self { polls, cpu_ns }
    }
}

impl Slices {
    /// CPU time of an iteration in microseconds; nothing where there was none.
    fn mean_us(self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "some thousands of polls, some seconds")]
        (self.polls > 0).then(|| self.cpu_ns as f64 / 1e3 / self.polls as f64)
    }

    const fn and(self, other: Self) -> Self {
        Self { polls: self.polls + other.polls, cpu_ns: self.cpu_ns + other.cpu_ns }
    }
}

/// The cost of an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Idle {
    /// Rooms in the queue at the end.
    rooms: u64,
    /// CPU time without the hook's part, in microseconds.
    bare_us: f64,
    /// What the hook's part adds.
    hook_us: f64,
    /// By what the two halves of the polls without it differ.
    noise_us: f64,
}

impl Idle {
    /// As the launcher tells it; nothing before each has had its turn.
    pub(super) fn of(event: &Event, rooms: u64) -> Option<Self> {
        let bare_us = event.bare.and(event.again).mean_us()?;
        Some(Self {
            rooms,
            bare_us,
            hook_us: event.hooked.mean_us()? - bare_us,
            noise_us: (event.bare.mean_us()? - event.again.mean_us()?).abs(),
        })
    }
}

impl fmt::Display for Idle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rooms, bare_us, hook_us, noise_us } = self;
        let percent = hook_us / bare_us.max(1e-9) * 100.0;
        write!(
            out,
            "an idle iteration with {rooms} rooms in the queue: {bare_us:.1} µs of CPU, the hook's \
             part {hook_us:+.1} µs, {percent:+.1} % (noise {noise_us:.1} µs)"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hooks_part_is_what_the_others_lack() {
        let told = r#"{"event": "slices", "bare": [10, 990000], "again": [10, 1010000],
                       "hooked": [20, 2100000]}"#;
        let idle = Idle::of(&serde_json::from_str(told).unwrap(), 100).unwrap();
        assert_eq!(
            idle.to_string(),
            "an idle iteration with 100 rooms in the queue: 100.0 µs of CPU, the hook's part \
             +5.0 µs, +5.0 % (noise 2.0 µs)"
        );
    }

    #[test]
    fn without_a_poll_nothing_is_said() {
        assert_eq!(Idle::of(&Event::default(), 0), None);
    }
}
