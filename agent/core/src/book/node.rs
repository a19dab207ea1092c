//! An engine whose rooms are not seen: its own count of rooms in flight, and the silence of its
//! connections.

use alloc::vec::Vec;

use super::Book;
use crate::account::Standing;

use crate::fact::{Life, Load, Peer, Phase};
use crate::judge::{Case, Far, Moved, PeerCase};
use crate::time::Nanos;
use crate::verdict::Bytes;
use crate::wire::PeerBook;

/// Most peers that are looked at; stopped and ended ones first.
const PEERS_LOOKED_AT: usize = 64;

/// What the engine says of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    /// Rooms in flight.
    count: u64,
    /// Since when the count is what it is.
    unchanged_since: Nanos,
    /// Since when it is not zero.
    busy_since: Nanos,
    pub(crate) standing: Option<Standing>,
    pub(crate) due: Nanos,
}

impl Default for Node {
    fn default() -> Self {
        Self {
            count: 0,
            unchanged_since: Nanos::ZERO,
            busy_since: Nanos::ZERO,
            standing: None,
            due: Nanos::MAX,
        }
    }
}

impl Node {
    /// Whether anything is in flight.
    pub(crate) const fn is_busy(&self) -> bool {
        self.count > 0
    }
}

impl Book {
    /// The engine's count was read. Returns whether it has changed.
    pub(crate) fn load(&mut self, at: Nanos, load: &Load) -> bool {
        // Not what a decode waits for: that holds the whole prefill of a prompt, minutes in health.
        let count = load.inflight;
        let node = &mut self.node;
        if count == node.count {
            return false;
        }
        if node.count == 0 {
            node.busy_since = at;
        }
        node.count = count;
        node.unchanged_since = at;
        true
    }

    /// All that is known of an engine without the hook that has rooms in flight; `None` where its
    /// transfers tell already.
    pub(crate) fn node_case(&self) -> Option<Case<'_>> {
        let told =
            |account: &&alloc::boxed::Box<crate::account::Account>| account.standing.is_some();
        if !self.unhooked || self.node.count == 0 || self.accounts.values().any(|a| told(&a)) {
            return None;
        }
        let Node { count, unchanged_since, busy_since, .. } = self.node;
        let alive = |book: &PeerBook| !matches!(book.life, Life::Stopped | Life::Gone);
        let mut peers: Vec<_> = self.peers.iter().collect();
        peers.sort_by_key(|(_, book)| alive(book));
        peers.truncate(PEERS_LOOKED_AT);
        let took = peers.iter().filter_map(|(_, book)| book.took_at()).max();
        Some(Case {
            appended_at: busy_since,
            late_at: None,
            read_at: unchanged_since,
            phase: Phase::None,
            bytes: Bytes::default(),
            posts: count,
            open_transfers: count,
            calls_ended: false,
            first_post: Some(busy_since),
            last_completion: None,
            last_progress: took.map_or(unchanged_since, |at| at.max(unchanged_since)),
            hooked: false,
            inflight: Some((count, unchanged_since)),
            waited_until: None,
            serving: None,
            served: false,
            unparked_at: None,
            thread_gone: None,
            last_thread_gone: None,
            failure: None,
            far: Far::Unknown,
            others: Vec::new(),
            endpoint_failure: None,
            peers: peers.iter().map(|(peer, book)| self.node_peer(**peer, book)).collect(),
            peers_whole: !peers.is_empty(),
            ahead: None,
            held_by: None,
            listener_ended: None,
            blocks: false,
            oldest_open: None,
            counted_since: None,
            port_troubles: None,
            by_batches: false,
            operations: None,
            beat: Nanos::ZERO,
            posts_would_show: false,
            table_tells_posts: true,
            coverage: &self.coverage,
        })
    }

    fn node_peer(&self, peer: Peer, book: &PeerBook) -> PeerCase {
        let moved = book.took_at().is_some_and(|at| at >= self.node.busy_since);
        let moved = if moved { Moved::Some } else { Moved::Bytes(0) };
        PeerCase { moved, ..self.peer_seen(peer, book) }
    }
}
