//! What is counted and measured of each worker, kept until somebody reads it.
//!
//! The loop writes here, a few memory writes an event; the readers' callbacks copy it. A lock is
//! held for a copy of one worker's numbers at the longest.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use inflightd_core::fact::{Outcome, Worker};
use inflightd_core::verdict::ClearReason;
use inflightd_core::{Cause, Finding, Output, Source};
use opentelemetry::{KeyValue, StringValue};

use crate::glance::Glance;
use crate::names::WorkerName;

/// Most living workers that have series; the victim is the newcomer, as in the ledger.
pub(super) const LIVING_MAX: usize = 1024;
/// Most ended workers whose counters are kept; the victim is the one that ended first.
pub(super) const ENDED_MAX: usize = 256;

/// A lock whose holder cannot leave half a change behind: each change is one number.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What tells a worker's series from others'. Never a room or a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Labels {
    pid: u32,
    index: u64,
    engine: Arc<str>,
    role: Arc<str>,
}

impl Labels {
    fn of(name: &WorkerName) -> Self {
        Self {
            pid: name.identity.pid,
            index: name.about.index,
            engine: name.about.engine.as_str().into(),
            role: name.about.role.as_str().into(),
        }
    }

    /// The labels as the SDK wants them, with further ones; in order, or it sorts a copy of its
    /// own for each series.
    pub(super) fn with(&self, more: &[(&'static str, &'static str)]) -> Vec<KeyValue> {
        let text = |text: &Arc<str>| StringValue::from(Arc::clone(text));
        let mut set = vec![
            KeyValue::new("engine", text(&self.engine)),
            KeyValue::new("index", i64::try_from(self.index).unwrap_or(i64::MAX)),
            KeyValue::new("pid", i64::from(self.pid)),
            KeyValue::new("role", text(&self.role)),
        ];
        set.extend(more.iter().map(|(key, value)| KeyValue::new(*key, *value)));
        set.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        set
    }
}

/// What only grows.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) appends: u64,
    pub(super) removals: BTreeMap<Outcome, u64>,
    /// By finding, cause, and whether it was an alert.
    pub(super) verdicts: BTreeMap<(Finding, Cause, bool), u64>,
    pub(super) clears: BTreeMap<ClearReason, u64>,
    pub(super) completed_bytes: u64,
    pub(super) lost: BTreeMap<Source, u64>,
}

impl Counts {
    fn take(&mut self, output: &Output) {
        match output {
            Output::Append(_) => self.appends += 1,
            Output::Verdict(verdict) => {
                let key = (verdict.finding, verdict.cause, verdict.is_alert());
                *self.verdicts.entry(key).or_default() += 1;
            }
            Output::Clear(clear) => *self.clears.entry(clear.why).or_default() += 1,
            Output::Dwell(dwell) => {
                *self.removals.entry(dwell.outcome).or_default() += 1;
                self.completed_bytes = self.completed_bytes.saturating_add(dwell.bytes.completed);
            }
            Output::Loss(_, _, source, lost) => {
                let sum = self.lost.entry(*source).or_default();
                *sum = sum.saturating_add(*lost);
            }
            Output::Coverage(..) => {}
        }
    }
}

/// One worker.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) labels: Labels,
    counts: Mutex<Counts>,
    glance: Mutex<Option<Arc<Glance>>>,
    /// Attribute sets of its dwells, made once.
    dwells: Mutex<BTreeMap<Outcome, Arc<[KeyValue]>>>,
}

impl Row {
    fn new(labels: Labels) -> Self {
        Self {
            labels,
            counts: Mutex::default(),
            glance: Mutex::default(),
            dwells: Mutex::default(),
        }
    }

    pub(super) fn counts(&self) -> Counts {
        lock(&self.counts).clone()
    }

    /// The worker as it was last looked at; `None` before that and once it has ended.
    pub(super) fn glance(&self) -> Option<Arc<Glance>> {
        lock(&self.glance).clone()
    }

    /// The attributes of a dwell that ended so.
    pub(super) fn dwell(&self, outcome: Outcome) -> Arc<[KeyValue]> {
        let mut dwells = lock(&self.dwells);
        let set = dwells.entry(outcome);
        Arc::clone(set.or_insert_with(|| {
            self.labels.with(&[("outcome", crate::sink::outcome(outcome))]).into()
        }))
    }
}

#[derive(Debug, Default)]
struct Rows {
    living: BTreeMap<Worker, Arc<Row>>,
    ended: VecDeque<Arc<Row>>,
}

/// Every worker's numbers.
#[derive(Debug, Default)]
pub(super) struct Board {
    rows: Mutex<Rows>,
}

impl Board {
    /// A worker was found.
    pub(super) fn meet(&self, worker: Worker, name: &WorkerName) {
        let labels = Labels::of(name);
        let mut rows = lock(&self.rows);
        if rows.living.len() >= LIVING_MAX {
            return;
        }
        // Pids are used again: a series has one worker at a time, and its counters begin anew.
        rows.ended.retain(|row| row.labels != labels);
        rows.living.insert(worker, Arc::new(Row::new(labels)));
    }

    /// A worker has ended: its gauges end at once, its counters stay for a while.
    pub(super) fn end(&self, worker: Worker) {
        let mut rows = lock(&self.rows);
        let Some(row) = rows.living.remove(&worker) else {
            return;
        };
        *lock(&row.glance) = None;
        if rows.ended.len() >= ENDED_MAX {
            rows.ended.pop_front();
        }
        rows.ended.push_back(row);
    }

    /// Counts an output. Returns whom it is about.
    pub(super) fn take(&self, worker: Worker, output: &Output) -> Option<Arc<Row>> {
        let row = self.row(worker)?;
        lock(&row.counts).take(output);
        Some(row)
    }

    /// A worker was looked at.
    pub(super) fn show(&self, worker: Worker, glance: Glance) {
        if let Some(row) = self.row(worker) {
            *lock(&row.glance) = Some(Arc::new(glance));
        }
    }

    fn row(&self, worker: Worker) -> Option<Arc<Row>> {
        lock(&self.rows).living.get(&worker).map(Arc::clone)
    }

    /// Every worker that has series: those that ended first, so that whoever took over their
    /// labels has the last word.
    pub(super) fn rows(&self) -> Vec<Arc<Row>> {
        let rows = lock(&self.rows);
        rows.ended.iter().chain(rows.living.values()).map(Arc::clone).collect()
    }

    /// Workers under watch.
    pub(super) fn living(&self) -> usize {
        lock(&self.rows).living.len()
    }
}
