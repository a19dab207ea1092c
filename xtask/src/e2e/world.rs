//! The world of one run: the servers, the agent, and what they have told so far.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;

use super::View;
use super::file::Case;
use super::idle::Idle;
use super::launcher::{Event, Launcher, Message};
use super::record::{Answer, Free, Record, Room};
use super::step::Who;
use crate::cases::{Agent, HERE, Net, Place, Said, Scratch, Seen, Way, ask_to_fail};
use crate::clock::Moment;

/// Longest wait for a message before the runner looks at its own duties again.
const BEAT: Duration = Duration::from_millis(50);
/// Longest start of a server.
const READY: Duration = Duration::from_mins(4);
/// Longest time for the launcher to do what it was told.
const ANSWER: Duration = Duration::from_secs(30);
/// Longest time for the agent to cover the prefill.
const COVERED: Duration = Duration::from_mins(1);
/// The file that asks the prefill what an iteration costs.
const IDLE: &str = "idle";
/// Numbers of the rooms that a case names, in turn from here; others count from 1.
const FIRST_NAMED: u64 = 1 << 40;

/// What a client asks for.
pub(super) struct Asked {
    pub(super) to: Who,
    /// Tokens of the prompt.
    pub(super) prompt: u32,
    /// The only side that is asked.
    pub(super) only: Option<Who>,
    /// What the prompt is made of; the room's number where none is given.
    pub(super) seed: Option<u64>,
    /// Tokens of the answer.
    pub(super) new: u32,
}

/// One run's processes and what is known of them.
pub(super) struct World<'a> {
    case: &'a Case,
    scratch: &'a Scratch,
    launcher: &'a mut Launcher,
    agent: Option<Agent>,
    /// Its program, where it is not the one that was built for this.
    program: Option<PathBuf>,
    /// Workers that the agent has said it covers.
    covered: BTreeSet<u32>,
    /// Schedulers of the servers that run, by rank.
    pids: BTreeMap<&'static str, Vec<u32>>,
    free: Free,
    /// What an iteration of the prefill costs, as far as it was measured.
    idle: Option<Idle>,
    /// Events that somebody may wait for.
    events: Vec<Event>,
    record: Record,
    numbered: u64,
    /// Last, so that no server is left in a namespace when it goes away.
    net: Option<Net>,
}

impl<'a> World<'a> {
    /// Start the agent, then the servers: an agent is there before its engines are.
    pub(super) fn start(
        case: &'a Case,
        scratch: &'a Scratch,
        view: &View<'_>,
        launcher: &'a mut Launcher,
    ) -> Result<Self> {
        let start = || Agent::start(view.agent, &case.agent, &[], None, scratch, launcher.outbox());
        let agent = if view.watched { Some(start()?) } else { None };
        let net = if case.pair.apart { Some(Net::make(case.pair.mbit)?) } else { None };
        let mut world = Self {
            case,
            scratch,
            launcher,
            agent,
            program: view.agent.map(Path::to_owned),
            covered: BTreeSet::new(),
            pids: BTreeMap::new(),
            free: Free::default(),
            idle: None,
            events: Vec::new(),
            record: Record { bare: view.bare, ..Record::default() },
            numbered: 0,
            net,
        };
        world.begin(Who::Prefill)?;
        for who in &case.pair.decodes {
            world.begin(*who)?;
        }
        for who in [&[Who::Prefill][..], &case.pair.decodes].concat() {
            world.await_ready(who)?;
        }
        Ok(world)
    }

    /// Start a server without waiting for it.
    pub(super) fn begin(&mut self, who: Who) -> Result<()> {
        // What is known of one of that name is its predecessor's.
        self.events.retain(|event| event.server != who.name());
        let pair = &self.case.pair;
        let place = self.place(who);
        let dies = pair.spoil.transfer_thread.as_ref().filter(|_| who == Who::Prefill);
        let spoil = json!({
            "transfer_thread": dies.map(|room| self.number(room)),
            "lost_aborts": pair.spoil.lost_aborts == Some(who),
        });
        let mut env = pair.env.clone();
        env.insert("UCX_NET_DEVICES".to_owned(), place.device.to_owned());
        if self.record.bare {
            env.insert("INFLIGHTD_HOOK".to_owned(), "off".to_owned());
        }
        self.launcher.tell(&json!({
            "do": "start", "server": who.name(), "role": who.role(), "backend": pair.backend,
            "log": self.scratch.path(&format!("{}.log", who.name())),
            "idle": self.scratch.path(IDLE), "env": env,
            "flags": pair.flags.get(who.role()).cloned().unwrap_or_default(),
            "space": place.space, "host": place.address, "spoil": spoil,
        }))
    }

