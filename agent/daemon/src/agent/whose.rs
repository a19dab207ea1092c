//! Which process goes by a name that nobody states, or that several state: told by volume.
//!
//! A worker posts so many bytes to a name, and each process at the far end of its connections
//! takes so many. A name is a process's when of all pairings only this one fits, in every
//! reading: the process took no less than what completed to the name, and no more than what was
//! posted to it. A name with much still to come fits any process; another one is told from it
//! by a process that keeps step with it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use inflightd_core::Nanos;
use inflightd_core::fact::{Handle, Peer};

/// A process by id and start time.
pub(super) type Process = (u32, u64);

/// Most open transfers that are followed. The victim is the newcomer; as its bytes then have no
/// name, its process fits none until the count begins anew.
const HANDLES_MAX: usize = 64 * 1024;
/// Most names that are followed. The victim is the newcomer.
const NAMES_MAX: usize = 1024;
/// So many bytes must have been taken before they tell anything.
const TELLING: u64 = 256 << 10;
/// What connections carry besides payload: a fixed part, and a quarter.
const BESIDES: u64 = 64 << 10;
/// So often a process must have taken about as much again as a name was given to be in step.
const STEPS: u32 = 4;
/// A step is at least so much.
const STEP: u64 = 64 << 10;
/// A name that is new is looked for with more readings for so long.
const NEW_FOR: Nanos = PATIENCE;
/// A count that has told nothing for so long begins anew: what was open before the agent came
/// has spoilt it.
const PATIENCE: Nanos = Nanos::from_secs(20);

#[derive(Clone, Copy, Debug)]
struct Transfer {
    peer: Peer,
    bytes: u64,
    round: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Volume {
    posted: u64,
    done: u64,
}

#[derive(Clone, Copy, Debug)]
struct Taken {
    /// At the first reading of all.
    first: u64,
    /// When the count began.
    from: u64,
    now: u64,
}

/// How far a process has kept step with a name.
#[derive(Clone, Copy, Debug, Default)]
struct InStep {
    steps: u32,
    /// What was complete to the name at the last step.
    done: u64,
}

/// What one worker posts, and what the processes around it take.
#[derive(Debug, Default)]
pub(super) struct Whose {
    open: BTreeMap<Handle, Transfer>,
    names: BTreeMap<Peer, Volume>,
    taken: BTreeMap<Process, Taken>,
    bound: BTreeMap<Peer, Process>,
    /// Where the process has ended. The name may be another's by now.
    gone: BTreeMap<Peer, Process>,
    unfit: BTreeSet<(Peer, Process)>,
    in_step: BTreeMap<(Peer, Process), InStep>,
    round: u32,
    since: Nanos,
    /// When the last name came up that was not known.
    new_at: Option<Nanos>,
}

impl Whose {
    /// A transfer to a name was posted.
    pub(super) fn posted(&mut self, handle: Handle, (peer, bytes): (Peer, u64), at: Nanos) {
        let is_new = !self.names.contains_key(&peer);
        let has_room = self.names.len() < NAMES_MAX || !is_new;
        let is_known = self.open.contains_key(&handle);
        if has_room && (is_known || self.open.len() < HANDLES_MAX) {
            self.open.insert(handle, Transfer { peer, bytes, round: self.round });
            self.names.entry(peer).or_default().posted += bytes;
            if is_new {
                self.new_at = Some(at);
            }
        }
    }

    /// A handle was released; `done`: its transfer was complete.
    pub(super) fn released(&mut self, handle: Handle, done: bool) {
        let Some(transfer) = self.open.remove(&handle) else {
            return;
        };
        if done && transfer.round == self.round {
            self.names.entry(transfer.peer).or_default().done += transfer.bytes;
        }
    }

    /// The process that a name was found to be; it may have ended.
    pub(super) fn of(&self, peer: Peer) -> Option<Process> {
        self.bound.get(&peer).or_else(|| self.gone.get(&peer)).copied()
    }

