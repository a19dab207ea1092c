//! From definitions to instruments of the SDK: callbacks that copy what the loop has written.
//!
//! All but the histograms are observable: the SDK then keeps no series of its own, and those of a
//! worker that has ended go with it. The SDK runs every callback for every reader of a provider
//! and feeds what it says to all of them, so a series that one reader saw would come back once at
//! the other: each reader has a provider of its own.

use std::sync::Arc;

use inflightd_core::Sight;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Histogram, Meter};
use opentelemetry_sdk::metrics::{Instrument, Stream};

use super::State;
use super::board::{Counts, Row};
use super::defs::{self, Def, Kind};
use super::own::Signal;
use crate::glance::{Glance, gauge_name};

/// The view that gives each instrument its bound; the SDK's own is 2000 series.
pub(super) fn bounded(instrument: &Instrument) -> Option<Stream> {
    let def = defs::ALL.iter().find(|def| def.name == instrument.name())?;
    Stream::builder().with_cardinality_limit(def.series).build().ok()
}

/// Makes every instrument but the histograms.
pub(super) fn register(meter: &Meter, state: &Arc<State>) {
    of_workers(meter, state);
    counts_of_workers(meter, state);
    own_gauges(meter, state);
    own_counters(meter, state);
    process(meter, state);
}

/// A histogram.
pub(super) fn histogram(meter: &Meter, def: Def) -> Histogram<f64> {
    let bounds = match def.kind {
        Kind::Histogram(bounds) => bounds.to_vec(),
        Kind::Gauge | Kind::Counter => Vec::new(),
    };
    let builder = meter.f64_histogram(def.name).with_unit(def.unit).with_description(def.help);
    builder.with_boundaries(bounds).build()
}

/// An instrument of whole numbers that `observe` fills.
fn whole(
    meter: &Meter,
    def: Def,
    state: &Arc<State>,
    observe: impl Fn(&State, &dyn AsyncInstrument<u64>) + Send + Sync + 'static,
) {
    let state = Arc::clone(state);
    if def.kind == Kind::Counter {
        let builder = meter.u64_observable_counter(def.name).with_unit(def.unit);
        let builder = builder.with_description(def.help);
        let _kept_by_the_provider =
            builder.with_callback(move |seen| observe(&state, seen)).build();
    } else {
        let builder = meter.u64_observable_gauge(def.name).with_unit(def.unit);
        let builder = builder.with_description(def.help);
        let _kept_by_the_provider =
            builder.with_callback(move |seen| observe(&state, seen)).build();
    }
}

/// An instrument of broken numbers that `observe` fills.
fn broken(
    meter: &Meter,
    def: Def,
    state: &Arc<State>,
    observe: impl Fn(&State, &dyn AsyncInstrument<f64>) + Send + Sync + 'static,
) {
    let state = Arc::clone(state);
    if def.kind == Kind::Counter {
        let builder = meter.f64_observable_counter(def.name).with_unit(def.unit);
        let builder = builder.with_description(def.help);
        let _kept_by_the_provider =
            builder.with_callback(move |seen| observe(&state, seen)).build();
    } else {
        let builder = meter.f64_observable_gauge(def.name).with_unit(def.unit);
        let builder = builder.with_description(def.help);
        let _kept_by_the_provider =
            builder.with_callback(move |seen| observe(&state, seen)).build();
    }
}

/// Calls `each` for every worker that was looked at.
fn glances(state: &State, mut each: impl FnMut(&Row, &Glance)) {
    for row in state.board.rows() {
        if let Some(glance) = row.glance() {
            each(&row, &glance);
        }
    }
}

fn of_workers(meter: &Meter, state: &Arc<State>) {
    let whole_of = |def: Def, value: fn(&Glance) -> u64| {
        whole(meter, def, state, move |state, seen| {
            glances(state, |row, glance| seen.observe(value(glance), &row.labels.with(&[])));
        });
    };
    whole_of(defs::ROOMS_OPEN, |glance| glance.open);
    whole_of(defs::ROOMS_SUSPECT, |glance| glance.suspects);
    whole_of(defs::ROOMS_BLIND, |glance| glance.blind);
    whole_of(defs::WEDGED, |glance| u64::from(glance.wedged.is_some()));
    let seconds_of = |def: Def, value: fn(&Glance) -> Option<f64>| {
        broken(meter, def, state, move |state, seen| {
            glances(state, |row, glance| {
                if let Some(value) = value(glance) {
                    seen.observe(value, &row.labels.with(&[]));
                }
            });
        });
    };
    seconds_of(defs::OLDEST_DWELL, |glance| Some(glance.oldest_dwell.secs_f64()));
    seconds_of(defs::OLDEST_STILL, |glance| Some(glance.oldest_still.secs_f64()));
    seconds_of(defs::BEAT_AGE, |glance| glance.beat_age.map(inflightd_core::Nanos::secs_f64));
    whole(meter, defs::ROOMS_STALLED, state, |state, seen| {
        glances(state, |row, glance| {
            for ((finding, cause), rooms) in &glance.stalled {
                let more = [("finding", finding.name()), ("cause", cause.name())];
                seen.observe(*rooms, &row.labels.with(&more));
            }
        });
    });
    whole(meter, defs::SAYS, state, |state, seen| {
        glances(state, |row, glance| {
            for (gauge, value) in &glance.says {
                seen.observe(*value, &row.labels.with(&[("what", gauge_name(*gauge))]));
            }
        });
    });
    whole(meter, defs::COVERAGE, state, |state, seen| {
        glances(state, |row, glance| {
            for (source, sight) in &glance.coverage {
                let more = [("source", source.name()), ("sight", word(*sight))];
                seen.observe(1, &row.labels.with(&more));
            }
        });
    });
}