    /// Asks the agent to fail a room. Another answer than the right one is a fault of the agent's.
    pub(super) fn fail(&mut self, name: &str, right: (&str, Option<&str>)) -> Result<()> {
        let room = self.number(name);
        if let Some(wrong) = ask_to_fail(self.program.as_deref(), self.scratch, room, right)? {
            self.record.agent_faults.push(format!("{name}: {wrong}"));
        }
        Ok(())
    }

    fn place(&self, who: Who) -> Place<'_> {
        match (&self.net, who) {
            (None, _) => HERE,
            (Some(net), Who::Sick) => net.far(),
            (Some(net), _) => net.near(),
        }
    }

    /// The network of servers that live apart.
    pub(super) fn net(&self) -> Result<&Net> {
        self.net.as_ref().context("steps: the servers live on one network\nfix: `apart = true`")
    }

    /// The network is cut: that is what hits the rooms.
    pub(super) fn cut(&mut self) -> Result<()> {
        self.net()?.cut(Way::Both)?;
        self.injected(Moment::now());
        Ok(())
    }

    /// The fault hits the rooms that the case names and has sent.
    fn injected(&mut self, at: Moment) {
        for room in self.record.rooms.values_mut().filter(|room| room.name.is_some()) {
            room.injected = at;
        }
    }

    /// Wait until a server answers.
    pub(super) fn await_ready(&mut self, who: Who) -> Result<()> {
        let of_its = |event: &&Event| event.server == who.name();
        let began = |event: &Event| matches!(event.what.as_str(), "ready" | "ended");
        self.wait(READY, |world| world.events.iter().filter(of_its).any(began))?;
        if self.events.iter().filter(of_its).any(|event| event.what == "ended") {
            let log = self.scratch.tail(&format!("{}.log", who.name()));
            bail!("{} has ended before it was ready: {}", who.name(), shortened(&log));
        }
        let ready = self.await_event(BEAT, "ready", |event| event.server == who.name())?;
        if who == Who::Prefill {
            let (right, given) = (self.case.ranks(), ready.ranks.len());
            ensure!(given >= right, "the prefill has {given} ranks, the case speaks of {right}");
            self.record.ranks.clone_from(&ready.ranks);
        }
        self.pids.insert(who.name(), ready.ranks);
        Ok(())
    }

    /// Wait until the agent covers the prefill; without the hook it may not know it before it
    /// posts, which a first request has it do.
    pub(super) fn await_agent(&mut self) -> Result<()> {
        if self.agent.is_none() {
            return Ok(());
        }
        let ranks = self.record.ranks.clone();
        let covered = |world: &Self| ranks.iter().all(|pid| world.covered.contains(pid));
        if !self.wait(COVERED, covered)? {
            let text =
                format!("the agent does not cover the prefill, {ranks:?}, after {COVERED:?}");
            self.record.agent_faults.push(text);
        }
        Ok(())
    }

    /// Take in messages until `done`, or for `limit`. Says whether it was done.
    pub(super) fn wait(&mut self, limit: Duration, done: impl Fn(&Self) -> bool) -> Result<bool> {
        let end = Moment::now().plus(limit);
        while !done(self) {
            if Moment::now() >= end {
                return Ok(false);
            }
            if let Some(message) = self.launcher.next(BEAT) {
                self.take(message)?;
            }
            if self.agent.as_mut().is_some_and(Agent::is_gone) {
                self.agent = None;
                let said = self.scratch.tail("agent.log");
                self.record.agent_faults.push(format!("the agent ended by itself: {said}"));
            }
        }
        Ok(true)
    }

    /// Wait for an event and take it out.
    pub(super) fn await_event(
        &mut self,
        limit: Duration,
        what: &str,
        which: impl Fn(&Event) -> bool,
    ) -> Result<Event> {
        let matches = |event: &Event| event.what == what && which(event);
        self.wait(limit, |world| world.events.iter().any(matches))?;
        let Some(index) = self.events.iter().position(matches) else {
            bail!("the launcher has not said {what:?} within {limit:?}");
        };
        Ok(self.events.remove(index))
    }

    fn take(&mut self, message: Message) -> Result<()> {
        match message {
            Message::Pair(event) => return self.take_event(*event),
            Message::Agent(Said::Line(seen)) => self.take_line(*seen),
            Message::Agent(Said::Garbled(text)) => self.record.agent_faults.push(text),
        }
        Ok(())
    }

    fn take_event(&mut self, event: Event) -> Result<()> {
        // What steps and numbers rest on is what its first rank says.
        let of_prefill = event.server == "prefill" && event.rank == 0;
        match event.what.as_str() {
            "free" if of_prefill => self.free = Free::of(&event),
            "room" if of_prefill => {
                if let Some(room) = self.record.rooms.get_mut(&event.room) {
                    room.state.clone_from(&event.state);
                }
            }
            "slices" if of_prefill => self.idle = Idle::of(&event.pairs, self.free.inflight()),
            "free" | "room" | "engine" | "slices" => {}
            "answered" => self.answered(event),
            "refused" => bail!("{}", event.why),
            "launcher_ended" => bail!("the launcher has ended"),
            "hit" => {
                self.injected(Moment(event.at));
                self.events.push(event);
            }
            _ => self.events.push(event),
        }
        Ok(())
    }

    fn answered(&mut self, event: Event) {
        if let Some(room) = self.record.rooms.get_mut(&event.room) {
            let answer = Answer {
                status: event.status,
                why: event.why,
                tokens: event.tokens,
                took_s: event.took_s,
            };
            room.answers.insert(event.side, answer);
        }
    }

    fn take_line(&mut self, seen: Seen) {
        let pid = seen.line.worker.as_ref().map_or(0, |worker| worker.pid);
        if seen.line.is_covered() {
            self.covered.insert(pid);
        }
        if self.record.ranks.contains(&pid) {
            self.record.lines.push(seen);
        } else if seen.line.is_alert() && self.pids.values().flatten().any(|one| *one == pid) {
            self.record.of_decodes.push(seen);
        }
    }

    /// Send a request under a name of the case's, or as one of a load; its number.
    pub(super) fn request(&mut self, name: Option<&str>, asked: &Asked) -> Result<u64> {
        let number = name.map_or(self.numbered + 1, |name| self.number(name));
        if name.is_none() {
            self.numbered += 1;
        }
        let sides = match asked.only {
            None => vec!["prefill", "decode"],
            Some(who) => vec![who.role()],
        };
        let room = Room {
            name: name.map(str::to_owned),
            injected: Moment::now(),
            state: String::new(),
            asked: sides.len(),
            answers: BTreeMap::new(),
        };
        self.record.rooms.insert(number, room);
        self.launcher.tell(&json!({
            "do": "request", "room": number, "to": asked.to.name(), "prompt": asked.prompt,
            "seed": asked.seed, "sides": sides, "new": asked.new,
        }))?;
        Ok(number)
    }

    /// The number of a room by the name that the case gives it, which need not be sent yet.
    pub(super) fn number(&self, name: &str) -> u64 {
        let named = self.case.right.iter().position(|right| right.room == name);
        FIRST_NAMED + named.map_or(u64::MAX >> 32, |place| place as u64)
    }

    /// Tell the launcher to do something and wait until it says that it has.
    pub(super) fn order(&mut self, command: &serde_json::Value, told: &str) -> Result<Event> {
        self.launcher.tell(command)?;
        self.await_event(ANSWER, told, |_| true)
    }

    /// Tell the launcher to do something of which it says nothing.
    pub(super) fn tell(&mut self, command: &serde_json::Value) -> Result<()> {
        self.launcher.tell(command)
    }

    /// Measure what an iteration of the prefill costs, for so long.
    pub(super) fn idle(&mut self, seconds: f64) -> Result<()> {
        let asked = self.scratch.path(IDLE);
        std::fs::write(&asked, "").with_context(|| format!("writing {}", asked.display()))?;
        let measured = self.wait(Duration::from_secs_f64(seconds), |_| false);
        std::fs::remove_file(&asked).with_context(|| format!("removing {}", asked.display()))?;
        measured?;
        self.wait(ANSWER, |world| world.idle.is_some())?;
        self.record.idle = self.idle.take();
        ensure!(self.record.idle.is_some(), "the prefill did not poll its queue in {seconds:.1} s");
        Ok(())
    }

    /// Wait until so many rooms are in the prefill's inflight queue.
    pub(super) fn queued(&mut self, rooms: u64, limit: Duration) -> Result<()> {
        let queued = self.wait(limit, |world| world.free.inflight() >= rooms)?;
        ensure!(queued, "{} of {rooms} rooms are in the inflight queue", self.free.inflight());
        Ok(())
    }

    /// Keep what is free in the prefill as the one before, after or at the end.
    pub(super) fn keep_free(&mut self, place: usize) -> Result<()> {
        let kept = self.record.free.get_mut(place).context("there are three such places")?;
        *kept = self.free;
        Ok(())
    }

    /// What has happened so far.
    pub(super) const fn record(&mut self) -> &mut Record {
        &mut self.record
    }

    /// The same, to look at.
    pub(super) const fn seen(&self) -> &Record {
        &self.record
    }

    /// End the servers and hand over what happened.
    pub(super) fn finish(self) -> Result<Record> {
        let Self { launcher, record, agent, net, .. } = self;
        launcher.end_all()?;
        drop((agent, net));
        let known = !record.ranks.is_empty() || !record.spoilt.is_empty();
        ensure!(known, "the prefill was never known");
        Ok(record)
    }
}

/// The end of a log whose lines may be long.
fn shortened(text: &str) -> &str {
    const MOST: usize = 600;
    let from = text.len().saturating_sub(MOST);
    (from..text.len()).find_map(|start| text.get(start..)).unwrap_or_default()
}
