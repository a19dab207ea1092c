//! What the core's numbers stand for: workers, peers, rooms. Bounded.

use std::collections::{BTreeMap, BTreeSet};

use inflightd_abi::record::RID_BYTES;
use inflightd_abi::table::{self, EntryView, Header, PeerKind, Ranks, Role, Text};
use inflightd_core::Nanos;
use inflightd_core::fact::{Peer, Seq, Worker};

use crate::clock::Clock;
use crate::identity::Identity;
use crate::shown;

/// Most peers whose names are kept. Those that no room needs are forgotten when half of it is
/// full; a newcomer beyond it stays nameless, so its rooms are known not to name all their peers.
const PEERS_MAX: usize = 64 * 1024;
/// Most workers whose names are kept, ended ones included. The victim is
/// a neighbour that has ended, else the oldest.
const WORKERS_MAX: usize = 2048;
/// Most rooms whose names are kept for one worker; the victim is the newcomer, which goes
/// nameless.
const ROOMS_MAX: usize = 16 * 1024;

/// Numbers from here on are those of workers that are not followed. Those that are never get so
/// many; by the number alone a replay knows which are which.
pub const NEIGHBOUR: u32 = 1 << 31;

/// A far end by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerName {
    /// `nixl_agent`, `mooncake_session`, `endpoint` or `other_N`.
    pub kind: String,
    /// The name itself; bytes that are not UTF-8 are shown as such.
    pub value: String,
}

impl PeerName {
    /// The name that a table gives. `None` for an empty place, and for a name that was cut: two
    /// of those could be one or not.
    pub fn of(peer: &table::Peer) -> Option<Self> {
        if peer.value.is_cut() || peer.value.bytes().is_empty() {
            return None;
        }
        Some(Self {
            kind: kind_name(peer.kind),
            value: String::from_utf8_lossy(peer.value.bytes()).into_owned(),
        })
    }

    /// The name of a NIXL agent.
    pub fn nixl(name: &[u8]) -> Self {
        Self {
            kind: kind_name(PeerKind::NixlAgent),
            value: String::from_utf8_lossy(name).into_owned(),
        }
    }

    /// The address of a peer that is named by its endpoint.
    pub fn endpoint(&self) -> Option<std::net::SocketAddr> {
        let is_endpoint = self.kind == kind_name(PeerKind::Endpoint);
        self.value.parse().ok().filter(|_| is_endpoint)
    }
}

impl From<PeerName> for (String, String) {
    fn from(name: PeerName) -> Self {
        (name.kind, name.value)
    }
}

impl From<(String, String)> for PeerName {
    fn from((kind, value): (String, String)) -> Self {
        Self { kind, value }
    }
}

fn kind_name(kind: PeerKind) -> String {
    match kind {
        PeerKind::NixlAgent => "nixl_agent".to_owned(),
        PeerKind::MooncakeSession => "mooncake_session".to_owned(),
        PeerKind::Endpoint => "endpoint".to_owned(),
        PeerKind::Other(code) => format!("other_{code}"),
    }
}

/// What a worker states about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Index of the worker inside its process.
    pub index: u64,
    /// `prefill`, `decode` or `other_N`.
    pub role: String,
    /// Engine name.
    pub engine: String,
    /// Engine version.
    pub version: String,
    /// Position in each parallel dimension.
    pub ranks: Ranks,
    /// The names under which others address it.
    pub identities: Vec<PeerName>,
}

impl About {
    /// What a table's header says.
    pub fn of(header: &Header) -> Self {
        Self {
            index: header.worker,
            role: match header.role {
                Role::Prefill => "prefill".to_owned(),
                Role::Decode => "decode".to_owned(),
                Role::Other(code) => format!("other_{code}"),
            },
            engine: lossy(&header.engine),
            version: lossy(&header.version),
            ranks: header.ranks,
            identities: header.identities.iter().filter_map(PeerName::of).collect(),
        }
    }

