//! Which process goes by a name that nobody states, or that several state: told by volume.
//!
//! A worker posts so many bytes to a name, and each process at the far end of its connections
//! takes so many. A name is a process's when of all pairings only this one fits, in every
//! reading: the process took no less than what completed to the name, and no more than what was
//! posted to it. Pure.

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
    round: u32,
    since: Nanos,
}

impl Whose {
    /// A transfer to a name was posted.
    pub(super) fn posted(&mut self, handle: Handle, peer: Peer, bytes: u64) {
        let has_room = self.names.len() < NAMES_MAX || self.names.contains_key(&peer);
        let is_known = self.open.contains_key(&handle);
        if has_room && (is_known || self.open.len() < HANDLES_MAX) {
            self.open.insert(handle, Transfer { peer, bytes, round: self.round });
            self.names.entry(peer).or_default().posted += bytes;
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
        self.rule_out(acked);
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

    fn find(&mut self) -> Vec<(Peer, Process, u64)> {
        let fits = |peer: Peer, process: Process| {
            !self.unfit.contains(&(peer, process))
                && self.bound.get(&peer).is_none_or(|bound| *bound == process)
                && self.bound.iter().all(|(other, bound)| *bound != process || *other == peer)
        };
        let mut found = Vec::new();
        for peer in self.names.keys().filter(|peer| !self.bound.contains_key(peer)) {
            let mut processes = self.taken.iter().filter(|(process, _)| fits(*peer, **process));
            let (Some((process, taken)), None) = (processes.next(), processes.next()) else {
                continue;
            };
            let names = self.names.keys().filter(|peer| fits(**peer, *process)).count();
            if names == 1 && taken.now.saturating_sub(taken.from) >= TELLING {
                found.push((*peer, *process, taken.first));
            }
        }
        for (peer, ..) in &found {
            self.gone.remove(peer);
        }
        self.bound.extend(found.iter().map(|(peer, process, _)| (*peer, *process)));
        found
    }

    fn begin_anew(&mut self, now: Nanos) {
        self.since = now;
        self.round = self.round.wrapping_add(1);
        self.unfit.clear();
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
        whose.posted(Handle(1), Peer(7), 4 * MB);
        assert_eq!(at(&mut whose, 2, [500, 700 + 2 * MB]), []);
        whose.posted(Handle(2), Peer(8), MB);
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
            whose.posted(Handle(n), Peer(7), MB);
            whose.released(Handle(n), true);
            assert_eq!(at(&mut whose, 2 + n, [300, 200]), []);
        }
        assert_eq!(whose.of(Peer(7)), None);
    }

    #[test]
    fn equal_volumes_are_not_guessed_at() {
        let mut whose = Whose::default();
        at(&mut whose, 1, [0, 0]);
        whose.posted(Handle(1), Peer(7), MB);
        whose.posted(Handle(2), Peer(8), MB);
        for secs in 2..10 {
            assert_eq!(at(&mut whose, secs, [MB, MB]), []);
        }
    }

    #[test]
    fn what_was_under_way_before_spoils_a_count_that_begins_anew() {
        let mut whose = Whose::default();
        at(&mut whose, 1, [0, 0]);
        whose.posted(Handle(1), Peer(7), MB);
        // Sixty megabytes of a transfer whose post was not seen.
        at(&mut whose, 2, [60 * MB, 0]);
        assert_eq!(at(&mut whose, 3, [60 * MB, 0]), []);
        at(&mut whose, 30, [60 * MB, 0]);
        whose.posted(Handle(2), Peer(7), 2 * MB);
        at(&mut whose, 31, [62 * MB, 0]);
        whose.released(Handle(2), true);
        assert_eq!(at(&mut whose, 32, [62 * MB, 0]), [(Peer(7), A, 0)]);
    }

    #[test]
    fn a_name_outlives_its_process() {
        let mut whose = Whose::default();
        at(&mut whose, 1, [0, 0]);
        whose.posted(Handle(1), Peer(7), MB);
        whose.released(Handle(1), true);
        at(&mut whose, 2, [MB, 0]);
        assert_eq!(at(&mut whose, 3, [MB, 0]), [(Peer(7), A, 0)]);
        whose.bury(|process| process != A);
        assert_eq!(whose.of(Peer(7)), Some(A), "as one that has ended");
        assert!(whose.is_searching());
        // It was started again under its name.
        whose.read(&[(B, 0)].into(), Nanos::from_secs(4));
        whose.posted(Handle(1), Peer(7), MB);
        whose.read(&[(B, MB)].into(), Nanos::from_secs(5));
        whose.read(&[(B, MB)].into(), Nanos::from_secs(6));
        assert_eq!(whose.of(Peer(7)), Some(A), "the first life took what this one has not");
        whose.read(&[(B, MB)].into(), Nanos::from_secs(40));
        whose.posted(Handle(2), Peer(7), MB);
        whose.read(&[(B, 2 * MB)].into(), Nanos::from_secs(41));
        whose.read(&[(B, 2 * MB)].into(), Nanos::from_secs(42));
        assert_eq!(whose.of(Peer(7)), Some(B));
    }
}
