//! The contract with whoever reads the agent's output: one line per event.
//!
//! Core types do not serialise; this is the wire form, and its field names are promises.

use inflightd_abi::table::Ranks;
use inflightd_core::verdict::Bytes;
use serde::Serialize;

use super::room::RoomId;
use crate::fail::FailView;

/// One event. Fields that do not belong to its type are left out.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Line {
    /// RFC 3339, UTC, nanoseconds.
    pub time: String,
    /// `append`, `verdict`, `clear`, `dwell`, `coverage`, `loss`, `suppressed` or `fail`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Stable across restarts of the agent: the same event has the same id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// An earlier life of the agent may have written this very line: it died before it could note
    /// that it had, or the room is open still and is told anew.
    #[serde(skip_serializing_if = "is_false")]
    pub maybe_repeated: bool,
    /// `alert` or `info`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub severity: Option<&'static str>,
    /// The engine's id of the request's transfer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub room: Option<RoomId>,
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
    /// Why; of a dwell why it failed, `null` where it did not: why it stalled is in its verdicts.
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
    /// What identity it rests on: `room`, `transfer` or `node`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<&'static str>,
    /// The trouble that the verdict belongs to: the `id` of the stay that is at its head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incident: Option<String>,
    /// Of a head: rooms that are known to wait behind it, oldest first; at most 32.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<Vec<RoomId>>,
    /// Of a head: how many wait behind it in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind_count: Option<u64>,
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
    /// How many lines about healthy rooms were left out; since when is `since`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines: Option<u64>,
    /// When that began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Of a room that was to be failed: the decision, and what it rests on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fail: Option<FailView>,
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
    /// The dimensions that are stated.
    pub const fn of(ranks: Ranks) -> Self {
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
    /// What the engine expects to move in all; 0 where it does not say, which is not nothing.
    pub expected: u64,
    /// What transfer calls were given so far; 0 where none was, or none is seen.
    pub posted: u64,
    /// What has arrived, as far as can be told: beside the evidence `bytes_unseen` at least this, often
    /// 0. It may be more than both where the engine states too little.
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
    /// When that was first seen, where it lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
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
    /// The transfer that it is about: the library's handle, an address in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handle: Option<String>,
    /// The other worker on this node that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerField>,
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
