//! The steps of a case: what is done to the pair and to the agent, in order.

use serde::Deserialize;

use super::net::Way;

/// The processes of a pair that a step can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Who {
    /// The decode that faults hit.
    Sick,
    /// The decode of the healthy rooms.
    Well,
}

impl Who {
    /// Its NIXL agent's name: of this runner only, for a name that processes of two pairs claim is
    /// nobody's.
    pub(super) fn agent(self) -> String {
        agent_of(self.name())
    }

    /// Its name in a pair.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Sick => "sick",
            Self::Well => "well",
        }
    }
}

/// The NIXL agent's name of a process of the pair.
pub(super) fn agent_of(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

/// One step of a case.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Step {
    /// A healthy transfer, awaited: it wires the connection up.
    Transfer { to: Who, bytes: u64 },
    /// A room enters the queue.
    Append(Append),
    /// The decode looks for the room's bytes and, once `after` of them landed, hits itself.
    Watch { room: String, to: Who, bytes: u64, after: u64, then: Fault },
    /// Wait until that has happened.
    Landed { room: String },
    /// SIGSTOP.
    Stop { who: Who },
    /// The decode answers no hand-shake from now on, and runs.
    Mute { who: Who },
    /// The decode, of a pair that is [`super::file::Pair::polled`], makes no progress from now on,
    /// and runs.
    Deafen { who: Who },
    /// It makes progress again.
    Hear { who: Who },
    /// From now on it is counted what the prefill writes by `process_vm_writev`.
    CountWrites,
    /// Wait until the first `bytes` bytes lie in the memory of the stopped decode, every one of
    /// them carried by `process_vm_writev`: the run is void otherwise.
    Complete { who: Who, bytes: u64 },
    /// SIGCONT.
    Continue { who: Who },
    /// The decode is killed and started anew under its old NIXL name; the prefill is not told and
    /// keeps what it knew of the dead one.
    Restart { who: Who },
    /// So many further decodes, of which nobody knows, start and end one after another.
    Guests { times: u32 },
    /// The prefill forgets what it knew of the decode and learns it anew.
    Renew { who: Who },
    /// Packets between the two network namespaces of a pair that lives `apart` are dropped, in
    /// both directions. The fault hits the room now.
    Cut {
        room: String,
        #[serde(default)]
        way: Way,
    },
    /// They flow again.
    Heal,
    /// The prefill's scheduler computes for so long: it neither polls its queue nor beats.
    Forward { seconds: f64 },
    /// The prefill keeps so many rooms open on paper: marks without transfers, each room for at
    /// most `keep_s` seconds.
    Fill { rooms: u64, worker: u32, keep_s: f64 },
    /// The prefill makes so many queue marks on the open room as fast as it can.
    Burst { room: String, marks: u64 },
    /// The client gives the room up: it leaves the queue as aborted.
    Abort { room: String },
    /// The prefill releases the handle of the room's transfer under way, ends the room, and uses its
    /// memory anew: what no engine may do.
    Abandon { room: String },
    /// `inflightd fail`, by hand: what it has to say, and the word of its refusal.
    Fail { room: String, decision: String, refused: Option<String> },
    /// Wait until so many bytes of a range of the decode's memory are written, and say how many of
    /// them came from memory that was somebody else's when they were sent.
    Found { who: Who, offset: u64, bytes: u64, written: u64, reused: Reused },
    /// Start the agent, of a case whose agent is late.
    StartAgent,
    /// Kill the agent with SIGKILL at a random moment and start it again, so many times.
    KillAgent { times: u32, within_ms: u64 },
    /// SIGSTOP the agent: it reads nothing, and what its ring cannot hold is lost.
    StopAgent,
    /// SIGCONT the agent.
    ContinueAgent,
    /// Let time pass.
    Sleep { seconds: f64 },
    /// Wait until the agent has given the room's verdict, or should have.
    Verdict { room: String },
    /// Wait until the agent has taken the room's verdict back, for at most so many seconds.
    Clear { room: String, within_s: f64 },
    /// Wait until the pair has appended the room, for at most so many seconds.
    Appended { room: String, within_s: f64 },
    /// Wait until the pair has removed the room, for at most so many seconds.
    Removed { room: String, within_s: f64 },
    /// Wait until all healthy rooms that `at_most` allows have ended.
    BesideEnded { within_s: f64 },
}

/// How many bytes may come from memory that was somebody else's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reused {
    /// Not one.
    None,
    /// Some: the case shows that they would be seen.
    Some,
}

/// What a decode does to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Fault {
    /// Nothing: only look.
    Nothing,
    /// SIGSTOP.
    Stop,
    /// SIGKILL.
    Kill,
}

impl Fault {
    /// The word of the decode's `watch` command.
    pub(super) const fn word(self) -> Option<&'static str> {
        match self {
            Self::Nothing => None,
            Self::Stop => Some("stop"),
            Self::Kill => Some("kill"),
        }
    }
}

/// A victim room, or several alike.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Append {
    /// What the case calls it.
    pub(super) room: String,
    /// Its decode.
    pub(super) to: Who,
    /// Its size in bytes.
    pub(super) bytes: u64,
    /// Where in the memory of both it lies.
    #[serde(default)]
    pub(super) offset: u64,
    /// Bytes of a chunk; 0 for one chunk.
    #[serde(default)]
    pub(super) chunk: u64,
    /// Seconds before each chunk.
    #[serde(default)]
    pub(super) pace: f64,
    /// A switch of the pair's scheduler, one of `FAULTS` in `xtask/pair/rooms.py`.
    pub(super) fault: Option<String>,
    /// So many alike, one after another: `room.1`, `room.2`, … What is said about `room` is said
    /// about each.
    pub(super) times: Option<u32>,
    /// Whether it is parked until its decode has answered a hand-shake.
    #[serde(default)]
    pub(super) handshake: bool,
    /// The engine's number of the room; a free one where none is given.
    pub(super) id: Option<u64>,
    /// The room of this name has the same number.
    pub(super) like: Option<String>,
    /// The worker thread that serves it, 0 to 4; the healthy rooms use 1 to 3.
    #[serde(default)]
    pub(super) shard: u64,
    /// Seconds that the prompt takes to compute: from the request's coming to the append.
    #[serde(default)]
    pub(super) prefill_s: f64,
}

impl Append {
    /// The names of its rooms.
    pub(super) fn names(&self) -> Vec<String> {
        self.times.map_or_else(
            || vec![self.room.clone()],
            |times| (1..=times).map(|turn| format!("{}.{turn}", self.room)).collect(),
        )
    }
}

/// The name that a case gives to a room and those like it: `small` for `small.3`.
pub(super) fn family(room: &str) -> &str {
    room.split_once('.').map_or(room, |(family, _)| family)
}
