//! A room that waits for others to be out of its way.

use alloc::vec;
use alloc::vec::Vec;

use super::{Answer, Search, peers_say, rule_out_dead, scheduler};
use crate::evidence::{Evidence, EvidenceId as Id};
use crate::judge::{Ahead, Case};
use crate::policy::Policy;
use crate::time::Nanos;
use crate::verdict::Cause;

/// Others come first. Their own verdicts say why they stay.
pub(super) fn queued(case: &Case<'_>, policy: &Policy, now: Nanos, search: &mut Search) -> Answer {
    let ahead = case.ahead?;
    rule_out_dead(case, search);
    scheduler(case, policy, now, search);
    if ahead.head.is_none() {
        return Some(behind_early(case, &ahead, policy, now));
    }
    let rooms = Evidence::of(Id::RoomsAhead).amount(ahead.rooms).at(ahead.since);
    let rooms = ahead.tid.map_or(rooms, |tid| rooms.tid(tid));
    let moves = ahead.progress.plus(policy.suspect) > now;
    let head = Evidence::of(if moves { Id::HeadMoves } else { Id::HeadStill }).at(ahead.progress);
    Some((Cause::QueuedBehind, if ahead.certain { 85 } else { 65 }, vec![rooms, head]))
}

/// The thread is busy with a room that was not in the queue when it took it, and no verdict about
/// that one tells why. Where nothing moves to the peer of both, this one has to.
fn behind_early(
    case: &Case<'_>,
    ahead: &Ahead,
    policy: &Policy,
    now: Nanos,
) -> (Cause, u8, Vec<Evidence>) {
    let early = Evidence::of(Id::ThreadEarly).at(ahead.since);
    let mut evidence = vec![ahead.tid.map_or(early, |tid| early.tid(tid))];
    let visible = ahead.certain && ahead.visible;
    if ahead.progress.plus(policy.suspect) > now {
        evidence.push(Evidence::of(Id::HeadMoves).at(ahead.progress));
    } else if visible && ahead.progress.plus(policy.stall) <= now {
        evidence.push(Evidence::of(Id::HeadStill).at(ahead.progress));
        evidence.extend(peers_say(case));
        return (Cause::WorkerThreadCaptive, 80, evidence);
    }
    (Cause::QueuedBehind, if ahead.certain { 75 } else { 50 }, evidence)
}
