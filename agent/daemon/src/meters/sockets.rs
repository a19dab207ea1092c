//! The kernel's counts per connection, for workers and their peers.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;

use inflightd_core::Nanos;
use inflightd_core::fact::{Meter, Peer, Worker};

use super::connections::{Account, Dump, Far, Side};
use super::spaces::{Space, Spaces};

/// Most pairs of worker and peer that are metered; a further pair is not seen, and said so.
const ACCOUNTS_MAX: usize = 16 * 1024;
/// A process's sockets are listed anew at least so often.
const LIST_EVERY: Nanos = Nanos::from_secs(10);
/// Most open files of a process that are looked at.
const FILES_MAX: usize = 256 * 1024;

/// Where a peer is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A process on this node.
    Process(u32),
    /// A process that was on this node and has ended.
    Gone,
    /// An address.
    Address(SocketAddr),
}

/// A worker whose connections are to be read.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Its number.
    pub worker: Worker,
    /// Its process.
    pub pid: u32,
    /// Its peers, and where they are.
    pub peers: Vec<(Peer, Target)>,
}

/// What a reading gave of one worker.
#[derive(Debug)]
pub struct Reading {
    /// Whose connections.
    pub worker: Worker,
    /// When they were read.
    pub at: Nanos,
    /// Counts by peer.
    pub meters: Vec<(Peer, Meter)>,
    /// The kernel counts too little, or there are too many pairs.
    pub lacking: bool,
}

/// A process's sockets.
#[derive(Debug, Default)]
struct Owned {
    inodes: BTreeSet<u32>,
    listed_at: Nanos,
    /// The number of the news that the list is as new as.
    news: u64,
}

/// Inodes of a namespace's last dump, and the number of the dump that last had a new one.
#[derive(Debug, Default)]
struct Known {
    inodes: BTreeSet<u32>,
    news: u64,
}

/// Reads connections, and remembers what closed ones had carried.
#[derive(Debug, Default)]
pub struct Sockets {
    spaces: Spaces,
    accounts: BTreeMap<(Worker, Peer), Account>,
    owned: BTreeMap<u32, Owned>,
    /// A new inode makes each process of its namespace be listed anew when it is next visited,
    /// which need not be in the round that saw the inode first.
    known: BTreeMap<Space, Known>,
    /// How many dumps had new inodes.
    news: u64,
}

/// Dumps of one round, by the process whose namespace was read.
#[derive(Debug, Default)]
struct Round {
    dumps: BTreeMap<Space, Dump>,
    space_of: BTreeMap<u32, Space>,
}

impl Round {
    fn dump(&self, pid: u32) -> Option<&Dump> {
        self.dumps.get(self.space_of.get(&pid)?)
    }
}

impl Sockets {
    /// Reads the connections of these workers. A worker that cannot be read has an error.
    pub fn read(&mut self, wanted: &[Wanted], now: Nanos) -> Vec<(Worker, io::Result<Reading>)> {
        let mut round = Round::default();
        wanted
            .iter()
            .map(|wanted| (wanted.worker, self.read_worker(wanted, &mut round, now)))
            .collect()
    }

    fn read_worker(
        &mut self,
        wanted: &Wanted,
        round: &mut Round,
        now: Nanos,
    ) -> io::Result<Reading> {
        self.visit(wanted.pid, round, now)?;
        for (_, target) in &wanted.peers {
            if let Target::Process(pid) = target {
                // A peer that has just ended is told by its exit.
                drop(self.visit(*pid, round, now));
            }
        }
        let mut reading = Reading {
            worker: wanted.worker,
            at: now,
            meters: Vec::with_capacity(wanted.peers.len()),
            lacking: false,
        };
        for (peer, target) in &wanted.peers {
            match self.read_pair(wanted, (*peer, *target), round) {
                Some((meter, lacking)) => {
                    reading.meters.push((*peer, meter));
                    reading.lacking |= lacking;
                }
                None => reading.lacking = true,
            }
        }
        Ok(reading)
    }

    fn read_pair(
        &mut self,
        wanted: &Wanted,
        (peer, target): (Peer, Target),
        round: &Round,
    ) -> Option<(Meter, bool)> {
        let key = (wanted.worker, peer);
        if self.accounts.len() >= ACCOUNTS_MAX && !self.accounts.contains_key(&key) {
            return None;
        }
        let near = side(&self.owned, round, wanted.pid)?;
        let far = match target {
            Target::Process(pid) => side(&self.owned, round, pid).map(Far::Process),
            Target::Address(address) => Some(Far::Address(address)),
            Target::Gone => None,
        };
        let account = self.accounts.entry(key).or_default();
        let meter = account.read(&near, far);
        Some((meter, account.is_lacking()))
    }

