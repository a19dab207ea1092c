//! What happened in one run of a case: the judge's input.

mod line;

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::time::Duration;

#[cfg(test)]
pub(crate) use line::{Evidence, Worker};
pub(crate) use line::{Line, Seen};

use super::pair::Event;
use crate::clock::Moment;

/// Everything that the judge looks at.
#[derive(Debug)]
pub(super) struct Record {
    /// Host pid of the prefill, whose rooms these are.
    pub(super) prefill: u32,
    /// Host pids of all processes that the pair has had: no other's lines are judged.
    pub(super) pids: BTreeSet<u32>,
    /// By what the agent knows the prefill's rooms.
    pub(super) known_by: KnownBy,
    /// Victim rooms by the name that the case gives them.
    pub(super) victims: BTreeMap<String, Stay>,
    /// Healthy rooms.
    pub(super) beside: Vec<Stay>,
    /// Healthy rooms that were taken out.
    pub(super) forgotten: u64,
    /// What each handle was posted for, in turn: a library uses its handles again.
    pub(super) postings: BTreeMap<u64, Vec<Posting>>,
    /// The agent's lines about the pair, in the order of their arrival.
    pub(super) lines: Vec<Seen>,
    /// When the first agent came to be ready.
    pub(super) agent_ready: Option<Moment>,
    /// Resident MiB of the agent at the end, where it still runs.
    pub(super) agent_mib: Option<f64>,
    /// How often it was killed.
    pub(super) agent_kills: u32,
    /// Longest time for which the runner itself did not run.
    pub(super) starved: Duration,
    /// What went wrong in the harness or the pair, so that nothing can be said about the agent.
    pub(super) spoilt: Vec<String>,
    /// What the pair has not ended in time although nothing was done to it.
    pub(super) slow: Vec<String>,
    /// What the agent did wrong as a process: it ended, or never became ready.
    pub(super) agent_faults: Vec<String>,
}

/// By what the agent can know a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KnownBy {
    /// The hook: number and sequence.
    Hook,
    /// NIXL notifications: the number.
    Notice,
    /// Nothing but the handles of its transfers.
    Handle,
}

/// A transfer that was posted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posting {
    /// When.
    pub(super) at: Moment,
    /// For which stay.
    pub(super) stay: (u64, u64),
}

/// One room's stay as the pair tells it.
#[derive(Clone, Debug)]
pub(super) struct Stay {
    /// The room's id.
    pub(super) room: u64,
    /// The append's sequence number.
    pub(super) seq: u64,
    /// Its size in bytes.
    pub(super) bytes: u64,
    /// When it entered the queue.
    pub(super) appended: Moment,
    /// When the fault hit: at the append, or once enough bytes had landed.
    pub(super) injected: Moment,
    /// How many bytes had landed then, where the decode was asked.
    pub(super) landed: Option<u64>,
    /// When the case let the room go on (SIGCONT).
    pub(super) released: Option<Moment>,
    /// When it left the queue, and how.
    pub(super) removed: Option<(Moment, String)>,
}

impl Stay {
    /// What no other stay has: its room and its sequence.
    pub(super) const fn key(&self) -> (u64, u64) {
        (self.room, self.seq)
    }
}

impl Record {
    /// Nothing has happened yet.
    pub(super) fn new(prefill: u32, known_by: KnownBy) -> Self {
        Self {
            prefill,
            pids: BTreeSet::from([prefill]),
            known_by,
            agent_mib: None,
            victims: BTreeMap::new(),
            beside: Vec::new(),
            forgotten: 0,
            postings: BTreeMap::new(),
            lines: Vec::new(),
            agent_ready: None,
            agent_kills: 0,
            starved: Duration::ZERO,
            spoilt: Vec::new(),
            slow: Vec::new(),
            agent_faults: Vec::new(),
        }
    }

    /// The run of a pair that has not started.
    pub(super) fn unbegun(why: String) -> Self {
        let spoilt = vec![why];
        Self { spoilt, ..Self::new(0, KnownBy::Hook) }
    }

    /// A room entered the queue: the victim of that name, or a healthy one.
    pub(super) fn appended(&mut self, victim: Option<&String>, event: &Event) {
        let stay = Stay {
            room: event.room,
            seq: event.seq,
            bytes: event.bytes,
            appended: Moment(event.at),
            injected: Moment(event.at),
            landed: None,
            released: None,
            removed: None,
        };
        match victim {
            Some(name) => drop(self.victims.insert(name.clone(), stay)),
            None => self.beside.push(stay),
        }
    }

    /// A decode has seen a victim's bytes land and now hits itself.
    pub(super) fn landed(&mut self, victim: Option<&String>, event: &Event) {
        if let Some(stay) = victim.and_then(|name| self.victims.get_mut(name)) {
            stay.injected = Moment(event.at);
            stay.landed = Some(event.bytes);
        }
    }

    /// The fault hits a victim now.
    pub(super) fn injected(&mut self, name: &str, at: Moment) {
        if let Some(stay) = self.victims.get_mut(name) {
            stay.injected = at;
        }
    }

    /// A transfer of a room is being posted.
    pub(super) fn posting(&mut self, event: &Event) {
        let mut stays = self.victims.values().chain(&self.beside);
        let open = |stay: &&Stay| stay.room == event.room && stay.removed.is_none();
        if let Some(stay) = stays.find(open) {
            let posting = Posting { at: Moment(event.at), stay: stay.key() };
            self.postings.entry(event.handle).or_default().push(posting);
        }
    }

