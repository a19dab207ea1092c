//! What happened in one run of a case: the judge's input.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::time::Duration;

use serde::Deserialize;

use super::pair::Event;
use crate::clock::Moment;

/// Everything that the judge looks at.
#[derive(Debug)]
pub(super) struct Record {
    /// Host pid of the prefill, whose rooms these are.
    pub(super) prefill: u32,
    /// By what the agent knows the prefill's rooms.
    pub(super) known_by: KnownBy,
    /// Victim rooms by the name that the case gives them.
    pub(super) victims: BTreeMap<String, Stay>,
    /// Healthy rooms.
    pub(super) beside: Vec<Stay>,
    /// Healthy rooms that were taken out.
    pub(super) forgotten: u64,
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
    /// The handles of its transfers.
    pub(super) handles: Vec<u64>,
    /// When it left the queue, and how.
    pub(super) removed: Option<(Moment, String)>,
}

/// A line of the agent and when it was read.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) at: Moment,
    pub(crate) line: Line,
}

/// The fields of an agent's line that are judged.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Line {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) id: Option<String>,
    #[serde(deserialize_with = "crate::room::maybe")]
    pub(crate) room: Option<u64>,
    pub(crate) seq: Option<u64>,
    pub(crate) worker: Option<Worker>,
    pub(crate) finding: Option<String>,
    pub(crate) cause: Option<String>,
    pub(crate) severity: Option<String>,
    pub(crate) tier: Option<String>,
    /// The incident that a verdict belongs to: the id of its head's stay.
    pub(crate) incident: Option<String>,
    /// Rooms that wait behind the one that the verdict is about.
    #[serde(deserialize_with = "crate::room::list")]
    pub(crate) behind: Vec<u64>,
    pub(crate) behind_count: Option<u64>,
    pub(crate) outcome: Option<String>,
    pub(crate) why: Option<String>,
    pub(crate) late: Option<bool>,
    /// Whether the agent says that its predecessor may have told it already.
    pub(crate) maybe_repeated: bool,
    pub(crate) dwell_s: Option<f64>,
    pub(crate) evidence: Vec<Evidence>,
    pub(crate) ruled_out: Vec<RuledOut>,
    pub(crate) coverage: Vec<Sight>,
}

/// Whose room a line speaks of.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Worker {
    pub(crate) pid: u32,
}

/// A piece of evidence of a line.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Evidence {
    pub(crate) id: String,
    /// The other worker on this node that it is about.
    pub(crate) worker: Option<Worker>,
}

/// A cause that a line rules out.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RuledOut {
    pub(crate) because: Evidence,
}

/// What a line says of one source.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Sight {
    pub(crate) source: String,
    #[serde(rename = "sight")]
    pub(crate) how: String,
    pub(crate) why: Option<String>,
}

impl Line {
    /// Whether it says that its worker is covered as far as it will be: nothing is still to be
    /// attached. Whose table cannot be read has no known peers, so their meters are never read.
    pub(crate) fn is_covered(&self) -> bool {
        let of_peers = |sight: &Sight| matches!(sight.source.as_str(), "connections" | "peers");
        let blind = |sight: &Sight| sight.source == "table" && sight.how == "blind";
        let no_table = self.coverage.iter().any(blind);
        let pending = |sight: &Sight| {
            sight.why.as_deref() == Some("not_attached") && !(no_table && of_peers(sight))
        };
        self.kind == "coverage" && !self.coverage.iter().any(pending)
    }

    /// Whether this is an alarm: a verdict that is more than information.
    pub(crate) fn is_alert(&self) -> bool {
        self.kind == "verdict" && self.severity.as_deref() != Some("info")
    }

    /// Whether this is a verdict that alarms nobody.
    pub(crate) fn is_info(&self) -> bool {
        self.kind == "verdict" && !self.is_alert()
    }

    /// `finding / cause`.
    pub(crate) fn says(&self) -> String {
        let word = |word: &Option<String>| word.clone().unwrap_or_else(|| "none".to_owned());
        format!("{} / {}", word(&self.finding), word(&self.cause))
    }

    /// The line as a person would say it.
    pub(crate) fn sentence(&self) -> String {
        let room = self.room.unwrap_or(0);
        let dwell = self.dwell_s.unwrap_or(0.0);
        if self.kind == "clear" {
            return format!("room {room}: cleared, {}", self.why.as_deref().unwrap_or("no reason"));
        }
        let evidence: Vec<&str> = self.evidence.iter().map(|piece| piece.id.as_str()).collect();
        let (says, evidence) = (self.says(), evidence.join(", "));
        format!("room {room}: {says} after {dwell:.1} s in the queue ({evidence})")
    }

    /// Whether it states that piece of evidence, for its cause or against another.
    pub(crate) fn states(&self, id: &str) -> bool {
        let against = self.ruled_out.iter().map(|ruled_out| &ruled_out.because);
        self.evidence.iter().chain(against).any(|piece| piece.id == id)
    }
}

impl Record {
    /// Nothing has happened yet.
    pub(super) fn new(prefill: u32, known_by: KnownBy) -> Self {
        Self {
            prefill,
            known_by,
            agent_mib: None,
            victims: BTreeMap::new(),
            beside: Vec::new(),
            forgotten: 0,
            lines: Vec::new(),
            agent_ready: None,
            agent_kills: 0,
            starved: Duration::ZERO,
            spoilt: Vec::new(),
            agent_faults: Vec::new(),
        }
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
            handles: Vec::new(),
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
        let mut stays = self.victims.values_mut().chain(&mut self.beside);
        let open = |stay: &&mut Stay| stay.room == event.room && stay.removed.is_none();
        if let Some(stay) = stays.find(open) {
            stay.handles.push(event.handle);
        }
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
            ..Self::new(self.prefill, self.known_by)
        };
        let known = |stays: &mut dyn Iterator<Item = &Stay>| -> BTreeSet<(u64, u64)> {
            stays.map(|stay| (stay.room, stay.seq)).collect()
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
        let ours = line.worker.as_ref().is_some_and(|worker| worker.pid == self.prefill);
        ours && match self.known_by {
            KnownBy::Hook => line.room == Some(stay.room) && line.seq == Some(stay.seq),
            KnownBy::Notice => line.room == Some(stay.room),
            KnownBy::Handle => {
                let of_its = line.room.is_some_and(|handle| stay.handles.contains(&handle));
                of_its && seen.at >= stay.appended
            }
        }
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
