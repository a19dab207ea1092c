//! The histogram of dwells, which the SDK cannot observe but keeps itself.
//!
//! It keeps the series of each worker for ever, so that after [`ENDED_MAX`] workers that ended the
//! histogram begins anew, in a provider of its own: for whoever reads it a counter reset. What was
//! recorded since the last reading is lost with it.

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Histogram, MeterProvider as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkError;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use prometheus::Registry;

use super::board::ENDED_MAX;
use super::{SCOPE, SharedReader, defs, exporter, observe};

/// Workers that ended, after which the histogram begins anew.
pub(super) const WORKERS_MAX: u64 = ENDED_MAX as u64;

/// The histogram, once for each reader.
#[derive(Debug)]
pub(super) struct Dwells {
    pub(super) registry: Registry,
    pub(super) reader: SharedReader,
    scraped: Histogram<f64>,
    exported: Histogram<f64>,
    _providers: [SdkMeterProvider; 2],
}

impl Dwells {
    pub(super) fn new(resource: &Resource) -> Result<Self, OTelSdkError> {
        let registry = Registry::new();
        let reader = SharedReader::default();
        let of = || SdkMeterProvider::builder().with_view(observe::bounded);
        let scraped = of().with_reader(exporter(&registry)?).build();
        let exported = of().with_resource(resource.clone()).with_reader(reader.clone()).build();
        Ok(Self {
            registry,
            reader,
            scraped: observe::histogram(&scraped.meter(SCOPE), defs::DWELL),
            exported: observe::histogram(&exported.meter(SCOPE), defs::DWELL),
            _providers: [scraped, exported],
        })
    }

    /// Records a dwell, in seconds.
    pub(super) fn record(&self, seconds: f64, labels: &[KeyValue]) {
        self.scraped.record(seconds, labels);
        self.exported.record(seconds, labels);
    }
}