    /// The stay that a line about that handle speaks of: the one that last posted it before what
    /// the line speaks of began.
    pub(super) fn poster(&self, handle: u64, seen: &Seen) -> Option<(u64, u64)> {
        let stood = Duration::try_from_secs_f64(seen.line.dwell_s.unwrap_or(0.0));
        let begun = seen.at.minus(stood.unwrap_or_default());
        let mut postings = self.postings.get(&handle)?.iter();
        postings.rfind(|posting| posting.at <= begun).map(|posting| posting.stay)
    }

    /// A room left the queue.
    pub(super) fn removed(&mut self, event: &Event) {
        let mut stays = self.victims.values_mut().chain(&mut self.beside);
        if let Some(stay) = stays.find(|stay| stay.room == event.room && stay.seq == event.seq) {
            stay.removed = Some((Moment(event.at), event.outcome.clone()));
        }
    }

    /// Whether the agent has reported the end of every room that has ended.
    pub(super) fn is_told(&self) -> bool {
        if self.known_by == KnownBy::Handle {
            // A library uses its handles again: which stay a line ends cannot be told from here.
            return false;
        }
        self.victims.values().chain(&self.beside).all(|stay| self.told(stay))
    }

    /// Whether the agent has reported the end of a room, unless that has not ended.
    pub(super) fn told(&self, stay: &Stay) -> bool {
        stay.removed.is_none() || self.about(stay).any(|seen| seen.line.kind == "dwell")
    }

    /// Takes out everything but the healthy rooms that were open at `before` or came later.
    pub(super) fn take_settled(&mut self, before: Moment) -> Self {
        let settled =
            |stay: &Stay| stay.removed.as_ref().is_some_and(|(removed, _)| *removed < before);
        let (ended, open) = mem::take(&mut self.beside).into_iter().partition(settled);
        self.beside = open;
        let mut taken = Self {
            victims: mem::take(&mut self.victims),
            beside: ended,
            agent_ready: self.agent_ready,
            starved: mem::take(&mut self.starved),
            spoilt: mem::take(&mut self.spoilt),
            agent_faults: mem::take(&mut self.agent_faults),
            pids: self.pids.clone(),
            ..Self::new(self.prefill, self.known_by)
        };
        let known = |stays: &mut dyn Iterator<Item = &Stay>| -> BTreeSet<(u64, u64)> {
            stays.map(Stay::key).collect()
        };
        let of_taken = known(&mut taken.victims.values().chain(&taken.beside));
        let of_open = known(&mut self.beside.iter());
        for seen in mem::take(&mut self.lines) {
            let stay = (seen.line.room.unwrap_or(0), seen.line.seq.unwrap_or(0));
            // A line may be read before the event of the pair that it belongs to.
            let later = seen.at >= before && !of_taken.contains(&stay);
            if later || of_open.contains(&stay) {
                self.lines.push(seen);
            } else {
                taken.lines.push(seen);
            }
        }
        self.forgotten += taken.beside.len() as u64;
        taken
    }

    /// The lines about one stay of the prefill's.
    pub(super) fn about<'a>(&'a self, stay: &'a Stay) -> impl Iterator<Item = &'a Seen> {
        self.lines.iter().filter(move |seen| self.is_about(seen, stay))
    }

    fn is_about(&self, seen: &Seen, stay: &Stay) -> bool {
        let line = &seen.line;
        self.is_of_prefill(line)
            && match self.known_by {
                KnownBy::Hook => line.room == Some(stay.room) && line.seq == Some(stay.seq),
                KnownBy::Notice => line.room == Some(stay.room),
                KnownBy::Handle => {
                    let poster = line.room.and_then(|handle| self.poster(handle, seen));
                    poster == Some(stay.key())
                }
            }
    }

    /// Whether a line speaks of the process whose rooms these are.
    pub(super) fn is_of_prefill(&self, line: &Line) -> bool {
        line.worker.as_ref().is_some_and(|worker| worker.pid == self.prefill)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(room: u64, at: u64, outcome: &str) -> Event {
        Event { room, seq: room, at, outcome: outcome.to_owned(), ..Event::default() }
    }

    fn line(room: u64, at: u64) -> Seen {
        let line = Line {
            kind: "append".to_owned(),
            room: Some(room),
            seq: Some(room),
            worker: Some(Worker { pid: 7 }),
            ..Line::default()
        };
        Seen { at: Moment(at), line }
    }

    #[test]
    fn what_is_settled_is_taken_with_its_lines_and_the_rest_stays_whole() {
        let mut record = Record::new(7, KnownBy::Hook);
        for (room, removed) in [(1, Some(50)), (2, Some(150)), (3, None)] {
            record.appended(None, &event(room, 10, ""));
            if let Some(at) = removed {
                record.removed(&event(room, at, "success"));
            }
        }
        record.appended(Some(&"victim".to_owned()), &event(9, 10, ""));
        // Room 4's line has come before the pair's event; room 1's came late.
        record.lines = vec![line(2, 20), line(3, 20), line(9, 20), line(1, 120), line(4, 130)];
        let taken = record.take_settled(Moment(100));
        let rooms = |lines: &[Seen]| -> Vec<u64> {
            lines.iter().filter_map(|seen| seen.line.room).collect()
        };
        assert_eq!(taken.beside.iter().map(|stay| stay.room).collect::<Vec<_>>(), [1]);
        assert!(taken.victims.contains_key("victim") && record.victims.is_empty());
        assert_eq!(rooms(&taken.lines), [9, 1]);
        assert_eq!(rooms(&record.lines), [2, 3, 4]);
        assert_eq!((record.beside.len(), record.forgotten), (2, 1));
    }
}