    /// Whether the process of a name is known to have ended.
    pub(super) fn is_gone(&self, peer: Peer) -> bool {
        !self.bound.contains_key(&peer) && self.gone.contains_key(&peer)
    }

    /// Names whose process has ended may be another's from now on.
    pub(super) fn bury(&mut self, lives: impl Fn(Process) -> bool) {
        let ended = self.bound.extract_if(.., |_, process| !lives(*process));
        self.gone.extend(ended);
    }

    /// The names whose process is not known, or has ended.
    pub(super) fn unknown(&self) -> impl Iterator<Item = Peer> + '_ {
        self.names.keys().copied().filter(|peer| !self.bound.contains_key(peer))
    }

    /// Whether a name is still to be found.
    pub(super) fn is_searching(&self) -> bool {
        self.unknown().next().is_some()
    }

    /// Whether a name is to be found that has come up lately.
    pub(super) fn is_new(&self, now: Nanos) -> bool {
        self.new_at.is_some_and(|at| now.since(at) < NEW_FOR) && self.is_searching()
    }

    /// The processes' kernels have acknowledged so many bytes until now. Every post that was made
    /// before the reading *before* this one is known. Gives the names that were found, with what
    /// their process had taken at first.
    pub(super) fn read(
        &mut self,
        acked: &BTreeMap<Process, u64>,
        now: Nanos,
    ) -> Vec<(Peer, Process, u64)> {
        self.taken.retain(|process, _| acked.contains_key(process));
        self.unfit.retain(|(_, process)| acked.contains_key(process));
        self.in_step.retain(|(_, process), _| acked.contains_key(process));
        self.rule_out(acked);
        self.keep_step();
        let found = self.find();
        // Where all that a process ever took was posted before the eyes of the agent, it counts.
        let posted: u64 = self.names.values().map(|volume| volume.posted).sum();
        for (process, acked) in acked {
            let from = if *acked > most(posted) { *acked } else { 0 };
            let fresh = Taken { first: from, from, now: *acked };
            self.taken.entry(*process).or_insert(fresh).now = *acked;
        }
        if !found.is_empty() || !self.is_searching() {
            self.since = now;
        } else if now.since(self.since) >= PATIENCE {
            self.begin_anew(now);
        }
        found
    }

    fn rule_out(&mut self, acked: &BTreeMap<Process, u64>) {
        for (peer, volume) in &self.names {
            for (process, taken) in &self.taken {
                let before = taken.now.saturating_sub(taken.from);
                let now = acked.get(process).map_or(before, |now| now.saturating_sub(taken.from));
                if before > most(volume.posted) || now < volume.done {
                    self.unfit.insert((*peer, *process));
                }
            }
        }
    }

    /// Counts the steps of the processes that have taken what was given to a name. A name that is
    /// still owed much is in step with nobody.
    fn keep_step(&mut self) {
        for (peer, volume) in &self.names {
            for (process, taken) in &self.taken {
                let pair = (*peer, *process);
                let step = self.in_step.entry(pair).or_default();
                let is_owed = volume.posted > most(volume.done);
                let took = taken.now.saturating_sub(taken.from);
                if is_owed || took > most(volume.posted) || volume.done < step.done + STEP {
                    continue;
                }
                *step = InStep { steps: step.steps + 1, done: volume.done };
            }
        }
        self.in_step.retain(|pair, step| step.steps > 0 && !self.unfit.contains(pair));
    }

    fn find(&mut self) -> Vec<(Peer, Process, u64)> {
        let unbound = self.names.keys().filter(|peer| !self.bound.contains_key(peer));
        let found: Vec<_> = unbound
            .filter_map(|peer| {
                let process = self.only(*peer).or_else(|| self.only_in_step(*peer))?;
                let taken = self.taken.get(&process)?;
                let tells = taken.now.saturating_sub(taken.from) >= TELLING;
                tells.then_some((*peer, process, taken.first))
            })
            .collect();
        for (peer, ..) in &found {
            self.gone.remove(peer);
        }
        self.bound.extend(found.iter().map(|(peer, process, _)| (*peer, *process)));
        found
    }

