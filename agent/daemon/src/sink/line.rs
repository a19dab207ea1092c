//! The contract with whoever reads the agent's output: one line per event.
//!
//! Core types do not serialise; this is the wire form, and its field names are promises.

use inflightd_abi::table::Ranks;
use inflightd_core::fact::{Outcome, Peer, Seq, Worker};
use inflightd_core::verdict::{Appended, Bytes, Clear, Dwell, Verdict};
use inflightd_core::{Coverage, Evidence, Output, Sight};
use serde::Serialize;

use super::words;
use crate::clock::Clock;
use crate::names::Names;

/// One event. Fields that do not belong to its type are left out.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Line {
    /// RFC 3339, UTC, nanoseconds.
    pub time: String,
    /// `append`, `verdict`, `clear`, `dwell`, `coverage` or `loss`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Stable across restarts of the agent: the same event has the same id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// An earlier life of the agent may have written this very line, and died before it could
    /// note that it had.
    #[serde(skip_serializing_if = "is_false")]
    pub maybe_repeated: bool,
    /// `alert` or `info`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub severity: Option<&'static str>,
    /// The engine's id of the request's transfer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub room: Option<u64>,
    /// Append sequence: with the worker, the identity of the stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// Request id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rid: Option<String>,
    /// Whose queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerField>,
    /// The room was open already when the agent came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late: Option<bool>,
    /// What is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finding: Option<&'static str>,
    /// Why; `null` where a dwell has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Option<&'static str>>,
    /// Why a verdict was cleared: `progress`, `ended` or `changed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<&'static str>,
    /// How the room left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<&'static str>,
    /// Whether a stall was told of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stalled: Option<bool>,
    /// How sure, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// What identity the verdict rests on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<&'static str>,
    /// Seconds in the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dwell_s: Option<f64>,
    /// Bytes of the room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<BytesField>,
    /// Seconds since a payload byte last moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_progress_s: Option<f64>,
    /// The far ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peers: Option<Vec<PeerField>>,
    /// What speaks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Vec<EvidenceField>>,
    /// Causes that were considered, and what speaks against them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ruled_out: Option<Vec<RuledOut>>,
    /// What is seen of the worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coverage: Option<Vec<CoverageField>>,
    /// Which source lost events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<&'static str>,
    /// How many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// A worker.
#[derive(Clone, Debug, Serialize)]
pub struct WorkerField {
    /// Process id in the host's namespace.
    pub pid: u32,
    /// Index of the worker inside its process.
    pub index: u64,
    /// Engine name.
    pub engine: String,
    /// Engine version.
    pub version: String,
    /// `prefill` or `decode`.
    pub role: String,
    /// Position in each parallel dimension.
    pub ranks: RanksField,
}

/// `[index, size]` in each parallel dimension that the worker states.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RanksField {
    /// Data parallel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dp: Option<(u32, u32)>,
    /// Pipeline parallel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pp: Option<(u32, u32)>,
    /// Tensor parallel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tp: Option<(u32, u32)>,
    /// Context parallel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cp: Option<(u32, u32)>,
}

impl RanksField {
    const fn of(ranks: Ranks) -> Self {
        const fn stated(rank: (u32, u32)) -> Option<(u32, u32)> {
            if rank.1 == 0 { None } else { Some(rank) }
        }
        Self {
            dp: stated(ranks.dp),
            pp: stated(ranks.pp),
            tp: stated(ranks.tp),
            cp: stated(ranks.cp),
        }
    }
}

/// Bytes of a room.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BytesField {
    /// What the engine expects; 0 when it does not say.
    pub expected: u64,
    /// What transfer calls were given.
    pub posted: u64,
    /// What has arrived, as far as can be told.
    pub completed: u64,
}

impl From<Bytes> for BytesField {
    fn from(bytes: Bytes) -> Self {
        Self { expected: bytes.expected, posted: bytes.posted, completed: bytes.completed }
    }
}

