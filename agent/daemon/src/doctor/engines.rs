//! What can be seen of each engine, and what it would cost.

use std::collections::BTreeMap;

use inflightd_abi::table::WORKERS_MAX;
use inflightd_core::{Nanos, Reason, Sight, Source};
use serde::Serialize;
use serde_json::Value;

use super::fixes::fix;
use crate::discover::Read;
use crate::hits;
use crate::names::About;
use crate::probe::{EMULATED_NS, Family, Gap, Refusal, SINGLE_STEP_NS, Survey, survey};
use crate::worker;

/// One worker.
#[derive(Clone, Debug, Serialize)]
pub struct Engine {
    /// Process id in the host's namespace.
    pub pid: u32,
    /// Index of the worker inside its process.
    pub index: u64,
    /// Engine name.
    pub engine: String,
    /// `prefill` or `decode`.
    pub role: String,
    /// `agent`: as the running agent sees it; `doctor`: as an agent would, by a look from outside.
    pub by: &'static str,
    /// Each source.
    pub sources: Vec<SourceRow>,
    /// Libraries that carry probes, or would.
    pub libraries: Vec<LibraryRow>,
}

/// How a source sees a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceRow {
    /// Which.
    pub source: String,
    /// `visible`, `degraded`, `blind`, or `unknown`: only a running agent can tell.
    pub sight: String,
    /// Why it is not visible.
    pub why: Option<String>,
    /// What would mend it.
    pub fix: Option<&'static str>,
}

/// A library in a process.
#[derive(Clone, Debug, Serialize)]
pub struct LibraryRow {
    /// `inflight`, `nixl`, `nixl_ucx` or `ucp`.
    pub family: &'static str,
    /// Path as the process sees it.
    pub path: String,
    /// Build-id in hex.
    pub build_id: Option<String>,
    /// Name of the known build; `null` for an unknown one, and where none is needed.
    pub build: Option<String>,
    /// Points that carry a probe, or would.
    pub points: Vec<PointRow>,
    /// What is not probed.
    pub gaps: Vec<GapRow>,
    /// Why it could not be looked at.
    pub problem: Option<String>,
}

/// A point.
#[derive(Clone, Debug, Serialize)]
pub struct PointRow {
    /// Name of the kernel program.
    pub program: &'static str,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// What a hit costs the calling thread, in nanoseconds, without what the program does: as
    /// [`HitCost`] says, for no instruction is probed that the kernel does not emulate.
    pub expected_ns: u64,
}

/// What a hit costs the calling thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HitCost {
    /// In nanoseconds.
    pub ns: u64,
    /// Whether it was measured on this machine, a moment ago; else it is what another one took.
    pub measured: bool,
}

impl HitCost {
    /// As measured, where it was.
    pub(super) fn of(measured: Option<Nanos>) -> Self {
        let typical = Self { ns: EMULATED_NS, measured: false };
        measured.map_or(typical, |cost| Self { ns: cost.0, measured: true })
    }
}

/// What is not probed.
#[derive(Clone, Debug, Serialize)]
pub struct GapRow {
    /// What is not seen.
    pub group: String,
    /// Why.
    pub why: String,
    /// What a hit would have cost, least and most, in nanoseconds, where that is the reason.
    pub would_cost_ns: Option<(u64, u64)>,
}

/// A process that could move KV caches and has no queue to watch.
#[derive(Clone, Debug, Serialize)]
pub struct Hookless {
    /// Process id.
    pub pid: u32,
    /// Its command.
    pub command: String,
    /// Its libraries.
    pub libraries: Vec<LibraryRow>,
}

/// Looks at a process.
pub(super) fn survey_of(read: &Read) -> Result<Survey, String> {
    let is_worker = !read.maps.tables.is_empty();
    survey(&read.maps.objects, read.pid, is_worker).map_err(|error| error.to_string())
}

