//! From a queue to the collector: one task a signal.

use std::time::Duration;

use opentelemetry::InstrumentationScope;
use opentelemetry_otlp::{LogExporter, MetricExporter, SpanExporter};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::logs::{LogBatch, LogExporter as _, SdkLogRecord};
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter as _;
use opentelemetry_sdk::metrics::reader::MetricReader as _;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use super::client::Why;
use crate::telemetry::metrics::{Exported, Instruments, Signal};

/// Most items in one batch: collectors take 4 MiB, and a verdict has some 4 KiB.
const BATCH_MAX: usize = 256;
/// How long a first item waits for others of the same moment.
const GATHER: Duration = Duration::from_millis(50);
/// How often a batch is tried. Then it is dropped: one that is refused for what is in it must not
/// hold up the others.
const TRIES: u32 = 4;
/// Pause after the first failure; it doubles with each.
const PAUSE: Duration = Duration::from_millis(500);
/// What an exporter may take beyond its own timeout.
const SLACK: Duration = Duration::from_secs(1);

/// What carries batches of a signal to the collector.
pub(super) trait Carry: Send + Sync + 'static {
    /// What a batch is made of.
    type Item: Send + Sync + 'static;

    /// Carries a batch.
    fn carry(&self, batch: &[Self::Item]) -> impl Future<Output = OTelSdkResult> + Send;
}

impl Carry for SpanExporter {
    type Item = SpanData;

    fn carry(&self, batch: &[SpanData]) -> impl Future<Output = OTelSdkResult> + Send {
        self.export(batch.to_vec())
    }
}

/// Carries log records.
#[derive(Debug)]
pub(super) struct Records {
    pub(super) exporter: LogExporter,
    pub(super) scope: InstrumentationScope,
}

impl Carry for Records {
    type Item = SdkLogRecord;

    async fn carry(&self, batch: &[SdkLogRecord]) -> OTelSdkResult {
        let batch: Vec<_> = batch.iter().map(|record| (record, &self.scope)).collect();
        self.exporter.export(LogBatch::new(&batch)).await
    }
}

/// How a signal fares: failures are counted each, and told when they begin and when they end.
#[derive(Debug)]
pub(super) struct Link {
    signal: Signal,
    instruments: Instruments,
    endpoint: String,
    timeout: Duration,
    stopped: watch::Receiver<bool>,
    /// Why a request by HTTP failed: one of any signal's, they go to the same place.
    why: Why,
    /// Failures since it last worked.
    failing: u64,
}

impl Link {
    pub(super) fn new(
        signal: Signal,
        instruments: Instruments,
        endpoint: String,
        timeout: Duration,
        stopped: watch::Receiver<bool>,
    ) -> Self {
        Self { signal, instruments, endpoint, timeout, stopped, why: Why::default(), failing: 0 }
    }

    /// The same, with the HTTP client's own words for what fails.
    pub(super) fn saying(self, why: Why) -> Self {
        Self { why, ..self }
    }

    /// So many items have left the queue for good.
    fn settled(&self, items: usize, taken: bool) {
        self.instruments.export_settled(self.signal, items as u64);
        if !taken {
            self.instruments.export_dropped(self.signal, items as u64);
        }
    }

    /// Waits for the end of a try; whether it went well.
    async fn judge(&mut self, carried: impl Future<Output = OTelSdkResult>) -> bool {
        let limit = self.timeout.saturating_add(SLACK);
        let why = match timeout(limit, carried).await {
            Ok(Ok(())) => {
                self.works();
                return true;
            }
            Ok(Err(error)) => match self.why.take() {
                Some(why) => format!("{error}: {why}"),
                None => error.to_string(),
            },
            Err(_) => format!("no answer within {limit:?}"),
        };
        self.fails(&why);
        false
    }

    fn works(&mut self) {
        if self.failing > 0 {
            let (signal, dropped) =
                (self.signal.name(), self.instruments.exports_dropped(self.signal));
            tracing::info!(signal, failures = self.failing, dropped, "OTLP export works again");
            self.failing = 0;
        }
    }

    fn fails(&mut self, why: &str) {
        self.instruments.export_failed(self.signal);
        self.failing += 1;
        if self.failing == 1 {
            let (signal, endpoint) = (self.signal.name(), &self.endpoint);
            tracing::warn!(
                signal,
                endpoint,
                why,
                "OTLP export fails; it is tried again, and further failures are only counted"
            );
        }
    }

    fn is_stopped(&self) -> bool {
        *self.stopped.borrow()
    }

    /// Sleeps, unless the agent ends.
    async fn pause(&mut self, pause: Duration) {
        tokio::select! {
            () = sleep(pause) => {}
            // A sender that is gone means the same as one that says stop.
            _ = self.stopped.wait_for(|stopped| *stopped) => {}
        }
    }
}

/// Carries what comes through the queue, until nobody is left who could put something in.
pub(super) async fn queue<C: Carry>(
    carrier: C,
    mut waiting: mpsc::Receiver<C::Item>,
    mut link: Link,
) {
    let mut batch = Vec::new();
    while waiting.recv_many(&mut batch, BATCH_MAX).await > 0 {
        link.pause(GATHER).await;
        while batch.len() < BATCH_MAX
            && let Ok(item) = waiting.try_recv()
        {
            batch.push(item);
        }
        let taken = deliver(&carrier, &batch, &mut link).await;
        link.settled(batch.len(), taken);
        batch.clear();
    }
}

/// Whether the collector has taken the batch in the end.
async fn deliver<C: Carry>(carrier: &C, batch: &[C::Item], link: &mut Link) -> bool {
    for failed in 0..TRIES {
        if link.judge(carrier.carry(batch)).await {
            return true;
        }
        if link.is_stopped() {
            return false;
        }
        if failed + 1 < TRIES {
            link.pause(PAUSE.saturating_mul(1 << failed)).await;
        }
    }
    false
}

/// Exports the instruments every so often, and once more at the end.
pub(super) async fn instruments(
    exporter: MetricExporter,
    source: Exported,
    every: Duration,
    mut link: Link,
) {
    // A collector that was just set up shows something soon.
    let mut pause = every.min(SLACK);
    loop {
        link.pause(pause).await;
        pause = every;
        let last = link.is_stopped();
        for reader in source.readers() {
            let mut metrics = ResourceMetrics::default();
            if let Err(error) = reader.collect(&mut metrics) {
                link.fails(&error.to_string());
            } else {
                link.instruments.export_queued(link.signal, 1);
                let taken = link.judge(exporter.export(&metrics)).await;
                link.settled(1, taken);
            }
        }
        if last {
            return;
        }
    }
}
