//! The probes as sources: what is attached to a process, as sights of the core's sources.

use inflightd_abi::record::{Kind, Record};
use inflightd_core::{Nanos, Reason, Sight, Source};

use crate::meters::Seen as RdmaSeen;
use crate::probe::{
    AttachError, AttachReport, ExitSource, Family, Gap, Group, Holdings, LibraryReport, Probes,
    Refusal,
};
use crate::proc::{Mapping, Maps, may_pass_sockets};
use crate::worker::Uncounted;

/// The marks whose absence the ledger must know of.
const MARKS: [Group; 7] = [
    Group::Mark(Kind::Append),
    Group::Mark(Kind::Serve),
    Group::Mark(Kind::ServeEnd),
    Group::Mark(Kind::Post),
    Group::Mark(Kind::Done),
    Group::Mark(Kind::Phase),
    Group::Mark(Kind::Remove),
];
/// Sources that rest on uprobes, with the groups that they need and where those are.
const PROBED: [(Source, &[Group], Family); 4] = [
    (Source::Marks, &MARKS, Family::Inflight),
    (Source::Transfers, &[Group::XferPost, Group::XferRet, Group::XferRelease], Family::Nixl),
    (Source::Completions, &[Group::Flush], Family::Ucp),
    (Source::EndpointErrors, &[Group::EpError], Family::NixlUcx),
];

/// What is said before the links are closed.
const ENDING: &str = "all is told and written; the probes come off now, for which the kernel needs \
                      0.1 s each: to kill the agent meanwhile does no harm";

/// Where ring records come from.
#[derive(Debug)]
pub enum Hits {
    /// No probes: the tables and the meters alone.
    Off,
    /// Probes in the kernel.
    On(Box<Probes>),
}

/// What is seen of a process by its probes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// How well each probed source sees it.
    pub sights: Vec<(Source, Sight)>,
    /// Address of a flush's completion less that of its request, where the build is known.
    pub distance: Option<i64>,
    /// Not all of its files were looked at yet: attach again soon.
    pub unfinished: bool,
    /// Ways for its payload that nothing counts, as far as its maps show them.
    pub uncounted: Uncounted,
}

/// What a reading of the ring gave besides records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Records lost since the last reading, of whatever process.
    pub lost: u64,
    /// Of them those that are known to be of a process, by its id.
    pub lost_of: Vec<(u32, u64)>,
    /// Whether ends of processes may be among them: they are lost only where there is no room at
    /// all.
    pub lost_ends: bool,
    /// The ring was not emptied: read again soon.
    pub more: bool,
}

impl Hits {
    /// Attaches to the libraries of a process, and watches its exit. With `is_worker` marks are
    /// looked for thoroughly.
    pub fn attach(&mut self, pid: u32, maps: &Maps, is_worker: bool) -> Seen {
        match self {
            Self::Off => Seen {
                sights: PROBED
                    .iter()
                    .map(|(source, ..)| *source)
                    .chain([Source::Exits])
                    .map(|source| (source, Sight::Blind(Reason::NotAttached)))
                    .collect(),
                ..Seen::default()
            },
            Self::On(probes) => {
                let report = probes.attach(pid, &maps.objects, is_worker);
                log(&report);
                let mut seen = seen(&report);
                // UCX maps the module whatever it is told to use.
                seen.uncounted.direct =
                    maps.objects.iter().any(is_other_transport) && may_pass_sockets(pid);
                seen.uncounted.verbs = maps.verbs;
                seen.sights.push((Source::Exits, exits(probes, pid)));
                seen
            }
        }
    }

    /// What the probes on the kernel's RDMA functions have seen of queue pairs. Puts them on first,
    /// where they are not; why they cannot be is said once.
    pub fn queues(&mut self) -> RdmaSeen {
        let Self::On(probes) = self else {
            return RdmaSeen::default();
        };
        let sends = matches!(probes.attach_queues().sends, Some(Ok(())));
        RdmaSeen { queues: probes.queues(), sends }
    }

    /// Watches the exit of a process that is not a worker. `false` when it cannot be watched.
    pub fn watch(&mut self, pid: u32) -> bool {
        match self {
            Self::Off => false,
            Self::On(probes) => probes.watch(pid).is_ok(),
        }
    }

    /// Forgets a process; libraries that nobody else uses lose their probes in a while.
    pub fn forget(&mut self, pid: u32) {
        if let Self::On(probes) = self {
            probes.forget(pid);
        }
    }

