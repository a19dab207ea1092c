//! The far ends: where they are, whether they live, what reaches them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use inflightd_core::fact::{Life, Peer, Worker};
use inflightd_core::view::WorkerView;
use inflightd_core::{Fact, Nanos, Reason, Sight, Source};

use super::Agent;
use super::arming::Arming;
use super::candidates::candidate;
use super::whose::Whose;
use crate::meters::{Lives, Rdma, Sockets, Target, Wanted};
use crate::names::PeerName;
use crate::worker::Watched;

/// How often meters are read.
const METERS_EVERY: Nanos = Nanos::from_secs(1);
/// How often while a room is suspect.
const SUSPECT_EVERY: Nanos = Nanos::from_millis(250);
/// How often at most for transfers that have just begun.
const EARLY_EVERY: Nanos = Nanos::from_millis(100);
/// A peer is metered so long after its last room: its next one finds a baseline.
const RECENT: Nanos = Nanos::from_secs(600);
/// So long after a worker's end its name is that of a dead process; later it may be anybody's,
/// on any node.
const GONE_FOR: Nanos = Nanos::from_secs(3600);
/// Most peers of one worker that are metered; the victim is the newcomer.
const PEERS_MAX: usize = 1024;

/// What is known of far ends.
#[derive(Debug, Default)]
pub(super) struct Peers {
    sockets: Sockets,
    pub(super) rdma: Rdma,
    pub(super) arming: Arming,
    pub(super) lives: Lives,
    pub(super) of: BTreeMap<Worker, OfWorker>,
}

/// A worker's far ends.
#[derive(Debug, Default)]
pub(super) struct OfWorker {
    /// When a room or a transfer last needed it.
    needed_at: BTreeMap<Peer, Nanos>,
    /// Those that were metered at least once.
    metered: BTreeSet<Peer>,
    read_at: Option<Nanos>,
    failed: bool,
    pub(super) whose: Whose,
}

/// Where a peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A living process on this node, with its start time.
    Process(u32, u64),
    /// A process that was on this node; when it ended, where that is known.
    Gone(Option<Nanos>),
    /// Not on this node, or claimed by several processes.
    Unseen,
}

impl Agent {
    /// A transfer needs this peer.
    pub(super) fn need_peer(&mut self, worker: Worker, peer: Peer, at: Nanos) {
        let needed = &mut self.peers.of.entry(worker).or_default().needed_at;
        if needed.len() < PEERS_MAX || needed.contains_key(&peer) {
            needed.insert(peer, at);
        }
    }

    /// Notes which peers the open rooms need, and forgets those that nobody needs any more.
    pub(super) fn note_needs(&mut self, number: Worker, now: Nanos) {
        let peers: BTreeSet<Peer> = self
            .workers
            .get(&number)
            .into_iter()
            .flat_map(|watched| watched.tracker.open().values())
            .flat_map(|open| open.peers.iter().copied())
            .chain(self.ledger.view(number).iter().flat_map(WorkerView::peers_of_left))
            .collect();
        for peer in peers {
            self.need_peer(number, peer, now);
        }
        if let Some(of) = self.peers.of.get_mut(&number) {
            of.needed_at.retain(|_, at| now.since(*at) < RECENT);
        }
    }

    /// Reads the meters of the workers whose turn it is.
    pub fn meters(&mut self, now: Nanos) -> io::Result<()> {
        let due: Vec<Worker> = self
            .workers
            .values()
            .filter(|watched| watched.is_seen())
            .map(|watched| watched.number)
            .filter(|number| self.is_due(*number, now))
            .collect();
        self.read_meters(&due, now);
        self.tend_arming(now);
        self.read_loads(now);
        self.pump(now)
    }

    fn is_due(&self, number: Worker, now: Nanos) -> bool {
        let Some(of) = self.peers.of.get(&number) else { return true };
        let Some(read_at) = of.read_at else { return true };
        let since = now.since(read_at);
        since >= METERS_EVERY
            || (since >= SUSPECT_EVERY && of.whose.is_new(now))
            || (since >= SUSPECT_EVERY && self.ledger.has_suspects(number))
            || (since >= EARLY_EVERY && self.ledger.wants_reading(number, read_at, now))
    }

    /// Reads at once where a room has a peer that was never metered: its baseline.
    pub(super) fn meter_newcomers(&mut self, now: Nanos) {
        let mut due = BTreeSet::new();
        for event in &self.events {
            let of = self.peers.of.get(&event.worker);
            let metered = |peer: &Peer| of.is_some_and(|of| of.metered.contains(peer));
            if let Fact::Append(append) = &event.fact
                && !append.peers.iter().all(metered)
            {
                due.insert(event.worker);
            }
        }
        self.read_meters(&Vec::from_iter(due), now);
    }

