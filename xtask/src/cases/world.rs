//! The world of one run: the pair, the agent, and what they have told so far.

mod acts;
mod fails;

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::{Result, bail};

use super::View;
use super::agent::{Agent, Said};
use super::file::{Case, Pair};
use super::foreign::Writes;
use super::net::{HERE, Net};
use super::pair::{DECODE, Event, PREFILL, Process};
use super::record::{KnownBy, Record, Seen, Stay};
use super::scratch::Scratch;
use super::step::Who;
use super::traffic::Traffic;
use crate::clock::Moment;
use crate::say;
use crate::usage::Usage;

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
/// Longest time for an agent without marks to speak of a worker that has not posted yet.
const UNHOOKED: Duration = Duration::from_secs(20);
/// Ids of the victims, in turn from here.
const FIRST_VICTIM: u64 = 1 << 63;

/// What the processes tell.
pub(super) enum Message {
    /// An event of the pair.
    Pair(&'static str, Event),
    /// What the agent tells.
    Agent(Said),
}

impl From<Said> for Message {
    fn from(said: Said) -> Self {
        Self::Agent(said)
    }
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
    /// What each decode said when it was ready.
    ready: [Event; 2],
    /// How many agents were started.
    agents: u32,
    agent: Option<Agent>,
    /// Workers that the running agent has said it covers.
    covered: BTreeSet<u32>,
    /// Events that somebody may wait for.
    events: Vec<(&'static str, Event)>,
    /// Ids and names of the victims, in the order in which the case expects them.
    names: Vec<(u64, String)>,
    /// How many victims were given a number.
    numbered: u64,
    traffic: Traffic,
    /// What counts the prefill's writes into other processes, where a case asks for it.
    writes: Option<Writes>,
    turned: Moment,
    record: Record,
    /// Last, so that no process is left in a namespace when it goes away.
    net: Option<Net>,
}

impl<'a> World<'a> {
    /// Start the pair and introduce its processes to each other.
    pub(super) fn start(case: &'a Case, scratch: &'a Scratch, view: &'a View) -> Result<Self> {
        let (outbox, inbox) = channel();
        let net = if case.pair.apart { Some(Net::make(case.pair.mbit)?) } else { None };
        let near = net.as_ref().map_or(HERE, Net::near);
        let far = net.as_ref().map_or(HERE, Net::far);
        let process = |script, name, place| {
            Process::start(script, name, &case.pair, place, scratch, outbox.clone())
        };
        let prefill = process(PREFILL, "prefill", &near)?;
        let decodes = [process(DECODE, "sick", &far)?, process(DECODE, "well", &near)?];
        let mut record = Record::new(prefill.pid(), known_by(&case.pair));
        record.pids.extend(decodes.iter().map(Process::pid));
        let mut world = Self {
            case,
            scratch,
            view,
            inbox,
            outbox,
            prefill,
            decodes,
            ready: [Event::default(), Event::default()],
            agents: 0,
            agent: None,
            covered: BTreeSet::new(),
            events: Vec::new(),
            names: Vec::new(),
            numbered: 0,
            traffic: Traffic::new(&case.beside),
            writes: None,
            turned: Moment::now(),
            record,
            net,
        };
        world.introduce()?;
        Ok(world)
    }

