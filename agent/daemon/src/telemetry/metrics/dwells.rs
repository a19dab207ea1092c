//! The histogram of dwells, which the SDK cannot observe but keeps itself.
//!
//! It keeps the series of each worker for ever, so that after [`ENDED_MAX`] workers that ended the
//! histogram begins anew, in a provider of its own: for whoever reads it a counter reset. What was
//! recorded since the last reading is lost with it.

use std::sync::OnceLock;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Histogram, MeterProvider as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkError;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use prometheus::Registry;

use super::board::ENDED_MAX;
use super::{SCOPE, SharedReader, defs, exporter, exporting, observe};

/// Workers that ended, after which the histogram begins anew.
pub(super) const WORKERS_MAX: u64 = ENDED_MAX as u64;

/// The histogram in one provider.
#[derive(Debug)]
struct Kept {
    histogram: Histogram<f64>,
    _provider: SdkMeterProvider,
}

impl Kept {
    fn of(provider: SdkMeterProvider) -> Self {
        let histogram = observe::histogram(&provider.meter(SCOPE), defs::DWELL);
        Self { histogram, _provider: provider }
    }
}

/// The histogram, once for each reader.
#[derive(Debug)]
pub(super) struct Dwells {
    pub(super) registry: Registry,
    scraped: Kept,
    /// Made when OTLP first asks: without it nothing is kept for it.
    exported: OnceLock<(SharedReader, Kept)>,
}

impl Dwells {
    pub(super) fn new() -> Result<Self, OTelSdkError> {
        let registry = Registry::new();
        let provider = SdkMeterProvider::builder().with_view(observe::bounded);
        let provider = provider.with_reader(exporter(&registry)?).build();
        Ok(Self { registry, scraped: Kept::of(provider), exported: OnceLock::new() })
    }

    /// The histogram begins anew, for the same readers.
    pub(super) fn anew(&self, resource: &Resource) -> Result<Self, OTelSdkError> {
        let fresh = Self::new()?;
        if self.exported.get().is_some() {
            fresh.reader(resource);
        }
        Ok(fresh)
    }

    /// What OTLP reads.
    pub(super) fn reader(&self, resource: &Resource) -> SharedReader {
        let (reader, _) = self.exported.get_or_init(|| {
            let reader = SharedReader::default();
            (reader.clone(), Kept::of(exporting(resource, &reader)))
        });
        reader.clone()
    }

    /// Records a dwell, in seconds.
    pub(super) fn record(&self, seconds: f64, labels: &[KeyValue]) {
        self.scraped.histogram.record(seconds, labels);
        if let Some((_, exported)) = self.exported.get() {
            exported.histogram.record(seconds, labels);
        }
    }
}
