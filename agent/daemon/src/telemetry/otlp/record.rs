//! Log records: one for each verdict and one for its end.

use inflightd_core::Nanos;
use opentelemetry::logs::{LogRecord as _, Logger as _, LoggerProvider as _, Severity};
use opentelemetry::trace::{SpanId, TraceFlags};
use opentelemetry_sdk::logs::{SdkLogRecord, SdkLogger, SdkLoggerProvider};

use super::attributes;
use super::span::{Place, system};
use crate::sink;
use crate::telemetry::Told;

/// Makes records.
#[derive(Debug)]
pub(super) struct Recorder(SdkLogger);

impl Recorder {
    pub(super) fn new() -> Self {
        Self(SdkLoggerProvider::builder().build().logger("inflightd"))
    }

    /// The record of what was told at `at`, under the span that speaks of the same.
    pub(super) fn record(
        &self,
        told: &Told<'_>,
        at: Nanos,
        alert: bool,
        place: Place,
        span: SpanId,
    ) -> SdkLogRecord {
        let mut record = self.0.create_log_record();
        let at = system(told.clock, at);
        record.set_timestamp(at);
        record.set_observed_timestamp(at);
        record.set_event_name(match told.line.kind {
            "verdict" => "inflight.verdict",
            _ => "inflight.clear",
        });
        let (number, text) =
            if alert { (Severity::Error, "ERROR") } else { (Severity::Info, "INFO") };
        record.set_severity_number(number);
        record.set_severity_text(text);
        record.set_body(sink::text(told.line).into());
        record.set_trace_context(place.trace.id, span, Some(TraceFlags::SAMPLED));
        record.add_attributes(attributes::of(told.line).into_iter().map(attributes::for_record));
        record
    }
}