    fn fits(&self, peer: Peer, process: Process) -> bool {
        !self.unfit.contains(&(peer, process))
            && self.bound.get(&peer).is_none_or(|bound| *bound == process)
            && self.bound.iter().all(|(other, bound)| *bound != process || *other == peer)
    }

    /// The process that alone fits a name, and fits no other.
    fn only(&self, peer: Peer) -> Option<Process> {
        let process = single(self.taken.keys().copied().filter(|one| self.fits(peer, *one)))?;
        single(self.names.keys().filter(|peer| self.fits(**peer, process))).map(|_| process)
    }

    /// The process that alone keeps step with a name, and with no other.
    fn only_in_step(&self, peer: Peer) -> Option<Process> {
        let of = self.in_step.keys().filter(|(name, _)| *name == peer);
        let process = single(of.map(|(_, process)| *process))?;
        single(self.in_step.keys().filter(|(_, other)| *other == process))?;
        let steps = self.in_step.get(&(peer, process))?.steps;
        (steps >= STEPS && self.fits(peer, process)).then_some(process)
    }

    fn begin_anew(&mut self, now: Nanos) {
        self.since = now;
        self.round = self.round.wrapping_add(1);
        self.unfit.clear();
        self.in_step.clear();
        self.names.retain(|peer, _| self.bound.contains_key(peer));
        for transfer in self.open.values() {
            self.names.entry(transfer.peer).or_default();
        }
        for volume in self.names.values_mut() {
            *volume = Volume::default();
        }
        // What is still open may be taken from now on.
        for transfer in self.open.values() {
            self.names.entry(transfer.peer).or_default().posted += transfer.bytes;
        }
        for taken in self.taken.values_mut() {
            taken.from = taken.now;
        }
    }
}

/// What connections carry at most where so much was posted.
const fn most(posted: u64) -> u64 {
    posted.saturating_add(posted / 4).saturating_add(BESIDES)
}

