//! When a room's transfers are over: whether anything of it can still be read or written.
//!
//! Only what was seen from the beginning proves anything: that nothing was ever posted, or that
//! everything posted has arrived. A handle that was released, cancelled or failed is not over: the
//! bytes of one whose release had "succeeded" were measured landing in memory that was somebody
//! else's by then.

use crate::account::Account;
use crate::book::Book;
use crate::coverage::{Sight, Source};
use crate::fact::{Phase, Seq, Tid, Worker};
use crate::ledger::Ledger;
use crate::time::Nanos;

/// How a room's transfers are over on one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Nothing of it was ever posted.
    NeverPosted,
    /// So many transfers were posted, and all bytes of each have arrived.
    Arrived(u64),
}

/// Why it cannot be said that a room's transfers are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undrained {
    /// The worker has no such room in its queue, or is not one that sends.
    NotHere,
    /// It was in the queue before the agent came: its transfers were not seen from the beginning.
    Late,
    /// The engine says that this rank moves nothing for it, and so says nothing about it either.
    Exempt,
    /// The source has not seen all that happened since the room entered.
    Unseen(Source),
    /// The table was not read since the moment that was asked for.
    Unread,
    /// A thread works for it.
    Served(Tid),
    /// A thread is at work that it took up before that work's room had entered: maybe this room.
    Early(Tid),
    /// Transfers of it are under way.
    Open(u64),
    /// Transfers of it ended otherwise than by arriving: released, cancelled, failed or not followed
    /// to their end.
    NotArrived(u64),
    /// The engine has counted another number of transfer calls than the library was seen to make,
    /// or calls that have not ended.
    Miscounted {
        /// Calls that the engine began.
        posts: u64,
        /// Calls that the engine saw end.
        dones: u64,
        /// Transfers that the library was seen to post.
        seen: u64,
    },
    /// The engine counts calls that ended badly.
    CallsFailed(u64),
    /// A transfer of a room that is not known, to one of its peers or to whom it is not known: it may
    /// be this room's.
    Stray,
}

impl Undrained {
    /// The word for it in outputs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotHere => "not_here",
            Self::Late => "late",
            Self::Exempt => "exempt",
            Self::Unseen(_) => "unseen",
            Self::Unread => "unread",
            Self::Served(_) => "served",
            Self::Early(_) => "early",
            Self::Open(_) => "open",
            Self::NotArrived(_) => "not_arrived",
            Self::Miscounted { .. } => "miscounted",
            Self::CallsFailed(_) => "calls_failed",
            Self::Stray => "stray",
        }
    }
}

impl Ledger {
    /// Whether the transfers of a room are over on a worker, as far as the facts up to now say.
    /// `read_since`: the whole table has to have been read at that moment or later.
    ///
    /// # Errors
    ///
    /// The first reason why that is not proven. Nothing unknown counts as over.
    pub fn drained(
        &self,
        worker: Worker,
        seq: Seq,
        read_since: Nanos,
    ) -> Result<Drained, Undrained> {
        let book = self.books.get(&worker).filter(|book| !book.unhooked && !book.receives);
        let book = book.ok_or(Undrained::NotHere)?;
        let account = book.account(seq).filter(|account| account.left_at.is_none());
        let account = account.ok_or(Undrained::NotHere)?;
        seen_from_the_beginning(book, account, read_since)?;
        book.nobody_works_for(account)?;
        book.all_arrived(account)
    }
}

/// Whether all that was to be seen of the room was.
fn seen_from_the_beginning(
    book: &Book,
    account: &Account,
    read_since: Nanos,
) -> Result<(), Undrained> {
    if account.late_at.is_some() {
        return Err(Undrained::Late);
    }
    if account.counts.phase == Phase::Exempt {
        return Err(Undrained::Exempt);
    }
    if book.coverage.sight(Source::Table) != Sight::Visible {
        return Err(Undrained::Unseen(Source::Table));
    }
    if book.read_at < read_since {
        return Err(Undrained::Unread);
    }
    // Before it entered a room may have been sent chunks of, which the engine counts as its calls:
    // those are not among the transfers that are its own, and the counts do not fit.
    if book.coverage.whole_since(Source::Transfers, account.appended_at) {
        Ok(())
    } else {
        Err(Undrained::Unseen(Source::Transfers))
    }
}
