//! What the agent answers when it is asked.

use std::io;

use inflightd_core::Nanos;
use inflightd_core::fact::Worker;
use inflightd_core::view::{RoomView as Seen, Standing};

use super::Agent;
use crate::desk::{Answer, Ask, Whose};
use crate::glance::{Glance, gauge_name};
use crate::names::WorkerName;
use crate::sink::{RanksField, RoomId, Writer, sights};
use crate::views::{
    AgentView, ProbesView, RoomView, RoomsView, StalledView, StandingView, WorkerView, WorkersView,
};

/// Most questions answered at one wake-up: each may be a walk over all rooms.
const ANSWERS_MAX: usize = 4;
/// The phase of a room that has left the queue under its thread.
const LEFT: &str = "left";

impl Agent {
    /// Marks that the loop has woken up, which it wanted to do at `wanted`, and answers who waits.
    pub fn attend(&mut self, wanted: Nanos, now: Nanos) -> io::Result<()> {
        self.teller.instruments().woke_late_by(now.since(wanted));
        self.desk.health.beat(now);
        self.follow_fails(now)?;
        for _ in 0..ANSWERS_MAX {
            let Some(question) = self.desk.question() else {
                return Ok(());
            };
            let answer = match &question.ask {
                Ask::Workers(whose) => Answer::Workers(self.workers_view(whose, now)),
                Ask::Rooms(most, pid) => Answer::Rooms(self.rooms_view(*most, *pid, now)),
                Ask::Agent => Answer::Agent(Box::new(self.agent_view())),
                Ask::Fail(order) => {
                    self.fail(*order, question)?;
                    continue;
                }
            };
            question.answer(answer);
        }
        Ok(())
    }

    fn asked(&self, whose: &Whose) -> Vec<Worker> {
        let is_asked = |pid: u32| match whose {
            Whose::All => true,
            Whose::Process(asked) => pid == *asked,
            Whose::Pod(uid) => uid.has(pid),
        };
        let asked = self.workers.values().filter(|watched| is_asked(watched.pid));
        asked.map(|watched| watched.number).collect()
    }

    fn workers_view(&mut self, whose: &Whose, now: Nanos) -> WorkersView {
        let mut view = WorkersView::default();
        for number in self.asked(whose) {
            let Some(glance) = self.glance(number, now) else {
                continue;
            };
            if let Some(name) = self.names.worker(number) {
                view.wedged |= glance.wedged.is_some();
                view.own_fault |= glance.wedged.is_some_and(|wedged| wedged.why.is_own());
                view.workers.push(self.worker_view(name, &glance));
            }
        }
        view
    }

    fn worker_view(&self, name: &WorkerName, glance: &Glance) -> WorkerView {
        let stalled = glance.stalled.iter();
        let some = |span: Nanos| (glance.open > 0).then(|| span.secs_f64());
        WorkerView {
            pid: name.identity.pid,
            index: name.about.index,
            engine: name.about.engine.clone(),
            version: name.about.version.clone(),
            role: name.about.role.clone(),
            ranks: RanksField::of(name.about.ranks),
            wedged: glance.wedged.is_some(),
            wedged_since: glance.wedged.map(|wedged| self.clock.wall(wedged.since).to_string()),
            why: glance.wedged.map(|wedged| wedged.why.name()),
            beat_age_s: glance.beat_age.map(Nanos::secs_f64),
            open: glance.open,
            suspects: glance.suspects,
            blind: glance.blind,
            stalled: stalled
                .map(|((finding, cause), count)| StalledView {
                    finding: finding.name(),
                    cause: cause.name(),
                    count: *count,
                })
                .collect(),
            says: glance.says.iter().map(|(gauge, value)| (gauge_name(*gauge), *value)).collect(),
            oldest_dwell_s: some(glance.oldest_dwell),
            oldest_without_progress_s: some(glance.oldest_still),
            coverage: sights(glance.coverage.iter().copied()),
        }
    }

    fn rooms_view(&self, most: usize, pid: Option<u32>, now: Nanos) -> RoomsView {
        let mut seen: Vec<(Worker, Seen<'_>)> = Vec::new();
        for number in self.asked(&pid.map_or(Whose::All, Whose::Process)) {
            if let Some(view) = self.ledger.view(number) {
                let told = view.rooms().filter(|room| !room.left || room.standing.is_some());
                seen.extend(told.map(|room| (number, room)));
            }
        }
        let count =
            |what: fn(&Seen<'_>) -> bool| seen.iter().filter(|(_, room)| what(room)).count();
        let left = count(|room| room.left) as u64;
        let open = seen.len() as u64 - left;
        let alerts = count(|room| room.standing.is_some_and(|standing| standing.is_alert())) as u64;
        seen.sort_unstable_by_key(|(number, room)| (room.appended_at, *number, room.seq));
        seen.truncate(most);
        let rooms = seen.iter().map(|(number, room)| self.room_view(*number, room, now)).collect();
        RoomsView { open, left, alerts, rooms }
    }

    fn room_view(&self, worker: Worker, room: &Seen<'_>, now: Nanos) -> RoomView {
        let writer = Writer { names: &self.names, clock: self.clock };
        let line = writer.of(worker, room.seq);
        let view = self.ledger.view(worker);
        let mut bytes = room.bytes;
        bytes.completed = view.as_ref().map_or(0, |view| view.arrived(room.seq));
        let head = room.standing.and_then(|standing| view?.room_of(standing.head?));
        RoomView {
            seq: room.seq.0,
            room: RoomId(room.room.0),
            rid: line.rid,
            worker: line.worker,
            since: self.clock.wall(room.appended_at).to_string(),
            dwell_s: now.since(room.appended_at).secs_f64(),
            since_progress_s: now.since(room.last_progress).secs_f64(),
            phase: if room.left { LEFT } else { room.phase.name() },
            bytes: bytes.into(),
            posts: room.posts,
            peers: writer.peers(worker, room.peers),
            serving_tid: room.serving.map(|(tid, _)| tid.0),
            behind: head.map(|head| RoomId(head.0)),
            verdict: room.standing.map(|standing| self.standing_view(worker, room, standing)),
        }
    }

    fn standing_view(&self, worker: Worker, room: &Seen<'_>, standing: Standing) -> StandingView {
        let (finding, cause) = (standing.finding, standing.cause);
        let name = self.names.worker(worker);
        StandingView {
            id: name.map(|name| name.identity.verdict_id(room.seq, finding, cause)),
            severity: if standing.is_alert() { "alert" } else { "info" },
            finding: finding.name(),
            cause: cause.name(),
            since: self.clock.wall(standing.since).to_string(),
            incident: name.map(|name| name.identity.room_id(standing.head.unwrap_or(room.seq))),
        }
    }

    fn agent_view(&self) -> AgentView {
        AgentView {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION"),
            started_at: self.clock.wall(self.started_at).to_string(),
            ready: self.desk.health.is_ready(),
            lacks: self.desk.health.lacks(),
            settings: self.settings.clone(),
            http: self.http.clone(),
            probes: ProbesView {
                on: self.hits.are_on(),
                links: self.hits.links(),
                armed: self.peers.arming.processes(),
                mishaps: self.mishaps.iter().copied().collect(),
            },
            workers: self.workers.len() as u64,
            misfits: self.ledger.misfits(),
        }
    }
}
