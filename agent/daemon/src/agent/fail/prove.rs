//! Whether anything of a held room is under way on any of its ranks.

use std::io;

use inflightd_abi::table::{COMMANDS_VERSION, Gauge};
use inflightd_core::Nanos;
use inflightd_core::fact::Phase;

use super::super::Agent;
use super::Rank;
use crate::clock::Clock;
use crate::fail::Refusal;

impl Agent {
    /// Reads all that there is to read of the ranks' workers. Since when it is that new, and whether
    /// more came than could be read.
    pub(super) fn look_again(&mut self, ranks: &[Rank]) -> io::Result<(Nanos, bool)> {
        let begun = Clock::now();
        for rank in ranks {
            self.scan(rank.worker, begun, true);
        }
        let behind = self.take_records(begun);
        self.pump(begun)?;
        Ok((begun, behind))
    }

    /// Proves for every rank that nothing of the room is under way there.
    pub(super) fn prove(
        &self,
        ranks: &mut [Rank],
        read_since: Nanos,
        behind: bool,
    ) -> Result<(), Refusal> {
        if behind {
            return Err(Refusal::Behind);
        }
        for rank in ranks.iter() {
            looks_idle(rank)?;
        }
        for rank in ranks.iter_mut() {
            let proof = self.ledger.drained(rank.worker, rank.seq, read_since);
            rank.proof = Some(proof.map_err(|why| Refusal::Undrained { pid: rank.pid, why })?);
        }
        let done = ranks.iter().all(|rank| {
            let room = self.room(rank.worker, rank.seq);
            room.is_some_and(|room| room.phase == Phase::DoneHere)
        });
        if done { Err(Refusal::Done) } else { Ok(()) }
    }
}

/// Whether no thread of a rank works for the room, by its table. Under a hold that stays so.
fn looks_idle(rank: &Rank) -> Result<(), Refusal> {
    let pid = rank.pid;
    let table = rank.table.table().map_err(|why| Refusal::NotWritable(pid, why.to_string()))?;
    if table.gauge(Gauge::Commands) != Some(COMMANDS_VERSION) {
        return Err(Refusal::NoCommands(pid));
    }
    match rank.active() {
        0 => {}
        threads => return Err(Refusal::AtWork { pid, threads }),
    }
    if table.counters().threads_overflow > 0 {
        return Err(Refusal::HiddenThreads(pid));
    }
    let threads = 0..table.geometry().threads;
    let early = threads
        .filter_map(|slot| table.serving(slot))
        .find(|serving| serving.early.is_some() && serving.seq.is_none());
    early.map_or(Ok(()), |serving| Err(Refusal::EarlyWork(pid, serving.tid)))
}