    pub(super) fn read_meters(&mut self, due: &[Worker], now: Nanos) {
        if due.is_empty() {
            return;
        }
        let mut wanted = Vec::new();
        for number in due {
            self.note_needs(*number, now);
            self.tell_lives(*number, now);
            wanted.extend(self.wanted(*number, now));
        }
        let mut readings = self.peers.sockets.read(&wanted, now);
        self.add_rdma(&wanted, &mut readings, now);
        for (worker, reading) in readings {
            let of = self.peers.of.entry(worker).or_default();
            of.read_at = Some(now);
            match reading {
                Ok(reading) => {
                    of.failed = false;
                    let sight = self.connections_sight(worker, reading.lacking, now);
                    self.cover(worker, Source::Connections, sight, now);
                    self.told_apart(worker, &reading.meters, now);
                    for (peer, meter) in reading.meters {
                        if candidate(peer).is_none() {
                            self.tell(worker, reading.at, Fact::Wire(peer, meter));
                        }
                    }
                }
                // A worker that is just ending has nothing more to be read.
                Err(_) if !self.workers.get(&worker).is_some_and(Watched::is_alive) => {}
                Err(error) => {
                    if !std::mem::replace(&mut of.failed, true) {
                        let pid = self.workers.get(&worker).map(|watched| watched.pid);
                        // A process on its way out has given its files up already.
                        if has_gone(&error) {
                            tracing::debug!(pid, %error, "reading connections");
                        } else {
                            tracing::warn!(pid, %error, "reading connections");
                        }
                    }
                    let sight = Sight::Blind(failure(&error));
                    self.cover(worker, Source::Connections, sight, now);
                }
            }
        }
    }

    /// The peers of a worker that can be metered: those it needs, and every worker of the other
    /// side on this node, so that a first transfer finds a baseline.
    fn wanted(&mut self, number: Worker, now: Nanos) -> Option<Wanted> {
        let watched = self.workers.get(&number)?;
        let pid = watched.pid;
        let neighbours = self.neighbours(number, pid);
        let mut peers: BTreeSet<Peer> = self
            .peers
            .of
            .get(&number)
            .map(|of| of.needed_at.keys().copied().collect())
            .unwrap_or_default();
        for name in neighbours {
            if peers.len() >= PEERS_MAX {
                break;
            }
            peers.extend(self.names.peer(name));
        }
        let mut targets: Vec<(Peer, Target)> = peers
            .iter()
            .filter_map(|peer| Some((*peer, self.target(number, *peer, now)?)))
            .collect();
        targets.extend(self.candidates(number, now));
        // A peer that cannot be metered is as good as metered: it is not tried at every record.
        self.peers.of.entry(number).or_default().metered.extend(peers);
        Some(Wanted { worker: number, pid, peers: targets })
    }

    fn neighbours(&self, number: Worker, pid: u32) -> Vec<PeerName> {
        let role = |worker| self.names.worker(worker).map(|name| name.about.role.as_str());
        let own = role(number);
        self.workers
            .values()
            .filter(|other| other.pid != pid)
            .map(|other| other.number)
            .chain(self.neighbours.numbers())
            .filter(|other| role(*other) != own)
            .filter_map(|other| self.names.worker(other))
            .flat_map(|name| name.about.identities.iter().cloned())
            .collect()
    }

    fn target(&self, worker: Worker, peer: Peer, now: Nanos) -> Option<Target> {
        if let Some(address) = self.names.peer_name(peer)?.endpoint() {
            return Some(Target::Address(address));
        }
        match self.whereabouts(worker, peer, now) {
            Place::Process(pid, _) => Some(Target::Process(pid)),
            Place::Gone(_) => Some(Target::Gone),
            Place::Unseen => None,
        }
    }

    /// Where a worker's peer is: by its name, else by what it was seen to take.
    pub(super) fn whereabouts(&self, worker: Worker, peer: Peer, now: Nanos) -> Place {
        let by_name = self.names.peer_name(peer).map(|name| self.place(worker, name, now));
        let whose = self.peers.of.get(&worker).map(|of| &of.whose);
        match (by_name, whose.and_then(|whose| whose.of(peer))) {
            (None | Some(Place::Unseen), Some((pid, start))) => {
                let is_gone = whose.is_some_and(|whose| whose.is_gone(peer));
                if is_gone { Place::Gone(None) } else { Place::Process(pid, start) }
            }
            (place, _) => place.unwrap_or(Place::Unseen),
        }
    }

    /// The process that a worker knows by a name: one that ended before it began was never its peer.
    /// A name that several living processes claim is nobody's: a worker may lie about itself, but
    /// not so as to accuse another. Only where none of those that are followed claims it, their
    /// neighbours count: `--pid` says who belongs together.
    pub(super) fn place(&self, of: Worker, name: &PeerName, now: Nanos) -> Place {
        let (mut living, mut nearby) = (BTreeSet::new(), BTreeSet::new());
        let mut ended = None;
        for (number, _) in self.names.workers_named(name) {
            if let Some(watched) = self.workers.get(&number) {
                living.insert((watched.pid, watched.start));
            } else if let Some(process) = self.neighbours.process(number) {
                nearby.insert(process);
            } else if self.names.have_met(of, number) {
                let at = self.names.ended_at(number).unwrap_or(now);
                ended = ended.max((now.since(at) < GONE_FOR).then_some(at));
            }
        }
        let living = if living.is_empty() { nearby } else { living };
        match (living.len(), living.first()) {
            (1, Some((pid, start))) => Place::Process(*pid, *start),
            (0, _) if ended.is_some() => Place::Gone(ended),
            _ => Place::Unseen,
        }
    }

