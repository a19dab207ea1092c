//! What an account means: a pure function over what is known of a room, coverage and policy.
//!
//! First the finding (what is so), from the room's bytes; then the cause, in the order in which
//! an engineer would rule them out: hard evidence, scheduler, hand-shake, worker thread, queue,
//! peer, link. A silence counts only where a source would have broken it.

use alloc::vec::Vec;

pub use crate::account::Failure;
use crate::coverage::Coverage;
use crate::evidence::{Evidence, EvidenceId as Id};
use crate::fact::{Handle, Life, Meter, Peer, Phase, PortTroubles, Seq, Tid, Worker};
use crate::policy::Policy;
use crate::time::Nanos;
use crate::verdict::{Bytes, Cause, Finding};
pub use crate::wire::Moved;

mod case;
mod cause;

/// How soon a room is looked at again that is past its deadline and not told yet.
pub(crate) const LOOK_AGAIN: Nanos = Nanos::from_millis(200);
/// How soon a room is looked at again that was told: hard evidence does not wait for it.
pub(crate) const LOOK_AT_TOLD: Nanos = Nanos::from_secs(1);

/// What is known of one peer of the room.
#[derive(Clone, Copy, Debug)]
pub struct PeerCase {
    /// Which.
    pub peer: Peer,
    /// Whether its process lives, and when that was last seen.
    pub life: (Life, Nanos),
    /// When it was first seen as it is now.
    pub life_since: Nanos,
    /// When a process of that name was last seen gone; another may go by it since.
    pub gone_at: Option<Nanos>,
    /// When it was seen to run again after it had been stopped. Set once until it takes payload.
    pub resumed_at: Option<Nanos>,
    /// When its process was last looked for.
    pub looked_at: Nanos,
    /// The last reading of its connections.
    pub meter: Option<(Nanos, Meter)>,
    /// When its connections last carried payload to it.
    pub growth_at: Option<Nanos>,
    /// When a process of its name ended, where none had taken anything since as the room was
    /// posted, or has until now.
    pub stale_at: Option<Nanos>,
    /// Whether it has ever taken a transfer, or payload by its connections.
    pub reached: bool,
    /// Its payload goes, or may go, past the connections that are metered: their silence says
    /// nothing about it.
    pub unmetered: bool,
    /// What has arrived of the open transfers to it.
    pub moved: Moved,
}

/// Rooms of the same worker that came first and hold this one up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// The first of them; `None` for work whose room is not in the queue.
    pub head: Option<Seq>,
    /// The thread that works for it, where one is known to.
    pub tid: Option<Tid>,
    /// How many; 100 stands for "100 or more".
    pub rooms: u64,
    /// When the head was appended, or that work begun.
    pub since: Nanos,
    /// When payload of what holds it up last moved.
    pub progress: Nanos,
    /// It is to the same peer, or its thread last worked for that peer. Otherwise only its time
    /// speaks for it.
    pub certain: bool,
    /// Of work whose room is not in the queue: whether it would show if its bytes moved.
    pub visible: bool,
}

/// Where a room stands with the engine that receives it, where that is on this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Far {
    /// It has the room and no memory for it yet: its sender has no answer.
    WaitsForMemory,
    /// It waits for the room's bytes.
    Waits,
    /// It had the room and has failed it or given it up.
    GaveUp,
    /// It is not known to have the room.
    #[default]
    Unknown,
}

/// Another worker of this node that has the same room open and has not done its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherRank {
    /// Which.
    pub worker: Worker,
    /// When payload of the room last moved there, or when it entered.
    pub progress: Nanos,
}

