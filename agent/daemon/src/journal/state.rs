//! What the entries add up to. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use inflightd_core::fact::Seq;
use inflightd_core::{Cause, Finding};

use super::entry::{Act, Entry, Number};
use crate::identity::Identity;
use crate::worker::Removals;

/// A room that was told as appended and not as gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenRoom {
    /// The engine's id.
    pub room: u64,
    /// When it was appended, `CLOCK_MONOTONIC` in nanoseconds.
    pub at: u64,
    /// Bytes that the engine expects to move.
    pub expected: u64,
}

/// What earlier lives of the agent have told of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Past {
    /// Who it is.
    pub identity: Identity,
    /// `prefill`, `decode`, …
    pub role: String,
    /// Engine name.
    pub engine: String,
    /// Engine version.
    pub version: String,
    /// The names under which others address it: kind and value.
    pub names: Vec<(String, String)>,
    /// Removals that need no telling any more.
    pub told: Removals,
    /// Rooms that were told as appended and not as gone.
    pub open: BTreeMap<Seq, OpenRoom>,
    /// Verdicts that stand.
    pub standing: BTreeMap<Seq, (Finding, Cause)>,
}

/// A worker that has ended. Others may wait for it still.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    /// Who it was; one index stands for all.
    pub identity: Identity,
    /// When that was seen, `CLOCK_MONOTONIC` in nanoseconds.
    pub at: u64,
    /// Its names: kind and value.
    pub names: Vec<(String, String)>,
}

/// Most workers that have ended and are remembered. The victim is the oldest.
const GONE_MAX: usize = 256;

/// Everything that the journal says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) workers: BTreeMap<Number, Past>,
    /// Workers that have ended, the last one last.
    pub(super) gone: VecDeque<Gone>,
    /// Lines that an earlier life was about to write when it died.
    pub(super) pending: BTreeSet<Act>,
}

impl State {
    /// The state after the lines of a journal; damaged ones are skipped and counted.
    pub(super) fn read(text: &str, boot: &str) -> (Self, u64) {
        let mut state = Self::default();
        let mut damaged = 0;
        for line in text.split('\n').filter(|line| !line.is_empty()) {
            match super::entry::read(line) {
                Some(entry) => state.apply(&entry),
                None => damaged += 1,
            }
        }
        // Start times mean nothing after a reboot, and no worker has survived it.
        state.workers.retain(|_, past| past.identity.boot == boot);
        state.gone.retain(|gone| gone.identity.boot == boot);
        let known = &state.workers;
        state.pending.retain(|act| known.contains_key(&number(act)));
        (state, damaged)
    }

    pub(super) fn apply(&mut self, entry: &Entry) {
        match entry {
            Entry::Worker { n, .. } => drop(past(entry).map(|past| self.workers.insert(*n, past))),
            Entry::Append { n, seq, room, at, expected } => {
                if let Some(past) = self.workers.get_mut(n) {
                    let open = OpenRoom { room: *room, at: *at, expected: *expected };
                    past.open.insert(Seq(*seq), open);
                }
            }
            Entry::Will(act) => drop(self.pending.insert(act.clone())),
            Entry::Did(act) => {
                self.pending.remove(act);
                self.did(act);
            }
            Entry::Through { n, through } => {
                if let Some(past) = self.workers.get_mut(n) {
                    past.told.give_up(*through);
                }
            }
            Entry::Gone { boot, pid, start, at, names } => {
                let identity = Identity { boot: boot.clone(), pid: *pid, start: *start, index: 0 };
                self.bury(Gone { identity, at: *at, names: names.clone() });
            }
            Entry::End { n, at } => {
                if let Some(past) = self.workers.remove(n) {
                    self.bury(Gone { identity: past.identity, at: *at, names: past.names });
                }
                self.pending.retain(|act| number(act) != *n);
            }
        }
    }

    fn bury(&mut self, gone: Gone) {
        if gone.names.is_empty() {
            return;
        }
        if self.gone.len() >= GONE_MAX {
            self.gone.pop_front();
        }
        self.gone.push_back(gone);
    }

    fn did(&mut self, act: &Act) {
        let Some(past) = self.workers.get_mut(&number(act)) else {
            return;
        };
        match act {
            Act::Dwell { seq, removal, .. } => {
                past.open.remove(&Seq(*seq));
                past.standing.remove(&Seq(*seq));
                if *removal > 0 {
                    past.told.insert(*removal);
                }
            }
            Act::Verdict { seq, finding, cause, .. } => {
                let told = Finding::from_name(finding).zip(Cause::from_name(cause));
                // Its room may have left meanwhile: lines are written later than they are begun.
                if let Some(told) = told.filter(|_| past.open.contains_key(&Seq(*seq))) {
                    past.standing.insert(Seq(*seq), told);
                }
            }
            Act::Clear { seq, .. } => drop(past.standing.remove(&Seq(*seq))),
        }
    }

    /// The shortest entries that give this state.
    pub(super) fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        for (n, past) in &self.workers {
            entries.push(worker(*n, past));
            for (seq, open) in &past.open {
                let OpenRoom { room, at, expected } = *open;
                entries.push(Entry::Append { n: *n, seq: seq.0, room, at, expected });
            }
            for (seq, (finding, cause)) in &past.standing {
                entries.push(Entry::Did(Act::verdict(*n, *seq, *finding, *cause)));
            }
        }
        entries.extend(self.gone.iter().map(|gone| Entry::Gone {
            boot: gone.identity.boot.clone(),
            pid: gone.identity.pid,
            start: gone.identity.start,
            at: gone.at,
            names: gone.names.clone(),
        }));
        entries.extend(self.pending.iter().cloned().map(Entry::Will));
        entries
    }
}

/// The worker whose line an act is.
pub(super) const fn number(act: &Act) -> Number {
    match act {
        Act::Dwell { n, .. } | Act::Verdict { n, .. } | Act::Clear { n, .. } => *n,
    }
}

/// The entry of a worker.
pub(super) fn worker(n: Number, past: &Past) -> Entry {
    Entry::Worker {
        n,
        boot: past.identity.boot.clone(),
        pid: past.identity.pid,
        start: past.identity.start,
        index: past.identity.index,
        role: past.role.clone(),
        engine: past.engine.clone(),
        version: past.version.clone(),
        names: past.names.clone(),
        through: past.told.unbroken(),
        above: past.told.above().collect(),
    }
}

fn past(entry: &Entry) -> Option<Past> {
    let Entry::Worker {
        boot, pid, start, index, role, engine, version, names, through, above, ..
    } = entry
    else {
        return None;
    };
    let mut told = Removals::through(*through);
    for removal in above {
        told.insert(*removal);
    }
    Some(Past {
        identity: Identity { boot: boot.clone(), pid: *pid, start: *start, index: *index },
        role: role.clone(),
        engine: engine.clone(),
        version: version.clone(),
        names: names.clone(),
        told,
        open: BTreeMap::new(),
        standing: BTreeMap::new(),
    })
}
