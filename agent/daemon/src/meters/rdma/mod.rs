//! RDMA: which queue pairs lead to a peer, what went over them, and how their devices are.
//!
//! Three sources: the kernel's own list of queue pairs by netlink (owner, number, far number, state),
//! what the probes on its functions keep of each (bytes with soft-RoCE, far address, failure), and the
//! ports in sysfs. Without probes the first and the last are left.

mod account;
mod device;
mod nldev;
mod trouble;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use inflightd_abi::rdma::Queue;
use inflightd_core::Nanos;
use inflightd_core::fact::{Peer, PortTroubles, Worker};

use super::netlink;
use super::sockets::{Reading, Target, Wanted};
use account::{Account, DEVX, Part, Round};
pub use device::{CLASS, Device, Driver, Port, devices};

/// How often devices are looked for.
const LOOK_EVERY: Nanos = Nanos::from_secs(10);
/// How often a worker's ports are asked what went wrong, and how often while one of its rooms is a
/// suspect: hardware asks its firmware for it.
const TROUBLES_EVERY: Nanos = Nanos::from_secs(10);
const SUSPECT_EVERY: Nanos = Nanos::from_secs(1);
/// Most pairs of worker and peer that are metered. The victim is the newcomer: its payload is then
/// not counted.
const ACCOUNTS_MAX: usize = 16 * 1024;
/// Most queue pairs that are read: the rest is not seen.
const PAIRS_MAX: usize = 256 * 1024;

/// What the probes on the kernel's functions saw.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Each queue pair that is known.
    pub queues: Vec<Queue>,
    /// Whether soft-RoCE's sends are seen.
    pub sends: bool,
}

/// What a round found besides counts.
#[derive(Debug, Default)]
pub struct Found {
    /// Workers that have queue pairs of which it does not show what they have sent.
    pub uncounted: BTreeSet<Worker>,
    /// Processes that have queue pairs in the kernel's list, with the devices of those.
    pub listed: BTreeMap<u32, BTreeSet<String>>,
}

/// Reads RDMA devices and queue pairs, and remembers what ended ones had carried.
#[derive(Debug, Default)]
pub struct Rdma {
    present: bool,
    looked_at: Option<Nanos>,
    socket: Option<OwnedFd>,
    buffer: Vec<u8>,
    accounts: BTreeMap<(Worker, Peer), Account>,
    /// When the ports of each worker were last asked what went wrong.
    asked_at: BTreeMap<Worker, Nanos>,
    /// The last failure to read the list, so that it is said once.
    failed: bool,
}

impl Rdma {
    /// Whether this node has an RDMA device.
    pub fn is_present(&mut self, now: Nanos) -> bool {
        if self.looked_at.is_none_or(|at| now.since(at) >= LOOK_EVERY) {
            self.looked_at = Some(now);
            self.present = devices(Path::new(CLASS)).is_ok_and(|devices| !devices.is_empty());
        }
        self.present
    }

    /// Adds what went over RDMA to what the sockets say of the same peers: `readings` of these
    /// workers, in their order.
    pub fn add(
        &mut self,
        wanted: &[Wanted],
        readings: &mut [(Worker, io::Result<Reading>)],
        seen: Seen,
    ) -> Found {
        let round = self.round(seen);
        let devices = |pairs: &Vec<nldev::Pair>| {
            let known = pairs.iter().filter(|pair| pair.device != DEVX);
            known.map(|pair| pair.device.clone()).collect()
        };
        let listed = round.pairs.iter().map(|(pid, pairs)| (*pid, devices(pairs))).collect();
        let mut found = Found { listed, ..Found::default() };
        for (of, (worker, reading)) in wanted.iter().zip(readings) {
            let Ok(reading) = reading else {
                continue;
            };
            let targets: BTreeMap<Peer, Target> = of.peers.iter().copied().collect();
            for (peer, meter) in &mut reading.meters {
                let target = targets.get(peer);
                let read = |target: &Target| self.read((*worker, *peer), of.pid, *target, &round);
                let Some(part) = target.and_then(read) else {
                    continue;
                };
                if part.uncounted > 0 {
                    found.uncounted.insert(*worker);
                }
                part.add_to(meter);
            }
        }
        found
    }

    fn read(
        &mut self,
        key: (Worker, Peer),
        own: u32,
        target: Target,
        round: &Round,
    ) -> Option<Part> {
        if self.accounts.len() >= ACCOUNTS_MAX && !self.accounts.contains_key(&key) {
            return None;
        }
        Some(self.accounts.entry(key).or_default().read(own, target, round))
    }

