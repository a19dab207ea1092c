//! Operations of UCX, counted one by one while a room is a suspect of which nothing else shows
//! whether it moves: RDMA hardware, shared memory, writes from process to process.
//!
//! A transfer is one operation for each of its descriptors, and a flush. Each completes on the
//! endpoint that it went by, whatever carries it.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::Book;
use super::queue::LOOK_MAX;
use crate::account::{Account, Shows, Transfer};
use crate::fact::{Handle, Seq};
use crate::policy::Policy;
use crate::time::Nanos;

/// Least mean bytes of a transfer's operations. Smaller ones UCX may copy into its own buffers, by
/// its transport's choice, and call complete at once: their silence says nothing.
const OPERATION_MIN: u64 = 16 << 10;
/// Most: a larger one may be under way for a whole deadline, and moves all the same.
const OPERATION_MAX: u64 = 16 << 20;

/// Whether each operation of a transfer completes where it is counted, and soon after the last.
pub(super) fn shows_by(bytes: Option<u64>, descs: Option<u64>) -> Shows {
    let mean = |(bytes, descs): (u64, u64)| bytes.checked_div(descs);
    match bytes.zip(descs).and_then(mean) {
        Some(OPERATION_MIN..=OPERATION_MAX) => Shows::Operations,
        _ => Shows::Never,
    }
}

impl Book {
    /// Counting begins, or ends.
    pub(crate) fn arm(&mut self, at: Nanos, on: bool) {
        self.armed_at = on.then(|| self.armed_at.unwrap_or(at));
    }

    /// Operations completed on an endpoint. Of several transfers that are open on it each may be the
    /// one that moves.
    pub(crate) fn operations(&mut self, at: Nanos, ep: u64, bytes: u64) {
        let open = self.transfers.values().filter(|transfer| transfer.is_open());
        let on_it = open.filter(|transfer| transfer.ep == Some(ep) && transfer.posted_at <= at);
        let rooms: BTreeSet<Seq> = on_it.filter_map(|transfer| transfer.seq).collect();
        for seq in rooms {
            self.moved_by(at, seq, bytes);
        }
    }

    /// More bytes of a room's open transfers have arrived.
    pub(super) fn moved_by(&mut self, at: Nanos, seq: Seq, bytes: u64) {
        if let Some(account) = self.accounts.get_mut(&seq) {
            account.progress(at);
            let (last, all) = self.operated.entry(seq).or_default();
            *last = at.max(*last);
            *all = all.saturating_add(bytes);
        }
    }

    /// Since when all that moves of the room's open transfers is seen; `None` where something of it
    /// may move without.
    pub(super) fn counted_since(&self, account: &Account) -> Option<Nanos> {
        if account.unseen_open() {
            return None;
        }
        let since = |(handle, transfer): (Handle, &Transfer)| match transfer.shows {
            Shows::Memory => self.batches_read.get(&handle).map(|(since, _)| *since),
            _ => self.armed_at.filter(|_| would_show(transfer)),
        };
        let all: Option<Vec<Nanos>> = self.open_handles(account).map(since).collect();
        all?.into_iter().max()
    }

    /// Whether counting would tell of a suspect what nothing else does. The transfers that were
    /// posted first are looked at: who waits longest is the likeliest.
    pub(crate) fn wants_arming(&self, policy: &Policy, now: Nanos) -> bool {
        if self.receives {
            return false;
        }
        let posted = self.by_post.iter().take(LOOK_MAX).map(|(_, handle)| handle);
        let open = posted.filter_map(|handle| self.transfers.get(handle));
        let open = open.filter(|transfer| transfer.is_open() && would_show(transfer));
        let mut rooms = open.filter_map(|transfer| self.account(transfer.seq?));
        rooms.any(|account| {
            let still = self.progress_of(account).max(transfer_begun(account));
            still.plus(policy.suspect) <= now && !self.case(account, policy).is_metered()
        })
    }
}

/// Whether all that moves of a transfer can be seen: its memory tells, or it went by one endpoint,
/// which is known, in large operations.
const fn would_show(transfer: &Transfer) -> bool {
    match transfer.shows {
        Shows::Never => false,
        Shows::Operations => transfer.flushes == 1 && transfer.ep.is_some(),
        Shows::Memory => true,
    }
}

fn transfer_begun(account: &Account) -> Nanos {
    account.first_post.unwrap_or(account.appended_at)
}
