//! The agent's lines, as far as they are judged.

use serde::Deserialize;

use crate::clock::Moment;

/// A line of the agent and when it was read.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) at: Moment,
    pub(crate) line: Line,
}

/// The fields of an agent's line that are judged.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Line {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) id: Option<String>,
    #[serde(deserialize_with = "crate::room::maybe")]
    pub(crate) room: Option<u64>,
    pub(crate) seq: Option<u64>,
    pub(crate) worker: Option<Worker>,
    pub(crate) finding: Option<String>,
    pub(crate) cause: Option<String>,
    pub(crate) severity: Option<String>,
    pub(crate) tier: Option<String>,
    /// The incident that a verdict belongs to: the id of its head's stay.
    pub(crate) incident: Option<String>,
    /// Rooms that wait behind the one that the verdict is about.
    #[serde(deserialize_with = "crate::room::list")]
    pub(crate) behind: Vec<u64>,
    pub(crate) behind_count: Option<u64>,
    pub(crate) outcome: Option<String>,
    pub(crate) why: Option<String>,
    pub(crate) late: Option<bool>,
    /// Whether the agent says that its predecessor may have told it already.
    pub(crate) maybe_repeated: bool,
    pub(crate) dwell_s: Option<f64>,
    pub(crate) evidence: Vec<Evidence>,
    pub(crate) ruled_out: Vec<RuledOut>,
    pub(crate) coverage: Vec<Sight>,
}

/// Whose room a line speaks of.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Worker {
    pub(crate) pid: u32,
}

/// A piece of evidence of a line.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Evidence {
    pub(crate) id: String,
    /// The other worker on this node that it is about.
    pub(crate) worker: Option<Worker>,
}

/// A cause that a line rules out.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RuledOut {
    pub(crate) because: Evidence,
}

/// What a line says of one source.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Sight {
    pub(crate) source: String,
    #[serde(rename = "sight")]
    pub(crate) how: String,
    pub(crate) why: Option<String>,
}

impl Line {
    /// Whether it says that its worker is covered as far as it will be: nothing is still to be
    /// attached. Whose table cannot be read has no known peers, so their meters are never read.
    pub(crate) fn is_covered(&self) -> bool {
        let of_peers = |sight: &Sight| matches!(sight.source.as_str(), "connections" | "peers");
        let blind = |sight: &Sight| sight.source == "table" && sight.how == "blind";
        let no_table = self.coverage.iter().any(blind);
        let pending = |sight: &Sight| {
            sight.why.as_deref() == Some("not_attached") && !(no_table && of_peers(sight))
        };
        self.kind == "coverage" && !self.coverage.iter().any(pending)
    }

    /// Whether this is an alarm: a verdict that is more than information.
    pub(crate) fn is_alert(&self) -> bool {
        self.kind == "verdict" && self.severity.as_deref() != Some("info")
    }

    /// Whether this is a verdict that alarms nobody.
    pub(crate) fn is_info(&self) -> bool {
        self.kind == "verdict" && !self.is_alert()
    }

    /// `finding / cause`.
    pub(crate) fn says(&self) -> String {
        let word = |word: &Option<String>| word.clone().unwrap_or_else(|| "none".to_owned());
        format!("{} / {}", word(&self.finding), word(&self.cause))
    }

    /// The line as a person would say it.
    pub(crate) fn sentence(&self) -> String {
        let room = self.room.unwrap_or(0);
        let dwell = self.dwell_s.unwrap_or(0.0);
        if self.kind == "clear" {
            return format!("room {room}: cleared, {}", self.why.as_deref().unwrap_or("no reason"));
        }
        let evidence: Vec<&str> = self.evidence.iter().map(|piece| piece.id.as_str()).collect();
        let (says, evidence) = (self.says(), evidence.join(", "));
        format!("room {room}: {says} after {dwell:.1} s in the queue ({evidence})")
    }

    /// Whether it states that piece of evidence, for its cause or against another.
    pub(crate) fn states(&self, id: &str) -> bool {
        let against = self.ruled_out.iter().map(|ruled_out| &ruled_out.because);
        self.evidence.iter().chain(against).any(|piece| piece.id == id)
    }
}
