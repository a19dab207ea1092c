//! What the judge is given of a room.

use super::Book;
use crate::account::Account;
use crate::coverage::Source;
use crate::fact::Peer;
use crate::judge::{Ahead, Case, PeerCase};
use crate::policy::Policy;
use crate::time::Nanos;
use crate::wire::{Moved, PeerBook};

/// Most rooms that are counted ahead of one: the judge must stay cheap with thousands behind one
/// head.
const AHEAD_MAX: usize = 100;

impl Book {
    /// All that is known of a room, for the judge.
    pub(crate) fn case<'a>(&'a self, account: &Account, policy: &Policy) -> Case<'a> {
        let open = self.open_transfers(account).count() as u64;
        let first_post = account.first_post.unwrap_or(account.appended_at);
        Case {
            appended_at: account.appended_at,
            late_at: account.late_at,
            read_at: account.read_at.max(self.read_at),
            phase: account.counts.phase,
            bytes: account.bytes(),
            posts: account.posts(),
            open_transfers: self.open_count(account, open),
            first_post: account.first_post,
            last_completion: account.last_completion,
            last_progress: account.last_progress,
            serving: account.serving,
            served: account.served,
            unparked_at: account.unparked_at,
            thread_gone: account.thread_gone,
            failure: account.failure,
            endpoint_failure: account.endpoint_failure,
            peers: account
                .peers
                .iter()
                .map(|peer| self.peer_case(*peer, first_post, policy))
                .collect(),
            peers_whole: account.peers_whole,
            // Only a room that was not posted can be waiting behind others.
            ahead: if account.posts() == 0 { self.ahead(account) } else { None },
            beat: self.beat,
            posts_would_show: self.posts_would_show(),
            coverage: &self.coverage,
        }
    }

    fn posts_would_show(&self) -> bool {
        let transfers = self.coverage.sees(Source::Transfers);
        self.marks_posts || (transfers && (self.marks_serves || !self.posts_astray))
    }

    /// Transfers that are open: by handle where completions are seen, else by the engine's word.
    fn open_count(&self, account: &Account, by_handle: u64) -> u64 {
        let posted_unseen = account.posts() > account.transfers_seen;
        let completions = self.coverage.sees(Source::Completions);
        if completions && !posted_unseen { by_handle } else { by_handle.max(account.calls_open()) }
    }

    fn peer_case(&self, peer: Peer, first_post: Nanos, policy: &Policy) -> PeerCase {
        let unseen = PeerBook::default();
        let book = self.peers.get(&peer).unwrap_or(&unseen);
        PeerCase {
            peer,
            life: (book.life, book.life_at),
            gone_at: book.gone_at,
            meter: book.meter,
            growth_at: book.growth_at,
            moved: match book.moved(first_post, policy) {
                Moved::Bytes(bytes) => Moved::Bytes(book.left_for(bytes, first_post)),
                other => other,
            },
        }
    }

    /// Rooms to one of the same peers that came first and have something open or being served;
    /// at most [`AHEAD_MAX`] are counted.
    fn ahead(&self, of: &Account) -> Option<Ahead> {
        let peers = of.peers.iter().filter_map(|peer| self.peers.get(peer));
        let before = peers.flat_map(|book| book.rooms.range(..of.seq));
        let busy = |account: &&Account| account.serving.is_some() || account.posts() > 0;
        let busy = before.filter_map(|seq| self.accounts.get(seq)).filter(busy).take(AHEAD_MAX);
        let first = |ahead: Option<Ahead>, account: &Account| {
            let (rooms, since) = ahead.map_or((0, account.appended_at), |a| (a.rooms, a.since));
            Some(Ahead { rooms: rooms + 1, since: since.min(account.appended_at) })
        };
        busy.fold(None, first)
    }
}
