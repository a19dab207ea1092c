//! The world of one run: the pair, the agent, and what they have told so far.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::json;

use super::View;
use super::agent::{Agent, Usage};
use super::file::{Append, Case, Who};
use super::pair::{Event, Process};
use super::record::{Line, Record, Scratch, Seen, Stay};
use super::traffic::Traffic;
use crate::clock::Moment;
use crate::say;

/// Longest wait for a message before the runner looks at its own duties again.
const BEAT: Duration = Duration::from_millis(20);
/// Longest time for a process of the pair, or the agent, to become ready.
const READY: Duration = Duration::from_mins(1);
/// Longest time for the pair to answer a command.
pub(super) const ANSWER: Duration = Duration::from_secs(20);
/// Longest time for the healthy rooms to end once no more are appended.
const DRAIN: Duration = Duration::from_secs(30);
/// Longest time for the agent to speak of what has ended.
const SETTLE: Duration = Duration::from_secs(3);
/// The shard of the victims; the healthy rooms use the others.
const SICK_SHARD: u64 = 0;
/// Ids of the victims, in turn from here.
const FIRST_VICTIM: u64 = 1 << 63;

/// What the processes tell.
pub(super) enum Message {
    /// An event of the pair.
    Pair(&'static str, Event),
    /// A line of the agent.
    Agent { at: Moment, line: Box<Line> },
    /// Something that should be a line of the agent and is not.
    Garbled(String),
}

/// One run's processes and what is known of them.
pub(super) struct World<'a> {
    case: &'a Case,
    scratch: &'a Scratch,
    view: &'a View,
    inbox: Receiver<Message>,
    outbox: Sender<Message>,
    prefill: Process,
    decodes: [Process; 2],
    agent: Option<Agent>,
    /// Workers that the running agent has said it covers.
    covered: BTreeSet<u32>,
    /// Events that somebody may wait for.
    events: Vec<(&'static str, Event)>,
    /// Names of the victims by room id.
    names: BTreeMap<u64, String>,
    traffic: Traffic,
    turned: Moment,
    record: Record,
}

impl<'a> World<'a> {
    /// Start the pair and introduce its processes to each other.
    pub(super) fn start(case: &'a Case, scratch: &'a Scratch, view: &'a View) -> Result<Self> {
        let (outbox, inbox) = channel();
        let process =
            |script, name| Process::start(script, name, &case.pair, scratch, outbox.clone());
        let prefill = process("prefill.py", "prefill")?;
        let decodes = [process("decode.py", "sick")?, process("decode.py", "well")?];
        let record = Record::new(prefill.pid());
        let mut world = Self {
            case,
            scratch,
            view,
            inbox,
            outbox,
            prefill,
            decodes,
            agent: None,
            covered: BTreeSet::new(),
            events: Vec::new(),
            names: BTreeMap::new(),
            traffic: Traffic::new(&case.beside),
            turned: Moment::now(),
            record,
        };
        world.introduce()?;
        Ok(world)
    }

    fn introduce(&mut self) -> Result<()> {
        self.await_event("prefill", "ready", READY)?;
        for who in [Who::Sick, Who::Well] {
            let ready = self.await_event(who.name(), "ready", READY)?;
            self.prefill.tell(&json!({
                "do": "peer", "name": who.agent(), "metadata": ready.metadata,
                "address": ready.address, "size": ready.size,
            }))?;
            self.await_event("prefill", "peered", ANSWER)?;
        }
        Ok(())
    }

    /// Take in messages and keep the healthy rooms coming until `done`, or for `limit`.
    /// Says whether it was done.
    pub(super) fn wait(&mut self, limit: Duration, done: impl Fn(&Self) -> bool) -> Result<bool> {
        let end = Moment::now().plus(limit);
        self.turned = Moment::now();
        while !done(self) {
            if Moment::now() >= end {
                return Ok(false);
            }
            self.turn()?;
        }
        Ok(true)
    }

    /// Wait for an event of a process and take it out.
    pub(super) fn await_event(
        &mut self,
        name: &str,
        event: &str,
        limit: Duration,
    ) -> Result<Event> {
        let matches = |(who, told): &(&str, Event)| *who == name && told.what == event;
        self.wait(limit, |world| world.events.iter().any(matches))?;
        let Some(index) = self.events.iter().position(matches) else {
            bail!("{name} has not said {event:?} within {limit:?}");
        };
        Ok(self.events.remove(index).1)
    }

    fn turn(&mut self) -> Result<()> {
        let first = self.inbox.recv_timeout(BEAT).ok();
        let now = Moment::now();
        let late = now.since(self.turned).saturating_sub(BEAT);
        self.record.starved = self.record.starved.max(late);
        self.turned = now;
        if let Some(first) = first {
            self.take(first);
        }
        while let Ok(next) = self.inbox.try_recv() {
            self.take(next);
        }
        if let Some(command) = self.traffic.due(now, &self.record.beside) {
            self.prefill.tell(&command)?;
        }
        if self.agent.as_mut().is_some_and(Agent::is_gone) {
            self.agent = None;
            let said = self.scratch.tail("agent.log");
            self.record.agent_faults.push(format!("the agent ended by itself: {said}"));
        }
        if self.prefill.is_gone() {
            bail!("the prefill ended: {}", self.scratch.tail("prefill.err"));
        }
        Ok(())
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Pair(name, event) => self.take_event(name, event),
            Message::Agent { at, line } => self.take_line(at, *line),
            Message::Garbled(text) => self.record.agent_faults.push(text),
        }
    }

    fn take_event(&mut self, name: &'static str, event: Event) {
        match event.what.as_str() {
            "appended" => self.record.appended(self.names.get(&event.room), &event),
            "landed" => self.record.landed(self.names.get(&event.room), &event),
            "removed" => self.record.removed(&event),
            "refused" => self.record.spoilt.push(format!("{name}: {}", event.why)),
            _ => self.events.push((name, event)),
        }
    }