    /// The peers that a worker's rooms and transfers need.
    pub(super) fn needed(&self, number: Worker) -> Vec<Peer> {
        let of = self.peers.of.get(&number);
        of.map(|of| of.needed_at.keys().copied().collect()).unwrap_or_default()
    }

    fn tell_lives(&mut self, number: Worker, now: Nanos) {
        let needed = self.needed(number);
        let (mut seen, mut unseen) = (0_usize, 0_usize);
        for peer in needed {
            let place = self.whereabouts(number, peer, now);
            let life = self.life_at(number, peer, place);
            if life == Life::Unseen {
                unseen += 1;
            } else {
                seen += 1;
            }
            let at = if let Place::Gone(Some(ended)) = place { ended.min(now) } else { now };
            self.tell_life(number, peer, life, at);
        }
        self.cover(number, Source::Peers, elsewhere(seen, unseen), now);
    }

    pub(super) fn tell_life(&mut self, worker: Worker, peer: Peer, life: Life, at: Nanos) {
        if self.peers.lives.is_news(worker, peer, life, at) {
            self.tell(worker, at, Fact::Life(peer, life));
        }
    }

    fn connections_sight(&self, worker: Worker, lacking: bool, now: Nanos) -> Sight {
        if lacking {
            return Sight::Degraded(Reason::KernelLacks);
        }
        let needed = self.peers.of.get(&worker).map(|of| &of.needed_at);
        let (mut seen, mut unseen) = (0, 0);
        for peer in needed.into_iter().flat_map(BTreeMap::keys) {
            if self.target(worker, *peer, now).is_some() { seen += 1 } else { unseen += 1 }
        }
        let other = self.workers.get(&worker).is_some_and(|watched| watched.uncounted.any());
        if other && seen > 0 {
            return Sight::Degraded(Reason::OtherTransport);
        }
        elsewhere(seen, unseen)
    }

    /// Forgets the names of peers that no room needs any more, where there are too many.
    pub(super) fn sweep_peers(&mut self) {
        let (workers, peers) = (&self.workers, &mut self.peers);
        self.names.sweep_peers(|| {
            let open = workers.values().flat_map(|watched| watched.tracker.open().values());
            let mut used: BTreeSet<Peer> = open.flat_map(|open| open.peers.clone()).collect();
            used.extend(peers.of.values().flat_map(|of| of.needed_at.keys()));
            for of in peers.of.values_mut() {
                of.metered.retain(|peer| used.contains(peer));
            }
            peers.sockets.keep(&used);
            peers.rdma.keep(&used);
            peers.lives.keep(&used);
            used
        });
    }

    /// A process has ended: whoever has it as a peer hears of it, with the time of its end.
    pub(super) fn peer_process_gone(&mut self, pid: u32, at: Nanos) {
        for of in self.peers.of.values_mut() {
            of.whose.bury(|(ended, _)| ended != pid);
        }
        let pairs: Vec<(Worker, Peer)> = self
            .peers
            .of
            .iter()
            .flat_map(|(worker, of)| of.needed_at.keys().map(|peer| (*worker, *peer)))
            .collect();
        for (worker, peer) in pairs {
            let Some(name) = self.names.peer_name(peer) else {
                continue;
            };
            let named = self.names.workers_named(name).next();
            let by_volume = self.peers.of.get(&worker).and_then(|of| of.whose.of(peer));
            let was_it = named.is_some_and(|(_, worker)| worker.identity.pid == pid)
                || by_volume.is_some_and(|(of, _)| of == pid);
            if was_it && matches!(self.whereabouts(worker, peer, at), Place::Gone(_)) {
                self.tell_life(worker, peer, Life::Gone, at);
            }
        }
    }

    /// A worker has ended: what its connections had carried is not needed any more.
    pub(super) fn forget_peers(&mut self, worker: Worker, pid: u32) {
        self.peers.sockets.forget(worker, pid);
        self.peers.rdma.forget(worker);
        self.peers.lives.forget(worker);
        self.peers.of.remove(&worker);
        self.fresh.forget(worker);
        let pids = self.workers.values().map(|watched| watched.pid).collect();
        self.peers.sockets.tidy(&pids);
    }
}

/// How well a source sees that sees some of a worker's peers.
const fn elsewhere(seen: usize, unseen: usize) -> Sight {
    match (seen, unseen) {
        (_, 0) => Sight::Visible,
        (0, _) => Sight::Blind(Reason::PeerElsewhere),
        _ => Sight::Degraded(Reason::PeerElsewhere),
    }
}

/// Whether an error says that the process is not there any more.
fn has_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

fn failure(error: &io::Error) -> Reason {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Reason::NotPermitted,
        io::ErrorKind::Unsupported => Reason::KernelLacks,
        _ => Reason::ReadFailed,
    }
}
