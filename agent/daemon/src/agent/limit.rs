//! How many lines about healthy rooms a worker may cause: a flood of one must fill no disk.

use std::collections::BTreeMap;

use inflightd_core::fact::Worker;
use inflightd_core::{Nanos, Output};

use crate::config::{self, Lines};
use crate::sink::Weight;

/// How often the left out lines of a worker are summed up.
const SUM_EVERY: Nanos = Nanos::from_secs(10);
/// One line, in the unit in which a bucket is filled.
const LINE: u64 = 1_000_000_000;

/// What becomes of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is written.
    Goes,
    /// The worker has caused too many.
    Suppressed,
    /// Nobody wants lines of its kind.
    Unwanted,
}

/// A worker's allowance.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// What is left, in lines times [`LINE`].
    level: u64,
    filled_at: Nanos,
    /// Lines left out, and since when.
    left_out: u64,
    since: Nanos,
}

/// The allowances of all workers. One each, forgotten when the worker ends.
#[derive(Debug)]
pub(super) struct Limit {
    output: config::Output,
    buckets: BTreeMap<Worker, Bucket>,
}

/// How much the line of an output matters.
pub(super) const fn weight(output: &Output) -> Weight {
    match output {
        Output::Append(append) => Weight::Healthy(append.worker),
        Output::Dwell(dwell) if !dwell.stalled => Weight::Healthy(dwell.worker),
        _ => Weight::Heavy,
    }
}

/// Whose line it is.
pub(super) const fn whose(output: &Output) -> Worker {
    match output {
        Output::Append(append) => append.worker,
        Output::Verdict(verdict) => verdict.worker,
        Output::Clear(clear) => clear.worker,
        Output::Dwell(dwell) => dwell.worker,
        Output::Coverage(_, worker, _) | Output::Loss(_, worker, ..) => *worker,
    }
}

impl Limit {
    pub(super) const fn new(output: config::Output) -> Self {
        Self { output, buckets: BTreeMap::new() }
    }

    /// Other limits hold. The allowances that are there stay.
    pub(super) const fn set(&mut self, output: config::Output) {
        self.output = output;
    }

    /// What becomes of the line of an output.
    pub(super) fn fate(&mut self, output: &Output, now: Nanos) -> Fate {
        let healthy = weight(output) != Weight::Heavy;
        match self.output.lines {
            Lines::None => return Fate::Unwanted,
            Lines::Verdicts if healthy => return Fate::Unwanted,
            _ => {}
        }
        if !healthy || self.output.healthy_rate == 0 {
            return Fate::Goes;
        }
        let most = u64::from(self.output.healthy_burst).saturating_mul(LINE);
        let rate = u64::from(self.output.healthy_rate);
        let bucket = self.bucket(whose(output), now);
        let gained = now.since(bucket.filled_at).0.saturating_mul(rate);
        bucket.level = bucket.level.saturating_add(gained).min(most);
        bucket.filled_at = bucket.filled_at.max(now);
        if bucket.level >= LINE {
            bucket.level -= LINE;
            return Fate::Goes;
        }
        self.leave_out(whose(output), now);
        Fate::Suppressed
    }

    /// A line of this worker was left out.
    pub(super) fn leave_out(&mut self, worker: Worker, now: Nanos) {
        let bucket = self.bucket(worker, now);
        if bucket.left_out == 0 {
            bucket.since = now;
        }
        bucket.left_out += 1;
    }

    fn bucket(&mut self, worker: Worker, now: Nanos) -> &mut Bucket {
        let full = u64::from(self.output.healthy_burst).saturating_mul(LINE);
        let new = Bucket { level: full, filled_at: now, left_out: 0, since: now };
        self.buckets.entry(worker).or_insert(new)
    }

    /// Sums that are due: worker, lines left out, and since when.
    pub(super) fn due(&mut self, now: Nanos) -> Vec<(Worker, u64, Nanos)> {
        self.sums(|bucket| bucket.since.plus(SUM_EVERY) <= now)
    }

    /// What was left out so far.
    pub(super) fn all(&mut self) -> Vec<(Worker, u64, Nanos)> {
        self.sums(|_| true)
    }

