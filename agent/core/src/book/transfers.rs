//! What the transfer library does: posts, flushes, completions, releases.

use alloc::vec::Vec;

use super::operations::shows_by;
use super::{Book, TRANSFERS_MAX};
use crate::account::{Failure, PENDING_MAX, Progress, Transfer};
use crate::fact::{Handle, Peer, Room, Seq, Tid};
use crate::flush::Completed;
use crate::time::Nanos;

/// `ucs_status_ptr_t`: values at the top of the address space are statuses (UCX's
/// `UCS_PTR_IS_ERR`: -1 to -100).
const STATUS_PTR_MIN: u64 = (-100_i64).cast_unsigned();

/// A transfer as it is posted: see [`crate::Fact::XferPost`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Post {
    pub(crate) handle: Handle,
    pub(crate) peer: Option<Peer>,
    pub(crate) bytes: Option<u64>,
    pub(crate) descs: Option<u64>,
    pub(crate) room: Option<(Room, bool)>,
}

impl Book {
    /// A transfer is posted: it belongs to the room that its thread works for.
    pub(crate) fn xfer_post(&mut self, at: Nanos, tid: Tid, post: &Post) {
        let Post { handle, peer, bytes, descs, room } = *post;
        // The allocator gives an address out again at once: what was there before has ended.
        self.end(at, handle, Progress::Abandoned);
        self.forget(handle);
        self.make_room();
        let seq = if self.unhooked {
            self.posted_stay(peer, room)
        } else {
            self.threads.get(&tid).and_then(|thread| thread.serving).map(|(seq, _)| seq)
        };
        let thread = self.threads.entry(tid).or_default();
        thread.posting = Some(handle);
        let early = thread.early.is_some();
        if seq.is_none() && !early {
            self.posts_astray = self.posts_astray.max(Some(at));
        }
        if early {
            self.post_early(tid, peer, handle, seq);
        }
        let transfer = Transfer {
            seq,
            peer,
            bytes,
            posted_at: at,
            ep: None,
            pending: Vec::new(),
            flushes: 0,
            returned: false,
            shows: shows_by(bytes, descs),
            progress: Progress::Open,
        };
        if let Some(seq) = seq {
            self.begin(seq);
            self.settle(at, seq);
        }
        self.transfers.insert(handle, transfer);
        self.by_post.insert((at, handle));
        if let Some(peer) = peer {
            self.peer(peer).open.insert((at, handle), bytes.unwrap_or(0));
        }
        let Some(account) = seq.and_then(|seq| self.accounts.get_mut(&seq)) else {
            return;
        };
        account.hold(handle);
        account.transfers_seen += 1;
        account.seen.posted = account.seen.posted.saturating_add(bytes.unwrap_or(0));
        let first = account.first_post.is_none().then_some(account.seq);
        account.post(at);
        if let Some(peer) = peer.filter(|peer| !account.peers.contains(peer)) {
            account.peers.push(peer);
            let seq = account.seq;
            let book = self.peer(peer);
            book.rooms.insert(seq);
            book.begun.insert(seq);
        }
        if let Some(seq) = first {
            self.note_stale(seq);
            self.note_young(at, seq);
        }
    }

    fn make_room(&mut self) {
        if self.transfers.len() < TRANSFERS_MAX {
            return;
        }
        if let Some((_, handle)) = self.by_post.first().copied() {
            self.forget(handle);
        }
    }

    /// Takes a handle out of the book and out of its room.
    fn forget(&mut self, handle: Handle) {
        let Some(transfer) = self.transfers.remove(&handle) else { return };
        self.by_post.remove(&(transfer.posted_at, handle));
        self.batches_read.remove(&handle);
        self.early_posts.remove(&handle);
        for request in transfer.pending {
            self.flushes.forget(request);
        }
        if let Some(account) = transfer.seq.and_then(|seq| self.accounts.get_mut(&seq)) {
            account.let_go(handle);
            if self.unhooked {
                self.unhooked_stays.touch(account.seq);
            }
        }
        if let Some(peer) = transfer.peer {
            self.peer(peer).open.remove(&(transfer.posted_at, handle));
        }
    }

