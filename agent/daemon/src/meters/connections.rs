//! Which connections lead from a worker to a peer, and what they have carried. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use inflightd_core::Nanos;
use inflightd_core::fact::Meter;

use super::diag::Socket;
use super::spaces::Space;

/// The sockets of one namespace, found by their two addresses.
#[derive(Debug)]
pub(super) struct Dump {
    /// Which namespace.
    pub space: Space,
    /// When it was read.
    pub at: Nanos,
    sockets: Vec<Socket>,
    by_addresses: BTreeMap<(SocketAddr, SocketAddr), usize>,
}

impl Dump {
    /// Takes a namespace's sockets.
    pub(super) fn new(space: Space, at: Nanos, sockets: Vec<Socket>) -> Self {
        let by_addresses = sockets
            .iter()
            .enumerate()
            .map(|(index, socket)| ((socket.local, socket.remote), index))
            .collect();
        Self { space, at, sockets, by_addresses }
    }

    /// Every socket.
    pub(super) fn sockets(&self) -> &[Socket] {
        &self.sockets
    }

    /// The socket with these addresses.
    fn find(&self, local: SocketAddr, remote: SocketAddr) -> Option<&Socket> {
        self.sockets.get(*self.by_addresses.get(&(local, remote))?)
    }

    /// Whether one of these inodes listens on the address.
    fn listens(&self, at: SocketAddr, inodes: &BTreeSet<u32>) -> bool {
        self.sockets.iter().any(|socket| {
            let any = socket.local.ip().is_unspecified();
            socket.is_listening()
                && inodes.contains(&socket.inode)
                && socket.local.port() == at.port()
                && (any || socket.local.ip() == at.ip())
        })
    }
}

/// One process's sockets: the dump of its namespace, and its inodes in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side<'a> {
    /// Its namespace's sockets.
    pub dump: &'a Dump,
    /// Its own, by inode.
    pub inodes: &'a BTreeSet<u32>,
}

/// Where a peer is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Far<'a> {
    /// A process on this node.
    Process(Side<'a>),
    /// An address, wherever that is.
    Address(SocketAddr),
}

/// The far end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It is not this peer's.
    Elsewhere,
    /// It is this peer's, and cannot be seen.
    Unseen,
    /// It is this peer's: bytes that it has received and not read.
    Unread(u64),
}

impl<'a> Far<'a> {
    /// The far end of a worker's connection.
    fn end_of(self, own: &Socket, near: &Side<'a>) -> End {
        self.find(own, near).unwrap_or(End::Elsewhere)
    }

    fn find(self, own: &Socket, near: &Side<'a>) -> Option<End> {
        match self {
            Self::Address(address) if own.remote == address => {
                let end = near.dump.find(own.remote, own.local);
                Some(end.map_or(End::Unseen, |end| End::Unread(end.unread.into())))
            }
            Self::Address(_) => None,
            Self::Process(side) => {
                // 127.0.0.1 is another machine in another namespace.
                if side.dump.space != near.dump.space && own.remote.ip().is_loopback() {
                    return None;
                }
                let end = side.dump.find(own.remote, own.local)?;
                let accepted = side.inodes.contains(&end.inode);
                // Nobody has accepted it yet: it belongs to whoever listens.
                let waiting = end.inode == 0 && side.dump.listens(end.local, side.inodes);
                (accepted || waiting).then_some(End::Unread(end.unread.into()))
            }
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Last {
    acked: u64,
    received: u64,
    unread: Option<u64>,
}

/// Most connections kept of one worker and peer; further ones are not counted.
const LIVE_MAX: usize = 4096;

/// What the connections from one worker to one peer have carried, living and closed.
#[derive(Debug, Default)]
pub(super) struct Account {
    live: BTreeMap<u64, Last>,
    closed: Last,
    last_received: Option<Nanos>,
    lacking: bool,
}

impl Account {
    /// Reads the connections anew. `far` is `None` where the peer's process has gone: what leads
    /// there is then known from before.
    pub(super) fn read(&mut self, near: &Side<'_>, far: Option<Far<'_>>) -> Meter {
        let mut meter = Meter::default();
        let mut seen = BTreeSet::new();
        let mut unread = Some(0);
        for own in near.dump.sockets() {
            let known = self.live.contains_key(&own.cookie);
            let end = match far {
                Some(far) if known || near.inodes.contains(&own.inode) => far.end_of(own, near),
                _ => End::Elsewhere,
            };
            let is_foreign = !known && (end == End::Elsewhere || self.live.len() >= LIVE_MAX);
            if own.is_listening() || is_foreign {
                continue;
            }
            seen.insert(own.cookie);
            // Where the far end has gone, what was last unread stays unread.
            let end = match end {
                End::Unread(unread) => Some(unread),
                _ => self.live.get(&own.cookie).and_then(|last| last.unread),
            };
            self.count(own, end, near.dump.at, &mut meter);
            unread = unread.zip(end).map(|(sum, more)| sum + more);
        }
        self.close(&seen, far.is_none());
        let sum = self.sum();
        Meter {
            acked: sum.acked,
            received: sum.received,
            // Bytes that a dead process never read stay unread for ever.
            unread: unread.map(|unread| unread + self.closed.unread.unwrap_or(0)),
            last_received: self.last_received,
            ..meter
        }
    }

    /// Whether this kernel counts too little of a connection to be of use.
    pub(super) const fn is_lacking(&self) -> bool {
        self.lacking
    }

    fn count(&mut self, own: &Socket, unread: Option<u64>, at: Nanos, meter: &mut Meter) {
        meter.connections += u32::from(own.is_established());
        let Some(info) = own.info else {
            self.lacking = true;
            self.live.insert(own.cookie, Last::default());
            return;
        };
        let unsent = u64::from(info.unsent);
        meter.unsent += unsent;
        meter.unacked += u64::from(own.unacknowledged).saturating_sub(unsent);
        meter.window_closed |= own.window_closed();
        meter.retransmitting |= own.is_retransmitting();
        if info.received > 0 {
            let ago = Nanos::from_millis(u64::from(info.last_received_ms));
            self.last_received = self.last_received.max(Some(at.since(ago)));
        }
        let last = Last { acked: info.acked, received: info.received, unread };
        self.live.insert(own.cookie, last);
    }

    /// Takes leave of the connections that are gone.
    fn close(&mut self, seen: &BTreeSet<u64>, peer_gone: bool) {
        let closed = &mut self.closed;
        self.live.retain(|cookie, last| {
            let is_seen = seen.contains(cookie);
            if !is_seen {
                closed.acked += last.acked;
                closed.received += last.received;
                if peer_gone {
                    *closed.unread.get_or_insert(0) += last.unread.unwrap_or(0);
                }
            }
            is_seen
        });
    }

    fn sum(&self) -> Last {
        self.live.values().fold(self.closed, |mut sum, last| {
            sum.acked += last.acked;
            sum.received += last.received;
            sum
        })
    }
}

#[cfg(test)]
#[path = "connections_tests.rs"]
mod tests;
