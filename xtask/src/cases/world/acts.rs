//! What the steps of a case do to the pair and to the agent.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::Signal;
use serde_json::json;

use super::super::foreign::{self, Writes};
use super::super::net::{HERE, Net, Way};
use super::super::pair::{DECODE, Process};
use super::super::record::Stay;
use super::super::step::{Append, Who};
use super::{ANSWER, FIRST_VICTIM, READY, World};
use crate::clock::Moment;

/// The shard of the victims unless the case says otherwise; the healthy rooms use the others.
const SICK_SHARD: u64 = 0;
/// Ids of the rooms on paper, in turn from here; each queue has its own.
const FIRST_FILLED: u64 = 1 << 62;
/// Ids between the first rooms on paper of two queues.
const FILLED_APART: u64 = 1 << 40;
/// How often the memory of a decode is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// The name of decodes that come and go.
const GUEST: &str = "guest";
/// Longest time for a long queue or a burst of marks to be made.
const MADE: Duration = Duration::from_mins(1);

impl World<'_> {
    /// Wait until a decode is ready and keep what it says.
    pub(super) fn meet(&mut self, who: Who) -> Result<()> {
        let ready = self.await_event(who.name(), "ready", READY)?;
        let [sick, well] = &mut self.ready;
        *(if who == Who::Sick { sick } else { well }) = ready;
        Ok(())
    }

    /// Tell the prefill of a decode: at first, or anew.
    pub(in crate::cases) fn introduce_one(&mut self, who: Who, renew: bool) -> Result<()> {
        let [sick, well] = &self.ready;
        let ready = if who == Who::Sick { sick } else { well };
        self.prefill.tell(&json!({
            "do": "peer", "name": who.agent(), "metadata": ready.metadata,
            "address": ready.address, "size": ready.size, "door": ready.door, "renew": renew,
        }))?;
        self.await_event("prefill", "peered", ANSWER).map(drop)
    }

    /// Kill a decode and start another under its NIXL name. The prefill is not told. Done when the
    /// agent has found the new one, where an agent runs: what it does not know it cannot say.
    pub(in crate::cases) fn restart(&mut self, who: Who) -> Result<()> {
        let place = match (&self.net, who) {
            (None, _) => HERE,
            (Some(net), Who::Sick) => net.far(),
            (Some(net), Who::Well) => net.near(),
        };
        let [sick, well] = &mut self.decodes;
        let old = if who == Who::Sick { sick } else { well };
        old.end();
        let (pair, outbox) = (&self.case.pair, self.outbox.clone());
        *old = Process::start(DECODE, who.name(), pair, &place, self.scratch, outbox)?;
        let pid = old.pid();
        self.record.pids.insert(pid);
        self.meet(who)?;
        if !self.wait(READY, |world| world.agent.is_none() || world.covered.contains(&pid))? {
            let text = format!("the agent has not found the restarted {} in {READY:?}", who.name());
            self.record.agent_faults.push(text);
        }
        Ok(())
    }

    /// Decodes that come and go.
    pub(in crate::cases) fn guests(&mut self, times: u32) -> Result<()> {
        for _ in 0..times {
            let (pair, outbox) = (&self.case.pair, self.outbox.clone());
            let mut guest = Process::start(DECODE, GUEST, pair, &HERE, self.scratch, outbox)?;
            self.record.pids.insert(guest.pid());
            self.await_event(GUEST, "ready", READY)?;
            guest.end();
        }
        Ok(())
    }

    /// The id of the victim of that name, which may be appended yet.
    pub(in crate::cases) fn expect_victim(&mut self, name: &str) -> u64 {
        let known = self.names.iter().find(|(_, known)| *known == name).map(|(room, _)| *room);
        known.unwrap_or_else(|| {
            let room = FIRST_VICTIM + self.numbered;
            self.numbered += 1;
            self.names.push((room, name.to_owned()));
            room
        })
    }

    /// Append a victim, or several alike, and wait until they are in the queue: not for one whose
    /// prompt is still computed.
    pub(in crate::cases) fn append(&mut self, append: &Append) -> Result<()> {
        let alike = append.like.as_ref().map(|like| self.expect_victim(like));
        for name in append.names() {
            if let Some(id) = append.id.or(alike) {
                self.names.push((id, name.clone()));
            }
            let room = self.expect_victim(&name);
            self.prefill.tell(&json!({
                "do": "append", "room": room, "to": append.to.agent(), "bytes": append.bytes,
                "offset": append.offset, "chunk": append.chunk, "pace": append.pace, "fault": append.fault,
                "shard": append.shard, "prefill": append.prefill_s,
                "handshake": append.handshake,
            }))?;
            if append.prefill_s > 0.0 {
                continue;
            }
            let there = self.wait(ANSWER, |world| world.record.victims.contains_key(&name))?;
            there.then_some(()).with_context(|| format!("the prefill has not appended {name}"))?;
        }
        Ok(())
    }

    /// The case lets its victims go on: from here on they may end.
    pub(in crate::cases) fn release(&mut self) {
        for stay in self.record.victims.values_mut() {
            stay.released = Some(Moment::now());
        }
    }

    /// Let one healthy room go to a decode and wait for its end.
    pub(in crate::cases) fn transfer(&mut self, to: Who, bytes: u64) -> Result<()> {
        let (room, command) = self.traffic.one(to, bytes, SICK_SHARD);
        self.prefill.tell(&command)?;
        let ended = |stay: &Stay| stay.room == room && stay.removed.is_some();
        let done = self.wait(READY, |world| world.record.beside.iter().any(ended))?;
        done.then_some(()).with_context(|| format!("the transfer to {} has not ended", to.name()))
    }

    /// Tell a decode something, and wait until it says that it is so.
    pub(in crate::cases) fn tell_decode(&mut self, who: Who, what: &str, is: &str) -> Result<()> {
        self.decode(who).tell(&json!({ "do": what }))?;
        self.await_event(who.name(), is, ANSWER).map(drop)
    }

    /// Count from now on what is written by `process_vm_writev`.
    pub(in crate::cases) fn count_writes(&mut self) -> Result<()> {
        self.writes = Some(Writes::count()?);
        Ok(())
    }

    /// Wait until a room's bytes are all in the memory of its stopped decode, and look at who
    /// carried them.
    pub(in crate::cases) fn complete(&mut self, who: Who, bytes: u64) -> Result<()> {
        let [sick, well] = &self.ready;
        let address = if who == Who::Sick { sick } else { well }.address;
        let pid = self.decode(who).pid();
        let end = Moment::now().plus(ANSWER);
        let mut missing = bytes;
        while missing > 0 {
            ensure!(Moment::now() < end, "{missing} of {bytes} bytes are not there in {ANSWER:?}");
            self.wait(LOOK, |_| false)?;
            missing = foreign::wrong_bytes(pid, address, bytes)?;
        }
        // A stopped process takes nothing by itself: no byte came by a socket.
        ensure!(self.decode(who).is_stopped(), "{} is not stopped", who.name());
        let writes = self.writes.take().context("steps: `complete` needs `count_writes` before")?;
        let carried = writes.end(pid)?;
        ensure!(carried >= bytes, "process_vm_writev carried {carried} of {bytes} bytes");
        Ok(())
    }

    /// The network of a pair that lives apart.
    pub(in crate::cases) fn net(&self) -> Result<&Net> {
        self.net.as_ref().context("steps: the pair lives on one network")
    }

    /// The network is cut: that is what hits the room.
    pub(in crate::cases) fn cut(&mut self, room: &str, way: Way) -> Result<()> {
        self.net()?.cut(way)?;
        self.record.injected(room, Moment::now());
        Ok(())
    }

    /// Keep rooms open on paper.
    pub(in crate::cases) fn fill(&mut self, rooms: u64, worker: u32, keep_s: f64) -> Result<()> {
        self.prefill.tell(&json!({
            "do": "fill", "first": FIRST_FILLED + u64::from(worker) * FILLED_APART,
            "rooms": rooms, "worker": worker, "keep": keep_s, "to": Who::Well.agent(),
        }))?;
        self.await_event("prefill", "filled", MADE).map(drop)
    }

    /// Many queue marks at once, on an open victim.
    pub(in crate::cases) fn burst(&mut self, room: &str, marks: u64) -> Result<()> {
        let room = self.expect_victim(room);
        self.prefill.tell(&json!({"do": "burst", "room": room, "marks": marks}))?;
        self.await_event("prefill", "burst", MADE).map(drop)
    }

    /// The client gives a room up: from here on it may end.
    pub(in crate::cases) fn abort(&mut self, room: &str) -> Result<()> {
        if let Some(stay) = self.record.victims.get_mut(room) {
            stay.released = Some(Moment::now());
        }
        let room = self.expect_victim(room);
        self.prefill.tell(&json!({"do": "abort", "room": room}))
    }

    /// One long forward pass of the prefill's scheduler begins.
    pub(in crate::cases) fn forward(&mut self, seconds: f64) -> Result<()> {
        self.prefill.tell(&json!({"do": "forward", "seconds": seconds}))?;
        self.await_event("prefill", "forward", ANSWER).map(drop)
    }

    /// Send the agent a signal.
    pub(in crate::cases) fn signal_agent(&self, signal: Signal) -> Result<()> {
        let Some(agent) = &self.agent else { bail!("steps: no agent runs") };
        agent.signal(signal)
    }
}