    /// Takes the probes off what nobody has used for a while. To be called about once a second.
    pub fn sweep(&mut self, now: Nanos) {
        if let Self::On(probes) = self {
            probes.sweep(now);
        }
    }

    /// What the probes hold at this moment.
    pub fn holdings(&self) -> Holdings {
        match self {
            Self::Off => Holdings::default(),
            Self::On(probes) => probes.holdings(),
        }
    }

    /// Takes every record that is in the ring.
    pub fn drain(&mut self, each: &mut dyn FnMut(Record)) -> Drained {
        match self {
            Self::Off => Drained::default(),
            Self::On(probes) => {
                let stats = probes.drain(each);
                if stats.malformed > 0 {
                    tracing::warn!(count = stats.malformed, "records of an unknown form");
                }
                Drained {
                    lost: stats.lost.saturating_add(stats.malformed as u64),
                    lost_of: stats.lost_of,
                    lost_ends: stats.lost_full > 0 || stats.malformed > 0,
                    more: stats.more,
                }
            }
        }
    }

    /// Begins to take every probe off. [`Self::end`] waits for it.
    pub fn let_go(&mut self) {
        if let Self::On(probes) = self {
            probes.detach_all();
        }
    }

    /// Waits until every probe is off, and says so where that takes a while.
    pub fn end(mut self) {
        self.let_go();
        let links = self.holdings().closing;
        if links > 0 {
            tracing::info!(links, "{ENDING}");
        }
    }

    /// Whether probes are used.
    pub const fn are_on(&self) -> bool {
        matches!(self, Self::On(_))
    }

    /// Probe links that are attached now.
    pub fn links(&self) -> u64 {
        match self {
            Self::Off => 0,
            Self::On(probes) => probes.links() as u64,
        }
    }

    /// Failures inside the kernel programs, those that have happened.
    pub fn mishaps(&self) -> Vec<(&'static str, u64)> {
        match self {
            Self::Off => Vec::new(),
            Self::On(probes) => probes
                .mishaps()
                .into_iter()
                .filter(|(_, count)| *count > 0)
                .map(|(mishap, count)| (mishap.name(), count))
                .collect(),
        }
    }
}

impl Drained {
    /// Records that may have been of a process: its own, and those of nobody knows whom.
    pub fn lost_by(&self, pid: u32) -> u64 {
        let of = |mine: bool| {
            let fits = self.lost_of.iter().filter(move |(of, _)| !mine || *of == pid);
            fits.map(|(_, count)| *count).sum::<u64>()
        };
        of(true) + self.lost.saturating_sub(of(false))
    }
}

/// UCX's module for `process_vm_writev`. That it is mapped does not say that it is used: the ledger
/// finds out by what completes.
fn is_other_transport(object: &Mapping) -> bool {
    object.file_name().is_some_and(|name| name.starts_with("libuct_cma"))
}

fn exits(probes: &mut Probes, pid: u32) -> Sight {
    match (probes.watch(pid), probes.exit_source()) {
        (Ok(()), ExitSource::WithGroupDead) => Sight::Visible,
        (Ok(()), ExitSource::Plain) => Sight::Degraded(Reason::KernelLacks),
        (Err(error), _) => {
            tracing::warn!(pid, %error, "watching a process's exit");
            Sight::Blind(Reason::NotAttached)
        }
    }
}

fn log(report: &AttachReport) {
    if let Some(problem) = &report.problem {
        tracing::warn!(pid = report.pid, error = crate::error::chain(problem), "attaching probes");
    }
    for library in report.libraries.iter().filter(|library| library.fresh) {
        tracing::info!(
            library = %library.path.display(),
            build = library.build_in_words(),
            attached = library.attached_in_words(),
            gaps = library.gaps_in_words(),
            "probes are on a library"
        );
    }
}

/// What a report means for the sources.
pub(crate) fn seen(report: &AttachReport) -> Seen {
    Seen {
        sights: PROBED
            .iter()
            .map(|(source, groups, family)| (*source, sight(report, groups, *family)))
            .collect(),
        distance: report.libraries.iter().find_map(|library| library.distance),
        unfinished: report.unfinished,
        uncounted: Uncounted::default(),
    }
}

