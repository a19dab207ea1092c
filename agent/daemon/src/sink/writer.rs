//! From what the ledger says to lines.

use inflightd_core::fact::{Outcome, Peer, Seq, Worker};
use inflightd_core::verdict::{Appended, Bytes, Clear, Dwell, Tier, Verdict};
use inflightd_core::{Coverage, Evidence, EvidenceId, Nanos, Output, Sight, Source};

use super::line::{
    BytesField, CoverageField, EvidenceField, Line, PeerField, RanksField, RuledOut, WorkerField,
};
use super::room::RoomId;
use super::words;
use crate::clock::Clock;
use crate::names::Names;

/// Turns outputs into lines.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// What numbers stand for.
    pub names: &'a Names,
    /// Monotonic to wall.
    pub clock: Clock,
}

impl Writer<'_> {
    /// The line of an output.
    pub fn line(&self, output: &Output) -> Line {
        match output {
            Output::Append(append) => self.append(append),
            Output::Verdict(verdict) => self.verdict(verdict),
            Output::Clear(clear) => self.clear(clear),
            Output::Dwell(dwell) => self.dwell(dwell),
            Output::Coverage(at, worker, coverage) => Line {
                time: self.clock.wall(*at).to_string(),
                kind: "coverage",
                worker: self.worker(*worker),
                coverage: Some(fields(coverage)),
                ..Line::default()
            },
            Output::Loss(at, worker, source, lost) => Line {
                time: self.clock.wall(*at).to_string(),
                kind: "loss",
                worker: self.worker(*worker),
                source: Some(source.name()),
                lost: Some(*lost),
                ..Line::default()
            },
        }
    }

    /// The line that sums up those left out of a worker.
    pub fn suppressed(&self, worker: Worker, lines: u64, since: Nanos, now: Nanos) -> Line {
        Line {
            time: self.clock.wall(now).to_string(),
            kind: "suppressed",
            worker: self.worker(worker),
            lines: Some(lines),
            since: Some(self.clock.wall(since).to_string()),
            ..Line::default()
        }
    }

    fn append(&self, append: &Appended) -> Line {
        Line {
            time: self.clock.wall(append.at).to_string(),
            kind: "append",
            id: self.room_id(append.worker, append.seq),
            room: Some(RoomId(append.room.0)),
            late: Some(append.late),
            tier: Some(append.tier.name()),
            peers: Some(self.peers(append.worker, &append.peers)),
            bytes: Some(BytesField::from(Bytes { expected: append.expected, ..Bytes::default() })),
            ..self.of(append.worker, append.seq)
        }
    }

    fn verdict(&self, verdict: &Verdict) -> Line {
        let id = self
            .names
            .worker(verdict.worker)
            .map(|name| name.identity.verdict_id(verdict.seq, verdict.finding, verdict.cause));
        let ruled_out = verdict.ruled_out.iter().map(|(cause, because)| RuledOut {
            cause: cause.name(),
            because: self.evidence(verdict.worker, because),
        });
        let is_head = verdict.behind_count > 0;
        let of_a_room = verdict.tier != Tier::Node;
        Line {
            time: self.clock.wall(verdict.at).to_string(),
            kind: "verdict",
            id,
            severity: Some(if verdict.is_alert() { "alert" } else { "info" }),
            room: of_a_room.then_some(RoomId(verdict.room.0)),
            seq: of_a_room.then_some(verdict.seq.0),
            finding: Some(verdict.finding.name()),
            cause: Some(Some(verdict.cause.name())),
            confidence: Some(f64::from(verdict.confidence) / 100.0),
            tier: Some(verdict.tier.name()),
            incident: self.room_id(verdict.worker, verdict.incident()),
            behind: is_head.then(|| verdict.behind.iter().map(|room| RoomId(room.0)).collect()),
            behind_count: is_head.then_some(verdict.behind_count),
            dwell_s: Some(verdict.dwell.secs_f64()),
            bytes: Some(verdict.bytes.into()),
            since_progress_s: Some(verdict.since_progress.secs_f64()),
            peers: Some(self.peers(verdict.worker, &verdict.peers)),
            evidence: Some(
                verdict.evidence.iter().map(|e| self.evidence(verdict.worker, e)).collect(),
            ),
            ruled_out: Some(ruled_out.collect()),
            coverage: Some(fields(&verdict.coverage)),
            ..self.of(verdict.worker, verdict.seq)
        }
    }

    fn clear(&self, clear: &Clear) -> Line {
        let of_a_room = clear.seq != Seq::NODE;
        let id = self
            .names
            .worker(clear.worker)
            .map(|name| name.identity.verdict_id(clear.seq, clear.finding, clear.cause));
        Line {
            time: self.clock.wall(clear.at).to_string(),
            kind: "clear",
            id,
            room: of_a_room.then_some(RoomId(clear.room.0)),
            seq: of_a_room.then_some(clear.seq.0),
            finding: Some(clear.finding.name()),
            cause: Some(Some(clear.cause.name())),
            why: Some(clear.why.name()),
            ..self.of(clear.worker, clear.seq)
        }
    }

    fn dwell(&self, dwell: &Dwell) -> Line {
        Line {
            time: self.clock.wall(dwell.at).to_string(),
            kind: "dwell",
            id: self.room_id(dwell.worker, dwell.seq),
            room: Some(RoomId(dwell.room.0)),
            tier: Some(dwell.tier.name()),
            outcome: Some(outcome(dwell.outcome)),
            cause: Some(dwell.cause.map(inflightd_core::Cause::name)),
            stalled: Some(dwell.stalled),
            dwell_s: Some(dwell.dwell.secs_f64()),
            bytes: Some(dwell.bytes.into()),
            peers: Some(self.peers(dwell.worker, &dwell.peers)),
            evidence: Some(dwell.evidence.iter().map(|e| self.evidence(dwell.worker, e)).collect()),
            ..self.of(dwell.worker, dwell.seq)
        }
    }

    /// What every line about a room says.
    pub fn of(&self, worker: Worker, seq: Seq) -> Line {
        Line {
            seq: Some(seq.0),
            rid: self
                .names
                .room(worker, seq)
                .map(|room| room.rid.clone())
                .filter(|rid| !rid.is_empty()),
            worker: self.worker(worker),
            ..Line::default()
        }
    }

    fn room_id(&self, worker: Worker, seq: Seq) -> Option<String> {
        Some(self.names.worker(worker)?.identity.room_id(seq))
    }

    fn worker(&self, worker: Worker) -> Option<WorkerField> {
        let name = self.names.worker(worker)?;
        Some(WorkerField {
            pid: name.identity.pid,
            index: name.identity.index,
            engine: name.about.engine.clone(),
            version: name.about.version.clone(),
            role: name.about.role.clone(),
            ranks: RanksField::of(name.about.ranks),
        })
    }

    /// A worker's peers by name.
    pub fn peers(&self, of: Worker, peers: &[Peer]) -> Vec<PeerField> {
        peers.iter().filter_map(|peer| self.peer(of, *peer)).collect()
    }

    fn peer(&self, of: Worker, peer: Peer) -> Option<PeerField> {
        let name = self.names.peer_name(peer)?;
        Some(PeerField {
            kind: name.kind.clone(),
            value: name.value.clone(),
            pid: self.names.pid_of(of, name),
        })
    }

    fn has_successor(&self, of: Worker, peer: Option<Peer>) -> bool {
        let name = peer.and_then(|peer| self.names.peer_name(peer));
        name.is_some_and(|name| self.names.is_taken(of, name))
    }

    fn evidence(&self, of: Worker, evidence: &Evidence) -> EvidenceField {
        let mut peer = evidence.peer.and_then(|peer| self.peer(of, peer));
        if evidence.id == EvidenceId::PeerGone && self.has_successor(of, evidence.peer) {
            // The process that has ended is not the one that goes by its name now.
            peer = peer.map(|peer| PeerField { pid: None, ..peer });
        }
        let worker = evidence.worker.and_then(|worker| self.worker(worker));
        let about = words::About { peer: peer.as_ref(), worker: worker.as_ref() };
        EvidenceField {
            id: evidence.id.name(),
            text: words::evidence(evidence, about, self.clock),
            at: evidence.at.map(|at| self.clock.wall(at).to_string()),
            since: evidence.since.map(|since| self.clock.wall(since).to_string()),
            amount: evidence.amount,
            code: evidence.code,
            peer,
            tid: evidence.tid.map(|tid| tid.0),
            handle: evidence.handle.map(|handle| format!("{:#x}", handle.0)),
            worker,
        }
    }
}

fn fields(coverage: &Coverage) -> Vec<CoverageField> {
    sights(coverage.each().map(|(source, sight, _)| (source, sight)))
}

/// How well each source sees.
pub fn sights(each: impl Iterator<Item = (Source, Sight)>) -> Vec<CoverageField> {
    each.map(|(source, sight)| {
        let (sight, why) = match sight {
            Sight::Visible => ("visible", None),
            Sight::Degraded(reason) => ("degraded", Some(reason.name())),
            Sight::Blind(reason) => ("blind", Some(reason.name())),
        };
        CoverageField { source: source.name(), sight, why }
    })
    .collect()
}

/// The word for an outcome.
pub const fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Unknown => "unknown",
        Outcome::Success => "success",
        Outcome::Failed => "failed",
        Outcome::Aborted => "aborted",
        Outcome::Requeued => "requeued",
        Outcome::Superseded => "superseded",
    }
}
