//! What the judge is given of a room.

use alloc::vec::Vec;

use super::Book;
use crate::account::Account;
use crate::coverage::{Reason, Sight, Source};
use crate::fact::{Peer, Phase};
use crate::judge::{Case, Far, PeerCase};
use crate::policy::Policy;
use crate::wire::{Moved, PeerBook};

impl Book {
    /// All that is known of a room, for the judge.
    pub(crate) fn case<'a>(&'a self, account: &Account, policy: &Policy) -> Case<'a> {
        let open = self.open_transfers(account).count() as u64;
        Case {
            appended_at: account.appended_at,
            late_at: account.late_at,
            read_at: account.read_at.max(self.read_at),
            phase: if self.receives { Phase::Exempt } else { account.counts.phase },
            bytes: account.bytes(),
            posts: account.posts(),
            open_transfers: self.open_count(account, open),
            calls_ended: account.calls_ended(),
            first_post: account.first_post,
            last_completion: account.last_completion,
            hooked: !self.unhooked,
            inflight: None,
            last_progress: self.progress_of(account),
            waited_until: if account.in_line {
                self.waited_until(account.seq)
            } else {
                account.waited_until
            },
            serving: account.serving,
            served: account.served_by.is_some(),
            unparked_at: account.unparked_at,
            thread_gone: account.thread_gone,
            last_thread_gone: self.last_thread_gone(account),
            failure: account.failure,
            endpoint_failure: account.endpoint_failure,
            far: Far::Unknown,
            others: Vec::new(),
            peers: account
                .peers
                .iter()
                .map(|peer| self.peer_case(account, *peer, policy))
                .collect(),
            peers_whole: account.peers_whole,
            ahead: self.ahead(account),
            held_by: self.held_by(account),
            listener_ended: self.listener_ended,
            blocks: account.left_at.is_some() && self.blocks(account),
            oldest_open: self.oldest_open(account),
            counted_since: self.counted_since(account),
            port_troubles: self.ports.since(account.appended_at),
            by_batches: self.goes_by_batches(account),
            operations: self.operated.get(&account.seq).copied(),
            beat: self.beat,
            posts_would_show: self.posts_would_show(),
            table_tells_posts: self.marks_posts,
            coverage: &self.coverage,
        }
    }

    fn posts_would_show(&self) -> bool {
        let transfers = self.coverage.sees(Source::Transfers);
        self.marks_posts || (transfers && (self.marks_serves || self.posts_astray.is_none()))
    }

    /// Transfers that are open: by handle where completions are seen, else by the engine's word.
    fn open_count(&self, account: &Account, by_handle: u64) -> u64 {
        let posted_unseen = account.posts() > account.transfers_seen;
        let completions = self.coverage.sees(Source::Completions);
        let lost = |source| self.coverage.lost_since(source, account.appended_at) > 0;
        if self.marks_posts && (lost(Source::Transfers) || lost(Source::Completions)) {
            // A transfer may look open because its end was lost: the table knows.
            return account.calls_open();
        }
        if completions && !posted_unseen { by_handle } else { by_handle.max(account.calls_open()) }
    }

    fn peer_case(&self, account: &Account, peer: Peer, policy: &Policy) -> PeerCase {
        let first_post = account.first_post.unwrap_or(account.appended_at);
        let unseen = PeerBook::default();
        let book = self.peers.get(&peer).unwrap_or(&unseen);
        let seen = self.peer_seen(peer, book);
        let moved = match book.moved(first_post, policy) {
            // It was sent to a process that had ended: what its successor takes is others'.
            _ if account.stale_at.is_some() => Moved::Bytes(0),
            _ if seen.unmetered => Moved::Unknown,
            Moved::Bytes(bytes) => Moved::Bytes(book.left_for(bytes, first_post)),
            other => other,
        };
        PeerCase { stale_at: book.ended_untaken().or(account.stale_at), moved, ..seen }
    }

    /// What is seen of a peer, whatever room asks: nothing moved yet, and nothing stale.
    pub(super) fn peer_seen(&self, peer: Peer, book: &PeerBook) -> PeerCase {
        let other = Sight::Degraded(Reason::OtherTransport);
        PeerCase {
            peer,
            life: (book.life, book.life_at),
            life_since: book.life_since,
            gone_at: book.gone_at,
            resumed_at: book.resumed_at,
            looked_at: book.looked_at,
            meter: book.meter,
            growth_at: book.growth_at,
            stale_at: None,
            reached: book.took_at().is_some(),
            unmetered: book.is_unmetered(self.coverage.sight(Source::Connections) == other),
            moved: Moved::Bytes(0),
        }
    }
}
