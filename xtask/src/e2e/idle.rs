//! What an iteration of an idle scheduler costs, with the hook's part and without it.

use std::fmt;

use serde::{Deserialize, Serialize};

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
}

/// Without the hook's part and with it, under the same stack.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Pair(Slices, Slices);

/// The cost of an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Idle {
    /// Rooms in the queue at the end.
    rooms: u64,
    /// CPU time without the hook's part, in microseconds, the mean of all depths of the stack.
    bare_us: f64,
    /// What the hook's part adds, the mean of all depths.
    hook_us: f64,
    /// The standard error of that mean, by what the depths differ.
    noise_us: f64,
}

impl Idle {
    /// As the launcher tells it, a pair for each depth of the stack; nothing before each has had its
    /// turn.
    pub(super) fn of(pairs: &[Pair], rooms: u64) -> Option<Self> {
        let means = |Pair(bare, hooked): &Pair| Some((bare.mean_us()?, hooked.mean_us()?));
        let means: Vec<(f64, f64)> = pairs.iter().map(means).collect::<Option<_>>()?;
        let added: Vec<f64> = means.iter().map(|(bare, hooked)| hooked - bare).collect();
        let hook_us = mean(&added)?;
        let squares: Vec<f64> = added.iter().map(|added| (added - hook_us).powi(2)).collect();
        Some(Self {
            rooms,
            bare_us: mean(&means.iter().map(|(bare, _)| *bare).collect::<Vec<_>>())?,
            hook_us,
            noise_us: (mean(&squares)? / (count(&squares) - 1.0).max(1.0)).sqrt(),
        })
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / count(values))
}

#[expect(clippy::cast_precision_loss, reason = "a few depths")]
fn count(values: &[f64]) -> f64 {
    values.len() as f64
}

impl fmt::Display for Idle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rooms, bare_us, hook_us, noise_us } = self;
        let percent = hook_us / bare_us.max(1e-9) * 100.0;
        write!(
            out,
            "an idle iteration with {rooms} rooms in the queue: {bare_us:.1} µs of CPU, the hook's \
             part {hook_us:+.1} µs, {percent:+.1} % (standard error {noise_us:.1} µs)"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hooks_part_is_what_the_others_lack() {
        let told = "[[[10, 990000], [10, 1050000]], [[10, 1010000], [20, 2060000]]]";
        let idle = Idle::of(&serde_json::from_str::<Vec<Pair>>(told).unwrap(), 100).unwrap();
        assert_eq!(
            idle.to_string(),
            "an idle iteration with 100 rooms in the queue: 100.0 µs of CPU, the hook's part \
             +4.0 µs, +4.0 % (standard error 2.0 µs)"
        );
    }

    #[test]
    fn without_a_poll_nothing_is_said() {
        assert_eq!(Idle::of(&[], 0), None);
        let told = "[[[10, 990000], [0, 0]]]";
        assert_eq!(Idle::of(&serde_json::from_str::<Vec<Pair>>(told).unwrap(), 0), None);
    }
}
