//! The steps of a case, in order.

use serde::Deserialize;

/// A server that a step can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Who {
    /// The prefill, whose rooms are judged.
    Prefill,
    /// The decode that faults hit.
    Sick,
    /// The decode that is healthy throughout.
    Well,
}

impl Who {
    /// Its name to the launcher.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Sick => "sick",
            Self::Well => "well",
        }
    }

    /// The role that it is started in.
    pub(super) const fn role(self) -> &'static str {
        if matches!(self, Self::Prefill) { "prefill" } else { "decode" }
    }
}

/// A signal that a step can send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Hit {
    /// SIGSTOP to the scheduler: its HTTP server goes on.
    Stop,
    /// SIGKILL to all its processes.
    Kill,
}

impl Hit {
    /// The signal's name and whether all processes get it.
    pub(super) const fn signal(self) -> (&'static str, bool) {
        match self {
            Self::Stop => ("SIGSTOP", false),
            Self::Kill => ("SIGKILL", true),
        }
    }
}

/// One step of a case.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Step {
    /// A client's request, to both sides unless only one is named.
    Request {
        room: String,
        to: Who,
        prompt: u32,
        only: Option<Who>,
        /// Tokens of the answer.
        #[serde(default = "few")]
        new: u32,
    },
    /// Healthy requests.
    Load(Load),
    /// The moment the prefill's room comes to be in that state, the server is hit; so are, as far
    /// as the judge goes, all rooms that are named and sent.
    When {
        room: String,
        state: String,
        who: Who,
        hit: Hit,
        /// Whose state is meant, and who is hit: of servers with several ranks.
        #[serde(default)]
        rank: usize,
    },
    /// Wait until that has happened.
    Hit { room: String, within_s: f64 },
    /// SIGSTOP to the scheduler.
    Stop { who: Who },
    /// SIGCONT to the scheduler.
    Continue {
        who: Who,
        /// Which one, of a server with several ranks.
        #[serde(default)]
        rank: usize,
    },
    /// Kill a server and wait for its end.
    Kill { who: Who },
    /// Start a server that was killed, on its old ports; wait until it answers.
    Start { who: Who },
    /// The client gives the room up on one side only.
    Abort { room: String, who: Who },
    /// `inflightd fail`, by hand: what it has to say, and the word of its refusal.
    Fail { room: String, decision: String, refused: Option<String> },
    /// An HTTP call to a server, which must answer with 200.
    Ask {
        who: Who,
        path: String,
        #[serde(default)]
        body: toml::Table,
    },
    /// So many GET requests, at most that often, beside what follows; each must be answered with
    /// 200.
    Probe { who: Who, path: String, every_s: f64, times: u32 },
    /// A message that is none of SGLang's reaches the port at which a server hears from its peers.
    Foreign { who: Who },
    /// Packets between the namespaces of servers that live apart are dropped, in both directions.
    /// The fault hits the named rooms now.
    Cut,
    /// They flow again.
    Heal,
    /// Wait until so many rooms are in the prefill's inflight queue.
    Queued { rooms: u64, within_s: f64 },
    /// Wait until all requests are answered.
    Drained { within_s: f64 },
    /// Let time pass in which nobody asks for anything, and measure the prefill's iterations.
    Idle { seconds: f64 },
    /// Let time pass.
    Sleep { seconds: f64 },
    /// Wait until the agent has told the alert that is right for the room, or should have.
    Verdict {
        room: String,
        /// At which rank of the prefill.
        #[serde(default)]
        rank: usize,
    },
    /// Wait until the agent has taken the room's alert back.
    Clear {
        room: String,
        within_s: f64,
        /// At which rank of the prefill.
        #[serde(default)]
        rank: usize,
    },
    /// Wait until all sides that were asked have answered for the room.
    Answered { room: String, within_s: f64 },
    /// Wait until the prefill's room is in that state.
    Reached { room: String, state: String, within_s: f64 },
}

/// Tokens of an answer, where a case does not care.
pub(super) const fn few() -> u32 {
    8
}

const fn yes() -> bool {
    true
}

/// Healthy requests, so many at a time, to the decodes in turn.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Load {
    pub(super) rooms: u32,
    pub(super) at_once: usize,
    /// Lengths of the prompts in tokens, taken in turn.
    pub(super) prompts: Vec<u32>,
    pub(super) to: Vec<Who>,
    /// Whether to wait for all answers.
    #[serde(default = "yes")]
    pub(super) answered: bool,
    /// What the prompts are made of: loads with the same seed have the same ones.
    pub(super) seed: Option<u64>,
}

impl Load {
    /// Requests to one decode that are waited for.
    pub(super) fn to(who: Who, rooms: u32, at_once: usize, prompts: &[u32]) -> Self {
        Self {
            rooms,
            at_once,
            prompts: prompts.to_vec(),
            to: vec![who],
            answered: true,
            seed: None,
        }
    }
}
