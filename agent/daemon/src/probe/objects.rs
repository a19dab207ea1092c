//! What is known of the files that processes run code of.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use aya::programs::uprobe::UProbeLink;
use inflightd_core::Nanos;

use super::{
    elf::{Depth, Exports},
    library::{Family, Library, ObjectKey, Place},
    plan::{self, Gap, Plan},
    report::{AttachError, LibraryReport},
    rules::Rules,
    symbols,
};
use crate::proc::Mapping;

/// A file, as `/proc/PID/maps` tells it from others.
pub(crate) type Mapped = ((u32, u32), u64);

pub(crate) const fn mapped(mapping: &Mapping) -> Mapped {
    (mapping.device, mapping.inode)
}

/// What a look at a mapped file gave.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    /// Nothing to probe, as far as it was looked at.
    Plain(Depth),
    /// It carries probes, or would.
    Object(Place),
    /// It could not be looked at, although its name lets expect something.
    Problem(Family, PathBuf, Arc<AttachError>),
}

/// What is known of a process.
#[derive(Debug, Default)]
pub(crate) struct Process {
    pub(crate) found: BTreeMap<Mapped, Found>,
}

impl Process {
    /// Places of the objects that it maps.
    pub(crate) fn places(&self) -> BTreeSet<Place> {
        self.found
            .values()
            .filter_map(|found| match found {
                Found::Object(place) => Some(*place),
                _ => None,
            })
            .collect()
    }

    /// What could not be looked at, as reports.
    pub(crate) fn problems(&self) -> impl Iterator<Item = LibraryReport> + '_ {
        self.found.values().filter_map(|found| match found {
            Found::Problem(family, path, problem) => {
                Some(LibraryReport::unreadable(*family, path.clone(), Arc::clone(problem)))
            }
            _ => None,
        })
    }
}

/// One family's points in an object.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) family: Family,
    pub(crate) plan: Plan,
    /// Links and failures by bundle of the plan.
    pub(crate) links: BTreeMap<usize, Vec<UProbeLink>>,
    pub(crate) failed: BTreeMap<usize, Gap>,
}

/// A library or program that has something to probe. Its open file keeps the inode number from
/// being used again.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) library: Library,
    pub(crate) key: ObjectKey,
    pub(crate) parts: Vec<Part>,
    pub(crate) users: BTreeSet<u32>,
    /// Since when nobody has used it.
    pub(crate) unused_since: Option<Nanos>,
}

impl Object {
    /// Plans what an object gets; `None` where there is nothing to probe.
    pub(crate) fn plan(library: Library, exports: &Exports, rules: &Rules) -> Option<Self> {
        let parts: Vec<Part> = symbols::families(exports)
            .into_iter()
            .map(|family| Part {
                family,
                plan: plan::plan(family, exports, &rules.builds, &rules.returns),
                links: BTreeMap::new(),
                failed: BTreeMap::new(),
            })
            .collect();
        let key = library.key(exports.build_id.clone());
        (!parts.is_empty()).then_some(Self {
            library,
            key,
            parts,
            users: BTreeSet::new(),
            unused_since: None,
        })
    }

    /// How many points carry a probe.
    pub(crate) fn links(&self) -> usize {
        self.parts.iter().flat_map(|part| part.links.values()).map(Vec::len).sum()
    }

    /// Every link, for closing.
    pub(crate) fn into_links(self) -> Vec<UProbeLink> {
        self.parts.into_iter().flat_map(|part| part.links.into_values()).flatten().collect()
    }

    /// What is seen of it, a report for each family.
    pub(crate) fn reports(&self, fresh: bool) -> impl Iterator<Item = LibraryReport> + '_ {
        self.parts.iter().map(move |part| self.report(part, fresh))
    }

    fn report(&self, part: &Part, fresh: bool) -> LibraryReport {
        let bundles = || part.plan.bundles.iter().enumerate();
        let failed = bundles()
            .filter_map(|(index, bundle)| Some((bundle, part.failed.get(&index)?)))
            .flat_map(|(bundle, gap)| bundle.groups.iter().map(|group| (*group, gap.clone())));
        LibraryReport {
            family: part.family,
            path: self.library.path.clone(),
            key: Some(self.key.clone()),
            build: part.plan.build.clone(),
            distance: part.plan.distance,
            attached: bundles()
                .filter(|(index, _)| part.links.contains_key(index))
                .flat_map(|(_, bundle)| bundle.groups.iter().copied())
                .collect(),
            gaps: part.plan.gaps.iter().cloned().chain(failed).collect(),
            fresh,
            problem: None,
        }
    }
}