    /// Makes sure that a process's namespace is dumped and its sockets are listed in this round.
    fn visit(&mut self, pid: u32, round: &mut Round, now: Nanos) -> io::Result<()> {
        if round.space_of.contains_key(&pid) {
            return Ok(());
        }
        let space = Space::of(pid)?;
        if !round.dumps.contains_key(&space) {
            let (space, sockets) = self.spaces.dump(pid, now)?;
            let inodes: BTreeSet<u32> = sockets.iter().map(|socket| socket.inode).collect();
            let known = self.known.entry(space).or_default();
            if !inodes.is_subset(&known.inodes) {
                self.news += 1;
                known.news = self.news;
            }
            known.inodes = inodes;
            round.dumps.insert(space, Dump::new(space, now, sockets));
        }
        round.space_of.insert(pid, space);
        let news = self.known.get(&space).map_or(0, |known| known.news);
        let is_stale = self
            .owned
            .get(&pid)
            .is_none_or(|owned| owned.news < news || now.since(owned.listed_at) >= LIST_EVERY);
        if is_stale {
            let inodes = sockets_of(pid)?;
            self.owned.insert(pid, Owned { inodes, listed_at: now, news: self.news });
        }
        Ok(())
    }

    /// A worker has ended.
    pub fn forget(&mut self, worker: Worker, pid: u32) {
        self.accounts.retain(|(of, _), _| *of != worker);
        self.owned.remove(&pid);
    }

    /// Forgets the peers that are not in `used`.
    pub fn keep(&mut self, used: &BTreeSet<Peer>) {
        self.accounts.retain(|(_, peer), _| used.contains(peer));
    }

    /// Forgets namespaces that no watched process is in.
    pub fn tidy(&mut self, pids: &BTreeSet<u32>) {
        self.owned.retain(|pid, _| pids.contains(pid));
        let spaces: BTreeSet<Space> = pids.iter().filter_map(|pid| Space::of(*pid).ok()).collect();
        self.known.retain(|space, _| spaces.contains(space));
    }
}

fn side<'a>(owned: &'a BTreeMap<u32, Owned>, round: &'a Round, pid: u32) -> Option<Side<'a>> {
    Some(Side { dump: round.dump(pid)?, inodes: &owned.get(&pid)?.inodes })
}

/// Inodes of a process's open sockets.
fn sockets_of(pid: u32) -> io::Result<BTreeSet<u32>> {
    let inodes = std::fs::read_dir(format!("/proc/{pid}/fd"))?
        .take(FILES_MAX)
        .filter_map(Result::ok)
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .filter_map(|link| {
            let link = link.to_str()?;
            link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
        })
        .collect();
    Ok(inodes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// This process is both worker and peer: its own connection to itself is seen from both
    /// sides.
    #[test]
    fn a_real_connection_is_metered() {
        let own = std::process::id();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut out = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (inside, _) = listener.accept().unwrap();
        let to = Target::Address(listener.local_addr().unwrap());
        let wanted = [Wanted { worker: Worker(0), pid: own, peers: vec![(Peer(0), to)] }];
        let mut sockets = Sockets::default();
        let mut read = |at| {
            let (_, reading) = sockets.read(&wanted, Nanos(at)).pop().unwrap();
            reading.unwrap().meters[0].1
        };
        assert_eq!((read(1).connections, read(1).unread), (1, Some(0)));
        out.write_all(&[7; 5000]).unwrap();
        let full = read(2);
        assert!(full.acked >= 5000, "{full:?}");
        assert_eq!(full.unread, Some(5000));
        drop((out, inside));
        let closed = read(3);
        assert_eq!(closed.connections, 0);
        assert!(closed.acked >= full.acked);
    }

    /// A round for another worker of the namespace sees a new connection first.
    #[test]
    fn a_connection_that_another_round_saw_first_is_metered() {
        let own = std::process::id();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = Target::Address(listener.local_addr().unwrap());
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let wanted = [Wanted { worker: Worker(0), pid: own, peers: vec![(Peer(0), to)] }];
        let others = [Wanted { worker: Worker(1), pid: other.id(), peers: Vec::new() }];
        let mut sockets = Sockets::default();
        let mut read = |wanted: &[Wanted], at| sockets.read(wanted, Nanos(at)).pop().unwrap().1;
        assert_eq!(read(&wanted, 1).unwrap().meters[0].1.connections, 0);
        let _out = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        read(&others, 2).unwrap();
        assert_eq!(read(&wanted, 3).unwrap().meters[0].1.connections, 1);
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn own_sockets_are_listed() {
        let before = sockets_of(std::process::id()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let after = sockets_of(std::process::id()).unwrap();
        assert!(after.difference(&before).count() >= 1);
        drop(listener);
    }
}
