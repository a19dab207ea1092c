//! The instruments, and the two that read them: Prometheus' registry and OTLP.

mod reader;

use opentelemetry::metrics::{Meter, MeterProvider as _};
use opentelemetry_sdk::error::OTelSdkError;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use prometheus::Registry;

use super::{Told, otlp};
pub use reader::SharedReader;

/// The instruments with their provider and what reads them.
#[derive(Debug)]
pub struct Meters {
    /// What is counted and measured.
    pub instruments: Instruments,
    /// What Prometheus scrapes.
    pub registry: Registry,
    /// What OTLP exports.
    pub reader: SharedReader,
    /// Lives as long as the instruments are read.
    _provider: SdkMeterProvider,
}

impl Meters {
    /// The instruments, nothing counted yet.
    pub fn new() -> Result<Self, OTelSdkError> {
        let registry = Registry::new();
        let prometheus =
            opentelemetry_prometheus::exporter().with_registry(registry.clone()).build()?;
        let reader = SharedReader::default();
        let provider = SdkMeterProvider::builder()
            .with_resource(otlp::resource())
            .with_reader(prometheus)
            .with_reader(reader.clone())
            .build();
        let instruments = Instruments::new(&provider.meter("inflightd"));
        Ok(Self { instruments, registry, reader, _provider: provider })
    }
}

/// Every instrument of the agent, each defined once.
#[derive(Clone, Debug)]
pub struct Instruments {}

impl Instruments {
    /// Makes the instruments.
    pub fn new(_meter: &Meter) -> Self {
        Self {}
    }

    /// Counts what was told.
    pub fn tell(&self, _told: &Told<'_>) {}
}
