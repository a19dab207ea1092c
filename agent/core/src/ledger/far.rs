//! What engines on this node that receive say of the rooms that others send.

use alloc::collections::BTreeMap;

use super::Ledger;
use crate::fact::{Event, Fact, Outcome, Phase, Room, Seq, Worker};
use crate::judge::Far;

/// Most rooms that are remembered; the victim is the one with the lowest number.
const ROOMS_MAX: usize = 32_768;

/// Each room by the workers that receive it: its last stay there, and where that stands.
#[derive(Clone, Debug, Default)]
pub(super) struct FarRooms {
    rooms: BTreeMap<Room, BTreeMap<Worker, (Seq, Far)>>,
}

impl FarRooms {
    /// A table without any room.
    pub(super) const fn new() -> Self {
        Self { rooms: BTreeMap::new() }
    }

    fn say(&mut self, room: Room, worker: Worker, seq: Seq, far: Far) {
        if self.rooms.len() >= ROOMS_MAX && !self.rooms.contains_key(&room) {
            self.rooms.pop_first();
        }
        self.rooms.entry(room).or_default().insert(worker, (seq, far));
    }

    /// A stay has ended: what was received is past, what was given up is kept.
    fn end(&mut self, room: Room, worker: Worker, seq: Seq, outcome: Outcome) {
        let Some(workers) = self.rooms.get_mut(&room) else {
            return;
        };
        if workers.get(&worker).is_none_or(|(last, _)| *last != seq) {
            return;
        }
        if matches!(outcome, Outcome::Failed | Outcome::Aborted) {
            workers.insert(worker, (seq, Far::GaveUp));
            return;
        }
        workers.remove(&worker);
        if workers.is_empty() {
            self.rooms.remove(&room);
        }
    }

    fn forget(&mut self, worker: Worker) {
        self.rooms.retain(|_, workers| {
            workers.remove(&worker);
            !workers.is_empty()
        });
    }

    /// Where the room stands on the far side: of several ranks, where the one stands that is least
    /// far, and given up only where none has it any more.
    pub(super) fn of(&self, room: Room) -> Far {
        let workers = self.rooms.get(&room).into_iter().flat_map(BTreeMap::values);
        workers.map(|(_, far)| *far).min().unwrap_or(Far::Unknown)
    }
}

impl Ledger {
    /// Takes note of what a worker that receives says.
    pub(super) fn note_far(&mut self, event: &Event) {
        let worker = event.worker;
        let Some(book) = self.books.get(&worker) else {
            return;
        };
        let room = |seq: &Seq| book.accounts.get(seq).map(|account| account.room);
        match &event.fact {
            Fact::Append(append) => self.far.say(append.room, worker, append.seq, Far::Waits),
            Fact::Phase(seq, phase) => {
                if let Some(room) = room(seq) {
                    self.far.say(room, worker, *seq, far(*phase));
                }
            }
            Fact::Entry(seq, counts) => {
                if let Some(room) = room(seq) {
                    self.far.say(room, worker, *seq, far(counts.phase));
                }
            }
            Fact::Remove(seq, outcome) => {
                if let Some(room) = room(seq) {
                    self.far.end(room, worker, *seq, *outcome);
                }
            }
            Fact::Ended => self.far.forget(worker),
            _ => {}
        }
    }
}

const fn far(phase: Phase) -> Far {
    if matches!(phase, Phase::Prealloc) { Far::WaitsForMemory } else { Far::Waits }
}
