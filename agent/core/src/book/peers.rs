//! The far ends: their processes, their connections, and which rooms have something open to them.

use alloc::vec::Vec;

use super::{Book, PEERS_MAX};
use crate::account::{Account, Transfer};
use crate::fact::{Handle, Life, Meter, Peer, Seq};
use crate::policy::Policy;
use crate::time::Nanos;
use crate::wire::PeerBook;

impl Book {
    pub(super) fn peer(&mut self, peer: Peer) -> &mut PeerBook {
        if self.peers.len() >= PEERS_MAX && !self.peers.contains_key(&peer) {
            self.peers.pop_first();
        }
        self.peers.entry(peer).or_default()
    }

    pub(crate) fn life(&mut self, at: Nanos, peer: Peer, life: Life) {
        let book = self.peer(peer);
        book.looked_at = book.looked_at.max(at);
        if book.life != life {
            book.life_since = at;
        }
        // One that is stopped again and again and takes nothing in between is excused once.
        let excused =
            book.resumed_at.is_some_and(|at| book.growth_at.is_none_or(|took| took <= at));
        if book.life == Life::Stopped && life == Life::Running && !excused {
            book.resumed_at = Some(at);
        }
        // When a process went is when that was first seen; that it runs is as fresh as the look.
        if book.life != life || life != Life::Gone {
            book.life = life;
            book.life_at = at;
        }
        if life == Life::Gone {
            book.gone_at = Some(book.life_at);
        }
    }

    pub(crate) fn history(&mut self, peer: Peer, bytes: u64, whole: bool) {
        // Bytes in the table's memory are those of marked transfer calls.
        self.marks_posts |= bytes > 0 && !self.unhooked;
        if whole {
            self.peer(peer).history(bytes);
        }
    }

    /// The connections to a peer were read. Growth is progress of every room that has something
    /// open to it: [`Book::progress_of`] finds that when it is asked, so that a reading costs the
    /// same with thousands of rooms behind it.
    pub(crate) fn wire(&mut self, at: Nanos, peer: Peer, meter: Meter, policy: &Policy) {
        let quiet = !self.is_open_to(peer);
        self.peer(peer).sample(at, meter, quiet, policy);
    }

    /// When payload of this room last moved, or the append.
    pub(crate) fn progress_of(&self, account: &Account) -> Nanos {
        let Some(opened_at) = account.opened_at else {
            return account.last_progress;
        };
        let open = |peer: &Peer| self.has_open(account, *peer);
        let books = account.peers.iter().filter(|peer| open(peer));
        let grown = books.filter_map(|peer| self.peers.get(peer)?.payload_at());
        grown.filter(|at| *at >= opened_at).fold(account.last_progress, Nanos::max)
    }

    /// Something of the room is about to end, or to begin: what moved so far counts, and what
    /// moves while it has nothing open does not.
    pub(super) fn settle(&mut self, at: Nanos, seq: Seq) {
        let Some(account) = self.accounts.get(&seq) else {
            return;
        };
        let progress = self.progress_of(account);
        let open = account.unseen_open() || self.open_transfers(account).next().is_some();
        if let Some(account) = self.accounts.get_mut(&seq) {
            account.progress(progress);
            if !open {
                account.opened_at = Some(at);
            }
        }
    }

    fn rooms_with(&self, peer: Peer) -> impl Iterator<Item = &Account> + '_ {
        let rooms = self.peers.get(&peer).into_iter().flat_map(|book| &book.rooms);
        rooms.filter_map(|seq| self.account(*seq))
    }

    /// Whether the room has a transfer open to the peer, or may have one that was not seen.
    fn has_open(&self, account: &Account, peer: Peer) -> bool {
        account.unseen_open()
            || self.open_transfers(account).any(|t| t.peer.is_none_or(|p| p == peer))
    }

    /// Whether anything is open to the peer. Only rooms that were posted are looked at.
    fn is_open_to(&self, peer: Peer) -> bool {
        let Some(book) = self.peers.get(&peer) else {
            return false;
        };
        let mut begun = book.begun.iter().filter_map(|seq| self.account(*seq));
        !book.open.is_empty() || begun.any(|account| self.has_open(account, peer))
    }

    /// The room is served or posted from now on: it waits in line no more.
    pub(super) fn begin(&mut self, seq: Seq) {
        let waited_until = self.waited_until(seq);
        let Some(account) = self.accounts.get_mut(&seq).filter(|account| account.in_line) else {
            return;
        };
        account.in_line = false;
        self.line.remove(&seq);
        account.waited_until = waited_until;
        for peer in account.peers.clone() {
            self.peer(peer).begun.insert(seq);
        }
    }

    /// The room's first post: to whom it goes is settled now, whoever goes by the name later.
    pub(super) fn note_stale(&mut self, seq: Seq) {
        let Some(account) = self.accounts.get(&seq) else {
            return;
        };
        let books = account.peers.iter().filter_map(|peer| self.peers.get(peer));
        let stale_at = books.filter_map(PeerBook::ended_untaken).min();
        if let Some(account) = self.accounts.get_mut(&seq) {
            account.stale_at = stale_at;
        }
    }

    pub(super) fn open_transfers<'a>(
        &'a self,
        account: &'a Account,
    ) -> impl Iterator<Item = &'a Transfer> {
        self.open_handles(account).map(|(_, transfer)| transfer)
    }

    pub(super) fn open_handles<'a>(
        &'a self,
        account: &'a Account,
    ) -> impl Iterator<Item = (Handle, &'a Transfer)> {
        let transfers = account.handles.iter().filter_map(|h| Some((*h, self.transfers.get(h)?)));
        transfers.filter(|(_, transfer)| transfer.is_open())
    }

    /// The transfer of a room that has been open longest, and since when.
    pub(super) fn oldest_open(&self, account: &Account) -> Option<(Handle, Nanos)> {
        let open = self.open_handles(account);
        open.map(|(handle, transfer)| (handle, transfer.posted_at)).min_by_key(|(_, at)| *at)
    }

    /// Tells the peers of newly completed bytes of a room.
    pub(super) fn credit(&mut self, seq: Seq, to: Option<Peer>) {
        let Some(account) = self.accounts.get_mut(&seq) else {
            return;
        };
        let bytes = account.credit();
        let at = account.last_completion.unwrap_or(account.last_progress);
        if bytes == 0 {
            return;
        }
        let peers = match to {
            Some(peer) => alloc::vec![peer],
            // Which of several peers took them is not known: each is charged, so that what is
            // left for open transfers is rather too little than too much.
            None => account.peers.clone(),
        };
        for peer in peers {
            self.peer(peer).complete(at, bytes);
        }
    }

    /// The rooms that have this peer.
    pub(crate) fn rooms_of(&self, peer: Peer) -> Vec<Seq> {
        self.rooms_with(peer).map(|account| account.seq).collect()
    }
}
