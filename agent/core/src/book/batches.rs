//! Batches of Mooncake: transfers whose own memory tells how many bytes have arrived, whatever carries
//! them.

use super::{Book, Post};
use crate::account::{Account, Shows};
use crate::fact::{Handle, Tid};
use crate::time::Nanos;

impl Book {
    /// A batch is submitted. Where there is no queue nothing tells what it is for.
    pub(crate) fn batch(&mut self, at: Nanos, tid: Tid, handle: Handle) {
        if self.unhooked {
            return;
        }
        self.xfer_post(at, tid, &Post { handle, peer: None, bytes: None, descs: None, room: None });
        if let Some(transfer) = self.transfers.get_mut(&handle) {
            transfer.shows = Shows::Memory;
        }
        if let Some(thread) = self.threads.get_mut(&tid) {
            // A flush of UCX on this thread is none of it.
            thread.posting = None;
        }
    }

    /// What the memory of a batch says has arrived of it; `None` where it cannot be read any more.
    /// The first reading is where its growth is counted from.
    pub(crate) fn batch_read(&mut self, at: Nanos, handle: Handle, bytes: Option<u64>) {
        let Some(transfer) = self.transfers.get(&handle) else { return };
        let seq = transfer.seq.filter(|_| transfer.is_open());
        let before = self.batches_read.remove(&handle);
        if let (Some(bytes), Shows::Memory) = (bytes, transfer.shows) {
            let since = before.map_or(at, |(since, _)| since);
            self.batches_read.insert(handle, (since, bytes));
        }
        let grown = before.zip(bytes).map(|((_, before), now)| now.saturating_sub(before));
        if let (Some(seq), Some(grown @ 1..)) = (seq, grown) {
            self.moved_by(at, seq, grown);
        }
    }

    /// Whether the room's open transfers are batches.
    pub(super) fn goes_by_batches(&self, account: &Account) -> bool {
        let mut open = self.open_transfers(account);
        open.any(|transfer| transfer.shows == Shows::Memory)
    }
}
