//! What happened in one run of a case: the judge's input.

use std::collections::BTreeMap;

use serde::Serialize;

use super::compare::Compared;
use super::idle::Idle;
use super::launcher::Event;
use crate::cases::Seen;
use crate::clock::Moment;

/// The sides of a request, as the launcher calls them.
pub(super) const SIDES: [&str; 2] = ["prefill", "decode"];

/// Everything that the judge looks at.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// Host pids of the prefill's schedulers by rank, whose rooms these are.
    pub(super) ranks: Vec<u32>,
    /// Whether it runs without the hook, so that the agent knows transfers only.
    pub(super) bare: bool,
    /// The rooms by their numbers.
    pub(super) rooms: BTreeMap<u64, Room>,
    /// The agent's lines about the prefill, in the order of their arrival.
    pub(super) lines: Vec<Seen>,
    /// The alerts about the decodes.
    pub(super) of_decodes: Vec<Seen>,
    /// When the first fault was taken back: a stopped server went on, or the network was whole.
    pub(super) released: Option<Moment>,
    /// What is free in the prefill before the steps, after them, and after the rooms that follow.
    pub(super) free: [Free; 3],
    /// Of the requests after the steps: how many were answered with 200 by both, and how many.
    pub(super) more: (usize, usize),
    /// What an iteration of the idle prefill costs, where that was measured.
    pub(super) idle: Option<Idle>,
    /// How it compares with the same steps without hook and agent, where that was asked for.
    pub(super) compared: Option<Compared>,
    /// What went wrong in the launcher or the engine, so that nothing can be said about the agent.
    pub(super) spoilt: Vec<String>,
    /// What the agent did wrong as a process.
    pub(super) agent_faults: Vec<String>,
}

/// What is free in the prefill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Free {
    /// KV pages, those that the prefix cache would give up among them.
    pages: u64,
    /// Slots for the metadata of requests.
    slots: u64,
    /// Rooms in the inflight queue.
    inflight: u64,
}

impl Free {
    /// Rooms in the inflight queue.
    pub(super) const fn inflight(&self) -> u64 {
        self.inflight
    }

    /// As the launcher tells it.
    pub(super) const fn of(event: &Event) -> Self {
        Self { pages: event.pages, slots: event.slots, inflight: event.inflight }
    }
}

impl std::fmt::Display for Free {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}/{}/{}", self.pages, self.slots, self.inflight)
    }
}

/// One request.
#[derive(Clone, Debug)]
pub(super) struct Room {
    /// What the case calls it; none for a healthy one of a load.
    pub(super) name: Option<String>,
    /// When the fault hit: when it was sent, unless a step says more.
    pub(super) injected: Moment,
    /// The prefill's state of it.
    pub(super) state: String,
    /// How many sides were asked.
    pub(super) asked: usize,
    /// What the client got of each side.
    pub(super) answers: BTreeMap<String, Answer>,
}

/// What a client got of one side.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Answer {
    pub(super) status: i64,
    pub(super) why: String,
    pub(super) tokens: Vec<u32>,
    pub(super) took_s: f64,
}

impl Room {
    /// The status of a side; 0 while there is none.
    pub(super) fn status(&self, side: &str) -> i64 {
        self.answers.get(side).map_or(0, |answer| answer.status)
    }

    /// Whether each side that was asked has answered.
    pub(super) fn is_answered(&self) -> bool {
        self.answers.len() >= self.asked
    }

    /// Whether each side that was asked has answered with 200.
    pub(super) fn is_served(&self) -> bool {
        self.is_answered() && self.answers.values().all(|answer| answer.status == 200)
    }

    /// What the client got, for the table.
    pub(super) fn got(&self) -> String {
        let side = |side: &&str| {
            let letter = side.get(..1).unwrap_or_default().to_uppercase();
            self.answers.get(*side).map_or_else(
                || format!("{letter} -"),
                |answer| format!("{letter} {} {:.1} s", answer.status, answer.took_s),
            )
        };
        SIDES.iter().map(side).collect::<Vec<_>>().join(", ")
    }
}

impl Record {
    /// The room that the case calls so.
    pub(super) fn room(&self, name: &str) -> Option<(u64, &Room)> {
        let called = |room: &Room| room.name.as_deref() == Some(name);
        self.rooms.iter().find(|(_, room)| called(room)).map(|(number, room)| (*number, room))
    }

    /// The lines of one rank about a room. Without the hook no line names a room: all count as the
    /// room's.
    pub(super) fn about(&self, number: u64, rank: usize) -> impl Iterator<Item = &Seen> {
        let pid = self.ranks.get(rank).copied();
        let of_rank = move |seen: &&Seen| seen.line.worker.as_ref().map(|one| one.pid) == pid;
        let of_room = move |seen: &&Seen| self.bare || seen.line.room == Some(number);
        self.lines.iter().filter(of_rank).filter(of_room)
    }
}
