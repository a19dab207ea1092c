//! A worker's open rooms by the engine's ids: its other ranks ask for theirs.

use alloc::collections::BTreeMap;

use super::Book;
use crate::fact::{Room, Seq};

/// The last stay of each open room; kept from when it is first asked for, for most workers have no
/// other ranks.
#[derive(Clone, Debug, Default)]
pub(super) struct ByRoom(Option<BTreeMap<Room, Seq>>);

impl ByRoom {
    pub(super) fn enter(&mut self, room: Room, seq: Seq) {
        if let Some(stays) = &mut self.0 {
            stays.insert(room, seq);
        }
    }

    pub(super) fn leave(&mut self, room: Room, seq: Seq) {
        if let Some(stays) = &mut self.0
            && stays.get(&room) == Some(&seq)
        {
            stays.remove(&room);
        }
    }
}

impl Book {
    /// The open stay of a room, the last where there are several.
    pub(crate) fn stay_of(&mut self, room: Room) -> Option<Seq> {
        let accounts = &self.accounts;
        let stays = || accounts.values().map(|account| (account.room, account.seq)).collect();
        self.by_room.0.get_or_insert_with(stays).get(&room).copied()
    }
}
