//! Which queue pairs lead from a worker to a peer, and what they have carried. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use inflightd_abi::rdma::{DEVX_NAME, Queue, STATE_ERR, STATE_RTS};
use inflightd_core::Nanos;
use inflightd_core::fact::Meter;

use super::super::sockets::Target;
use super::nldev::Pair;

/// A timer ran out so often since something was acknowledged: it is no coincidence any more. One
/// that runs out once is usual beside healthy sends (measured).
const AGAIN_MIN: u32 = 3;

/// Bytes of a device's name that the probes keep; names are ASCII.
const NAME_KEPT: usize = size_of::<[u8; 16]>() - 1;

/// What stands for the device of a queue pair made by DEVX.
pub(super) const DEVX: &str = "devx";

/// The queue pairs that are known by their commands to mlx5's firmware, as the kernel would list them.
pub(super) fn by_commands(queues: &[Queue]) -> Vec<Pair> {
    let made = queues.iter().filter(|queue| queue.device == DEVX_NAME && queue.ended_at == 0);
    made.map(|queue| Pair {
        device: DEVX.to_owned(),
        number: queue.number,
        far: queue.far,
        state: queue.state,
        pid: queue.tgid,
    })
    .collect()
}

/// A queue pair by the name of its device and its number.
type Key = (String, u32);

/// The queue pairs of this node.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// As the kernel lists them, by process.
    pub(super) pairs: BTreeMap<u32, Vec<Pair>>,
    /// Of each its process, its number and its far end's.
    pub(super) ends: BTreeSet<(u32, u32, u32)>,
    /// As the probes saw them.
    pub(super) seen: BTreeMap<Key, Queue>,
    /// Devices whose sends are seen.
    pub(super) counted: Vec<String>,
    /// Devices none of whose ports can send.
    pub(super) down: Vec<String>,
}

impl Round {
    /// Adds what the kernel lists. It knows nobody of a queue pair whose thread has ended, and of its
    /// own; of the former the probes know the process.
    pub(super) fn list(&mut self, pairs: impl IntoIterator<Item = Pair>) {
        for mut pair in pairs {
            let seen = self.seen.get(&key(&pair)).map_or(0, |queue| queue.tgid);
            if seen > 0 {
                pair.pid = seen;
            }
            if pair.pid == 0 {
                continue;
            }
            self.ends.insert((pair.pid, pair.number, pair.far));
            self.pairs.entry(pair.pid).or_default().push(pair);
        }
    }

    /// Adds what it does not list. Verbs queue pairs of mlx5 give the same commands: those are there.
    pub(super) fn list_unlisted(&mut self, pairs: Vec<Pair>) {
        let is_new = |pair: &Pair| {
            let listed = self.pairs.get(&pair.pid).into_iter().flatten();
            !listed.into_iter().any(|other| other.number == pair.number)
        };
        let new: Vec<Pair> = pairs.into_iter().filter(is_new).collect();
        self.list(new);
    }

    /// Whether a worker's queue pair leads to that peer.
    fn leads(&self, pair: &Pair, to: Target) -> bool {
        match to {
            // Numbers are of a device: one that leads back to its own process, as UCX makes one on each
            // device, is taken for one to a process that has the same on another.
            Target::Process(pid) => self.ends.contains(&(pid, pair.far, pair.number)),
            Target::Address(address) => {
                let seen = self.seen.get(&key(pair));
                seen.is_some_and(|queue| ip(queue.gid) == address.ip())
            }
            Target::Gone => false,
        }
    }
}

/// What the queue pairs from one worker to one peer have carried, those that have ended too.
#[derive(Debug, Default)]
pub(super) struct Account {
    live: BTreeMap<Key, u64>,
    ended: u64,
}

/// What a reading gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    /// Queue pairs that can send, as far as it shows what they have sent.
    pub(super) connections: u32,
    /// Queue pairs of which that does not show.
    pub(super) uncounted: u32,
    /// Bytes that have arrived.
    pub(super) bytes: u64,
    last_done: Option<Nanos>,
    again: bool,
    not_ready: bool,
    failed_at: Option<Nanos>,
    down: bool,
}

impl Account {
    /// Reads a worker's queue pairs to a peer anew.
    pub(super) fn read(&mut self, own: u32, to: Target, round: &Round) -> Part {
        let mut part = Part::default();
        let (mut failed, mut down) = (None::<Nanos>, 0);
        let mut still = BTreeMap::new();
        for pair in round.pairs.get(&own).into_iter().flatten() {
            let key = key(pair);
            if !self.live.contains_key(&key) && !round.leads(pair, to) {
                continue;
            }
            let queue = round.seen.get(&key);
            part.take(pair, queue, round.counted.contains(&pair.device));
            // What DEVX's commands look like is read in the sources: nobody is accused by them.
            if pair.state == STATE_ERR && pair.device != DEVX {
                let at = queue.map_or(0, |queue| queue.failed_at);
                failed = failed.max(Some(Nanos(at)));
            }
            down += u32::from(round.down.contains(&pair.device));
            still.insert(key, queue.map_or(0, |queue| queue.bytes));
        }
        self.close(&still);
        let living = part.connections + part.uncounted;
        part.failed_at = failed.filter(|_| living == 0);
        part.down = down > 0 && down >= living;
        self.live = still;
        part.bytes = self.ended + self.live.values().sum::<u64>();
        part
    }

    /// Keeps what queue pairs had carried that are gone, or whose number is another's now.
    fn close(&mut self, still: &BTreeMap<Key, u64>) {
        for (key, bytes) in &self.live {
            if still.get(key).is_none_or(|now| now < bytes) {
                self.ended += bytes;
            }
        }
    }
}

impl Part {
    fn take(&mut self, pair: &Pair, queue: Option<&Queue>, counted: bool) {
        let sends = u32::from(pair.state == STATE_RTS);
        if counted {
            self.connections += sends;
        } else {
            self.uncounted += sends;
        }
        let Some(queue) = queue else {
            return;
        };
        let done = (queue.done_at > 0).then_some(Nanos(queue.done_at));
        self.last_done = self.last_done.max(done);
        self.again |= queue.retransmits >= AGAIN_MIN;
        self.not_ready |= queue.not_ready >= AGAIN_MIN;
    }

    /// Adds to what the sockets to the same peer say. What the far device has acknowledged lies in
    /// the far process's memory: nothing waits there to be read.
    pub(super) fn add_to(self, meter: &mut Meter) {
        meter.connections += self.connections;
        meter.acked += self.bytes;
        meter.received += self.bytes;
        meter.last_received = meter.last_received.max(self.last_done);
        meter.retransmitting |= self.again;
        meter.window_closed |= self.not_ready;
        meter.broken = self.failed_at;
        meter.link_down = self.down;
    }
}

/// The probes cut a device's name, so it is cut here too.
fn key(pair: &Pair) -> Key {
    (pair.device.chars().take(NAME_KEPT).collect(), pair.number)
}

/// The address in a GID of RoCE: IPv4 ones are mapped.
fn ip(gid: [u8; 16]) -> IpAddr {
    std::net::Ipv6Addr::from(gid).to_canonical()
}

#[cfg(test)]
#[path = "account_tests.rs"]
mod tests;