/// Everything that is known of a room.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent answers, each read by its name")]
pub struct Case<'a> {
    /// When it entered the queue.
    pub appended_at: Nanos,
    /// When the agent came, for a room that was open before.
    pub late_at: Option<Nanos>,
    /// When the table last showed it.
    pub read_at: Nanos,
    /// What the engine says.
    pub phase: Phase,
    /// Bytes by transfer calls.
    pub bytes: Bytes,
    /// Transfer calls begun.
    pub posts: u64,
    /// Transfers posted and not complete.
    pub open_transfers: u64,
    /// Whether the engine has marked the end of each call.
    pub calls_ended: bool,
    /// When the first transfer was posted.
    pub first_post: Option<Nanos>,
    /// When a transfer last completed.
    pub last_completion: Option<Nanos>,
    /// When payload last moved, or the append.
    pub last_progress: Nanos,
    /// Whether the worker marks its queue. Otherwise the stay is a transfer's own, or what a
    /// notification names: nothing is known of its scheduler.
    pub hooked: bool,
    /// Where none of the worker's rooms is seen and all of them are judged as one: how many its
    /// engine counts in flight, the same number since when.
    pub inflight: Option<(u64, Nanos)>,
    /// Until when others were before it: it has had its chance only since.
    pub waited_until: Option<Nanos>,
    /// The thread that works for it, and since when.
    pub serving: Option<(Tid, Nanos)>,
    /// Whether any thread ever did.
    pub served: bool,
    /// When the engine said that its peers have answered, having said before that they had not.
    pub unparked_at: Option<Nanos>,
    /// The thread that worked for it and ended.
    pub thread_gone: Option<(Tid, Nanos)>,
    /// The thread that last worked for it, or for others to its peer, ended: another may take its
    /// place, or none.
    pub last_thread_gone: Option<(Tid, Nanos)>,
    /// The transfer that ended badly.
    pub failure: Option<Failure>,
    /// The endpoint that failed under it.
    pub endpoint_failure: Option<Failure>,
    /// What the engine that receives it says.
    pub far: Far,
    /// Of a room that this rank is done with: the other ranks on this node that are not.
    pub others: Vec<OtherRank>,
    /// Its peers.
    pub peers: Vec<PeerCase>,
    /// Whether `peers` is all of them.
    pub peers_whole: bool,
    /// Other rooms that came first, of a room that was neither served nor posted.
    pub ahead: Option<Ahead>,
    /// When a thread was seen to have ended by which the engine hears from its peers.
    pub listener_ended: Option<Nanos>,
    /// The room has left the queue and this thread stays with it, since when.
    pub held_by: Option<(Tid, Nanos)>,
    /// Of such a room: whether another waits for that thread.
    pub blocks: bool,
    /// Its transfer that is open longest, and since when.
    pub oldest_open: Option<(Handle, Nanos)>,
    /// Since when each operation of UCX is counted that completes for its open transfers, or the
    /// memory of its open batches is read; `None` where something could move without.
    pub counted_since: Option<Nanos>,
    /// What the RDMA ports that the worker may use have counted since about its append, for whomever,
    /// and since when.
    pub port_troubles: Option<(Nanos, PortTroubles)>,
    /// Whether its open transfers are batches of Mooncake.
    pub by_batches: bool,
    /// When the last of what is counted moved, and the bytes of all of it.
    pub operations: Option<(Nanos, u64)>,
    /// The scheduler's last poll of its queue; zero when it never said so.
    pub beat: Nanos,
    /// Whether a post of this room would have been seen: the worker is known to mark its posts, or
    /// the library's posts are seen and find their rooms.
    pub posts_would_show: bool,
    /// Whether the table counts this worker's posts: what the ring lost of them is not lost.
    pub table_tells_posts: bool,
    /// What could be seen.
    pub coverage: &'a Coverage,
}

/// What the judge says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Nothing to say; look again at this moment.
    Quiet(Nanos),
    /// A finding and its cause.
    Found(Found),
}

/// A finding with what it rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What is so.
    pub finding: Finding,
    /// Why.
    pub cause: Cause,
    /// How sure, in percent.
    pub confidence: u8,
    /// What speaks for it.
    pub evidence: Vec<Evidence>,
    /// What was considered, and what speaks against it.
    pub ruled_out: Vec<(Cause, Evidence)>,
}

/// Judges a room.
pub fn judge(case: &Case<'_>, policy: &Policy, now: Nanos) -> Judgement {
    if case.phase == Phase::Exempt {
        return Judgement::Quiet(now.plus(policy.max_dwell));
    }
    if !case.hooked && case.open_transfers == 0 {
        // Without the hook nobody says what else is to come.
        let over = case.last_progress.plus(policy.max_dwell);
        let over = case.failure.map_or(over, |failure| failure.at.plus(policy.hard_grace));
        return Judgement::Quiet(over.max(now.plus(LOOK_AGAIN)));
    }
    let stall_at = case.stall_at(policy, now);
    if case.held_by.is_some() {
        return held(case, policy, now, stall_at);
    }
    let look_again = Judgement::Quiet(now.plus(LOOK_AGAIN));
    // Of a room whose posts do not show, all bytes may have arrived before its peer ended.
    let done = case.is_complete() || case.posts_do_not_show();
    if let Some(due) = case.hard_due(policy).filter(|_| !done) {
        if now < due {
            return Judgement::Quiet(due);
        }
        if case.may_be_renewed() && now < stall_at {
            return look_again;
        }
        if case.engine_looked_since(due) || now >= stall_at {
            return found(case, policy, now);
        }
        return look_again;
    }
    if now < stall_at {
        return waiting(case, policy, now, stall_at);
    }
    if case.is_being_set_up(policy, now) || case.waits_for_busy_scheduler(policy, now) {
        return look_again;
    }
    found(case, policy, now)
}

