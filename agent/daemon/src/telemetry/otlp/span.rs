//! Spans: a finished one for each verdict, and one for each stay that ends.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use inflightd_core::fact::{Outcome, Peer, Seq, Worker};
use inflightd_core::verdict::{Dwell, Verdict};
use inflightd_core::{Evidence, Nanos};
use opentelemetry::trace::{Event, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use super::{attributes, ids};
use crate::clock::{Clock, Wall, uncertainty};
use crate::sink::EvidenceField;
use crate::telemetry::Told;

/// Where a stay belongs: its trace and its own span.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) trace: ids::Trace,
    pub(super) stay: SpanId,
}

impl Place {
    /// The place of a stay; `None` for a worker without a name.
    pub(super) fn of(
        told: &Told<'_>,
        worker: Worker,
        seq: Seq,
        room: u64,
        peers: &[Peer],
    ) -> Option<Self> {
        let name = told.names.worker(worker)?;
        let stated = told.names.room(worker, seq).map(|room| room.traceparent.as_str());
        let trace = stated.and_then(ids::Trace::read).unwrap_or_else(|| {
            let peers: Vec<_> =
                peers.iter().filter_map(|peer| told.names.peer_name(*peer)).collect();
            ids::Trace::of_room(&name.identity, &name.about, &peers, seq, room)
        });
        Some(Self { trace, stay: ids::stay_span(&name.identity.room_id(seq)) })
    }
}

/// The span of a verdict: from the append to the verdict, finished while the room still waits.
pub(super) fn stall(
    told: &Told<'_>,
    verdict: &Verdict,
    place: Place,
    span: SpanId,
    scope: &InstrumentationScope,
) -> SpanData {
    let alert = Status::error(format!("{} / {}", verdict.finding.name(), verdict.cause.name()));
    SpanData {
        status: if verdict.is_alert() { alert } else { Status::Unset },
        events: events(told, &verdict.evidence, verdict.at),
        ..base(
            told,
            "inflight.stall",
            (verdict.at, verdict.dwell),
            (place, span, Some(place.stay)),
            scope,
        )
    }
}

/// The span of a stay, from the append to the removal.
pub(super) fn dwell(
    told: &Told<'_>,
    dwell: &Dwell,
    place: Place,
    scope: &InstrumentationScope,
) -> SpanData {
    let status = match (dwell.outcome, dwell.cause) {
        (Outcome::Failed, Some(cause)) => Status::error(cause.name()),
        (Outcome::Failed, None) => Status::error("failed"),
        _ => Status::Unset,
    };
    SpanData {
        status,
        events: events(told, &dwell.evidence, dwell.at),
        parent_span_is_remote: place.trace.parent.is_some(),
        ..base(
            told,
            "inflight.dwell",
            (dwell.at, dwell.dwell),
            (place, place.stay, place.trace.parent),
            scope,
        )
    }
}

/// Whether the end of a stay is exported whatever the share of healthy ones.
pub(super) fn is_notable(dwell: &Dwell) -> bool {
    dwell.stalled || dwell.outcome != Outcome::Success
}

fn base(
    told: &Told<'_>,
    name: &'static str,
    (at, dwell): (Nanos, Nanos),
    (place, span, parent): (Place, SpanId, Option<SpanId>),
    scope: &InstrumentationScope,
) -> SpanData {
    let begun = Nanos(at.0.saturating_sub(dwell.0));
    SpanData {
        span_context: SpanContext::new(
            place.trace.id,
            span,
            TraceFlags::SAMPLED,
            false,
            TraceState::NONE,
        ),
        parent_span_id: parent.unwrap_or(SpanId::INVALID),
        parent_span_is_remote: false,
        span_kind: SpanKind::Internal,
        name: name.into(),
        start_time: system(told.clock, begun),
        end_time: system(told.clock, at),
        attributes: [attributes::for_span(attributes::of(told.line)), vec![clock_error()]].concat(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: Status::Unset,
        instrumentation_scope: scope.clone(),
    }
}

/// How far this node's clock may be off: the spans of a room's other end are another node's.
fn clock_error() -> KeyValue {
    match uncertainty() {
        #[expect(clippy::cast_precision_loss, reason = "a few seconds at most")]
        Some(error) => KeyValue::new("inflight.clock.error_s", error.0 as f64 / 1e9),
        None => KeyValue::new("inflight.clock.synchronised", false),
    }
}

/// Evidence in full: one event each, at the moment that it speaks of.
fn events(told: &Told<'_>, evidence: &[Evidence], at: Nanos) -> SpanEvents {
    let fields = told.line.evidence.iter().flatten();
    let mut events = SpanEvents::default();
    events.events = evidence
        .iter()
        .zip(fields)
        .map(|(evidence, field)| {
            let at = system(told.clock, evidence.at.unwrap_or(at));
            Event::new(field.id, at, of_evidence(field), 0)
        })
        .collect();
    events
}

fn of_evidence(field: &EvidenceField) -> Vec<KeyValue> {
    let mut attributes = vec![KeyValue::new("inflight.text", field.text.clone())];
    if let Some(amount) = field.amount {
        let amount = i64::try_from(amount).unwrap_or(i64::MAX);
        attributes.push(KeyValue::new("inflight.amount", amount));
    }
    if let Some(code) = field.code {
        attributes.push(KeyValue::new("inflight.code", i64::from(code)));
    }
    if let Some(peer) = &field.peer {
        attributes.push(KeyValue::new("inflight.peer", format!("{} {}", peer.kind, peer.value)));
        if let Some(pid) = peer.pid {
            attributes.push(KeyValue::new("inflight.peer.pid", i64::from(pid)));
        }
    }
    if let Some(tid) = field.tid {
        attributes.push(KeyValue::new("inflight.tid", i64::from(tid)));
    }
    if let Some(worker) = &field.worker {
        attributes.push(KeyValue::new("inflight.other.pid", i64::from(worker.pid)));
    }
    attributes
}

/// A monotonic moment as the standard library's wall time.
pub(super) fn system(clock: Clock, at: Nanos) -> SystemTime {
    let Wall(nanos) = clock.wall(at);
    UNIX_EPOCH + Duration::from_nanos(nanos)
}
