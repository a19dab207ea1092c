//! Whether anything of a room is under way, as far as its worker's book says: see [`crate::drain`].

use super::{Book, Thread};
use crate::account::{Account, Progress};
use crate::drain::{Drained, Undrained};
use crate::fact::Handle;

impl Book {
    pub(crate) fn nobody_works_for(&self, account: &Account) -> Result<(), Undrained> {
        if let Some((tid, _)) = account.serving {
            return Err(Undrained::Served(tid));
        }
        let is_early = |thread: &Thread| thread.early.is_some() && thread.serving.is_none();
        let early = self.threads.iter().find(|(_, thread)| is_early(thread));
        early.map_or(Ok(()), |(tid, _)| Err(Undrained::Early(*tid)))
    }

    pub(crate) fn all_arrived(&self, account: &Account) -> Result<Drained, Undrained> {
        let open = self.open_transfers(account).count() as u64;
        if open > 0 {
            return Err(Undrained::Open(open));
        }
        let (seen, arrived) = (account.transfers_seen, account.transfers_arrived);
        if arrived < seen || account.abandoned {
            return Err(Undrained::NotArrived(seen.saturating_sub(arrived)));
        }
        let (posts, dones) = (account.counts.posts, account.counts.dones);
        if (posts, dones) != (seen, seen) {
            return Err(Undrained::Miscounted { posts, dones, seen });
        }
        if account.counts.failures > 0 || account.failure.is_some() {
            return Err(Undrained::CallsFailed(account.counts.failures));
        }
        if self.has_strays(account) {
            return Err(Undrained::Stray);
        }
        Ok(if seen == 0 { Drained::NeverPosted } else { Drained::Arrived(seen) })
    }

    /// Whether a transfer that belongs to no room may be this one's.
    fn has_strays(&self, account: &Account) -> bool {
        if self.posts_astray.is_some_and(|at| at >= account.appended_at) {
            return true;
        }
        let of_another = |handle: &Handle| {
            let of = self.early_posts.get(handle).and_then(|(_, room)| *room);
            of.is_some_and(|seq| seq != account.seq)
        };
        let mut unplaced = self
            .transfers
            .iter()
            .filter(|(handle, transfer)| transfer.seq.is_none() && !of_another(handle));
        unplaced.any(|(_, transfer)| {
            transfer.progress != Progress::Complete
                && transfer
                    .peer
                    .is_none_or(|peer| !account.peers_whole || account.peers.contains(&peer))
        })
    }
}
