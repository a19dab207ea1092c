//! What would be probed in a process, without probing it: read-only, and nothing is loaded.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use aya::maps::MapType;
use aya::programs::ProgramType;

use super::{
    builds::{Builds, BuildsError},
    elf::Depth,
    library::{Family, Library, is_telling},
    load::returns,
    objects::Object,
    plan::{Gap, Group},
    preflight::{Machine, Obstacle},
    report::{AttachError, AttachReport, LibraryReport},
    rules::Rules,
};
use crate::proc::Mapping;

/// Bytes of symbol tables that one survey of a process reads.
const SURVEY_BYTES: u64 = 256 << 20;
/// What a hit on an instruction costs that the kernel emulates, in nanoseconds of the calling
/// thread, without the program: `push`, median of 15 x 20,000 calls on Linux 6.18. For whom
/// [`hit_cost`](super::hit_cost) cannot measure it.
pub const EMULATED_NS: u64 = 450;
/// The same where the kernel would have to single-step it: such points are refused.
pub const SINGLE_STEP_NS: (u64, u64) = (40_000, 80_000);

/// One point that would carry a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SurveyPoint {
    /// Name of the kernel program.
    pub program: &'static str,
    /// Offset in the file, in bytes.
    pub offset: u64,
}

/// One library of a process.
#[derive(Debug)]
pub struct SurveyLibrary {
    /// What would be attached (`attached`), and what not and why.
    pub report: LibraryReport,
    /// Where.
    pub points: Vec<SurveyPoint>,
}

/// What would be probed in a process.
#[derive(Debug)]
pub struct Survey {
    /// Its libraries.
    pub libraries: Vec<SurveyLibrary>,
    /// There was more to read than one survey does.
    pub unfinished: bool,
}

impl Survey {
    /// The same as a report, as if everything that is planned were attached.
    pub fn into_report(self, pid: u32) -> AttachReport {
        let libraries = self.libraries.into_iter().map(|library| library.report).collect();
        AttachReport { pid, libraries, problem: None, unfinished: self.unfinished }
    }
}

/// Looks at the files that a process maps, those that promise something first. With `is_worker`,
/// every symbol that a file has kept is searched where none is exported.
pub fn survey(objects: &[Mapping], pid: u32, is_worker: bool) -> Result<Survey, BuildsError> {
    let returns = returns(&Machine::read().release, false);
    let rules = Rules { builds: Builds::known()?, returns };
    let mut survey = Survey { libraries: Vec::new(), unfinished: false };
    let (telling, others): (Vec<_>, Vec<_>) =
        objects.iter().partition(|mapping| is_telling(&mapping.path));
    let mut seen = BTreeSet::new();
    let mut left = SURVEY_BYTES;
    let mut depths = vec![Depth::Exported];
    if is_worker {
        depths.push(Depth::All);
    }
    for depth in depths {
        let has_marks = |survey: &Survey| {
            survey.libraries.iter().any(|library| library.report.family == Family::Inflight)
        };
        if depth == Depth::All && has_marks(&survey) {
            break;
        }
        for mapping in telling.iter().chain(&others) {
            if left == 0 {
                survey.unfinished = true;
                break;
            }
            match look(pid, mapping, depth, &mut left) {
                Ok(Some(object)) if seen.insert(object.library.place) => {
                    let object = object.plan(&rules);
                    survey.libraries.extend(object.into_iter().flat_map(libraries));
                }
                Ok(_) => {}
                Err(error) => {
                    if let Some(family) = mapping.file_name().and_then(Family::of)
                        && depth == Depth::Exported
                    {
                        survey.libraries.push(unreadable(family, mapping.path.clone(), error));
                    }
                }
            }
        }
    }
    Ok(survey)
}

/// A file that defines something.
struct Looked {
    library: Library,
    exports: super::elf::Exports,
}

impl Looked {
    fn plan(self, rules: &Rules) -> Option<Object> {
        Object::plan(self.library, &self.exports, rules)
    }
}

fn look(
    pid: u32,
    mapping: &Mapping,
    depth: Depth,
    left: &mut u64,
) -> Result<Option<Looked>, AttachError> {
    let path = || mapping.path.clone();
    let library =
        Library::open(pid, mapping).map_err(|source| AttachError::Open { path: path(), source })?;
    let exports =
        library.exports(depth).map_err(|source| AttachError::Elf { path: path(), source })?;
    *left = left.saturating_sub(exports.bytes.max(1 << 12));
    Ok((!exports.functions.is_empty()).then_some(Looked { library, exports }))
}

fn libraries(object: Object) -> Vec<SurveyLibrary> {
    let Object { library, key, parts, .. } = object;
    let of = |part: super::objects::Part| {
        let groups = part.plan.bundles.iter().flat_map(|bundle| bundle.groups.iter().copied());
        let points = part.plan.bundles.iter().flat_map(|bundle| &bundle.points);
        SurveyLibrary {
            points: points
                .map(|point| SurveyPoint { program: point.program, offset: point.offset })
                .collect(),
            report: LibraryReport {
                family: part.family,
                path: library.path.clone(),
                key: Some(key.clone()),
                distance: part.plan.distance,
                attached: groups.collect::<Vec<Group>>(),
                build: part.plan.build,
                gaps: part.plan.gaps.into_iter().collect::<Vec<(Group, Gap)>>(),
                fresh: false,
                problem: None,
            },
        }
    };
    parts.into_iter().map(of).collect()
}

fn unreadable(family: Family, path: PathBuf, error: AttachError) -> SurveyLibrary {
    let report = LibraryReport::unreadable(family, path, Arc::new(error));
    SurveyLibrary { report, points: Vec::new() }
}

/// The first thing that would keep the programs from being loaded.
pub fn obstacle() -> Option<Obstacle> {
    Machine::read().check().err()
}

/// What the kernel says when it is asked for a feature of BPF: by making one and dropping it.
pub fn bpf_features() -> Vec<(&'static str, Result<bool, String>)> {
    let map = aya::sys::is_map_supported(MapType::RingBuf);
    let program = aya::sys::is_program_supported(ProgramType::KProbe);
    let raw = aya::sys::is_program_supported(ProgramType::RawTracePoint);
    vec![
        ("BPF ring buffer", map.map_err(|error| error.to_string())),
        ("BPF programs on probes", program.map_err(|error| error.to_string())),
        ("BPF raw tracepoints", raw.map_err(|error| error.to_string())),
    ]
}
