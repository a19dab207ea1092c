//! What the agent counts and measures of itself.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::board::lock;

/// What is exported by OTLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// Spans.
    Traces,
    /// Log records.
    Logs,
    /// Metrics.
    Metrics,
}

impl Signal {
    /// Every signal.
    pub const ALL: [Self; 3] = [Self::Traces, Self::Logs, Self::Metrics];

    /// The word for it in labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Logs => "logs",
            Self::Metrics => "metrics",
        }
    }
}

/// A number that one thread sets or raises and others read.
#[derive(Debug, Default)]
pub(super) struct Number(AtomicU64);

impl Number {
    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Lowers it; whoever raises it does so before.
    pub(super) fn take(&self, less: u64) {
        self.0.fetch_sub(less, Ordering::Relaxed);
    }

    pub(super) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One signal's export.
#[derive(Debug, Default)]
pub(super) struct Export {
    pub(super) queue: Number,
    pub(super) dropped: Number,
    pub(super) failures: Number,
}

/// The agent's own numbers.
#[derive(Debug, Default)]
pub(super) struct Own {
    pub(super) links: Number,
    pub(super) armed: Number,
    pub(super) armed_hits: Number,
    pub(super) records: Number,
    pub(super) misfits: Number,
    pub(super) suppressed: Number,
    pub(super) lines_lost: Number,
    pub(super) journals_lost: Number,
    pub(super) sockets_lost: Number,
    pub(super) reloads: [Number; 2],
    exports: [Export; 3],
    mishaps: Mutex<BTreeMap<&'static str, u64>>,
}

impl Own {
    pub(super) const fn export(&self, signal: Signal) -> &Export {
        let [traces, logs, metrics] = &self.exports;
        match signal {
            Signal::Traces => traces,
            Signal::Logs => logs,
            Signal::Metrics => metrics,
        }
    }

    pub(super) fn set_mishaps(&self, all: &[(&'static str, u64)]) {
        *lock(&self.mishaps) = all.iter().copied().collect();
    }

    pub(super) fn mishaps(&self) -> Vec<(&'static str, u64)> {
        lock(&self.mishaps).iter().map(|(kind, count)| (*kind, *count)).collect()
    }
}
