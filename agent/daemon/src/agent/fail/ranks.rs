//! The ranks that decide together about a room.

use inflightd_abi::table::{COMMANDS_VERSION, Gauge, Ranks};
use inflightd_core::fact::{Room, Seq, Worker};

use super::super::Agent;
use super::Rank;
use crate::fail::{Order, Refusal};
use crate::names::About;
use crate::table::Mapped;
use crate::worker::Watched;

impl Agent {
    /// The stay that is asked for. Of an engine's ranks, any.
    pub(super) fn stay_of(&self, order: Order) -> Result<(Worker, Seq), Refusal> {
        let stays = self.stays(order.room);
        let asked: Vec<&(&Watched, Seq)> = stays
            .iter()
            .filter(|(watched, _)| order.pid.is_none_or(|pid| pid == watched.pid))
            .collect();
        let (first, seq) = asked.first().ok_or(Refusal::NoSuchRoom)?;
        let is_same = |other: &Watched| self.are_of_one(first.number, other.number);
        if asked.iter().any(|(other, _)| !is_same(other)) {
            return Err(Refusal::Ambiguous(asked.iter().map(|(watched, _)| watched.pid).collect()));
        }
        // Of the ranks the one that is accused: the others only wait for it.
        let accused = asked.iter().find(|(watched, seq)| {
            let room = self.room(watched.number, *seq);
            room.and_then(|room| room.standing).is_some_and(|standing| standing.is_alert())
        });
        Ok(accused.map_or((first.number, *seq), |(watched, seq)| (watched.number, *seq)))
    }

    /// Who has a room in its queue of those to be sent.
    fn stays(&self, room: u64) -> Vec<(&Watched, Seq)> {
        let hooked = self.workers.values().filter(|watched| watched.hooked);
        let stays = hooked.filter_map(|watched| {
            let view = self.ledger.view(watched.number)?;
            let stay =
                view.rooms().find(|seen| seen.room == Room(room) && seen.judged && !seen.left)?;
            Some((watched, stay.seq))
        });
        stays.collect()
    }

    fn about(&self, worker: Worker) -> Option<&About> {
        self.names.worker(worker).map(|name| &name.about)
    }

    /// Whether two workers are ranks of one group: the same room at different places of one engine.
    fn are_of_one(&self, one: Worker, other: Worker) -> bool {
        let (Some(one), Some(other)) = (self.about(one), self.about(other)) else {
            return false;
        };
        let sizes = |ranks: Ranks| (ranks.tp.1, ranks.cp.1, ranks.dp);
        (&one.role, &one.engine, &one.version, sizes(one.ranks))
            == (&other.role, &other.engine, &other.version, sizes(other.ranks))
    }

    /// All ranks that decide about the room with this one, itself among them.
    pub(super) fn ranks_of(&self, worker: Worker, room: u64) -> Result<Vec<Rank>, Refusal> {
        let about = self.about(worker).ok_or(Refusal::NoSuchRoom)?;
        let pid = self.workers.get(&worker).map_or(0, |watched| watched.pid);
        let (tp, cp) = (about.ranks.tp.1.max(1), about.ranks.cp.1.max(1));
        if about.ranks.pp.1 > 1 {
            return Err(Refusal::Pipeline(pid, about.ranks.pp.1));
        }
        let need = usize::try_from(u64::from(tp) * u64::from(cp)).unwrap_or(usize::MAX);
        let stays = self.stays(room);
        let group: Vec<&(&Watched, Seq)> =
            stays.iter().filter(|(other, _)| self.are_of_one(worker, other.number)).collect();
        let mut places: Vec<(u32, u32)> = group
            .iter()
            .filter_map(|(other, _)| self.about(other.number))
            .map(|about| (about.ranks.tp.0, about.ranks.cp.0))
            .collect();
        places.sort_unstable();
        places.dedup();
        let nodes = |watched: &Watched| watched.table().map_or(1, |table| table.header().nnodes);
        if let Some((other, _)) = group.iter().find(|(watched, _)| nodes(watched) > 1) {
            return Err(Refusal::OtherNodes(other.pid, nodes(other)));
        }
        if (places.len(), group.len()) != (need, need) {
            return Err(Refusal::RanksMissing { have: places.len(), need });
        }
        group.into_iter().map(|(watched, seq)| rank(watched, *seq)).collect()
    }
}

/// A rank with its table opened so that it can be asked.
fn rank(watched: &Watched, seq: Seq) -> Result<Rank, Refusal> {
    let pid = watched.pid;
    let carries_out = watched.table().and_then(|table| table.gauge(Gauge::Commands));
    if carries_out != Some(COMMANDS_VERSION) {
        return Err(Refusal::NoCommands(pid));
    }
    let not_writable = |why: String| Refusal::NotWritable(pid, why);
    // Not looked for in its mappings again: to read those takes its lock, and a policy asks often.
    let map = watched.map.as_ref().filter(|_| watched.is_alive());
    let map = map.ok_or_else(|| not_writable("the process has ended".to_owned()))?;
    let table = Mapped::open_writable(pid, map);
    Ok(Rank {
        worker: watched.number,
        seq,
        pid,
        index: watched.index,
        table: table.map_err(|why| not_writable(crate::error::chain(&why)))?,
        held: false,
        proof: None,
        carried_out: false,
        outcome: None,
    })
}