/// The workers of a process, as an agent would see them. `hindered`: it could load no probes.
pub(super) fn workers(
    read: &Read,
    survey: Survey,
    libraries: &[LibraryRow],
    hindered: Option<Reason>,
) -> Vec<Engine> {
    let seen = hits::seen(&survey.into_report(read.pid)).sights;
    let probed = |source: Source| {
        let sight = seen.iter().find(|(of, _)| *of == source).map(|(_, sight)| *sight);
        match (hindered, sight) {
            (Some(reason), _) => Some(Sight::Blind(reason)),
            (None, None) if source == Source::Exits => Some(Sight::Visible),
            (None, sight) => sight,
        }
    };
    let mut engines = Vec::new();
    let tables = read.maps.tables.iter();
    let mut opened: Vec<_> = tables.map(|map| worker::open(read.pid, read.start, map)).collect();
    // As the agent chooses.
    opened.sort_by_key(worker::index);
    for opened in opened.into_iter().take(WORKERS_MAX) {
        let (about, table) = match opened {
            Ok((_, about)) => (about, Sight::Visible),
            Err(error) => (About::unread(), Sight::Blind(error.reason())),
        };
        let sources = Source::ALL.into_iter().map(|source| match source {
            Source::Table => row(source, Some(table)),
            Source::Connections | Source::Peers => row(source, None),
            _ => row(source, probed(source)),
        });
        engines.push(Engine {
            pid: read.pid,
            index: about.index,
            engine: about.engine,
            role: about.role,
            by: "doctor",
            sources: sources.collect(),
            libraries: libraries.to_vec(),
        });
    }
    engines
}

fn row(source: Source, sight: Option<Sight>) -> SourceRow {
    let (word, reason) = match sight {
        None => ("unknown", None),
        Some(Sight::Visible) => ("visible", None),
        Some(Sight::Degraded(reason)) => ("degraded", Some(reason)),
        Some(Sight::Blind(reason)) => ("blind", Some(reason)),
    };
    SourceRow {
        source: source.name().to_owned(),
        sight: word.to_owned(),
        why: reason.map(|reason| reason.name().to_owned()),
        fix: reason.map(|reason| fix(source, reason)),
    }
}

/// The workers that the agent speaks of; `libraries` are those of each process.
pub(super) fn told(answer: &Value, libraries: &BTreeMap<u32, Vec<LibraryRow>>) -> Vec<Engine> {
    let workers = answer["workers"].as_array().into_iter().flatten();
    workers.filter_map(|worker| told_worker(worker, libraries)).collect()
}

fn told_worker(worker: &Value, libraries: &BTreeMap<u32, Vec<LibraryRow>>) -> Option<Engine> {
    let pid = worker["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok())?;
    let text = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
    let sources = worker["coverage"].as_array().into_iter().flatten().map(|field| {
        let source = field["source"].as_str().and_then(Source::from_name);
        let reason = field["why"].as_str().and_then(Reason::from_name);
        SourceRow {
            source: text(&field["source"]),
            sight: text(&field["sight"]),
            why: field["why"].as_str().map(str::to_owned),
            fix: source.zip(reason).map(|(source, reason)| fix(source, reason)),
        }
    });
    Some(Engine {
        pid,
        index: worker["index"].as_u64().unwrap_or(0),
        engine: text(&worker["engine"]),
        role: text(&worker["role"]),
        by: "agent",
        sources: sources.collect(),
        libraries: libraries.get(&pid).cloned().unwrap_or_default(),
    })
}

/// The libraries of a survey, where a hit costs that much.
pub(super) fn rows(survey: &Survey, hit: HitCost) -> Vec<LibraryRow> {
    let of = |library: &crate::probe::SurveyLibrary| {
        let report = &library.report;
        let points = library.points.iter().map(|point| PointRow {
            program: point.program,
            offset: point.offset,
            expected_ns: hit.ns,
        });
        let gaps = report.gaps.iter().map(|(group, gap)| GapRow {
            group: group.to_string(),
            why: gap.to_string(),
            would_cost_ns: match gap {
                Gap::Refused(_, Refusal::SingleStepped(_)) => Some(SINGLE_STEP_NS),
                _ => None,
            },
        });
        LibraryRow {
            family: family(report.family),
            path: report.path.display().to_string(),
            build_id: report
                .key
                .as_ref()
                .and_then(|key| key.build_id.as_ref())
                .map(ToString::to_string),
            build: report.build.clone(),
            points: points.collect(),
            gaps: gaps.collect(),
            problem: report.problem.as_deref().map(|problem| crate::error::chain(problem)),
        }
    };
    survey.libraries.iter().map(of).collect()
}

const fn family(family: Family) -> &'static str {
    match family {
        Family::Inflight => "inflight",
        Family::Nixl => "nixl",
        Family::NixlUcx => "nixl_ucx",
        Family::Ucp => "ucp",
        Family::Mooncake => "mooncake",
    }
}
