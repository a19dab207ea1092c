//! When rooms are looked at, and what changes that.

use alloc::vec::Vec;

use super::Ledger;
use crate::book::Book;
use crate::fact::{Seq, Worker};
use crate::policy::Policy;
use crate::time::Nanos;

impl Ledger {
    /// Judges by other deadlines from now on. Every open room is looked at again at the next tick.
    /// A verdict that stands is not taken back because its deadline is later now.
    pub fn set_policy(&mut self, policy: Policy) {
        if policy == self.policy {
            return;
        }
        self.policy = policy;
        let open = |(worker, book): (&Worker, &Book)| {
            book.accounts.keys().map(|seq| (*worker, *seq)).collect::<Vec<_>>()
        };
        let rooms: Vec<(Worker, Seq)> = self.books.iter().flat_map(open).collect();
        for (worker, seq) in rooms {
            self.hurry(worker, seq, self.now);
        }
    }

    /// When each open room is looked at next, the earliest first.
    pub fn agenda(&self) -> impl Iterator<Item = Nanos> + '_ {
        self.agenda.iter().map(|(due, _, _)| *due)
    }
}
