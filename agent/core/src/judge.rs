//! What an account means: a pure function over what is known of a room, coverage and policy.
//!
//! First the finding (what is so), from the room's bytes; then the cause, in the order in which
//! an engineer would rule them out: hard evidence, scheduler, hand-shake, worker thread, queue,
//! peer, link. A silence counts only where a source would have broken it.

use alloc::vec::Vec;

pub use crate::account::Failure;
use crate::coverage::{Coverage, Source};
use crate::evidence::{Evidence, EvidenceId as Id};
use crate::fact::{Life, Meter, Peer, Phase, Tid};
use crate::policy::Policy;
use crate::time::Nanos;
use crate::verdict::{Bytes, Cause, Finding};
pub use crate::wire::Moved;

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
    /// When a process of that name was last seen gone; another may go by it since.
    pub gone_at: Option<Nanos>,
    /// The last reading of its connections.
    pub meter: Option<(Nanos, Meter)>,
    /// When it last took payload.
    pub growth_at: Option<Nanos>,
    /// What has arrived of the open transfers to it.
    pub moved: Moved,
}

/// Rooms of the same worker that came first and are still open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// How many; 100 stands for "100 or more".
    pub rooms: u64,
    /// When the first of them was appended.
    pub since: Nanos,
}

/// Everything that is known of a room.
#[derive(Clone, Debug)]
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
    /// When the first transfer was posted.
    pub first_post: Option<Nanos>,
    /// When a transfer last completed.
    pub last_completion: Option<Nanos>,
    /// When payload last moved, or the append.
    pub last_progress: Nanos,
    /// The thread that works for it, and since when.
    pub serving: Option<(Tid, Nanos)>,
    /// Whether any thread ever did.
    pub served: bool,
    /// When the engine said that its peers have answered, having said before that they had not.
    pub unparked_at: Option<Nanos>,
    /// The thread that worked for it and ended.
    pub thread_gone: Option<(Tid, Nanos)>,
    /// The transfer that ended badly.
    pub failure: Option<Failure>,
    /// The endpoint that failed under it.
    pub endpoint_failure: Option<Failure>,
    /// Its peers.
    pub peers: Vec<PeerCase>,
    /// Whether `peers` is all of them.
    pub peers_whole: bool,
    /// Other rooms to the same peer that came first.
    pub ahead: Option<Ahead>,
    /// The scheduler's last poll of its queue; zero when it never said so.
    pub beat: Nanos,
    /// Whether a post of this room would have been seen: the worker is known to mark its posts, or
    /// the library's posts are seen and find their rooms.
    pub posts_would_show: bool,
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

