//! Export by OTLP: each verdict as a finished span and a log record, at once; the instruments
//! every so often.

mod config;

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;

pub use config::{OtlpConfig, Protocol};

/// Who speaks.
pub fn resource() -> Resource {
    Resource::builder_empty()
        .with_service_name("inflightd")
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build()
}
