//! A worker without the hook: its stays are its transfers, or the rooms that notifications name.
//!
//! A stay is opened by a post and ends when its bytes have arrived, when a transfer of it failed,
//! or when its handle is released or used anew before either was seen. A room that notifications
//! name lasts until its last transfer is complete; one room to two peers is two stays.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::Book;
use crate::account::Account;
use crate::fact::{Append, Fact, Handle, Outcome, Peer, Room, Seq};
use crate::policy::Policy;
use crate::time::Nanos;
use crate::verdict::Tier;

/// The stays of a worker without the hook.
#[derive(Clone, Debug, Default)]
pub(super) struct Stays {
    /// Open rooms by what notifications say. Bounded by the open rooms.
    rooms: BTreeMap<(Room, Option<Peer>), Seq>,
    /// The stay that the next post belongs to.
    next: Option<(Seq, Tier)>,
    last: u64,
    /// Stays of which something ended since they were last asked for.
    touched: Vec<Seq>,
}

impl Stays {
    /// What identity the stay rests on that is about to be appended.
    pub(super) fn tier_of(&self, seq: Seq) -> Tier {
        self.next.filter(|(next, _)| *next == seq).map_or(Tier::Room, |(_, tier)| tier)
    }

    pub(super) fn touch(&mut self, seq: Seq) {
        self.touched.push(seq);
    }
}

impl Book {
    /// The stay that a post opens, where it opens one; it is appended before the post is entered.
    pub(crate) fn open_stay(&mut self, at: Nanos, fact: &Fact) -> Option<Append> {
        let Fact::XferPost { handle, peer, room, .. } = *fact else {
            return None;
        };
        if !self.unhooked {
            return None;
        }
        let known = room.and_then(|(room, _)| self.unhooked_stays.rooms.get(&(room, peer)));
        if let Some(seq) = known.filter(|seq| self.accounts.contains_key(seq)) {
            self.unhooked_stays.next = Some((*seq, Tier::Room));
            return None;
        }
        let stays = &mut self.unhooked_stays;
        // By the time of the post: the same in every life of the agent, and never the same twice.
        stays.last = stays.last.saturating_add(1).max(at.0).min(Seq::UNHOOKED.0 - 2);
        let seq = Seq(Seq::UNHOOKED.0 | stays.last);
        let tier = if room.is_some() { Tier::Room } else { Tier::Transfer };
        stays.next = Some((seq, tier));
        let Handle(handle) = handle;
        Some(Append {
            seq,
            room: room.map_or(Room(handle), |(room, _)| room),
            expected: 0,
            peers: peer.into_iter().collect(),
            peers_whole: peer.is_some(),
            late: false,
            patient: false,
        })
    }

    /// The stay of the post that is entered now.
    pub(super) fn posted_stay(
        &mut self,
        peer: Option<Peer>,
        room: Option<(Room, bool)>,
    ) -> Option<Seq> {
        let (seq, _) = self.unhooked_stays.next.take()?;
        let account = self.accounts.get_mut(&seq)?;
        account.whole |= room.is_none_or(|(_, last)| last);
        if let Some((room, _)) = room {
            self.unhooked_stays.rooms.insert((room, peer), seq);
        }
        Some(seq)
    }

    /// Stays that are over by what was entered last.
    pub(crate) fn ended_stays(&mut self) -> Vec<(Seq, Outcome)> {
        if self.unhooked_stays.touched.is_empty() {
            return Vec::new();
        }
        let mut touched = core::mem::take(&mut self.unhooked_stays.touched);
        touched.sort_unstable();
        touched.dedup();
        touched.into_iter().filter_map(|seq| Some((seq, self.outcome_of(seq)?))).collect()
    }

    fn outcome_of(&self, seq: Seq) -> Option<Outcome> {
        let account = self.accounts.get(&seq)?;
        if self.open_transfers(account).next().is_some() {
            return None;
        }
        if account.failure.is_some() {
            // Why may still be told: until the handle is released, or for a while.
            return account.handles.is_empty().then_some(Outcome::Failed);
        }
        if account.abandoned {
            return Some(Outcome::Unknown);
        }
        account.whole.then_some(Outcome::Success)
    }

    /// How a stay without the hook ends when nothing more is heard of it.
    pub(crate) fn outlived(
        &self,
        account: &Account,
        policy: &Policy,
        now: Nanos,
    ) -> Option<Outcome> {
        if !self.unhooked || self.open_transfers(account).next().is_some() {
            return None;
        }
        if let Some(failure) = account.failure {
            return (failure.at.plus(policy.hard_grace) <= now).then_some(Outcome::Failed);
        }
        let idle_since = self.progress_of(account);
        (idle_since.plus(policy.max_dwell) <= now).then_some(Outcome::Unknown)
    }

    /// A stay without the hook has ended.
    pub(super) fn close_stay(&mut self, account: &Account) {
        if self.unhooked && account.tier == Tier::Room {
            for peer in account.peers.iter().map(|peer| Some(*peer)).chain([None]) {
                let key = (account.room, peer);
                if self.unhooked_stays.rooms.get(&key) == Some(&account.seq) {
                    self.unhooked_stays.rooms.remove(&key);
                }
            }
        }
    }
}