    /// A worker whose table could not be read.
    pub fn unread() -> Self {
        Self {
            index: 0,
            role: "unknown".to_owned(),
            engine: "unknown".to_owned(),
            version: String::new(),
            ranks: Ranks::default(),
            identities: Vec::new(),
        }
    }
}

fn lossy<const N: usize>(text: &Text<N>) -> String {
    shown::lossy(text.bytes(), text.is_cut())
}

/// A worker by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerName {
    /// Process id in the host's namespace, start time, boot and index.
    pub identity: Identity,
    /// What it states about itself.
    pub about: About,
}

/// A room's texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoomName {
    /// Request id.
    pub rid: String,
    /// W3C trace context as the engine handed it on; empty where it did not.
    pub traceparent: String,
}

impl RoomName {
    /// The texts of an entry.
    pub fn of(view: &EntryView) -> Self {
        Self { rid: lossy(&view.rid), traceparent: lossy(&view.traceparent) }
    }

    /// The texts of a mark, which has the request id only, and of its entry where that is known.
    pub fn marked(rid: &[u8], view: Option<&EntryView>) -> Self {
        let of_entry = view.map(Self::of).unwrap_or_default();
        // The kernel keeps a place for the NUL at the end.
        Self { rid: shown::lossy(rid, rid.len() + 1 >= RID_BYTES), ..of_entry }
    }
}

/// A name that was given a number: captures keep these, so that a replay speaks of the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// A worker.
    Worker(Worker, WorkerName),
    /// A peer.
    Peer(Peer, PeerName),
    /// A room.
    Room(Worker, Seq, RoomName),
}

/// Every name in use.
#[derive(Debug, Default)]
pub struct Names {
    workers: BTreeMap<Worker, WorkerName>,
    ended_at: BTreeMap<Worker, Nanos>,
    peers: BTreeMap<PeerName, Peer>,
    by_number: BTreeMap<Peer, PeerName>,
    next_peer: u32,
    rooms: BTreeMap<Worker, BTreeMap<Seq, RoomName>>,
    news: Vec<Named>,
}

impl Names {
    /// Gives a worker its number: the next that was never used.
    pub fn add_worker(&mut self, number: Worker, name: WorkerName) {
        self.news.push(Named::Worker(number, name.clone()));
        self.workers.insert(number, name);
    }

    /// A worker has ended: its rooms are forgotten, its name stays, since others may still speak
    /// of it as a peer.
    pub fn end_worker(&mut self, worker: Worker, at: Nanos) {
        self.rooms.remove(&worker);
        self.ended_at.insert(worker, at);
        while self.workers.len() > WORKERS_MAX
            && let Some(victim) = self.victim()
        {
            self.workers.remove(&victim);
            self.ended_at.remove(&victim);
        }
    }

    /// Whose name goes first where there are too many: a neighbour's that has ended, else the
    /// oldest.
    fn victim(&self) -> Option<Worker> {
        let neighbour = self.ended_at.range(Worker(NEIGHBOUR)..).next();
        let oldest = || self.workers.first_key_value().map(|(number, _)| *number);
        neighbour.map(|(number, _)| *number).or_else(oldest)
    }

    /// When a worker ended, if it has.
    pub fn ended_at(&self, worker: Worker) -> Option<Nanos> {
        self.ended_at.get(&worker).copied()
    }

    /// The worker of that number.
    pub fn worker(&self, worker: Worker) -> Option<&WorkerName> {
        self.workers.get(&worker)
    }

    /// The number of a peer; `None` when too many are known already.
    pub fn peer(&mut self, name: PeerName) -> Option<Peer> {
        if let Some(peer) = self.peers.get(&name) {
            return Some(*peer);
        }
        if self.by_number.len() >= PEERS_MAX {
            return None;
        }
        let peer = Peer(self.next_peer);
        self.next_peer = self.next_peer.checked_add(1)?;
        self.news.push(Named::Peer(peer, name.clone()));
        self.keep_peer(peer, name);
        Some(peer)
    }

