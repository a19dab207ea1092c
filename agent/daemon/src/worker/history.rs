//! What the rooms that left the queue before the agent came moved to each peer.

use std::collections::BTreeMap;

use inflightd_abi::table::{EntryView, State, Table};

use super::Removals;
use crate::names::PeerName;

/// Bytes moved to each peer by rooms that have left, and whether they are all such bytes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Completed bytes, by peer.
    pub bytes: BTreeMap<PeerName, u64>,
    /// Every room that ever left is in the sums.
    pub whole: bool,
}

impl History {
    /// Sums up the closed entries whose removal is in `before`.
    ///
    /// Whole only if nothing was evicted: the removals that are still readable are as many as
    /// there ever were. A room with several peers cannot be split and spoils that, too.
    pub fn read(table: &Table<'_>, before: &Removals) -> Self {
        let mut history = Self { bytes: BTreeMap::new(), whole: true };
        let mut readable = 0;
        for slot in 0..table.geometry().entries {
            match table.entry(slot) {
                Ok(Some(view)) if view.state == State::Closed => {
                    readable += 1;
                    if before.contains(view.removal) {
                        history.add(&view);
                    }
                }
                Ok(_) => {}
                Err(_) => history.whole = false,
            }
        }
        history.whole &= readable == table.counters().removals;
        history
    }

    fn add(&mut self, view: &EntryView) {
        let names: Vec<PeerName> = view.peers.iter().filter_map(PeerName::of).collect();
        self.whole &= names.len() == 1 && view.peers_stated == 1;
        for name in names {
            let sum = self.bytes.entry(name).or_default();
            *sum = sum.saturating_add(view.done_bytes);
        }
    }
}
