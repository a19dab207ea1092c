//! What is open, for whoever asks: read only, and outside what a replay depends on.

use crate::account::Account;
use crate::book::Book;
use crate::coverage::Coverage;
use crate::fact::{Peer, Phase, Room, Seq, Tid, Worker};
use crate::ledger::Ledger;
use crate::policy::Policy;
use crate::time::Nanos;
use crate::verdict::{self, Bytes, Cause, Finding, Tier};

/// A verdict that was told and has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// What is so.
    pub finding: Finding,
    /// Why.
    pub cause: Cause,
    /// Since when it stands.
    pub since: Nanos,
    /// The head of its incident, where that is another stay and this life of the agent told so.
    pub head: Option<Seq>,
}

impl Standing {
    const fn of(standing: crate::account::Standing) -> Self {
        Self {
            finding: standing.finding,
            cause: standing.cause,
            since: standing.at,
            head: standing.head,
        }
    }

    /// Whether somebody was told at once.
    pub const fn is_alert(&self) -> bool {
        self.head.is_none() && verdict::is_alert(self.finding, self.cause)
    }
}

/// An open room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoomView<'a> {
    /// Which stay.
    pub seq: Seq,
    /// The engine's id.
    pub room: Room,
    /// What identity it rests on: without the hook it may be a transfer's own stay.
    pub tier: Tier,
    /// When it entered the queue.
    pub appended_at: Nanos,
    /// When a payload byte last moved; the append where none has.
    pub last_progress: Nanos,
    /// What the engine says.
    pub phase: Phase,
    /// Whether it can get a verdict: not where nothing is to be moved for it, nor where it is
    /// received.
    pub judged: bool,
    /// Bytes; `completed` counts whole transfers only, see [`WorkerView::arrived`].
    pub bytes: Bytes,
    /// Transfer calls begun.
    pub posts: u64,
    /// The far ends.
    pub peers: &'a [Peer],
    /// The thread that works for it, and since when.
    pub serving: Option<(Tid, Nanos)>,
    /// The verdict that stands.
    pub standing: Option<Standing>,
    /// It has left the queue, and its thread stays with it.
    pub left: bool,
}

impl<'a> RoomView<'a> {
    fn of(book: &Book, account: &'a Account) -> Self {
        Self {
            seq: account.seq,
            room: account.room,
            tier: account.tier,
            appended_at: account.appended_at,
            last_progress: book.progress_of(account),
            phase: account.counts.phase,
            judged: !book.receives && account.counts.phase != Phase::Exempt,
            bytes: account.bytes(),
            posts: account.posts(),
            peers: &account.peers,
            serving: account.serving,
            standing: account.standing.map(Standing::of),
            left: account.left_at.is_some(),
        }
    }
}

/// One worker.
#[derive(Clone, Copy, Debug)]
pub struct WorkerView<'a> {
    book: &'a Book,
    policy: &'a Policy,
}

impl<'a> WorkerView<'a> {
    /// When the scheduler last polled its queue; `None` when that was never seen.
    pub fn beat(&self) -> Option<Nanos> {
        Some(self.book.beat).filter(|beat| *beat > Nanos::ZERO)
    }

    /// Whether it marks its queue. Otherwise its rooms are its transfers.
    pub const fn is_hooked(&self) -> bool {
        !self.book.unhooked
    }

    /// The verdict that stands on the engine as a whole, tier `node`.
    pub fn node(&self) -> Option<Standing> {
        self.book.node.standing.map(Standing::of)
    }

    /// What is seen of it.
    pub const fn coverage(&self) -> &'a Coverage {
        &self.book.coverage
    }

    /// Its rooms by append sequence, those among them that have left the queue under their thread.
    /// A walk over all of them.
    pub fn rooms(&self) -> impl Iterator<Item = RoomView<'a>> + use<'a> {
        let book = self.book;
        book.accounts.values().map(move |account| RoomView::of(book, account))
    }

    /// One of them.
    pub fn room(&self, seq: Seq) -> Option<RoomView<'a>> {
        let book = self.book;
        book.account(seq).map(|account| RoomView::of(book, account))
    }

    /// Peers of rooms that have left the queue under their thread.
    pub fn peers_of_left(&self) -> impl Iterator<Item = Peer> + use<'a> {
        let book = self.book;
        book.left().flat_map(|account| account.peers.iter().copied())
    }

    /// The room of an open stay.
    pub fn room_of(&self, seq: Seq) -> Option<Room> {
        self.room(seq).map(|room| room.room)
    }

    /// Bytes of a room that have arrived as far as can be told, parts of transfers included: what
    /// a verdict would say. Dearer than all of [`RoomView`].
    pub fn arrived(&self, seq: Seq) -> u64 {
        let account = self.book.accounts.get(&seq);
        account.map_or(0, |account| self.book.case(account, self.policy).arrived())
    }
}

impl Ledger {
    /// What is open of a worker; `None` when it is not known.
    pub fn view(&self, worker: Worker) -> Option<WorkerView<'_>> {
        let book = self.books.get(&worker)?;
        Some(WorkerView { book, policy: &self.policy })
    }

    /// The deadlines in force.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }
}