/// The only one, where there is one.
fn single<T>(mut all: impl Iterator<Item = T>) -> Option<T> {
    all.next().filter(|_| all.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Process = (1, 1);
    const B: Process = (2, 2);
    const MB: u64 = 1 << 20;

    fn at(whose: &mut Whose, secs: u64, acked: [u64; 2]) -> Vec<(Peer, Process, u64)> {
        let acked = [(A, acked[0]), (B, acked[1])].into();
        whose.read(&acked, Nanos::from_secs(secs))
    }

    #[test]
    fn a_name_is_the_process_that_takes_what_is_posted_to_it() {
        let mut whose = Whose::default();
        at(&mut whose, 1, [500, 700]);
        whose.posted(Handle(1), (Peer(7), 4 * MB), Nanos::default());
        assert_eq!(at(&mut whose, 2, [500, 700 + 2 * MB]), []);
        whose.posted(Handle(2), (Peer(8), MB), Nanos::default());
        // A has taken nothing: it may be either, B is too much for the second name.
        assert_eq!(at(&mut whose, 3, [500, 700 + 2 * MB]), []);
        whose.released(Handle(1), true);
        // Four megabytes are complete to the first name, which A cannot have taken.
        assert_eq!(at(&mut whose, 4, [500, 700 + 4 * MB]), [(Peer(7), B, 0)]);
        assert_eq!(at(&mut whose, 5, [500 + MB, 700 + 4 * MB]), []);
        assert_eq!(at(&mut whose, 6, [500 + MB, 700 + 4 * MB]), [(Peer(8), A, 0)]);
        assert_eq!((whose.of(Peer(7)), whose.of(Peer(8))), (Some(B), Some(A)));
        assert!(!whose.is_searching());
    }

    #[test]
    fn a_name_on_another_node_is_nobody_here() {
        let mut whose = Whose::default();
        at(&mut whose, 1, [0, 0]);
        for n in 0..5 {
            whose.posted(Handle(n), (Peer(7), MB), Nanos::default());
            whose.released(Handle(n), true);
            assert_eq!(at(&mut whose, 2 + n, [300, 200]), []);
        }
        assert_eq!(whose.of(Peer(7)), None);
    }

    #[test]
    fn equal_volumes_are_not_guessed_at() {
        let mut whose = Whose::default();
        at(&mut whose, 1, [0, 0]);
        whose.posted(Handle(1), (Peer(7), MB), Nanos::default());
        whose.posted(Handle(2), (Peer(8), MB), Nanos::default());
        for secs in 2..10 {
            assert_eq!(at(&mut whose, secs, [MB, MB]), []);
        }
    }

    #[test]
    fn a_name_that_is_owed_much_does_not_hide_the_one_that_is_served() {
        let mut whose = Whose::default();
        at(&mut whose, 1, [0, 0]);
        // Half of it has arrived at A, which then stands still.
        whose.posted(Handle(99), (Peer(8), 256 * MB), Nanos::default());
        let mut found = Vec::new();
        for n in 1..10 {
            whose.posted(Handle(n), (Peer(7), MB), Nanos::default());
            whose.released(Handle(n), true);
            found.extend(at(&mut whose, 1 + n, [127 * MB, n * MB]));
        }
        assert_eq!(found, [(Peer(7), B, 0), (Peer(8), A, 0)]);
    }

    #[test]
    fn names_that_are_served_alike_are_not_guessed_at() {
        let mut whose = Whose::default();
        at(&mut whose, 1, [0, 0]);
        for n in 1..20 {
            for (handle, peer) in [(2 * n, 7), (2 * n + 1, 8)] {
                whose.posted(Handle(handle), (Peer(peer), MB), Nanos::default());
                whose.released(Handle(handle), true);
            }
            assert_eq!(at(&mut whose, 1 + n, [n * MB, 0]), []);
        }
    }

    #[test]
    fn what_was_under_way_before_spoils_a_count_that_begins_anew() {
        let mut whose = Whose::default();
        at(&mut whose, 1, [0, 0]);
        whose.posted(Handle(1), (Peer(7), MB), Nanos::default());
        // Sixty megabytes of a transfer whose post was not seen.
        at(&mut whose, 2, [60 * MB, 0]);
        assert_eq!(at(&mut whose, 3, [60 * MB, 0]), []);
        at(&mut whose, 30, [60 * MB, 0]);
        whose.posted(Handle(2), (Peer(7), 2 * MB), Nanos::default());
        at(&mut whose, 31, [62 * MB, 0]);
        whose.released(Handle(2), true);
        assert_eq!(at(&mut whose, 32, [62 * MB, 0]), [(Peer(7), A, 0)]);
    }

    #[test]
    fn a_name_outlives_its_process() {
        let mut whose = Whose::default();
        at(&mut whose, 1, [0, 0]);
        whose.posted(Handle(1), (Peer(7), MB), Nanos::default());
        whose.released(Handle(1), true);
        at(&mut whose, 2, [MB, 0]);
        assert_eq!(at(&mut whose, 3, [MB, 0]), [(Peer(7), A, 0)]);
        whose.bury(|process| process != A);
        assert_eq!(whose.of(Peer(7)), Some(A), "as one that has ended");
        assert!(whose.is_searching());
        // It was started again under its name.
        whose.read(&[(B, 0)].into(), Nanos::from_secs(4));
        whose.posted(Handle(1), (Peer(7), MB), Nanos::default());
        whose.read(&[(B, MB)].into(), Nanos::from_secs(5));
        whose.read(&[(B, MB)].into(), Nanos::from_secs(6));
        assert_eq!(whose.of(Peer(7)), Some(A), "the first life took what this one has not");
        whose.read(&[(B, MB)].into(), Nanos::from_secs(40));
        whose.posted(Handle(2), (Peer(7), MB), Nanos::default());
        whose.read(&[(B, 2 * MB)].into(), Nanos::from_secs(41));
        whose.read(&[(B, 2 * MB)].into(), Nanos::from_secs(42));
        assert_eq!(whose.of(Peer(7)), Some(B));
    }
}
