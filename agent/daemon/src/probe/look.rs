//! Looking at the files that a process maps: what in them could be probed.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    attach::Probes,
    elf::Depth,
    library::{Family, Library, Place, is_telling},
    objects::{Found, Object, Process, mapped},
    report::{AttachError, LIBRARIES},
};
use crate::proc::Mapping;

/// Files with probes of one process at most: a hostile one may map as many as it likes. The
/// victims are those that are looked at last.
const PROCESS_LIBRARIES: usize = 32;
/// What a look at a file costs at least, in the same measure: about a thousand looks a visit.
const LOOK_BYTES: u64 = 64 << 10;
/// Most files kept as looked at and plain. When there are more, all are forgotten, and looked at
/// again where they are mapped anew.
const PLAIN_MAX: usize = 64 * 1024;
/// While more links than this wait to be closed, no library gets new ones.
const CLOSING_MAX: usize = 4096;

impl Probes {
    /// Looks at what was not looked at so deeply; gives the objects that are new to the agent.
    /// Files whose paths promise something come first.
    pub(super) fn look(
        &mut self,
        pid: u32,
        objects: &[Mapping],
        process: &mut Process,
        (depth, left): (Depth, &mut u64),
    ) -> BTreeSet<Place> {
        let (telling, others): (Vec<_>, Vec<_>) =
            objects.iter().partition(|mapping| is_telling(&mapping.path));
        let mut fresh = BTreeSet::new();
        for mapping in telling.into_iter().chain(others) {
            let is_done = match process.found.get(&mapped(mapping)) {
                None => false,
                Some(Found::Plain(looked)) => *looked >= depth,
                Some(Found::Object(_)) => true,
                // What was wrong may have passed.
                Some(Found::Problem(..)) => process.problems().count() > PROCESS_LIBRARIES,
            };
            if is_done {
                continue;
            }
            if *left == 0 {
                break;
            }
            *left = left.saturating_sub(LOOK_BYTES);
            let room = process.places().len() < PROCESS_LIBRARIES;
            let found = self.look_at(pid, mapping, (depth, &mut *left), room);
            if let Ok((Found::Object(place), true)) = &found {
                fresh.insert(*place);
            }
            let expected = mapping.file_name().and_then(Family::of);
            let found = match (found, expected) {
                (Ok((found, _)), _) => found,
                (Err(problem), Some(family)) => {
                    Found::Problem(family, mapping.path.clone(), Arc::new(problem))
                }
                (Err(_unexpected), None) => Found::Plain(depth),
            };
            process.found.insert(mapped(mapping), found);
        }
        fresh
    }

    /// Looks at one file; `true` beside it where it is an object that was not known.
    fn look_at(
        &mut self,
        pid: u32,
        mapping: &Mapping,
        (depth, left): (Depth, &mut u64),
        room: bool,
    ) -> Result<(Found, bool), AttachError> {
        let path = || mapping.path.clone();
        let library = Library::open(pid, mapping)
            .map_err(|source| AttachError::Open { path: path(), source })?;
        let place = library.place;
        if self.objects.contains_key(&place) && room {
            return Ok((Found::Object(place), false));
        }
        if self.plain.contains(&(place, depth)) {
            return Ok((Found::Plain(depth), false));
        }
        let is_full = self.objects.len() >= LIBRARIES || self.reaper.waiting() > CLOSING_MAX;
        if is_full || !room {
            return Err(AttachError::TooMany);
        }
        self.looked += 1;
        let exports =
            library.exports(depth).map_err(|source| AttachError::Elf { path: path(), source })?;
        *left = left.saturating_sub(exports.bytes);
        let Some(object) = Object::plan(library, &exports, &self.rules) else {
            self.remember_plain(place, depth);
            return Ok((Found::Plain(depth), false));
        };
        self.objects.insert(place, object);
        Ok((Found::Object(place), true))
    }

    fn remember_plain(&mut self, place: Place, depth: Depth) {
        if self.plain.len() >= PLAIN_MAX {
            self.plain.clear();
        }
        self.plain.insert((place, depth));
    }

    pub(super) fn has_marks(&self, process: &Process) -> bool {
        let objects = process.places().into_iter().filter_map(|place| self.objects.get(&place));
        objects.flat_map(|object| &object.parts).any(|part| part.family == Family::Inflight)
    }
}
