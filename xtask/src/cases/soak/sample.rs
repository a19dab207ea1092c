//! What a process holds at a moment, from `/proc`, and whether it grows.

use std::fs;
use std::path::Path;

use crate::price::median;
use crate::usage::Usage;

/// What is counted: a name, and how it is told in the table.
pub(super) const COUNTS: [&str; 9] = [
    "MiB",
    "mappings",
    "fds",
    "links",
    "BPF maps",
    "programs",
    "perf events",
    "threads",
    "state KiB",
];
/// By how much the last third's median may exceed the first third's: a share of that, and an
/// amount. Memory is given a share for what the allocator keeps; what is counted is not.
/// The journal is written anew once it has grown to 4 MiB, so its size goes up and down.
const SLACK: [(f64, f64); 9] = [
    (0.05, 2.0),
    (0.0, 4.0),
    (0.0, 2.0),
    (0.0, 1.0),
    (0.0, 0.0),
    (0.0, 0.0),
    (0.0, 1.0),
    (0.0, 0.0),
    (0.0, 8192.0),
];

/// What the agent holds at a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Seconds from the begin.
    pub(super) at_s: f64,
    /// CPU seconds so far.
    pub(super) cpu_s: f64,
    /// Healthy rooms ended so far.
    pub(super) rooms: u64,
    /// In the order of [`COUNTS`].
    pub(super) held: [f64; 9],
}

impl Sample {
    /// Look at a process whose state lies in that directory; none where it has gone.
    pub(super) fn take(
        pid: u32,
        usage: Usage,
        state: &Path,
        at_s: f64,
        rooms: u64,
    ) -> Option<Self> {
        let names: Vec<String> = fs::read_dir(format!("/proc/{pid}/fd"))
            .ok()?
            .flatten()
            .filter_map(|entry| fs::read_link(entry.path()).ok())
            .map(|target| target.to_string_lossy().into_owned())
            .collect();
        let of = |kind: &str| count(names.iter().filter(|name| name.contains(kind)).count());
        let threads = count(fs::read_dir(format!("/proc/{pid}/task")).ok()?.count());
        let mappings = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?.lines().count();
        let files = fs::read_dir(state).ok()?.flatten();
        let bytes: u64 = files.filter_map(|file| Some(file.metadata().ok()?.len())).sum();
        #[expect(clippy::cast_precision_loss, reason = "a size for a table")]
        let kib = bytes as f64 / 1024.0;
        let held = [
            usage.resident_mib,
            count(mappings),
            count(names.len()),
            of("bpf_link") + of("bpf-link"),
            of("bpf-map") + of("bpf_map"),
            of("bpf-prog") + of("bpf_prog"),
            of("perf_event"),
            threads,
            kib,
        ];
        Some(Self { at_s, cpu_s: usage.cpu_s, rooms, held })
    }
}

fn count(number: usize) -> f64 {
    u32::try_from(number).map_or(f64::INFINITY, f64::from)
}

/// One kind of thing that the agent holds, at the begin and at the end.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Growth {
    pub(super) what: &'static str,
    /// Median of the first third of the samples.
    pub(super) first: f64,
    /// Median of the last third.
    pub(super) last: f64,
    /// What it may be at most.
    pub(super) most: f64,
}

impl Growth {
    pub(super) fn is_grown(&self) -> bool {
        self.last > self.most
    }
}

/// How each kind of thing has grown; nothing with fewer than six samples, which show no growth.
pub(super) fn growth(samples: &[Sample]) -> Option<Vec<Growth>> {
    let third = samples.len() / 3;
    if third < 2 {
        return None;
    }
    let (first, last) = (samples.get(..third)?, samples.get(samples.len() - third..)?);
    let kinds = COUNTS.iter().zip(SLACK).enumerate();
    let of = |(index, (what, (share, amount))): (usize, (&&'static str, (f64, f64)))| {
        let held = |samples: &[Sample]| {
            let of = samples.iter().filter_map(|sample| sample.held.get(index).copied());
            median(&of.collect::<Vec<_>>())
        };
        let (first, last) = (held(first), held(last));
        Growth { what, first, last, most: first * (1.0 + share) + amount }
    };
    Some(kinds.map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(held: impl Fn(f64) -> [f64; 9]) -> Vec<Sample> {
        let sample = |turn: u32| Sample {
            at_s: f64::from(turn) * 30.0,
            cpu_s: 0.0,
            rooms: 0,
            held: held(f64::from(turn)),
        };
        (0..12).map(sample).collect()
    }

    fn grown(held: impl Fn(f64) -> [f64; 9]) -> Vec<&'static str> {
        let growth = growth(&samples(held)).unwrap();
        growth.into_iter().filter(Growth::is_grown).map(|growth| growth.what).collect()
    }

    #[test]
    fn what_stays_has_not_grown_and_each_kind_that_grows_is_named() {
        const LEVEL: [f64; 9] = [40.0, 200.0, 60.0, 20.0, 12.0, 14.0, 0.0, 3.0, 100.0];
        assert_eq!(grown(|_| LEVEL), [""; 0]);
        for (index, what) in COUNTS.iter().enumerate() {
            let step = if *what == "state KiB" { 2000.0 } else { 1.0 };
            let growing = |turn: f64| {
                let mut held = LEVEL;
                held[index] += turn * step;
                held
            };
            assert_eq!(grown(growing), [*what]);
        }
    }

    #[test]
    fn a_single_high_sample_is_no_growth() {
        let spike = |turn: f64| [if turn > 10.5 { 90.0 } else { 40.0 }; 9];
        assert_eq!(grown(spike), [""; 0]);
    }

    #[test]
    fn few_samples_show_nothing() {
        assert_eq!(growth(&samples(|_| [1.0; 9])[..5]), None);
    }

    #[test]
    fn a_living_process_is_sampled() {
        let usage = Usage { at: crate::clock::Moment::now(), cpu_s: 1.0, resident_mib: 7.0 };
        let state = tempfile::tempdir().unwrap();
        fs::write(state.path().join("journal"), vec![0; 2048]).unwrap();
        let sample = Sample::take(std::process::id(), usage, state.path(), 3.0, 9).unwrap();
        let [mib, mappings, fds, .., threads, kib] = sample.held;
        assert!((mib - 7.0).abs() < 1e-9 && (kib - 2.0).abs() < 1e-9, "{sample:?}");
        assert!(fds >= 3.0 && threads >= 1.0 && mappings > 10.0, "{sample:?}");
        assert!(Sample::take(u32::MAX, usage, state.path(), 0.0, 0).is_none());
    }
}
