//! What the agent says when it is asked: the JSON of its HTTP routes. Field names are promises.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::config::Setting;
use crate::sink::{BytesField, CoverageField, PeerField, RanksField, RoomId, WorkerField};

/// `/workers`, `/workers/{pid}` and `/workers/pod/{uid}`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WorkersView {
    /// Whether any of them is wedged.
    pub wedged: bool,
    /// Whether any of them is by its own trouble, so that a restart of it helps.
    pub own_fault: bool,
    /// Each worker.
    pub workers: Vec<WorkerView>,
}

/// How one worker is.
#[derive(Clone, Debug, Serialize)]
pub struct WorkerView {
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
    /// Whether it gets nothing through; [`crate::glance`] has the rule.
    pub wedged: bool,
    /// Since when, RFC 3339; `null` when it is not wedged.
    pub wedged_since: Option<String>,
    /// Why it counts as wedged: `scheduler_wedged`, `worker_thread_dead`, `stopped` or
    /// `nothing_completes`.
    pub why: Option<&'static str>,
    /// Seconds since the scheduler last polled its queue; `null` when that was never seen.
    pub beat_age_s: Option<f64>,
    /// Rooms in the queue.
    pub open: u64,
    /// Of them, without progress for longer than `suspect`.
    pub suspects: u64,
    /// Of them, past the deadline and not to be judged.
    pub blind: u64,
    /// Of them, in an alert that stands.
    pub stalled: Vec<StalledView>,
    /// What it says of itself: tokens of KV memory and metadata slots, free and in all, threads
    /// that transfer, threads that hear from peers, faults of the hook. Empty where it says nothing.
    pub says: BTreeMap<&'static str, u64>,
    /// Seconds in the queue of the oldest; `null` without rooms.
    pub oldest_dwell_s: Option<f64>,
    /// Longest time without progress, in seconds; `null` without rooms.
    pub oldest_without_progress_s: Option<f64>,
    /// How well each source sees it.
    pub coverage: Vec<CoverageField>,
}

/// Rooms in an alert of one kind.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StalledView {
    /// What is so.
    pub finding: &'static str,
    /// Why.
    pub cause: &'static str,
    /// How many rooms.
    pub count: u64,
}

/// `/rooms`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RoomsView {
    /// Open rooms in all; `rooms` may be fewer.
    pub open: u64,
    /// Rooms that have left the queue under a thread that stays with them, listed beside the open
    /// ones while a verdict stands on them.
    pub left: u64,
    /// How many of both are in an alert, those that `limit` cuts off counted.
    pub alerts: u64,
    /// The oldest first, `limit` of them.
    pub rooms: Vec<RoomView>,
}

/// An open room.
#[derive(Clone, Debug, Serialize)]
pub struct RoomView {
    /// Append sequence: with the worker, the identity of the stay.
    pub seq: u64,
    /// The engine's id of the request's transfer.
    pub room: RoomId,
    /// Request id.
    pub rid: Option<String>,
    /// Whose queue.
    pub worker: Option<WorkerField>,
    /// When it entered the queue, RFC 3339.
    pub since: String,
    /// Seconds in the queue.
    pub dwell_s: f64,
    /// Seconds since a payload byte last moved, or since it entered the queue.
    pub since_progress_s: f64,
    /// What the engine says: `none`, `parked`, `peers_ready`, `transferring` or `failed`.
    /// `left` where it has left the queue and its thread stays with it: such a room is listed while
    /// a verdict stands on it.
    pub phase: &'static str,
    /// Bytes of the room; `expected` is 0 where the engine does not say how many they are.
    pub bytes: BytesField,
    /// Transfer calls begun.
    pub posts: u64,
    /// The far ends.
    pub peers: Vec<PeerField>,
    /// The thread that works for it.
    pub serving_tid: Option<u32>,
    /// The verdict that stands.
    pub verdict: Option<StandingView>,
    /// The room that it waits behind, the head of its incident; `null` for one that waits behind
    /// none, and where that was told by an earlier life of the agent.
    pub behind: Option<RoomId>,
}

/// A verdict that stands.
#[derive(Clone, Debug, Serialize)]
pub struct StandingView {
    /// The id of its line.
    pub id: Option<String>,
    /// `alert` or `info`.
    pub severity: &'static str,
    /// What is so.
    pub finding: &'static str,
    /// Why.
    pub cause: &'static str,
    /// Since when, RFC 3339.
    pub since: String,
    /// The trouble that it belongs to: the `id` of the stay that is at its head.
    pub incident: Option<String>,
}

/// `/agent`.
#[derive(Clone, Debug, Serialize)]
pub struct AgentView {
    /// Process id.
    pub pid: u32,
    /// Version.
    pub version: &'static str,
    /// When it started, RFC 3339.
    pub started_at: String,
    /// Whether its first census is done.
    pub ready: bool,
    /// What it does without, and why: it watches all the same.
    pub lacks: Vec<String>,
    /// Every value in force and where it comes from.
    pub settings: Vec<Setting>,
    /// Where it is asked.
    pub http: HttpView,
    /// What it has in the kernel.
    pub probes: ProbesView,
    /// Workers under watch.
    pub workers: u64,
    /// Facts that fitted nothing so far.
    pub misfits: u64,
}

/// Where the agent is asked.
#[derive(Clone, Debug, Default, Serialize)]
pub struct HttpView {
    /// The address that it listens on; `null` when there is none.
    pub listen: Option<String>,
    /// Why it does not listen although it should.
    pub problem: Option<String>,
}

/// What the agent has in the kernel.
#[derive(Clone, Debug, Serialize)]
pub struct ProbesView {
    /// Whether probes are used at all.
    pub on: bool,
    /// Links that are attached.
    pub links: u64,
    /// Processes whose operations of UCX are counted now, for they have a suspect.
    pub armed: Vec<u32>,
    /// Failures inside the kernel programs so far, by kind.
    pub mishaps: BTreeMap<&'static str, u64>,
}
