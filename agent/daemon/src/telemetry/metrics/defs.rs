//! Every instrument, once: its name, unit and help, and how many series it may have.
//!
//! Names are the same in Prometheus and in OTLP. They are promises: never reused.

use super::board::{ENDED_MAX, LIVING_MAX};

/// What a definition is made into.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// A value that is read when somebody looks.
    Gauge,
    /// A count that only grows.
    Counter,
    /// Values in buckets, by their upper bounds.
    Histogram(&'static [f64]),
}

/// One instrument.
#[derive(Clone, Copy, Debug)]
pub(super) struct Def {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) unit: &'static str,
    pub(super) help: &'static str,
    /// Most series. The SDK counts what is beyond it as one series `otel_metric_overflow`.
    pub(super) series: usize,
}

const fn def(
    name: &'static str,
    kind: Kind,
    unit: &'static str,
    series: usize,
    help: &'static str,
) -> Def {
    Def { name, kind, unit, help, series }
}

use Kind::{Counter, Gauge};

/// Series of what each living worker has once.
const LIVING: usize = LIVING_MAX;
/// Series of what each worker has once, those that ended of late included.
const EACH: usize = LIVING_MAX + ENDED_MAX;
/// Series of what has no labels, or few.
const FEW: usize = 64;

/// Seconds, from a healthy small room to the longest stay that the judge knows a word for.
const DWELLS: &[f64] = &[
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0,
    300.0, 600.0,
];
/// Seconds: the loop wakes every 20 ms.
const LAGS: &[f64] = &[0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

pub(super) const ROOMS_OPEN: Def =
    def("inflight_rooms_open", Gauge, "{room}", LIVING, "Rooms in the inflight queue.");
pub(super) const ROOMS_SUSPECT: Def = def(
    "inflight_rooms_suspect",
    Gauge,
    "{room}",
    LIVING,
    "Open rooms without progress for longer than `suspect`.",
);
pub(super) const ROOMS_STALLED: Def = def(
    "inflight_rooms_stalled",
    Gauge,
    "{room}",
    LIVING * 4,
    "Open rooms that stand in an alert, by what is so and why.",
);
pub(super) const ROOMS_BLIND: Def = def(
    "inflight_rooms_blind",
    Gauge,
    "{room}",
    LIVING,
    "Open rooms past the deadline of which too little is seen to say anything.",
);
pub(super) const OLDEST_DWELL: Def = def(
    "inflight_oldest_dwell_seconds",
    Gauge,
    "s",
    LIVING,
    "Time in the queue of the room that entered it first, of those that are judged (a decode's are not); 0 without any.",
);
pub(super) const OLDEST_STILL: Def = def(
    "inflight_oldest_without_progress_seconds",
    Gauge,
    "s",
    LIVING,
    "Longest time since a payload byte of an open room that is judged moved, or since it entered the queue.",
);
pub(super) const BEAT_AGE: Def = def(
    "inflight_worker_beat_age_seconds",
    Gauge,
    "s",
    LIVING,
    "Time since the scheduler last polled its queue; no series where that was never seen.",
);
pub(super) const SAYS: Def = def(
    "inflight_worker_says",
    Gauge,
    "1",
    LIVING * 8,
    "What the engine says of itself, by `what`: free memory and slots, threads; no series where it does not.",
);
pub(super) const WEDGED: Def = def(
    "inflight_worker_wedged",
    Gauge,
    "1",
    LIVING,
    "1 while the worker gets nothing through by itself, else 0; /workers says why.",
);
pub(super) const COVERAGE: Def = def(
    "inflight_coverage",
    Gauge,
    "1",
    LIVING * 8,
    "1 for the sight that a source has of the worker: visible, degraded or blind.",
);
pub(super) const WORKERS: Def =
    def("inflightd_workers", Gauge, "{worker}", FEW, "Workers under watch.");
pub(super) const LINKS: Def =
    def("inflightd_links", Gauge, "{link}", FEW, "Probe links attached to libraries.");
pub(super) const ARMED: Def = def(
    "inflightd_armed_processes",
    Gauge,
    "{process}",
    FEW,
    "Processes whose operations of UCX are counted now, for they have a suspect.",
);
pub(super) const ARMED_HITS: Def = def(
    "inflightd_armed_hits_total",
    Counter,
    "{operation}",
    FEW,
    "Operations of UCX that were counted: each costs its thread about half a microsecond.",
);
pub(super) const QUEUE: Def = def(
    "inflightd_export_queue",
    Gauge,
    "{item}",
    FEW,
    "What waits to be exported by OTLP or is on its way, by signal.",
);
pub(super) const BUILD: Def =
    def("inflightd_build_info", Gauge, "1", FEW, "1, with the version of the agent.");

pub(super) const APPENDS: Def = def(
    "inflight_appends_total",
    Counter,
    "{room}",
    EACH,
    "Rooms that entered the queue, those found open by the agent included.",
);
pub(super) const REMOVALS: Def = def(
    "inflight_removals_total",
    Counter,
    "{room}",
    EACH * 6,
    "Rooms that left the queue, by how they left.",
);
pub(super) const VERDICTS: Def = def(
    "inflight_verdicts_total",
    Counter,
    "{verdict}",
    EACH * 6,
    "Verdicts told, by finding, cause and severity.",
);
pub(super) const CLEARS: Def = def(
    "inflight_clears_total",
    Counter,
    "{verdict}",
    EACH * 3,
    "Verdicts that ended, by why: progress, ended or changed.",
);
pub(super) const BYTES: Def = def(
    "inflight_completed_bytes_total",
    Counter,
    "By",
    EACH,
    "Bytes that had arrived of rooms that have left the queue.",
);
pub(super) const LOST: Def = def(
    "inflight_events_lost_total",
    Counter,
    "{event}",
    EACH * 4,
    "Events of a source that were lost between kernel and agent.",
);
pub(super) const RECORDS: Def =
    def("inflightd_records_total", Counter, "{record}", FEW, "Probe records read from the ring.");
pub(super) const MISHAPS: Def = def(
    "inflightd_mishaps_total",
    Counter,
    "{mishap}",
    FEW,
    "Failures inside the kernel programs, by kind.",
);
pub(super) const MISFITS: Def = def(
    "inflightd_misfits_total",
    Counter,
    "{fact}",
    FEW,
    "Facts that fitted no worker, room, transfer or thread.",
);
pub(super) const DROPPED: Def = def(
    "inflightd_export_dropped_total",
    Counter,
    "{item}",
    FEW,
    "What was not exported: the queue was full, or it failed for good, by signal.",
);
pub(super) const FAILURES: Def = def(
    "inflightd_export_failures_total",
    Counter,
    "{export}",
    FEW,
    "Exports that the collector did not take, by signal.",
);
pub(super) const RELOADS: Def = def(
    "inflightd_config_reloads_total",
    Counter,
    "{reload}",
    FEW,
    "Reloads of the configuration, by result.",
);
pub(super) const SUPPRESSED: Def = def(
    "inflightd_lines_suppressed_total",
    Counter,
    "{line}",
    FEW,
    "Lines about healthy rooms that the output limit held back.",
);
pub(super) const LINES_LOST: Def = def(
    "inflightd_lines_lost_total",
    Counter,
    "{line}",
    FEW,
    "Lines that could not be written to standard output, such as on a full disk.",
);
pub(super) const STATE_LOST: Def = def(
    "inflightd_state_lost_total",
    Counter,
    "{file}",
    FEW,
    "Times that a file in the state directory was removed under the agent and made again, by what.",
);

pub(super) const LOG_DROPPED: Def = def(
    "inflightd_log_lines_dropped_total",
    Counter,
    "{line}",
    FEW,
    "Lines of the agent's own log that nobody read.",
);

pub(super) const DWELL: Def = def(
    "inflight_dwell_seconds",
    Kind::Histogram(DWELLS),
    "s",
    EACH * 6,
    "Time in the queue of rooms that left it, by how they left.",
);
pub(super) const LAG: Def = def(
    "inflightd_loop_lag_seconds",
    Kind::Histogram(LAGS),
    "s",
    FEW,
    "How much later than it wanted the agent's loop woke up.",
);

pub(super) const CPU: Def =
    def("process_cpu_seconds_total", Counter, "s", FEW, "CPU time of the agent, user and system.");
pub(super) const RESIDENT: Def =
    def("process_resident_memory_bytes", Gauge, "By", FEW, "Resident memory of the agent.");
pub(super) const FDS: Def =
    def("process_open_fds", Gauge, "{file}", FEW, "Open file descriptors of the agent.");
pub(super) const START: Def = def(
    "process_start_time_seconds",
    Gauge,
    "s",
    FEW,
    "When the agent started, in seconds since 1970.",
);

/// Every definition.
pub(super) const ALL: [Def; 38] = [
    SAYS,
    ROOMS_OPEN,
    ROOMS_SUSPECT,
    ROOMS_STALLED,
    ROOMS_BLIND,
    OLDEST_DWELL,
    OLDEST_STILL,
    BEAT_AGE,
    WEDGED,
    COVERAGE,
    WORKERS,
    LINKS,
    ARMED,
    QUEUE,
    BUILD,
    APPENDS,
    REMOVALS,
    VERDICTS,
    CLEARS,
    BYTES,
    LOST,
    RECORDS,
    ARMED_HITS,
    MISHAPS,
    MISFITS,
    DROPPED,
    FAILURES,
    RELOADS,
    SUPPRESSED,
    LINES_LOST,
    STATE_LOST,
    LOG_DROPPED,
    DWELL,
    LAG,
    CPU,
    RESIDENT,
    FDS,
    START,
];
