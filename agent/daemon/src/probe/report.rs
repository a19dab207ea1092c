//! What is seen of a process, and what is not and why.

use std::{error::Error, io, path::PathBuf, sync::Arc};

use inflightd_abi::layout::WATCHED_SLOTS;

use super::{
    elf::ElfError,
    library::{Family, ObjectKey},
    plan::{Gap, Group},
};

/// Libraries kept at most; further ones are refused until one is detached.
pub(crate) const LIBRARIES: usize = 1024;

/// Why a process, or one of its libraries, could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The process has gone, or its `maps` may not be read.
    #[error("reading /proc/{pid}/maps")]
    Maps {
        /// The process.
        pid: u32,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A mapped library could not be opened.
    #[error("opening {}", path.display())]
    Open {
        /// Path as the process sees it.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// As many libraries carry probes as the agent keeps.
    #[error("{LIBRARIES} libraries carry probes already")]
    TooMany,
    /// A mapped library could not be read.
    #[error("reading the symbols of {}", path.display())]
    Elf {
        /// Path as the process sees it.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: ElfError,
    },
}

/// Why a process's exit cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// As many processes are watched as fit.
    #[error("{WATCHED_SLOTS} processes are watched already")]
    Full,
    /// The kernel refused.
    #[error("storing process {0} in the map of watched processes")]
    Map(u32, #[source] Box<dyn Error + Send + Sync>),
}

/// What is seen of one library.
#[derive(Debug)]
pub struct LibraryReport {
    /// What the library is to us.
    pub family: Family,
    /// Path as the process sees it.
    pub path: PathBuf,
    /// Which file and build it is; `None` where it could not be read.
    pub key: Option<ObjectKey>,
    /// Name of the known build; `None` for an unknown one, and where none is needed.
    pub build: Option<String>,
    /// Address of a flush's completion less that of its request, where the build is known.
    pub distance: Option<i64>,
    /// The groups whose points are attached.
    pub attached: Vec<Group>,
    /// The groups whose points are not, and why.
    pub gaps: Vec<(Group, Gap)>,
    /// Whether this visit put the probes on; otherwise an earlier one did, for all processes.
    pub fresh: bool,
    /// Why nothing is attached at all.
    pub problem: Option<Arc<AttachError>>,
}

impl LibraryReport {
    /// Whether the records of this library lack fields because its build is not known.
    pub fn degraded(&self) -> bool {
        matches!(self.family, Family::Nixl | Family::Ucp | Family::Mooncake) && self.build.is_none()
    }

    /// The known build in words.
    pub fn build_in_words(&self) -> &str {
        let without = if self.degraded() { "unknown" } else { "any build" };
        self.build.as_deref().unwrap_or(without)
    }

    /// What is attached in words.
    pub fn attached_in_words(&self) -> String {
        listed(self.attached.iter().map(ToString::to_string), ", ")
    }

    /// What is not attached, and why, in words.
    pub fn gaps_in_words(&self) -> String {
        listed(self.gaps.iter().map(|(group, gap)| format!("{group}: {gap}")), "; ")
    }

    pub(crate) fn unreadable(family: Family, path: PathBuf, problem: Arc<AttachError>) -> Self {
        Self {
            family,
            path,
            key: None,
            build: None,
            distance: None,
            attached: Vec::new(),
            gaps: Vec::new(),
            fresh: false,
            problem: Some(problem),
        }
    }
}

fn listed(texts: impl Iterator<Item = String>, between: &str) -> String {
    let texts: Vec<String> = texts.collect();
    if texts.is_empty() { "none".to_owned() } else { texts.join(between) }
}

/// What is seen of a process.
#[derive(Debug)]
pub struct AttachReport {
    /// The process.
    pub pid: u32,
    /// Its libraries that may carry probes. Plugins are opened late: look again later.
    pub libraries: Vec<LibraryReport>,
    /// Why the process could not be looked at.
    pub problem: Option<AttachError>,
    /// There was more to look at than one visit takes: visit again.
    pub unfinished: bool,
}

impl AttachReport {
    /// Whether the points of a group are attached in at least one library of the process.
    pub fn sees(&self, group: Group) -> bool {
        self.libraries.iter().any(|library| library.attached.contains(&group))
    }
}

/// What happened when a process was forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// Libraries that no known process uses any more.
    pub unused: Vec<ObjectKey>,
}

#[cfg(test)]
mod tests {
    use inflightd_abi::record::Kind;

    use super::*;

    #[test]
    fn a_library_is_told_in_words() {
        let none = Arc::new(AttachError::TooMany);
        let own = LibraryReport::unreadable(Family::Inflight, PathBuf::from("/x"), none);
        assert_eq!(own.build_in_words(), "any build");
        assert_eq!((own.attached_in_words(), own.gaps_in_words()), ("none".into(), "none".into()));
        let nixl = LibraryReport {
            family: Family::Nixl,
            attached: vec![Group::Mark(Kind::Open), Group::XferPost],
            gaps: vec![(Group::Flush, Gap::Missing("f")), (Group::EpError, Gap::Missing("e"))],
            ..own
        };
        assert_eq!(nixl.build_in_words(), "unknown");
        assert_eq!(nixl.attached_in_words(), "inflight_mark_open, xfer_post");
        assert_eq!(
            nixl.gaps_in_words(),
            "flush: the library exports no `f…`; ep_error: the library exports no `e…`"
        );
        let known = LibraryReport { build: Some("nixl 0.6".to_owned()), ..nixl };
        assert_eq!(known.build_in_words(), "nixl 0.6");
    }

    #[test]
    fn each_group_has_a_word_of_its_own() {
        let words: std::collections::BTreeSet<String> =
            Group::ALL.iter().map(ToString::to_string).collect();
        assert_eq!(words.len(), Group::ALL.len());
        assert!(words.iter().flat_map(|word| word.chars()).all(|c| c == '_' || c.is_lowercase()));
    }
}