const fn word(sight: Sight) -> &'static str {
    match sight {
        Sight::Visible => "visible",
        Sight::Degraded(_) => "degraded",
        Sight::Blind(_) => "blind",
    }
}

fn counts_of_workers(meter: &Meter, state: &Arc<State>) {
    type Each<'a> = &'a mut dyn FnMut(u64, &[(&'static str, &'static str)]);
    let of = |def: Def, read: fn(&Counts, Each<'_>)| {
        whole(meter, def, state, move |state, seen| {
            for row in state.board.rows() {
                read(&row.counts(), &mut |value, more| {
                    seen.observe(value, &row.labels.with(more));
                });
            }
        });
    };
    of(defs::APPENDS, |counts, each| each(counts.appends, &[]));
    of(defs::BYTES, |counts, each| each(counts.completed_bytes, &[]));
    of(defs::REMOVALS, |counts, each| {
        for (outcome, count) in &counts.removals {
            each(*count, &[("outcome", crate::sink::outcome(*outcome))]);
        }
    });
    of(defs::VERDICTS, |counts, each| {
        for ((finding, cause, alert), count) in &counts.verdicts {
            let severity = if *alert { "alert" } else { "info" };
            let more =
                [("finding", finding.name()), ("cause", cause.name()), ("severity", severity)];
            each(*count, &more);
        }
    });
    of(defs::CLEARS, |counts, each| {
        for (why, count) in &counts.clears {
            each(*count, &[("why", why.name())]);
        }
    });
    of(defs::LOST, |counts, each| {
        for (source, count) in &counts.lost {
            each(*count, &[("source", source.name())]);
        }
    });
}

fn own_gauges(meter: &Meter, state: &Arc<State>) {
    whole(meter, defs::WORKERS, state, |state, seen| {
        seen.observe(state.board.living() as u64, &[]);
    });
    whole(meter, defs::LINKS, state, |state, seen| seen.observe(state.own.links.get(), &[]));
    whole(meter, defs::ARMED, state, |state, seen| seen.observe(state.own.armed.get(), &[]));
    whole(meter, defs::BUILD, state, |_, seen| {
        seen.observe(1, &[KeyValue::new("version", env!("CARGO_PKG_VERSION"))]);
    });
    whole(meter, defs::QUEUE, state, |state, seen| {
        for signal in Signal::ALL {
            let label = KeyValue::new("signal", signal.name());
            seen.observe(state.own.export(signal).queue.get(), &[label]);
        }
    });
}

fn own_counters(meter: &Meter, state: &Arc<State>) {
    whole(meter, defs::RECORDS, state, |state, seen| seen.observe(state.own.records.get(), &[]));
    whole(meter, defs::ARMED_HITS, state, |state, seen| {
        seen.observe(state.own.armed_hits.get(), &[]);
    });
    whole(meter, defs::MISFITS, state, |state, seen| seen.observe(state.own.misfits.get(), &[]));
    whole(meter, defs::SUPPRESSED, state, |state, seen| {
        seen.observe(state.own.suppressed.get(), &[]);
    });
    whole(meter, defs::LINES_LOST, state, |state, seen| {
        seen.observe(state.own.lines_lost.get(), &[]);
    });
    whole(meter, defs::STATE_LOST, state, |state, seen| {
        seen.observe(state.own.journals_lost.get(), &[KeyValue::new("what", "journal")]);
        seen.observe(state.own.sockets_lost.get(), &[KeyValue::new("what", "socket")]);
    });
    whole(meter, defs::LOG_DROPPED, state, |_, seen| seen.observe(crate::log::dropped(), &[]));
    whole(meter, defs::MISHAPS, state, |state, seen| {
        for (kind, count) in state.own.mishaps() {
            seen.observe(count, &[KeyValue::new("kind", kind)]);
        }
    });
    whole(meter, defs::DROPPED, state, |state, seen| {
        for signal in Signal::ALL {
            let label = KeyValue::new("signal", signal.name());
            seen.observe(state.own.export(signal).dropped.get(), &[label]);
        }
    });
    whole(meter, defs::FAILURES, state, |state, seen| {
        for signal in Signal::ALL {
            let label = KeyValue::new("signal", signal.name());
            seen.observe(state.own.export(signal).failures.get(), &[label]);
        }
    });
    whole(meter, defs::RELOADS, state, |state, seen| {
        let [ok, error] = &state.own.reloads;
        seen.observe(ok.get(), &[KeyValue::new("result", "ok")]);
        seen.observe(error.get(), &[KeyValue::new("result", "error")]);
    });
}

fn process(meter: &Meter, state: &Arc<State>) {
    broken(meter, defs::CPU, state, |state, seen| {
        if let Some(process) = state.process.fresh() {
            seen.observe(process.cpu_seconds, &[]);
        }
    });
    whole(meter, defs::RESIDENT, state, |state, seen| {
        if let Some(process) = state.process.last() {
            seen.observe(process.resident_bytes, &[]);
        }
    });
    whole(meter, defs::FDS, state, |state, seen| {
        if let Some(process) = state.process.last() {
            seen.observe(process.open_fds, &[]);
        }
    });
    broken(meter, defs::START, state, |state, seen| {
        if let Some(process) = state.process.last() {
            seen.observe(process.started_at, &[]);
        }
    });
}