impl Case<'_> {
    /// Bytes that have arrived, by completed transfers or by what the peers took, whichever is
    /// more; never more than were posted where that is known.
    pub fn arrived(&self) -> u64 {
        let taken = self.peers.iter().map(|peer| peer.moved.bytes()).sum::<u64>();
        let arrived = self.bytes.completed.saturating_add(taken);
        if self.bytes.posted == 0 { arrived } else { arrived.min(self.bytes.posted) }
    }

    fn anything_moved(&self) -> bool {
        self.bytes.completed > 0 || self.peers.iter().any(|peer| peer.moved.any())
    }

    /// Nothing was seen posted, which says nothing here.
    const fn posts_do_not_show(&self) -> bool {
        self.posts == 0 && !self.posts_would_show
    }

    /// Every transfer was posted and has completed: only the scheduler's act is missing.
    fn is_complete(&self) -> bool {
        self.posts > 0
            && self.open_transfers == 0
            && self.failure.is_none()
            && self.bytes.completed > 0
            && self.bytes.completed >= self.bytes.posted.max(self.bytes.expected)
    }

    /// When something happened that does not pass by itself.
    fn hard_at(&self) -> Option<Nanos> {
        let gone = self.peers.iter().filter_map(|peer| self.gone_at(peer)).min();
        let thread = self.thread_gone.map(|(_, at)| at);
        // A failed try that was followed by progress was mended.
        let failures = [self.failure, self.endpoint_failure].into_iter().flatten();
        // The engine's bare word is no hard evidence: it knows, and may well try again.
        let failures = failures.filter(|failure| failure.code != 0);
        let failure = failures.map(|failure| failure.at).min();
        let failure = failure.filter(|at| *at >= self.last_progress);
        [gone, thread, failure].into_iter().flatten().min()
    }

    /// When the process that was the peer as this room entered ended, if it did.
    fn gone_at(&self, peer: &PeerCase) -> Option<Nanos> {
        let gone_at = peer.gone_at.filter(|at| *at >= self.appended_at);
        gone_at.or_else(|| (peer.life.0 == Life::Gone).then_some(peer.life.1))
    }

    /// Events were lost after the table last showed the room: its state is not known until it is
    /// read again, or for ever where there is no table.
    fn is_unread_since_loss(&self) -> bool {
        let lost_at = [Source::Marks, Source::Transfers, Source::Completions]
            .into_iter()
            .filter_map(|source| self.coverage.lost_at(source))
            .max();
        lost_at.is_some_and(|at| at > self.read_at && at >= self.appended_at)
    }

    /// The engine polls its queue and has done so since `at`: it had its chance to act. An engine
    /// that never beats is not waited for.
    fn engine_looked_since(&self, at: Nanos) -> bool {
        self.beat == Nanos::ZERO || self.beat >= at
    }

    /// When the lack of progress becomes a stall. Of a room that was open before the agent came
    /// nothing is known from before: it is watched first, for the whole deadline unless the peers
    /// are stopped or the connections themselves remember that nothing came for so long.
    fn stall_at(&self, policy: &Policy, now: Nanos) -> Nanos {
        // A room that was posted late, or could not be posted before, has had no time to move.
        let begun = self.first_post.max(self.unparked_at);
        let begun = begun.map_or(Nanos::ZERO, |at| at.plus(policy.suspect));
        let stall_at = self.last_progress.plus(policy.stall).max(begun);
        let Some(late_at) = self.late_at.filter(|_| self.posts > 0 && !self.is_complete()) else {
            return stall_at;
        };
        let silent = |peer: &PeerCase| {
            peer.life.0 == Life::Stopped
                || peer.meter.is_some_and(|(_, meter)| {
                    meter.last_received.is_none_or(|at| at.plus(policy.stall) <= now)
                })
        };
        let remembered = !self.peers.is_empty() && self.peers.iter().all(silent);
        let watch = if remembered { policy.suspect } else { policy.stall };
        stall_at.max(late_at.plus(watch))
    }

    /// Whether a source would have shown payload moving, so that its silence means something.
    fn progress_is_visible(&self) -> bool {
        if self.posts == 0 {
            let seen = self.coverage.sees(Source::Table) || self.coverage.sees(Source::Transfers);
            return seen && self.posts_would_show;
        }
        let metered = |peer: &PeerCase| peer.meter.is_some_and(|(_, m)| m.connections > 0);
        let read = !self.peers.is_empty() && self.peers_whole && self.peers.iter().all(metered);
        read && self.coverage.sees(Source::Connections)
    }

    fn beat_is_fresh(&self, policy: &Policy, now: Nanos) -> bool {
        self.beat.plus(policy.beat_fresh) >= now
    }

    /// The next act is the scheduler's, which is busy elsewhere: one long forward pass is normal.
    fn waits_for_busy_scheduler(&self, policy: &Policy, now: Nanos) -> bool {
        let wedged = self.beat.plus(policy.scheduler_wedged) <= now;
        let rests_on_it = self.is_complete() || (self.posts == 0 && !self.served);
        // A deadline shorter than `beat_fresh` must not take an older poll for its chance to act.
        let polled = self.beat_is_fresh(policy, now) && self.beat >= self.last_progress;
        rests_on_it && self.beat != Nanos::ZERO && !wedged && !polled
    }

    /// A first transfer whose connection is just being set up has longer.
    fn is_being_set_up(&self, policy: &Policy, now: Nanos) -> bool {
        let Some(first_post) = self.first_post else {
            return false;
        };
        let recent = |peer: &PeerCase| {
            peer.life.0 != Life::Stopped
                && peer.meter.is_some_and(|(_, meter)| {
                    meter.received <= policy.setup_answer
                        && meter.last_received.is_some_and(|at| at.plus(policy.setup_recent) >= now)
                })
        };
        !self.anything_moved()
            && now < first_post.plus(policy.setup_grace)
            && self.peers.iter().any(recent)
    }
}

/// Judges a room.
pub fn judge(case: &Case<'_>, policy: &Policy, now: Nanos) -> Judgement {
    let stall_at = case.stall_at(policy, now);
    let look_again = Judgement::Quiet(now.plus(LOOK_AGAIN));
    // Of a room whose posts do not show, all bytes may have arrived before its peer ended.
    let done = case.is_complete() || case.posts_do_not_show();
    if let Some(hard_at) = case.hard_at().filter(|_| !done) {
        let due = hard_at.plus(policy.hard_grace);
        if now < due {
            return Judgement::Quiet(due);
        }
        if case.engine_looked_since(hard_at) || now >= stall_at {
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

/// Within the deadline: only a stay that is long all the same is worth a word.
fn waiting(case: &Case<'_>, policy: &Policy, now: Nanos, stall_at: Nanos) -> Judgement {
    let long_at = case.appended_at.plus(policy.max_dwell);
    if now < long_at {
        return Judgement::Quiet(stall_at.min(long_at));
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
    let hard = case.hard_at().is_some() && !case.posts_do_not_show();
    let stopped = case.peers.iter().any(|peer| peer.life.0 == Life::Stopped);
    let finding = if case.is_complete() {
        Finding::CompletedNotReaped
    } else if case.posts > 0 && case.anything_moved() {
        Finding::StoppedMidway
    } else {
        Finding::NeverStarted
    };
    let complete = finding == Finding::CompletedNotReaped;
    if !complete && !hard && !stopped && !case.progress_is_visible() {
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
            | Cause::PeerFrozen
            | Cause::LinkFault
            | Cause::WorkerThreadDead
            | Cause::HandshakeMissing
    );
    firm.then_some((known.cause, known.evidence))
}
