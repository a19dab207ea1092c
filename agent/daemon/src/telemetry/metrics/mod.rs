//! The instruments, and the two that read them: Prometheus' registry and OTLP.
//!
//! `defs` has each instrument once; `board` and `own` hold what the loop writes; `observe` makes
//! instruments of it, in one provider for each reader; `dwells` is the histogram, which the SDK
//! keeps itself.

mod board;
mod defs;
mod dwells;
mod observe;
mod own;
mod process;
mod reader;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use inflightd_core::fact::Worker;
use inflightd_core::{Nanos, Output};
use opentelemetry::metrics::{Histogram, MeterProvider as _};
use opentelemetry_prometheus::PrometheusExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkError;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use prometheus::{Encoder as _, Registry, TextEncoder};

use super::{Told, otlp};
use crate::glance::Glance;
use crate::names::WorkerName;
use board::Board;
use dwells::Dwells;
use own::Own;
use process::Reading;

pub use own::Signal;
pub use reader::SharedReader;

/// Who made the instruments, as OTLP calls it.
const SCOPE: &str = "inflightd";

/// The instruments with what reads them.
#[derive(Debug)]
pub struct Meters {
    /// What is counted and measured.
    pub instruments: Instruments,
    registry: Registry,
    /// Lives as long as the instruments are read.
    _scraped: SdkMeterProvider,
    exported: Exported,
}

impl Meters {
    /// The instruments, nothing counted yet.
    pub fn new() -> Result<Self, OTelSdkError> {
        let registry = Registry::new();
        let provider = SdkMeterProvider::builder().with_view(observe::bounded);
        let scraped = provider.with_reader(exporter(&registry)?).build();
        let meter = scraped.meter(SCOPE);
        let state = Arc::new(State {
            board: Board::default(),
            own: Own::default(),
            process: Reading::default(),
            lag: observe::histogram(&meter, defs::LAG),
            exported_lag: OnceLock::new(),
            dwells: ArcSwap::from_pointee(Dwells::new()?),
            buried: AtomicU64::new(0),
            resource: otlp::resource(),
        });
        observe::register(&meter, &state);
        let exported = Exported { state: Arc::clone(&state), made: Arc::default() };
        Ok(Self { instruments: Instruments { state }, registry, _scraped: scraped, exported })
    }

    /// What OTLP exports.
    pub fn exported(&self) -> Exported {
        self.exported.clone()
    }

    /// What Prometheus scrapes.
    pub fn scrape(&self) -> Scrape {
        Scrape { registry: self.registry.clone(), state: Arc::clone(&self.instruments.state) }
    }
}

/// What OTLP exports.
#[derive(Clone, Debug)]
pub struct Exported {
    state: Arc<State>,
    /// Made when OTLP first asks: without it nothing is kept for it.
    made: Arc<OnceLock<(SharedReader, SdkMeterProvider)>>,
}

impl Exported {
    /// Readers to collect one after the other, for each export anew: the histogram of dwells is
    /// replaced now and then.
    pub fn readers(&self) -> [SharedReader; 2] {
        let state = &self.state;
        let (reader, _) = self.made.get_or_init(|| {
            let reader = SharedReader::default();
            let provider = exporting(&state.resource, &reader);
            let meter = provider.meter(SCOPE);
            observe::register(&meter, state);
            state.exported_lag.get_or_init(|| observe::histogram(&meter, defs::LAG));
            (reader, provider)
        });
        [reader.clone(), state.dwells.load().reader(&state.resource)]
    }
}

/// Renders the instruments in the text format of Prometheus.
#[derive(Clone, Debug)]
pub struct Scrape {
    registry: Registry,
    state: Arc<State>,
}

impl Scrape {
    /// Every series, sorted by name.
    pub fn text(&self) -> Result<Vec<u8>, prometheus::Error> {
        let mut families = self.registry.gather();
        families.extend(self.state.dwells.load().registry.gather());
        families.sort_by(|one, other| one.name().cmp(other.name()));
        let mut text = Vec::new();
        TextEncoder::new().encode(&families, &mut text)?;
        Ok(text)
    }
}

fn exporter(registry: &Registry) -> Result<PrometheusExporter, OTelSdkError> {
    // Names are those of the definitions, and a suffix must not come twice.
    opentelemetry_prometheus::exporter()
        .with_registry(registry.clone())
        .without_units()
        .without_counter_suffixes()
        .without_target_info()
        .scope_info_enabled(false)
        .build()
}

fn exporting(resource: &Resource, reader: &SharedReader) -> SdkMeterProvider {
    let provider = SdkMeterProvider::builder().with_view(observe::bounded);
    provider.with_resource(resource.clone()).with_reader(reader.clone()).build()
}