fn sight(report: &AttachReport, groups: &[Group], family: Family) -> Sight {
    if let Some(problem) = &report.problem {
        return Sight::Blind(refused(problem));
    }
    let libraries = || report.libraries.iter().filter(|library| library.family == family);
    let missing = groups.iter().filter(|group| !report.sees(**group)).count();
    if missing == 0 {
        // Several copies may be mapped, and which one is used cannot be told: the least known
        // counts.
        return if libraries().any(LibraryReport::degraded) {
            Sight::Degraded(Reason::UnknownBuild)
        } else {
            Sight::Visible
        };
    }
    let reason = libraries()
        .find_map(|library| {
            let gap = library.gaps.iter().find(|(group, _)| groups.contains(group));
            let problem = library.problem.as_deref().map(refused);
            problem.or_else(|| gap.map(|(_, gap)| reason(gap)))
        })
        .unwrap_or(Reason::LibraryMissing);
    if missing < groups.len() { Sight::Degraded(reason) } else { Sight::Blind(reason) }
}

fn refused(problem: &AttachError) -> Reason {
    match problem {
        AttachError::Maps { source, .. } | AttachError::Open { source, .. }
            if source.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            Reason::NotPermitted
        }
        _ => Reason::ReadFailed,
    }
}

const fn reason(gap: &Gap) -> Reason {
    match gap {
        Gap::Missing(_) | Gap::Ambiguous(..) => Reason::SymbolMissing,
        Gap::Return(_) => Reason::UnknownBuild,
        Gap::Refused(_, Refusal::Unreadable) => Reason::ReadFailed,
        Gap::Refused(..) => Reason::UnsafeOpcode,
        Gap::Attach { denied: true, .. } => Reason::NotPermitted,
        Gap::Attach { denied: false, .. } => Reason::KernelLacks,
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_loss_is_its_process_s_own_as_far_as_it_is_known() {
        let drained = Drained { lost: 10, lost_of: vec![(1, 7), (2, 3)], ..Drained::default() };
        assert_eq!([1, 2, 3].map(|pid| drained.lost_by(pid)), [7, 3, 0]);
        let drained = Drained { lost: 12, ..drained };
        assert_eq!([1, 2, 3].map(|pid| drained.lost_by(pid)), [9, 5, 2]);
    }

    fn library(family: Family, attached: &[Group], gaps: &[(Group, Gap)]) -> LibraryReport {
        LibraryReport {
            family,
            path: PathBuf::from("/x"),
            key: None,
            build: Some("known".to_owned()),
            distance: (family == Family::Ucp).then_some(120),
            attached: attached.to_vec(),
            gaps: gaps.to_vec(),
            fresh: false,
            problem: None,
        }
    }

    fn report(libraries: Vec<LibraryReport>) -> AttachReport {
        AttachReport { pid: 1, libraries, problem: None, unfinished: false }
    }

    fn sight_of(report: &AttachReport, source: Source) -> Sight {
        seen(report).sights.into_iter().find(|(of, _)| *of == source).unwrap().1
    }

    #[test]
    fn a_library_that_is_not_mapped_is_missing() {
        let report = report(vec![library(Family::Inflight, &MARKS, &[])]);
        assert_eq!(sight_of(&report, Source::Marks), Sight::Visible);
        assert_eq!(sight_of(&report, Source::Transfers), Sight::Blind(Reason::LibraryMissing));
        assert_eq!(seen(&report).distance, None);
    }

    #[test]
    fn an_unknown_build_sees_less() {
        let known = library(Family::Ucp, &[Group::Flush], &[]);
        assert_eq!(sight_of(&report(vec![known]), Source::Completions), Sight::Visible);
        let mut ucp = library(Family::Ucp, &[Group::Flush], &[]);
        ucp.build = None;
        assert_eq!(
            sight_of(&report(vec![ucp]), Source::Completions),
            Sight::Degraded(Reason::UnknownBuild)
        );
    }

    #[test]
    fn a_gap_gives_its_reason() {
        let remove = Group::Mark(Kind::Remove);
        let gap = Gap::Refused("x".to_owned(), Refusal::FiveByteNop);
        let report = report(vec![library(Family::Inflight, &MARKS[..6], &[(remove, gap)])]);
        assert_eq!(sight_of(&report, Source::Marks), Sight::Degraded(Reason::UnsafeOpcode));
    }

    #[test]
    fn a_process_that_cannot_be_looked_at_is_not_seen() {
        let source = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let mut report = report(Vec::new());
        report.problem = Some(AttachError::Maps { pid: 1, source });
        assert_eq!(sight_of(&report, Source::EndpointErrors), Sight::Blind(Reason::NotPermitted));
    }
}