    fn round(&mut self, seen: Seen) -> Round {
        // Read each time: a port may go down at any moment.
        let devices = devices(Path::new(CLASS)).unwrap_or_default();
        let names = |is: fn(&Device) -> bool| -> Vec<String> {
            devices.iter().filter(|device| is(device)).map(|d| d.name.clone()).collect()
        };
        let counted = if seen.sends { names(Device::is_soft) } else { Vec::new() };
        let by_commands = account::by_commands(&seen.queues);
        let queues = seen.queues.into_iter().map(|queue| ((name(&queue), queue.number), queue));
        let mut round = Round {
            seen: queues.collect(),
            counted,
            down: names(Device::is_down),
            ..Round::default()
        };
        round.list(self.pairs());
        round.list_unlisted(by_commands);
        round
    }

    /// The kernel's list. One that cannot be read is empty, and said once.
    fn pairs(&mut self) -> Vec<nldev::Pair> {
        match self.read_pairs() {
            Ok(mut pairs) => {
                self.failed = false;
                own(&mut pairs);
                pairs
            }
            Err(error) => {
                // What is left of the dump would be taken for the next one.
                self.socket = None;
                if !std::mem::replace(&mut self.failed, true) {
                    tracing::warn!(%error, "reading the kernel's RDMA queue pairs");
                }
                Vec::new()
            }
        }
    }

    fn read_pairs(&mut self) -> io::Result<Vec<nldev::Pair>> {
        let Self { socket, buffer, .. } = self;
        let socket = match socket {
            Some(socket) => &*socket,
            None => socket.insert(netlink::open(rustix::net::netlink::RDMA)?),
        };
        let (mut devices, mut pairs) = (Vec::new(), Vec::new());
        netlink::ask(socket, &nldev::devices(), buffer, |part| {
            nldev::parse_devices(part, &mut devices).map_err(io::Error::other)
        })?;
        for (number, _) in devices {
            netlink::ask(socket, &nldev::queues(number), buffer, |part| {
                let complete = nldev::parse_queues(part, &mut pairs).map_err(io::Error::other)?;
                if pairs.len() > PAIRS_MAX {
                    return Err(io::Error::other(format!("more than {PAIRS_MAX} queue pairs")));
                }
                Ok(complete)
            })?;
        }
        Ok(pairs)
    }

    /// What the ports of these devices have counted that went wrong, of all devices where none is
    /// named; `None` where that was asked for a worker just now, or nothing counts it.
    pub fn troubles(
        &mut self,
        worker: Worker,
        devices: &BTreeSet<String>,
        suspect: bool,
        now: Nanos,
    ) -> Option<PortTroubles> {
        let every = if suspect { SUSPECT_EVERY } else { TROUBLES_EVERY };
        if self.asked_at.get(&worker).is_some_and(|at| now.since(*at) < every) {
            return None;
        }
        self.asked_at.insert(worker, now);
        trouble::troubles(Path::new(CLASS), devices)
    }

    /// A worker has ended.
    pub fn forget(&mut self, worker: Worker) {
        self.asked_at.remove(&worker);
        self.accounts.retain(|(of, _), _| *of != worker);
    }

    /// Forgets the peers that are not in `used`.
    pub fn keep(&mut self, used: &BTreeSet<Peer>) {
        self.accounts.retain(|(_, peer), _| used.contains(peer));
    }
}

/// Puts processes in the place of threads: the kernel names the one that made a queue pair, which in UCX
/// is whichever makes progress.
fn own(pairs: &mut [nldev::Pair]) {
    let mut known = BTreeMap::new();
    for pair in pairs.iter_mut().filter(|pair| pair.pid > 0) {
        pair.pid = *known.entry(pair.pid).or_insert_with_key(|thread| process_of(*thread));
    }
}

/// The process of a thread; the thread's own number where it has ended since.
fn process_of(thread: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(thread)
}

/// The name of a queue pair's device.
fn name(queue: &Queue) -> String {
    let text = queue.device.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_pair_belongs_to_the_process_of_the_thread_that_made_it() {
        let made = std::thread::spawn(|| {
            let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
            let pair = |pid| nldev::Pair { pid, ..nldev::Pair::default() };
            let mut pairs = [pair(thread), pair(0)];
            own(&mut pairs);
            (thread, pairs.map(|pair| pair.pid))
        });
        let (thread, owners) = made.join().unwrap();
        assert_ne!(thread, std::process::id());
        assert_eq!(owners, [std::process::id(), 0]);
    }
}