/// Of a room that has left the queue nothing is due but that its thread puts it down. Where nothing
/// of it is under way, that matters to those who wait for the thread only.
fn held(case: &Case<'_>, policy: &Policy, now: Nanos, stall_at: Nanos) -> Judgement {
    if now < stall_at {
        return Judgement::Quiet(stall_at);
    }
    let idle = case.posts > 0 && case.open_transfers == 0 && !case.blocks;
    if idle || case.is_being_set_up(policy, now) {
        return Judgement::Quiet(now.plus(LOOK_AT_TOLD));
    }
    found(case, policy, now)
}

/// Within the deadline: only a stay that is long all the same is worth a word.
fn waiting(case: &Case<'_>, policy: &Policy, now: Nanos, stall_at: Nanos) -> Judgement {
    let long_at = case.appended_at.plus(policy.max_dwell);
    if now < long_at {
        return Judgement::Quiet(stall_at.min(long_at));
    }
    if !case.has_moved() && case.last_progress <= case.appended_at {
        // It waited for others all the time.
        return Judgement::Quiet(stall_at);
    }
    Judgement::Found(Found {
        finding: Finding::MovingSlowly,
        cause: Cause::Unknown,
        confidence: 90,
        evidence: cause::bytes_evidence(case),
        ruled_out: Vec::new(),
    })
}

fn found(case: &Case<'_>, policy: &Policy, now: Nanos) -> Judgement {
    if case.is_unread_since_loss() {
        return Judgement::Found(blind(case));
    }
    let known = cause::cause(case, policy, now);
    let hard = case.hard_due(policy).is_some() && !case.posts_do_not_show();
    let queued = known.cause == Cause::QueuedBehind;
    let stopped = case.peers.iter().any(|peer| peer.life.0 == Life::Stopped);
    let finding = if case.is_complete() {
        Finding::CompletedNotReaped
    } else if case.has_moved() {
        Finding::StoppedMidway
    } else {
        Finding::NeverStarted
    };
    let complete = finding == Finding::CompletedNotReaped;
    let certain = complete || hard || stopped || queued || case.is_cut_off();
    if !certain && !case.progress_is_visible() {
        return Judgement::Found(blind(case));
    }
    let mut evidence = cause::bytes_evidence(case);
    evidence.extend(known.evidence);
    let late = case.late_at.map(|at| Evidence::of(Id::LateStart).at(at));
    evidence.extend(late);
    let lost = cause::lost(case);
    // Where the engine does not say how much is to come, more may be.
    let open_end = complete && case.bytes.expected == 0;
    let base = known.confidence.saturating_sub(if open_end { 20 } else { 0 });
    let confidence = cause::confidence(base, late.is_some(), lost.is_some());
    evidence.extend(lost);
    Judgement::Found(Found {
        finding,
        cause: known.cause,
        confidence,
        evidence,
        ruled_out: known.ruled_out,
    })
}

/// No source would have shown progress: nobody is accused.
fn blind(case: &Case<'_>) -> Found {
    let mut evidence = cause::bytes_evidence(case);
    evidence.push(Evidence::of(Id::NothingVisible));
    evidence.extend(cause::lost(case));
    if !case.peers_whole || case.peers.is_empty() {
        evidence.push(Evidence::of(Id::PeersUnknown));
    }
    Found {
        finding: Finding::Blind,
        cause: Cause::Unknown,
        confidence: 0,
        evidence,
        ruled_out: Vec::new(),
    }
}

/// Why a room failed, as far as the evidence goes: for a stay that the engine ended itself.
pub(crate) fn cause_of_failure(
    case: &Case<'_>,
    policy: &Policy,
    now: Nanos,
) -> Option<(Cause, Vec<Evidence>)> {
    let known = cause::cause(case, policy, now);
    let firm = matches!(
        known.cause,
        Cause::PeerDead
            | Cause::StalePeer
            | Cause::PeerFrozen
            | Cause::LinkFault
            | Cause::WorkerThreadDead
            | Cause::HandshakeMissing
    );
    firm.then_some((known.cause, known.evidence))
}