    /// A worker has ended: what was left out of it.
    pub(super) fn end(&mut self, worker: Worker) -> Option<(Worker, u64, Nanos)> {
        let bucket = self.buckets.remove(&worker)?;
        (bucket.left_out > 0).then_some((worker, bucket.left_out, bucket.since))
    }

    fn sums(&mut self, is_due: impl Fn(&Bucket) -> bool) -> Vec<(Worker, u64, Nanos)> {
        let due = self.buckets.iter_mut().filter(|(_, b)| b.left_out > 0 && is_due(b));
        due.map(|(worker, b)| (*worker, std::mem::take(&mut b.left_out), b.since)).collect()
    }
}

#[cfg(test)]
mod tests {
    use inflightd_core::Source;
    use inflightd_core::fact::{Outcome, Room, Seq};
    use inflightd_core::verdict::{Bytes, Dwell};

    use super::*;

    fn dwell(worker: u32, stalled: bool) -> Output {
        Output::Dwell(Dwell {
            at: Nanos::ZERO,
            worker: Worker(worker),
            seq: Seq(1),
            room: Room(1),
            outcome: Outcome::Success,
            dwell: Nanos(1),
            bytes: Bytes::default(),
            peers: Vec::new(),
            cause: None,
            stalled,
            held: false,
            tier: inflightd_core::verdict::Tier::Room,
            evidence: Vec::new(),
        })
    }

    fn limit(lines: Lines, healthy_rate: u32, healthy_burst: u32) -> Limit {
        Limit::new(config::Output { lines, healthy_rate, healthy_burst })
    }

    fn passed(limit: &mut Limit, worker: u32, count: u32, now: Nanos) -> usize {
        (0..count).filter(|_| limit.fate(&dwell(worker, false), now) == Fate::Goes).count()
    }

    #[test]
    fn a_flood_of_one_worker_is_cut_and_another_keeps_its_own() {
        let mut limit = limit(Lines::All, 10, 50);
        let start = Nanos::from_secs(100);
        assert_eq!(passed(&mut limit, 0, 1000, start), 50);
        assert_eq!(passed(&mut limit, 1, 40, start), 40);
        assert_eq!(passed(&mut limit, 0, 1000, start.plus(Nanos::from_millis(1500))), 15);
        assert_eq!(passed(&mut limit, 0, 1000, start.plus(Nanos::from_secs(3600))), 50);
    }

    #[test]
    fn what_stalled_is_never_left_out() {
        let mut limit = limit(Lines::All, 1, 1);
        assert_eq!(passed(&mut limit, 0, 9, Nanos(1)), 1);
        let loss = Output::Loss(Nanos(1), Worker(0), Source::Marks, 1);
        for output in [dwell(0, true), loss] {
            assert!((0..99).all(|_| limit.fate(&output, Nanos(1)) == Fate::Goes));
        }
    }

    #[test]
    fn what_is_left_out_is_summed_up() {
        let mut limit = limit(Lines::All, 1, 1);
        assert_eq!(passed(&mut limit, 0, 9, Nanos(5)), 1);
        assert_eq!(limit.due(Nanos::from_secs(9)), []);
        assert_eq!(limit.due(Nanos::from_secs(11)), [(Worker(0), 8, Nanos(5))]);
        assert_eq!(limit.due(Nanos::from_secs(99)), []);
        passed(&mut limit, 0, 4, Nanos::from_secs(11));
        assert_eq!(limit.end(Worker(0)), Some((Worker(0), 3, Nanos::from_secs(11))));
        assert_eq!(limit.end(Worker(0)), None);
    }

    #[test]
    fn a_rate_of_zero_is_no_limit() {
        assert_eq!(passed(&mut limit(Lines::All, 0, 1), 0, 999, Nanos(5)), 999);
    }

    #[test]
    fn lines_are_chosen_by_kind() {
        let fates = |lines| {
            let mut limit = limit(lines, 0, 1);
            [dwell(0, false), dwell(0, true)].map(|output| limit.fate(&output, Nanos(1)))
        };
        assert_eq!(fates(Lines::All), [Fate::Goes, Fate::Goes]);
        assert_eq!(fates(Lines::Verdicts), [Fate::Unwanted, Fate::Goes]);
        assert_eq!(fates(Lines::None), [Fate::Unwanted, Fate::Unwanted]);
    }
}