/// A far end.
#[derive(Clone, Debug, Serialize)]
pub struct PeerField {
    /// What the value is.
    pub kind: String,
    /// The name.
    pub value: String,
    /// Its process, where it is a worker on this node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

/// A piece of evidence.
#[derive(Clone, Debug, Serialize)]
pub struct EvidenceField {
    /// What it says.
    pub id: &'static str,
    /// The same in words.
    pub text: String,
    /// The moment that it speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// An amount: bytes or a count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amount: Option<u64>,
    /// A status of the transfer library.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// The peer that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<PeerField>,
    /// The thread that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tid: Option<u32>,
}

/// A cause that was considered.
#[derive(Clone, Debug, Serialize)]
pub struct RuledOut {
    /// Which.
    pub cause: &'static str,
    /// What speaks against it.
    pub because: EvidenceField,
}

/// How well a source sees a worker.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CoverageField {
    /// Which source.
    pub source: &'static str,
    /// `visible`, `degraded` or `blind`.
    pub sight: &'static str,
    /// Why it is not visible.
    pub why: Option<&'static str>,
}

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

    fn append(&self, append: &Appended) -> Line {
        Line {
            time: self.clock.wall(append.at).to_string(),
            kind: "append",
            id: self.room_id(append.worker, append.seq),
            room: Some(append.room.0),
            late: Some(append.late),
            peers: Some(self.peers(&append.peers)),
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
            because: self.evidence(because),
        });
        Line {
            time: self.clock.wall(verdict.at).to_string(),
            kind: "verdict",
            id,
            severity: Some(if verdict.is_alert() { "alert" } else { "info" }),
            room: Some(verdict.room.0),
            finding: Some(verdict.finding.name()),
            cause: Some(Some(verdict.cause.name())),
            confidence: Some(f64::from(verdict.confidence) / 100.0),
            tier: Some(verdict.tier.name()),
            dwell_s: Some(verdict.dwell.secs_f64()),
            bytes: Some(verdict.bytes.into()),
            since_progress_s: Some(verdict.since_progress.secs_f64()),
            peers: Some(self.peers(&verdict.peers)),
            evidence: Some(verdict.evidence.iter().map(|e| self.evidence(e)).collect()),
            ruled_out: Some(ruled_out.collect()),
            coverage: Some(fields(&verdict.coverage)),
            ..self.of(verdict.worker, verdict.seq)
        }
    }

    fn clear(&self, clear: &Clear) -> Line {
        let id = self
            .names
            .worker(clear.worker)
            .map(|name| name.identity.verdict_id(clear.seq, clear.finding, clear.cause));
        Line {
            time: self.clock.wall(clear.at).to_string(),
            kind: "clear",
            id,
            room: Some(clear.room.0),
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
            room: Some(dwell.room.0),
            outcome: Some(outcome(dwell.outcome)),
            cause: Some(dwell.cause.map(inflightd_core::Cause::name)),
            stalled: Some(dwell.stalled),
            dwell_s: Some(dwell.dwell.secs_f64()),
            bytes: Some(dwell.bytes.into()),
            peers: Some(self.peers(&dwell.peers)),
            evidence: Some(dwell.evidence.iter().map(|e| self.evidence(e)).collect()),
            ..self.of(dwell.worker, dwell.seq)
        }
    }

    /// What every line about a room says.
    fn of(&self, worker: Worker, seq: Seq) -> Line {
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

    fn peers(&self, peers: &[Peer]) -> Vec<PeerField> {
        peers.iter().filter_map(|peer| self.peer(*peer)).collect()
    }

    fn peer(&self, peer: Peer) -> Option<PeerField> {
        let name = self.names.peer_name(peer)?;
        Some(PeerField {
            kind: name.kind.clone(),
            value: name.value.clone(),
            pid: self.names.pid_of(name),
        })
    }

    fn evidence(&self, evidence: &Evidence) -> EvidenceField {
        let peer = evidence.peer.and_then(|peer| self.peer(peer));
        EvidenceField {
            id: evidence.id.name(),
            text: words::evidence(evidence, peer.as_ref(), self.clock),
            at: evidence.at.map(|at| self.clock.wall(at).to_string()),
            amount: evidence.amount,
            code: evidence.code,
            peer,
            tid: evidence.tid.map(|tid| tid.0),
        }
    }
}

fn fields(coverage: &Coverage) -> Vec<CoverageField> {
    coverage
        .each()
        .map(|(source, sight, _)| {
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
pub(super) const fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Unknown => "unknown",
        Outcome::Success => "success",
        Outcome::Failed => "failed",
        Outcome::Aborted => "aborted",
        Outcome::Requeued => "requeued",
        Outcome::Superseded => "superseded",
    }
}
