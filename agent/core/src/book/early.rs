//! Threads at work for rooms that were not in the queue when they took them: an engine sends the
//! first chunks of a long prompt while the rest of it is still computed. Who enters the queue in
//! the meantime waits behind such work, though its room enters later, or never.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::Book;
use super::queue::{Candidate, LOOK_MAX, shares};
use crate::account::Account;
use crate::coverage::Source;
use crate::fact::{Handle, Peer, Seq, Tid};
use crate::time::Nanos;
use crate::wire::PeerBook;

/// Most peers of one thread's early work that are followed; the newcomer is the victim.
const PEERS_MAX: usize = 16;

/// Early work by its place: the last room that had entered when it was queued, and its thread. As
/// many as there are threads.
pub(super) type Places = BTreeMap<(Seq, Tid), Work>;

/// What a thread is at since it took up early work.
#[derive(Clone, Debug)]
pub(super) struct Work {
    since: Nanos,
    /// Its room, since it is known.
    room: Option<Seq>,
    /// To whom the library's posts go, where they are seen.
    peers: Vec<Peer>,
}

impl Book {
    /// A thread takes up work for a room that is not in the queue; it comes after `after`.
    pub(crate) fn serve_early(&mut self, at: Nanos, tid: Tid, after: Seq) {
        self.marks_serves = true;
        self.serve_end(at, tid);
        let thread = self.thread(tid);
        thread.early = Some(after);
        let last = thread.last.take();
        if let Some(last) = last {
            self.put_away(tid, last);
        }
        self.dead.remove(&tid);
        self.early.insert((after, tid), Work { since: at, room: None, peers: Vec::new() });
    }

    /// The room of a thread's early work has entered the queue. Since when the thread is at it;
    /// `None` where that is no early work, or another room's.
    pub(super) fn adopt_early(&mut self, tid: Tid, seq: Seq) -> Option<Nanos> {
        let work = self.early_work(tid)?;
        let room = *work.room.get_or_insert(seq);
        let since = work.since;
        if room != seq {
            return None;
        }
        for (handle, (by, of)) in &mut self.early_posts {
            let posted_at = self.transfers.get(handle).map(|transfer| transfer.posted_at);
            if *by == tid && of.is_none() && posted_at.is_some_and(|at| at >= since) {
                *of = Some(seq);
            }
        }
        Some(since)
    }

    /// The library posts a transfer to a peer, on a thread that may be at early work.
    pub(super) fn post_early(
        &mut self,
        tid: Tid,
        peer: Option<Peer>,
        handle: Handle,
        of: Option<Seq>,
    ) {
        if of.is_none() {
            self.early_posts.insert(handle, (tid, None));
        }
        let (Some(work), Some(peer)) = (self.early_work(tid), peer) else {
            return;
        };
        if work.peers.len() < PEERS_MAX && !work.peers.contains(&peer) {
            work.peers.push(peer);
        }
        self.peer(peer).served_by = Some(tid);
    }

    fn early_work(&mut self, tid: Tid) -> Option<&mut Work> {
        let after = self.threads.get(&tid)?.early?;
        self.early.get_mut(&(after, tid))
    }

    /// The thread is done with its early work, which holds up nobody any more.
    pub(super) fn end_early(&mut self, at: Nanos, tid: Tid) {
        let after = self.threads.get_mut(&tid).and_then(|thread| thread.early.take());
        if let Some(after) = after {
            self.early.remove(&(after, tid));
            self.freed.push(after, at);
        }
    }

    /// Early work that comes before the room.
    pub(super) fn early_before(&self, of: &Account) -> impl Iterator<Item = Candidate> {
        let places = self.early.range(..(of.seq, Tid(0))).take(LOOK_MAX);
        places.filter_map(|(place, work)| self.early_head(*place, work, of))
    }

    fn early_head(&self, place: (Seq, Tid), work: &Work, of: &Account) -> Option<Candidate> {
        let (after, tid) = place;
        let room = work.room.filter(|seq| self.accounts.contains_key(seq));
        if let Some(seq) = room {
            return self.candidate(seq, Some(tid), of).filter(|_| seq != of.seq);
        }
        let same_peer = shares(&work.peers, &of.peers);
        let same_thread = self.worked_for(tid, &of.peers);
        let certain = same_peer || same_thread;
        if !certain && self.has_thread(&of.peers) {
            return None;
        }
        if let Some(first) = certain.then(|| self.first_behind(tid, after, of)).flatten() {
            // The first that waits stands for all of them.
            return self.candidate(first, Some(tid), of);
        }
        let growth = self.early_peers(tid, work).filter_map(|(_, book)| book.growth_at).max();
        Some(Candidate {
            seq: None,
            tid: Some(tid),
            same_peer,
            same_thread,
            since: work.since,
            progress: growth.unwrap_or(work.since).max(work.since),
            visible: self.early_shows(tid, work),
        })
    }

    /// To whom early work goes: by its posts, else whomever its thread has last worked for.
    fn early_peers<'a>(
        &'a self,
        tid: Tid,
        work: &'a Work,
    ) -> impl Iterator<Item = (Peer, &'a PeerBook)> {
        let known = work.peers.iter().filter_map(|peer| Some((*peer, self.peers.get(peer)?)));
        let others = self.peers.iter().filter(move |(_, book)| book.served_by == Some(tid));
        let others = others.filter(|_| work.peers.is_empty());
        known.chain(others.map(|(peer, book)| (*peer, book)))
    }

    /// Whether what early work moves would show.
    fn early_shows(&self, tid: Tid, work: &Work) -> bool {
        let mut peers = self.early_peers(tid, work).map(|(peer, book)| self.peer_seen(peer, book));
        let first = peers.next();
        self.coverage.sees(Source::Connections)
            && first.is_some_and(|peer| peer.is_metered())
            && peers.all(|peer| peer.is_metered())
    }

    /// Whether it is known which thread works for one of the peers.
    fn has_thread(&self, peers: &[Peer]) -> bool {
        let mut books = peers.iter().filter_map(|peer| self.peers.get(peer));
        books.any(|book| book.served_by.is_some())
    }

    /// The first room in line for a thread at early work, other than the last of them.
    fn first_behind(&self, tid: Tid, after: Seq, last: &Account) -> Option<Seq> {
        let line = self.line.range(after..last.seq).take(LOOK_MAX);
        let mut line = line.filter_map(|seq| self.account(*seq));
        let first = line.find(|account| {
            account.seq > after && account.waits() && self.worked_for(tid, &account.peers)
        });
        first.map(|account| account.seq)
    }

    /// From where on rooms may wait behind this one: itself, or what its early work came after.
    pub(super) fn place_of(&self, seq: Seq) -> Seq {
        let place = self.captives.get(&seq).and_then(|captive| {
            let after = self.threads.get(&captive.tid())?.early?;
            let work = self.early.get(&(after, captive.tid()))?;
            (work.room == Some(seq)).then_some(after)
        });
        place.map_or(seq, |after| after.min(seq))
    }
}