    fn take_line(&mut self, at: Moment, line: Line) {
        let pid = line.worker.as_ref().map_or(0, |worker| worker.pid);
        if line.is_covered() {
            self.covered.insert(pid);
        }
        if pid != self.record.prefill {
            return;
        }
        if self.view.live && matches!(line.kind.as_str(), "verdict" | "clear") {
            say::line(format_args!("    {}: {}", self.case.name, line.sentence()));
        }
        self.record.lines.push(Seen { at, line });
    }

    /// The id of the victim of that name, which may be appended yet.
    pub(super) fn expect_victim(&mut self, name: &str) -> u64 {
        let known = self.names.iter().find(|(_, known)| *known == name).map(|(room, _)| *room);
        known.unwrap_or_else(|| {
            let room = FIRST_VICTIM + self.names.len() as u64;
            self.names.insert(room, name.to_owned());
            room
        })
    }

    /// Append a victim.
    pub(super) fn append(&mut self, append: &Append) -> Result<()> {
        let room = self.expect_victim(&append.room);
        self.prefill.tell(&json!({
            "do": "append", "room": room, "to": append.to.agent(), "bytes": append.bytes,
            "chunk": append.chunk, "pace": append.pace, "fault": append.fault,
            "shard": SICK_SHARD,
        }))?;
        let name = append.room.clone();
        let there = self.wait(ANSWER, |world| world.record.victims.contains_key(&name))?;
        there.then_some(()).with_context(|| format!("the prefill has not appended {name}"))
    }

    /// Wait until `done` holds for a victim, for at most so many seconds.
    pub(super) fn wait_for(
        &mut self,
        room: &str,
        within_s: f64,
        done: impl Fn(&Record, &Stay) -> bool,
    ) -> Result<bool> {
        let limit = Duration::try_from_secs_f64(within_s).unwrap_or_default();
        self.wait(limit, |world| {
            world.record.victims.get(room).is_some_and(|stay| done(&world.record, stay))
        })
    }

    /// Let healthy rooms come from now on.
    pub(super) const fn begin_traffic(&mut self) {
        self.traffic.begin();
    }

    /// The case lets its victims go on: from here on they may end.
    pub(super) fn release(&mut self) {
        for stay in self.record.victims.values_mut() {
            stay.released = Some(Moment::now());
        }
    }

    /// Let one healthy room go to a decode and wait for its end.
    pub(super) fn transfer(&mut self, to: Who, bytes: u64) -> Result<()> {
        let (room, command) = self.traffic.one(to, bytes, SICK_SHARD);
        self.prefill.tell(&command)?;
        let ended = |stay: &Stay| stay.room == room && stay.removed.is_some();
        let done = self.wait(READY, |world| world.record.beside.iter().any(ended))?;
        done.then_some(()).with_context(|| format!("the transfer to {} has not ended", to.name()))
    }

    /// The decode that a case names.
    pub(super) const fn decode(&mut self, who: Who) -> &mut Process {
        let [sick, well] = &mut self.decodes;
        match who {
            Who::Sick => sick,
            Who::Well => well,
        }
    }

    /// Start the agent without waiting for it.
    pub(super) fn start_agent(&mut self) -> Result<()> {
        self.covered.clear();
        let pids = if self.view.by_pid { self.pids() } else { Vec::new() };
        let agent = Agent::start(&self.case.agent, &pids, self.scratch, self.outbox.clone())?;
        self.agent = Some(agent);
        Ok(())
    }

    /// Wait until the agent covers every living process of the pair.
    pub(super) fn await_agent(&mut self) -> Result<()> {
        let pids = self.pids();
        let ready = self.wait(READY, |world| {
            world.agent.is_none() || pids.iter().all(|pid| world.covered.contains(pid))
        })?;
        if !ready {
            let text = format!("the agent does not cover {pids:?} after {READY:?}");
            self.record.agent_faults.push(text);
        }
        self.record.agent_ready.get_or_insert(Moment::now());
        Ok(())
    }

    /// What the running agent has used.
    pub(super) fn agent_usage(&self) -> Option<Usage> {
        self.agent.as_ref().and_then(Agent::usage)
    }

    /// The pair's living processes.
    fn pids(&mut self) -> Vec<u32> {
        let mut pids = vec![self.prefill.pid()];
        let living = self.decodes.iter_mut().filter_map(|one| (!one.is_gone()).then(|| one.pid()));
        pids.extend(living);
        pids
    }

    /// Kill the agent.
    pub(super) fn kill_agent(&mut self) {
        if let Some(agent) = self.agent.take() {
            agent.kill();
            self.record.agent_kills += 1;
        }
    }

    /// What has happened so far.
    pub(super) const fn record(&mut self) -> &mut Record {
        &mut self.record
    }

    /// Whether no more healthy rooms will come and all have ended, those too that the prefill was
    /// told to append and has not spoken of yet.
    pub(super) fn beside_ended(&self) -> bool {
        let ended = self.record.beside.iter().filter(|stay| stay.removed.is_some()).count();
        self.traffic.is_over() && ended as u64 == self.traffic.sent()
    }

    /// Stop the healthy rooms, wait for the last ones and for what the agent has to say of them.
    pub(super) fn finish(mut self) -> Result<Record> {
        self.traffic.stop();
        if !self.wait(DRAIN, Self::beside_ended)? {
            self.record.spoilt.push("healthy rooms have not ended".to_owned());
        }
        self.wait(SETTLE, |world| world.record.is_told())?;
        // What comes twice comes soon after.
        self.wait(BEAT * 10, |_| false)?;
        Ok(self.record)
    }
}
