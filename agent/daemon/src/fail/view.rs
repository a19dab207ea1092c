//! What is told of a room that was to be failed: the record of each decision.

use inflightd_core::drain::Drained;
use serde::Serialize;

use super::Refusal;

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Nothing was done.
    Refused,
    /// Nothing was done, for nothing was to be: it would have been failed.
    WouldFail,
    /// All ranks were asked to fail it. What became of that follows.
    Committed,
    /// It has left the queues of all ranks as failed.
    Failed,
    /// No rank has carried it out in time: the room goes on as if nothing had been asked.
    NotCarriedOut,
    /// It has left the queues otherwise: the engine was faster.
    Ended,
    /// Some ranks have carried it out, and it has not left the queues of all.
    Unconfirmed,
}

/// What is told beside the room and its verdict.
#[derive(Clone, Debug, Serialize)]
pub struct FailView {
    /// What became of it.
    pub decision: Decision,
    /// Who wanted it: `hand`, or the agent's `policy`.
    pub by: &'static str,
    /// Why nothing was done.
    pub refused: Option<RefusedView>,
    /// Whether its far ends may be told: not where they may be written to still.
    pub peers_told: bool,
    /// The ranks that decide about it, as far as they were found.
    pub ranks: Vec<RankView>,
}

/// Why nothing was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedView {
    /// A word for it.
    pub code: &'static str,
    /// Why.
    pub why: String,
    /// What helps instead.
    pub remedy: String,
}

impl RefusedView {
    /// What is told of a refusal.
    pub fn of(refusal: &Refusal) -> Self {
        Self { code: refusal.name(), why: refusal.to_string(), remedy: refusal.remedy() }
    }
}

/// One rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RankView {
    /// Process id in the host's namespace.
    pub pid: u32,
    /// Index of the worker inside its process.
    pub index: u64,
    /// Append sequence of its stay there.
    pub seq: u64,
    /// What proves that nothing of it is under way there: `never_posted` or `arrived`.
    pub proof: Option<&'static str>,
    /// Transfers that have arrived.
    pub transfers: Option<u64>,
    /// Whether the rank has taken the fail.
    pub carried_out: bool,
    /// How the room left its queue.
    pub outcome: Option<&'static str>,
}

impl RankView {
    /// With what proves it.
    #[must_use]
    pub fn proven(mut self, proof: Option<Drained>) -> Self {
        (self.proof, self.transfers) = match proof {
            Some(Drained::NeverPosted) => (Some("never_posted"), Some(0)),
            Some(Drained::Arrived(transfers)) => (Some("arrived"), Some(transfers)),
            None => (None, None),
        };
        self
    }
}
