//! Ranks that decide together when a room leaves the queue of each.

use alloc::vec::Vec;

use super::Ledger;
use crate::fact::{Phase, Seq, Worker};
use crate::judge::OtherRank;

/// Most ranks that a verdict names; left out are those that the agent found last.
const OTHERS_MAX: usize = 8;

impl Ledger {
    /// The other workers of this node that have not done their part of a room that this one is done
    /// with. Ranks of one engine go by the same room.
    pub(super) fn others(&mut self, worker: Worker, seq: Seq) -> Vec<OtherRank> {
        let account = self.books.get(&worker).and_then(|book| book.account(seq));
        let Some(account) = account.filter(|account| account.counts.phase == Phase::DoneHere)
        else {
            return Vec::new();
        };
        let room = account.room;
        let senders = self
            .books
            .iter_mut()
            .filter(|(other, book)| **other != worker && !book.receives && !book.unhooked);
        let others = senders.filter_map(|(other, book)| {
            let stay = book.stay_of(room)?;
            let account = book.account(stay).filter(|account| account.left_at.is_none())?;
            let waits = !matches!(account.counts.phase, Phase::DoneHere | Phase::Exempt);
            let progress = book.progress_of(account);
            waits.then_some(OtherRank { worker: *other, progress })
        });
        others.take(OTHERS_MAX).collect()
    }
}