/// What is counted and measured, written by the loop and read by the readers.
#[derive(Debug)]
struct State {
    board: Board,
    own: Own,
    process: Reading,
    lag: Histogram<f64>,
    exported_lag: OnceLock<Histogram<f64>>,
    dwells: ArcSwap<Dwells>,
    /// Workers that have ended since the histogram of dwells began.
    buried: AtomicU64,
    resource: Resource,
}

/// Every instrument of the agent, each defined once. Nothing here waits for a reader.
#[derive(Clone, Debug)]
pub struct Instruments {
    state: Arc<State>,
}

impl Instruments {
    /// A worker was found.
    pub fn meet(&self, worker: Worker, name: &WorkerName) {
        self.state.board.meet(worker, name);
    }

    /// A worker has ended: its last outputs have been told.
    pub fn end(&self, worker: Worker) {
        self.state.board.end(worker);
        if self.state.buried.fetch_add(1, Ordering::Relaxed) + 1 >= dwells::WORKERS_MAX {
            self.state.buried.store(0, Ordering::Relaxed);
            match self.state.dwells.load().anew(&self.state.resource) {
                Ok(fresh) => self.state.dwells.store(Arc::new(fresh)),
                Err(error) => tracing::error!(%error, "the histogram of dwells grows on"),
            }
        }
    }

    /// Counts what was told.
    pub fn tell(&self, told: &Told<'_>) {
        self.take(told.output);
    }

    fn take(&self, output: &Output) {
        let worker = match output {
            Output::Append(append) => append.worker,
            Output::Verdict(verdict) => verdict.worker,
            Output::Clear(clear) => clear.worker,
            Output::Dwell(dwell) => dwell.worker,
            Output::Coverage(_, worker, _) | Output::Loss(_, worker, ..) => *worker,
        };
        let row = self.state.board.take(worker, output);
        if let (Some(row), Output::Dwell(dwell)) = (row, output) {
            let labels = row.dwell(dwell.outcome);
            self.state.dwells.load().record(dwell.dwell.secs_f64(), &labels);
        }
    }

    /// A worker was looked at.
    pub fn show(&self, worker: Worker, glance: Glance) {
        self.state.board.show(worker, glance);
    }

    /// The loop woke up so much later than it wanted.
    pub fn woke_late_by(&self, lag: Nanos) {
        self.state.lag.record(lag.secs_f64(), &[]);
        if let Some(exported) = self.state.exported_lag.get() {
            exported.record(lag.secs_f64(), &[]);
        }
    }

    /// So many more records were read from the ring.
    pub fn read_records(&self, count: u64) {
        self.state.own.records.add(count);
    }

    /// What the ledger and the probes have counted so far: facts that fitted nothing, attached
    /// links, failures inside the kernel programs.
    pub fn set_counts(&self, misfits: u64, links: u64, mishaps: &[(&'static str, u64)]) {
        self.state.own.misfits.set(misfits);
        self.state.own.links.set(links);
        self.state.own.set_mishaps(mishaps);
    }

    /// So many processes have their operations counted now, and so many were counted so far.
    pub fn set_armed(&self, (processes, hits): (u64, u64)) {
        self.state.own.armed.set(processes);
        self.state.own.armed_hits.set(hits);
    }

    /// So many more lines were held back by the output limit.
    pub fn suppressed(&self, lines: u64) {
        self.state.own.suppressed.add(lines);
    }

    /// So many more lines could not be written.
    pub fn lines_lost(&self, lines: u64) {
        self.state.own.lines_lost.add(lines);
    }

    /// The journal was removed under the agent.
    pub fn journal_lost(&self) {
        self.state.own.journals_lost.add(1);
    }

    /// The agent's socket was removed under it.
    pub fn socket_lost(&self) {
        self.state.own.sockets_lost.add(1);
    }

    /// The configuration was read again, well or not.
    pub fn reloaded(&self, ok: bool) {
        let [good, bad] = &self.state.own.reloads;
        if ok { good.add(1) } else { bad.add(1) }
    }

    /// So much more waits to be exported, or is on its way.
    pub fn export_queued(&self, signal: Signal, count: u64) {
        self.state.own.export(signal).queue.add(count);
    }

    /// So much does not wait any more.
    pub fn export_settled(&self, signal: Signal, count: u64) {
        self.state.own.export(signal).queue.take(count);
    }

    /// So much more was dropped: the queue was full, or it failed for good.
    pub fn export_dropped(&self, signal: Signal, count: u64) {
        self.state.own.export(signal).dropped.add(count);
    }

    /// How much was dropped until now.
    pub fn exports_dropped(&self, signal: Signal) -> u64 {
        self.state.own.export(signal).dropped.get()
    }

    /// One more export failed.
    pub fn export_failed(&self, signal: Signal) {
        self.state.own.export(signal).failures.add(1);
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
