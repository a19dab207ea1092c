//! The processes that may be a peer whose name does not say which process it is.

use std::collections::{BTreeMap, BTreeSet};

use inflightd_core::fact::{Handle, Meter, Peer, Worker};
use inflightd_core::{Fact, Nanos};

use super::Agent;
use super::peers::Place;
use super::whose::Process;
use crate::meters::Target;
use crate::proc::{Stat, lives};

/// Most processes that are tried as the far end of a worker whose peers are not known by name;
/// the victims are those with the highest ids.
const CANDIDATES_MAX: usize = 64;
/// Peers from here on stand for processes that are tried, by id. Names never get so many.
const CANDIDATE: u32 = 1 << 31;

impl Agent {
    /// The processes that could be a worker's peers whose names do not say it, as targets: without
    /// the hook all those that could be at the far end, else those that state the same name.
    pub(super) fn candidates(&mut self, number: Worker, now: Nanos) -> Vec<(Peer, Target)> {
        let Some(of) = self.peers.of.get_mut(&number) else {
            return Vec::new();
        };
        of.whose.bury(|(pid, start)| lives(pid, start));
        let unknown: Vec<Peer> = of.whose.unknown().collect();
        let named = unknown.iter().filter_map(|peer| self.names.peer_name(*peer));
        let mut pids: BTreeSet<u32> = named
            .filter(|name| self.place(number, name, now) == Place::Unseen)
            .flat_map(|name| self.names.workers_named(name))
            .filter_map(|(number, _)| {
                let neighbour = || self.neighbours.process(number).map(|(pid, _)| pid);
                self.workers.get(&number).map(|watched| watched.pid).or_else(neighbour)
            })
            .collect();
        let own = self.workers.get(&number);
        if !unknown.is_empty() && own.is_some_and(|watched| !watched.hooked) {
            pids.extend(self.strangers.keys());
            pids.extend(self.workers.values().map(|watched| watched.pid));
            pids.extend(self.neighbours.pids());
        }
        pids.into_iter()
            .filter(|pid| own.is_none_or(|watched| watched.pid != *pid))
            .take(CANDIDATES_MAX)
            .map(|pid| (Peer(CANDIDATE | pid), Target::Process(pid)))
            .collect()
    }

    /// Tells a worker's peers apart by what the candidates have taken.
    pub(super) fn told_apart(&mut self, worker: Worker, meters: &[(Peer, Meter)], now: Nanos) {
        let acked: BTreeMap<Process, u64> = meters
            .iter()
            .filter(|(_, meter)| meter.connections > 0)
            .filter_map(|(peer, meter)| Some((candidate(*peer)?, meter.acked)))
            .filter_map(|(pid, acked)| Some(((pid, Stat::of(pid).ok()?.start), acked)))
            .collect();
        let Some(of) = self.peers.of.get_mut(&worker).filter(|of| of.whose.is_searching()) else {
            return;
        };
        for (peer, (pid, _), before) in of.whose.read(&acked, now) {
            tracing::info!(
                worker = worker.0,
                peer = peer.0,
                pid,
                "a peer is known by what it took"
            );
            self.tell(worker, now, Fact::History(peer, before, true));
        }
    }

    /// A worker posted a transfer.
    pub(super) fn note_post(&mut self, worker: Worker, handle: Handle, to: (Peer, u64), at: Nanos) {
        self.need_peer(worker, to.0, at);
        if let Some(of) = self.peers.of.get_mut(&worker) {
            of.whose.posted(handle, to, at);
        }
    }

    /// A worker released a handle; `done`: its transfer was complete.
    pub(super) fn note_release(&mut self, worker: Worker, handle: Handle, done: bool) {
        if let Some(of) = self.peers.of.get_mut(&worker) {
            of.whose.released(handle, done);
        }
    }
}

/// The process that a peer stands for, where it stands for one that is tried.
pub(super) const fn candidate(peer: Peer) -> Option<u32> {
    if peer.0 & CANDIDATE == 0 { None } else { Some(peer.0 & !CANDIDATE) }
}