    fn introduce(&mut self) -> Result<()> {
        self.await_event("prefill", "ready", READY)?;
        for who in [Who::Sick, Who::Well] {
            self.meet(who)?;
            self.introduce_one(who, false)?;
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
            let said = self.scratch.tail(&format!("{name}.err"));
            bail!("{name} has not said {event:?} within {limit:?}: {said}");
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
        if let Some(command) = self.traffic.due(now, &self.record.beside, self.record.forgotten) {
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
            Message::Agent(Said::Line(seen)) => self.take_line(*seen),
            Message::Agent(Said::Garbled(text)) => self.record.agent_faults.push(text),
        }
    }

    fn take_event(&mut self, name: &'static str, event: Event) {
        match event.what.as_str() {
            "appended" => self.record.appended(self.coming(event.room).as_ref(), &event),
            "landed" => self.record.landed(self.latest(event.room).as_ref(), &event),
            "died" => {
                if let Some(name) = self.latest(event.room) {
                    self.record.injected(&name, Moment(event.at));
                }
            }
            "posting" => self.record.posting(&event),
            "removed" => self.record.removed(&event),
            "transfer_error" => {}
            "refused" => self.record.spoilt.push(format!("{name}: {}", event.why)),
            _ => self.events.push((name, event)),
        }
    }

    fn take_line(&mut self, seen: Seen) {
        let line = &seen.line;
        let pid = line.worker.as_ref().map_or(0, |worker| worker.pid);
        if line.is_covered() {
            self.covered.insert(pid);
        }
        if !self.record.pids.contains(&pid) {
            // Others' pairs may run beside this one.
            return;
        }
        if self.view.live && matches!(line.kind.as_str(), "verdict" | "clear") {
            say::line(format_args!("    {}: {}", self.case.name, line.sentence()));
        }
        self.record.lines.push(seen);
    }

    /// The name of the victim of that number that is to be appended next.
    fn coming(&self, room: u64) -> Option<String> {
        let to_come =
            |(id, name): &&(u64, String)| *id == room && !self.record.victims.contains_key(name);
        self.names.iter().find(to_come).map(|(_, name)| name.clone())
    }

    /// The name of the victim of that number that was appended last, or is to be appended.
    fn latest(&self, room: u64) -> Option<String> {
        let mut known = self.names.iter().filter(|(id, _)| *id == room).map(|(_, name)| name);
        let first = known.clone().next();
        known.rfind(|name| self.record.victims.contains_key(*name)).or(first).cloned()
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
        self.agents += 1;
        // A decode that is started later cannot be named to it now, and a process without the
        // hook is none that can be named.
        let by_pid = self.view.by_pid && !self.case.restarts() && !self.case.pair.bare;
        let pids = if by_pid { self.pids() } else { Vec::new() };
        let name = format!("agent-{}.capture", self.agents);
        let capture = self.view.capture.then(|| self.scratch.path(&name));
        let (setting, outbox) = (&self.case.agent, self.outbox.clone());
        let program = self.view.agent.as_deref();
        self.agent = Some(Agent::start(program, setting, &pids, capture, self.scratch, outbox)?);
        Ok(())
    }

    /// Wait until the agent covers every living process of the pair.
    pub(super) fn await_agent(&mut self) -> Result<()> {
        if self.case.pair.bare {
            // A process that has not posted yet is no worker to an agent that knows no queue.
            let prefill = self.prefill.pid();
            self.wait(UNHOOKED, |world| world.covered.contains(&prefill))?;
            self.record.agent_ready.get_or_insert(Moment::now());
            return Ok(());
        }
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

    /// The running agent's pid.
    pub(super) fn agent_pid(&self) -> Option<u32> {
        self.agent.as_ref().map(Agent::pid)
    }

    /// Wait until the agent has told the end of all victims, for as long as that may take.
    pub(super) fn await_told(&mut self) -> Result<()> {
        let told = |world: &Self| world.record.victims.values().all(|stay| world.record.told(stay));
        self.wait(SETTLE, told).map(drop)
    }

    /// Take out what happened, but for the healthy rooms that were open at `before` or came later.
    pub(super) fn forget(&mut self, before: Moment) -> Record {
        self.names.clear();
        self.record.take_settled(before)
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
        self.traffic.is_over() && ended as u64 + self.record.forgotten == self.traffic.sent()
    }

    /// Stop the healthy rooms, wait for the last ones and for what the agent has to say of them.
    pub(super) fn finish(mut self) -> Result<Record> {
        self.traffic.stop();
        if !self.wait(DRAIN, Self::beside_ended)? {
            self.record.slow.push("healthy rooms have not ended".to_owned());
        }
        self.wait(SETTLE, |world| world.record.is_told())?;
        // What comes twice comes soon after.
        self.wait(BEAT * 10, |_| false)?;
        self.record.agent_mib = self.agent_usage().map(|usage| usage.resident_mib);
        Ok(self.record)
    }
}

/// By what the agent can know the rooms of such a pair.
const fn known_by(pair: &Pair) -> KnownBy {
    match (pair.bare, pair.notify) {
        (false, _) => KnownBy::Hook,
        (true, true) => KnownBy::Notice,
        (true, false) => KnownBy::Handle,
    }
}