    fn keep_peer(&mut self, peer: Peer, name: PeerName) {
        self.by_number.insert(peer, name.clone());
        self.peers.insert(name, peer);
    }

    /// Forgets the peers that are not in `used`, where there are so many that newcomers would
    /// soon find no place. A number is never given to another name.
    pub fn sweep_peers(&mut self, used: impl FnOnce() -> BTreeSet<Peer>) {
        if self.by_number.len() >= PEERS_MAX / 2 {
            let used = used();
            self.by_number.retain(|peer, _| used.contains(peer));
            self.peers.retain(|_, peer| used.contains(peer));
        }
    }

    /// The peer of that number.
    pub fn peer_name(&self, peer: Peer) -> Option<&PeerName> {
        self.by_number.get(&peer)
    }

    /// Workers that state this name as theirs, living or not, the last found first; those that
    /// are not followed come after those that are.
    pub fn workers_named<'a>(
        &'a self,
        name: &'a PeerName,
    ) -> impl Iterator<Item = (Worker, &'a WorkerName)> {
        let followed = self.workers.range(..Worker(NEIGHBOUR)).rev();
        followed
            .chain(self.workers.range(Worker(NEIGHBOUR)..).rev())
            .filter(|(_, worker)| worker.about.identities.contains(name))
            .map(|(number, worker)| (*number, worker))
    }

    /// Whom a worker knows by this name on this node: the one found last, and none that ended before
    /// the worker began.
    fn known_as<'a>(
        &'a self,
        worker: Worker,
        name: &'a PeerName,
    ) -> Option<(Worker, &'a WorkerName)> {
        self.workers_named(name).find(|(other, _)| self.have_met(worker, *other))
    }

    /// That one's process.
    pub fn pid_of(&self, worker: Worker, name: &PeerName) -> Option<u32> {
        self.known_as(worker, name).map(|(_, worker)| worker.identity.pid)
    }

    /// Whether it lives, as far as was told.
    pub fn is_taken(&self, worker: Worker, name: &PeerName) -> bool {
        self.known_as(worker, name).is_some_and(|(other, _)| self.ended_at(other).is_none())
    }

    /// Whether a worker's process began, give or take a tick, before the other had ended: names are
    /// used again, by a whole set of pods that restarts.
    pub fn have_met(&self, worker: Worker, other: Worker) -> bool {
        let began = || self.workers.get(&worker).map(|one| Clock::at_tick(one.identity.start));
        self.ended_at(other).is_none_or(|at| began().is_none_or(|began| at >= began))
    }

    /// Keeps a room's texts.
    pub fn add_room(&mut self, worker: Worker, seq: Seq, name: RoomName) {
        let rooms = self.rooms.entry(worker).or_default();
        if rooms.len() < ROOMS_MAX && rooms.insert(seq, name.clone()).is_none() {
            self.news.push(Named::Room(worker, seq, name));
        }
    }

    /// Forgets a room: its last line has been written.
    pub fn remove_room(&mut self, worker: Worker, seq: Seq) {
        if let Some(rooms) = self.rooms.get_mut(&worker) {
            rooms.remove(&seq);
        }
    }

    /// A room's texts.
    pub fn room(&self, worker: Worker, seq: Seq) -> Option<&RoomName> {
        self.rooms.get(&worker)?.get(&seq)
    }

    /// Names given since this was last asked, oldest first.
    pub fn take_news(&mut self) -> Vec<Named> {
        std::mem::take(&mut self.news)
    }

    /// Puts a name in its place, as a replay reads it.
    pub fn restore(&mut self, named: Named) {
        match named {
            Named::Worker(worker, name) => drop(self.workers.insert(worker, name)),
            Named::Room(worker, seq, name) => {
                self.rooms.entry(worker).or_default().insert(seq, name);
            }
            Named::Peer(peer, name) => self.keep_peer(peer, name),
        }
        self.news.clear();
    }
}

#[cfg(test)]
#[path = "names_tests.rs"]
mod tests;
