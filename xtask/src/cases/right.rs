//! What is right to say about a room.

use serde::Deserialize;

/// What is right to say about one room, or about several alike.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Right {
    /// The room.
    pub(super) room: String,
    /// The alert; none when the room must not be alarmed.
    pub(super) alert: Option<Alert>,
    /// What must be said without alarm, and nothing else may be.
    pub(super) info: Option<Alert>,
    /// The findings that may be given without alarm, where not all may.
    pub(super) may: Option<Vec<String>>,
    /// The room whose incident this one belongs to; the room itself where it is the head.
    pub(super) incident: Option<String>,
    /// Rooms that the verdict must name as waiting behind this one, all of them and no other.
    pub(super) behind: Option<String>,
    /// Why the alert must be taken back, where it must.
    pub(super) clear: Option<String>,
    /// How the room must be reported to have ended, where it ends.
    pub(super) dwell: Option<Dwell>,
    /// Whether the agent must say that it came after the append.
    #[serde(default)]
    pub(super) late: bool,
}

impl Right {
    /// What must be said, with alarm or without.
    pub(super) fn expected(&self) -> Option<&Alert> {
        self.alert.as_ref().or(self.info.as_ref())
    }
}

/// A right alert.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Alert {
    /// The finding's word.
    pub(super) finding: String,
    /// The cause's word.
    pub(super) cause: String,
    /// Ids of evidence that must be stated.
    #[serde(default)]
    pub(super) states: Vec<String>,
    /// What identity it must rest on, where that matters.
    pub(super) tier: Option<String>,
    /// No sooner than so many seconds after the injection.
    #[serde(default)]
    pub(super) earliest_s: f64,
    /// At most so many seconds after the injection, or after the agent came where it is late.
    pub(super) within_s: f64,
}

impl Alert {
    /// Whether it is about what a thread does with a room that has left the queue.
    pub(super) fn is_of_a_left_room(&self) -> bool {
        self.cause == "worker_thread_captive"
    }

    /// `finding / cause`.
    pub(super) fn says(&self) -> String {
        format!("{} / {}", self.finding, self.cause)
    }
}

/// A right ending.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Dwell {
    /// The outcome's word.
    pub(super) outcome: String,
    /// The cause's word, where one is due.
    pub(super) cause: Option<String>,
    /// No more seconds in the queue than this.
    pub(super) at_most_s: Option<f64>,
}
