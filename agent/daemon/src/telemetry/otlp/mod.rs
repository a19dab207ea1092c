//! Export by OTLP: each verdict as a finished span and a log record, at once; the instruments
//! every so often.
//!
//! Nothing here waits for a collector but the tasks in `pump`. What a queue cannot take is dropped
//! and counted: the newcomer, so that the first of a flood, which says how it began, is kept.

mod attributes;
mod client;
mod connect;
mod ids;
mod pump;
mod record;
mod resource;
mod span;
mod stays;

use inflightd_core::Output;
use inflightd_core::verdict::{Clear, Dwell, Verdict};
use opentelemetry::InstrumentationScope;
use opentelemetry_sdk::logs::SdkLogRecord;
use opentelemetry_sdk::trace::SpanData;
use tokio::sync::{mpsc, watch};

pub use connect::{Ingredients, OtlpError};
pub use resource::resource;

use super::Told;
use super::metrics::{Exported, Instruments, Signal};
use pump::{Link, Records};
use record::Recorder;
use span::Place;
use stays::Stays;

/// What an exporter needs from the thread that it runs in.
#[derive(Clone, Debug)]
pub(super) struct Ground {
    /// Where tasks run.
    pub(super) handle: tokio::runtime::Handle,
    /// Where is counted what becomes of the exports.
    pub(super) instruments: Instruments,
    /// What reads the instruments.
    pub(super) exported: Exported,
    /// Held by each task until it has ended.
    pub(super) busy: mpsc::Sender<()>,
}

/// Exports until it is dropped; what is in its queues then is still tried once.
#[derive(Debug)]
pub(super) struct Otlp {
    spans: Option<mpsc::Sender<SpanData>>,
    records: Option<mpsc::Sender<SdkLogRecord>>,
    instruments: Instruments,
    healthy_share: f64,
    scope: InstrumentationScope,
    recorder: Recorder,
    stays: Stays,
    stop: watch::Sender<bool>,
}

impl Otlp {
    /// Sets up what the settings ask for. Nothing is sent yet, so a collector need not be there.
    pub(super) fn start(ingredients: &Ingredients, ground: &Ground) -> Result<Self, OtlpError> {
        let config = &ingredients.config;
        // The exporters put tasks of their own on the runtime.
        let _entered = ground.handle.enter();
        let spans = config.traces.then(|| ingredients.spans()).transpose()?;
        let records = config.logs.then(|| ingredients.records()).transpose()?;
        let instruments = config.metrics.then(|| ingredients.instruments()).transpose()?;
        let (stop, stopped) = watch::channel(false);
        let link = |signal| {
            let instruments = ground.instruments.clone();
            Link::new(signal, instruments, config.endpoint.clone(), config.timeout, stopped.clone())
                .saying(ingredients.why.clone())
        };
        let scope = InstrumentationScope::builder("inflightd")
            .with_version(env!("CARGO_PKG_VERSION"))
            .build();
        let spans = spans.map(|mut exporter| {
            opentelemetry_sdk::trace::SpanExporter::set_resource(&mut exporter, &resource());
            let (sender, receiver) = mpsc::channel(config.queue);
            ground.run(pump::queue(exporter, receiver, link(Signal::Traces)));
            sender
        });
        let records = records.map(|mut exporter| {
            opentelemetry_sdk::logs::LogExporter::set_resource(&mut exporter, &resource());
            let carrier = Records { exporter, scope: scope.clone() };
            let (sender, receiver) = mpsc::channel(config.queue);
            ground.run(pump::queue(carrier, receiver, link(Signal::Logs)));
            sender
        });
        if let Some(exporter) = instruments {
            let (exported, every) = (ground.exported.clone(), config.metrics_every);
            ground.run(pump::instruments(exporter, exported, every, link(Signal::Metrics)));
        }
        Ok(Self {
            spans,
            records,
            instruments: ground.instruments.clone(),
            healthy_share: config.healthy_share,
            scope,
            recorder: Recorder::new(),
            stays: Stays::default(),
            stop,
        })
    }

    /// Queues what was told, where it is of the kind that is exported. Never waits.
    pub(super) fn tell(&mut self, told: &Told<'_>) {
        match told.output {
            Output::Verdict(verdict) => self.verdict(told, verdict),
            Output::Clear(clear) => self.clear(told, clear),
            Output::Dwell(dwell) => self.dwell(told, dwell),
            _ => {}
        }
    }

    fn verdict(&mut self, told: &Told<'_>, verdict: &Verdict) {
        let (worker, seq) = (verdict.worker, verdict.seq);
        let place = Place::of(told, worker, seq, verdict.room.0, &verdict.peers);
        let (Some(place), Some(id)) = (place, &told.line.id) else {
            return;
        };
        let turn = self.stays.stall(worker, seq, place);
        let span = ids::verdict_span(id, turn);
        let make = || span::stall(told, verdict, place, span, &self.scope);
        self.queue(self.spans.as_ref(), Signal::Traces, make);
        let alert = verdict.is_alert();
        let make = || self.recorder.record(told, verdict.at, alert, place, span);
        self.queue(self.records.as_ref(), Signal::Logs, make);
    }

    fn clear(&mut self, told: &Told<'_>, clear: &Clear) {
        let (worker, seq) = (clear.worker, clear.seq);
        // A verdict of an earlier life was not told here.
        let known = self.stays.clear(worker, seq, clear.why);
        let place = || Place::of(told, worker, seq, clear.room.0, &[]).map(|place| (place, 0));
        if let (Some((place, turn)), Some(id)) = (known.or_else(place), &told.line.id) {
            let span = ids::verdict_span(id, turn);
            let make = || self.recorder.record(told, clear.at, false, place, span);
            self.queue(self.records.as_ref(), Signal::Logs, make);
        }
    }

    fn dwell(&mut self, told: &Told<'_>, dwell: &Dwell) {
        // Spans of verdicts must not be left without the one that they hang under.
        let is_parent = self.stays.end(dwell.worker, dwell.seq);
        let place = Place::of(told, dwell.worker, dwell.seq, dwell.room.0, &dwell.peers);
        let Some(place) = place else {
            return;
        };
        let notable = is_parent || span::is_notable(dwell);
        if notable || place.trace.is_sampled(self.healthy_share) {
            let make = || span::dwell(told, dwell, place, &self.scope);
            self.queue(self.spans.as_ref(), Signal::Traces, make);
        }
    }
}

impl Otlp {
    /// Puts an item into a queue that is there, making it only if it has place.
    fn queue<T>(&self, sender: Option<&mpsc::Sender<T>>, signal: Signal, make: impl FnOnce() -> T) {
        let Some(sender) = sender else {
            return;
        };
        match sender.try_reserve() {
            Ok(place) => {
                self.instruments.export_queued(signal, 1);
                place.send(make());
            }
            Err(_) => self.instruments.export_dropped(signal, 1),
        }
    }
}

impl Drop for Otlp {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

impl Ground {
    /// Runs a task that the end waits for.
    fn run(&self, task: impl Future<Output = ()> + Send + 'static) {
        let busy = self.busy.clone();
        let task = async move {
            task.await;
            drop(busy);
        };
        drop(self.handle.spawn(task));
    }
}