    /// A post returned. Returns the room, where the post failed.
    pub(crate) fn xfer_ret(
        &mut self,
        at: Nanos,
        tid: Tid,
        handle: Handle,
        status: i32,
    ) -> Option<Seq> {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.posting = None;
        }
        let Some(transfer) = self.transfers.get_mut(&handle) else {
            self.misfits += 1;
            return None;
        };
        transfer.returned = true;
        let flushed = transfer.is_flushed();
        match status {
            0 => self.end(at, handle, Progress::Complete),
            1 if flushed => self.end(at, handle, Progress::Complete),
            1 => None,
            code => self.fail(handle, Failure { at, code }),
        };
        self.failed_room(handle)
    }

    /// A handle's status was read from its memory.
    pub(crate) fn xfer_status(&mut self, at: Nanos, handle: Handle, status: i32) -> Option<Seq> {
        if !self.transfers.contains_key(&handle) {
            self.misfits += 1;
            return None;
        }
        match status {
            0 => self.end(at, handle, Progress::Complete),
            // -1: not posted, the state before the post; 1: in progress.
            -1 | 1 => None,
            code => self.fail(handle, Failure { at, code }),
        };
        self.failed_room(handle)
    }

    /// A handle is released: its last status counts, then it is gone.
    pub(crate) fn xfer_release(&mut self, at: Nanos, handle: Handle, status: Option<i32>) {
        match status {
            Some(0) => self.end(at, handle, Progress::Complete),
            Some(code) if code < -1 => self.fail(handle, Failure { at, code }),
            _ => self.end(at, handle, Progress::Abandoned),
        };
        self.forget(handle);
    }

    /// A flush was issued: by the thread whose post is under way.
    pub(crate) fn flush(&mut self, at: Nanos, tid: Tid, ep: u64, request: u64) -> Option<Seq> {
        // A flush outside a post is not a transfer's: a notification, or the engine's own.
        let handle = self.threads.get(&tid).and_then(|thread| thread.posting)?;
        let transfer = self.transfers.get_mut(&handle)?;
        transfer.ep = Some(ep);
        transfer.flushes += 1;
        if request == 0 {
            return None;
        }
        if request >= STATUS_PTR_MIN {
            let code = i32::try_from(request.cast_signed()).unwrap_or(i32::MIN);
            return self.fail(handle, Failure { at, code });
        }
        if transfer.pending.len() < PENDING_MAX {
            if transfer.pending.is_empty() {
                transfer.pending.reserve_exact(1);
            }
            transfer.pending.push(request);
        }
        let posted_at = transfer.posted_at;
        let early = self.flushes.issue(request, handle, posted_at)?;
        self.flushed(handle, request, early)
    }

    /// A flush completed inside the library.
    pub(crate) fn flush_done(&mut self, completion: u64, done: Completed) -> Option<Seq> {
        let (request, handle) = self.flushes.complete(completion, done)?;
        self.flushed(handle, request, done)
    }

    fn flushed(&mut self, handle: Handle, request: u64, done: Completed) -> Option<Seq> {
        let transfer = self.transfers.get_mut(&handle)?;
        transfer.pending.retain(|pending| *pending != request);
        let flushed = transfer.is_flushed();
        match done.status {
            // The callback runs on errors as well.
            Some(code) if code < 0 => {
                self.fail(handle, Failure { at: done.at, code });
                return self.failed_room(handle);
            }
            _ if flushed => self.end(done.at, handle, Progress::Complete),
            _ => None,
        };
        None
    }

    /// An endpoint failed: so has every transfer that is open on it. Returns their rooms.
    pub(crate) fn ep_error(&mut self, at: Nanos, ep: u64, code: i32) -> Vec<Seq> {
        // The flush of a transfer fails just before its endpoint does: it is on it all the same.
        let on_it = |transfer: &Transfer| {
            transfer.ep == Some(ep)
                && matches!(transfer.progress, Progress::Open | Progress::Failed)
        };
        let on_it = self.transfers.iter().filter(|(_, transfer)| on_it(transfer));
        let handles: Vec<Handle> = on_it.map(|(handle, _)| *handle).collect();
        let mut rooms = Vec::new();
        for handle in handles {
            let seq = self.fail(handle, Failure { at, code });
            let Some(account) = seq.and_then(|seq| self.accounts.get_mut(&seq)) else { continue };
            account.endpoint_failure = account.endpoint_failure.or(Some(Failure { at, code }));
            rooms.push(account.seq);
        }
        rooms
    }

    fn failed_room(&self, handle: Handle) -> Option<Seq> {
        let transfer = self.transfers.get(&handle)?;
        transfer.seq.filter(|_| transfer.progress == Progress::Failed)
    }

    fn fail(&mut self, handle: Handle, failure: Failure) -> Option<Seq> {
        self.end(failure.at, handle, Progress::Failed);
        let seq = self.transfers.get(&handle)?.seq?;
        self.accounts.get_mut(&seq)?.fail(failure);
        Some(seq)
    }

    /// A transfer ended; only the first end counts.
    fn end(&mut self, at: Nanos, handle: Handle, how: Progress) -> Option<Seq> {
        let transfer = self.transfers.get(&handle).filter(|transfer| transfer.is_open())?;
        if let Some(seq) = transfer.seq.filter(|_| how != Progress::Complete) {
            self.settle(at, seq);
        }
        let transfer = self.transfers.get_mut(&handle)?;
        transfer.progress = how;
        let (seq, peer, bytes) = (transfer.seq, transfer.peer, transfer.bytes.unwrap_or(0));
        let posted_at = transfer.posted_at;
        // Of more flushes than are followed some may not have completed.
        let followed = transfer.flushes as usize <= PENDING_MAX;
        if let Some(seq) = seq.filter(|_| self.unhooked) {
            self.unhooked_stays.touch(seq);
        }
        if let Some(peer) = peer {
            self.peer(peer).open.remove(&(posted_at, handle));
        }
        if how == Progress::Abandoned
            && let Some(account) = seq.and_then(|seq| self.accounts.get_mut(&seq))
        {
            account.abandoned = true;
        }
        if how != Progress::Complete {
            return seq;
        }
        match seq.and_then(|seq| self.accounts.get_mut(&seq)) {
            Some(account) => {
                account.seen.completed = account.seen.completed.saturating_add(bytes);
                account.transfers_arrived += u64::from(followed);
                account.complete(at);
                self.credit(seq?, peer);
            }
            // Nobody's any more: the peer took the bytes all the same.
            None => {
                if let Some(peer) = peer {
                    self.peer(peer).complete(at, bytes);
                }
            }
        }
        seq
    }
}
