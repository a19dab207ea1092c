//! Why a room does not move, and what speaks against the other reasons.

use alloc::vec;
use alloc::vec::Vec;

use super::{Case, Far, PeerCase};
use crate::coverage::Source;
use crate::evidence::{Evidence, EvidenceId as Id};
use crate::fact::{Life, Phase};
use crate::policy::Policy;
use crate::time::Nanos;
use crate::verdict::Cause;

mod counted;
mod queued;
mod rdma;
mod status;

use queued::queued;
use rdma::{broken, port_down};

/// A cause, how sure, and what speaks for and against.
pub(super) struct Known {
    pub(super) cause: Cause,
    pub(super) confidence: u8,
    pub(super) evidence: Vec<Evidence>,
    pub(super) ruled_out: Vec<(Cause, Evidence)>,
}

struct Search {
    ruled_out: Vec<(Cause, Evidence)>,
}

impl Search {
    fn rule_out(&mut self, cause: Cause, because: Evidence) {
        if self.ruled_out.iter().all(|(out, _)| *out != cause) {
            self.ruled_out.push((cause, because));
        }
    }

    fn end(self, cause: Cause, confidence: u8, evidence: Vec<Evidence>) -> Known {
        Known { cause, confidence, evidence, ruled_out: self.ruled_out }
    }
}

type Step = fn(&Case<'_>, &Policy, Nanos, &mut Search) -> Answer;
type Answer = Option<(Cause, u8, Vec<Evidence>)>;

/// The first cause, in the order of certainty, that the evidence carries.
pub(super) fn cause(case: &Case<'_>, policy: &Policy, now: Nanos) -> Known {
    let mut search = Search { ruled_out: Vec::new() };
    let steps: &[Step] = if !case.hooked {
        // Nothing is known of a scheduler, nor of who works for whom.
        &[stale_peer, peer_dead, port_down, peer_frozen, link]
    } else if case.held_by.is_some() {
        &[thread_captive]
    } else if case.phase == Phase::DoneHere {
        &[scheduler, remote_rank]
    } else if case.is_complete() {
        // All bytes are there: what the peer or the link does now is not why the room stays.
        &[worker_thread_dead, scheduler]
    } else if case.is_queued() {
        &[queued]
    } else {
        &[
            stale_peer,
            peer_dead,
            worker_thread_dead,
            scheduler,
            handshake,
            not_taken,
            port_down,
            peer_frozen,
            link,
            orphaned,
            last_thread_dead,
        ]
    };
    for step in steps {
        if let Some((cause, confidence, evidence)) = step(case, policy, now, &mut search) {
            return search.end(cause, confidence, evidence);
        }
    }
    // What failed does not say why it stays, and is all that there is.
    search.end(Cause::Unknown, 60, failures(case).collect())
}

/// Posted to a process that had ended before: its successor knows nothing of the worker's old
/// endpoint, which fails at once or connects to nobody.
fn stale_peer(case: &Case<'_>, _: &Policy, _: Nanos, search: &mut Search) -> Answer {
    let (peer, at) = case.peers.iter().find_map(|peer| Some((peer, case.stale_at(peer)?)))?;
    let mut evidence = vec![Evidence::of(Id::PeerRestarted).at(at).peer(peer.peer)];
    evidence.extend(failures(case));
    let failed = evidence.iter().filter_map(|evidence| evidence.code).any(status::is_disconnect);
    let unconnected = peer.meter.is_none_or(|(_, meter)| meter.connections == 0);
    if !failed && !unconnected {
        return None;
    }
    if unconnected && let Some((at, _)) = peer.meter {
        evidence.push(Evidence::of(Id::NoConnection).at(at).peer(peer.peer));
    }
    rule_out_dead(case, search);
    Some((Cause::StalePeer, if failed { 92 } else { 75 }, evidence))
}

/// Transfers and endpoints that failed.
fn failures(case: &Case<'_>) -> impl Iterator<Item = Evidence> {
    let ended = case.failure.map(|failure| (Id::TransferFailed, failure));
    let endpoint = case.endpoint_failure.map(|failure| (Id::EndpointError, failure));
    let failures = ended.into_iter().chain(endpoint);
    failures.map(|(id, failure)| Evidence::of(id).at(failure.at).code(failure.code))
}

fn peer_dead(case: &Case<'_>, _: &Policy, _: Nanos, search: &mut Search) -> Answer {
    let mut evidence: Vec<_> = case
        .peers
        .iter()
        .filter_map(|peer| Some((peer.peer, case.gone_at(peer)?)))
        .map(|(peer, at)| Evidence::of(Id::PeerGone).at(at).peer(peer))
        .collect();
    // One that ended before the room entered may have a successor on another node: who let the room
    // in has had an answer by that name. Only what fails then tells that it has none.
    let gone = case.ended_under_it().is_some();
    evidence.extend(failures(case));
    let codes = evidence.iter().filter_map(|evidence| evidence.code);
    let disconnected = codes.into_iter().any(status::is_disconnect);
    let lives = |peer: &PeerCase| matches!(peer.life.0, Life::Running | Life::Stopped);
    if disconnected && !gone && !case.peers.is_empty() && case.peers.iter().all(lives) {
        rule_out_dead(case, search);
        if let Some(peer) = case.peers.iter().find(|peer| peer.life.0 == Life::Stopped) {
            // The library has waited long enough for an answer, as over RDMA it does.
            evidence.push(stopped(peer));
            return Some((Cause::PeerFrozen, 90, evidence));
        }
        // The far process has lived all the time: it was the link that ended.
        return Some((Cause::LinkFault, 75, evidence));
    }
    if gone || disconnected {
        return Some((Cause::PeerDead, if gone { 98 } else { 85 }, evidence));
    }
    rule_out_dead(case, search);
    None
}

/// What speaks against a dead peer.
fn rule_out_dead(case: &Case<'_>, search: &mut Search) {
    for peer in &case.peers {
        match peer.life {
            (Life::Running, at) => search
                .rule_out(Cause::PeerDead, Evidence::of(Id::PeerRunning).at(at).peer(peer.peer)),
            (Life::Stopped, _) => search.rule_out(Cause::PeerDead, stopped(peer)),
            (Life::Unseen | Life::Gone, _) => {}
        }
    }
}

fn worker_thread_dead(case: &Case<'_>, _: &Policy, _: Nanos, search: &mut Search) -> Answer {
    if let Some((tid, at)) = case.thread_gone {
        let evidence = vec![Evidence::of(Id::ThreadGone).at(at).tid(tid)];
        return Some((Cause::WorkerThreadDead, 95, evidence));
    }
    if let Some((tid, since)) = case.serving {
        let serving = Evidence::of(Id::ThreadServing).at(since).tid(tid);
        search.rule_out(Cause::WorkerThreadDead, serving);
        search.rule_out(Cause::NeverEnqueued, serving);
    }
    None
}

fn scheduler(case: &Case<'_>, policy: &Policy, now: Nanos, search: &mut Search) -> Answer {
    if case.beat_is_fresh(policy, now) {
        search.rule_out(Cause::SchedulerWedged, Evidence::of(Id::BeatFresh).at(case.beat));
        return None;
    }
    if case.beat == Nanos::ZERO {
        // An engine that never beats: its silence says nothing.
        return None;
    }
    let old = Evidence::of(Id::BeatOld).at(case.beat);
    let wedged = case.beat.plus(policy.scheduler_wedged) <= now;
    wedged.then(|| (Cause::SchedulerWedged, 90, vec![old]))
}

/// A request leaves the queue of every rank at once, with the last of them.
fn remote_rank(case: &Case<'_>, _: &Policy, _: Nanos, _: &mut Search) -> Answer {
    if case.phase != Phase::DoneHere {
        return None;
    }
    let waits = Evidence::of(Id::OtherRankWaits);
    let others = case.others.iter().map(|other| waits.worker(other.worker).at(other.progress));
    let evidence: Vec<_> = [Evidence::of(Id::DoneHere)].into_iter().chain(others).collect();
    Some((Cause::RemoteRank, if evidence.len() > 1 { 95 } else { 90 }, evidence))
}

/// Nobody waits for its bytes any more, and it was not told. Why it came to that, its peer or its
/// link may still say.
fn orphaned(case: &Case<'_>, _: &Policy, _: Nanos, _: &mut Search) -> Answer {
    let given_up = case.far == Far::GaveUp;
    given_up.then(|| (Cause::Orphaned, 85, vec![Evidence::of(Id::FarGaveUp)]))
}

fn handshake(case: &Case<'_>, _: &Policy, _: Nanos, _: &mut Search) -> Answer {
    if case.phase != Phase::Parked || case.posts > 0 {
        return None;
    }
    if let Some(at) = case.listener_ended {
        let gone = Evidence::of(Id::ListenerGone).at(at);
        return Some((Cause::WorkerThreadDead, 90, vec![Evidence::of(Id::Parked), gone]));
    }
    let (why, said) = match case.far {
        Far::WaitsForMemory => (Cause::DecodeBacklogged, Some(Id::FarWaitsForMemory)),
        Far::GaveUp => (Cause::Orphaned, Some(Id::FarGaveUp)),
        Far::Waits | Far::Unknown => (Cause::HandshakeMissing, None),
    };
    let evidence = [Some(Id::Parked), said].into_iter().flatten().map(Evidence::of).collect();
    Some((why, 90, evidence))
}

/// Nothing was posted: either other rooms come first, or no thread took it.
fn not_taken(case: &Case<'_>, _: &Policy, _: Nanos, search: &mut Search) -> Answer {
    if case.posts > 0 {
        search.rule_out(Cause::NeverEnqueued, posted(case));
        return None;
    }
    if case.served || case.serving.is_some() {
        return None;
    }
    if let Some((tid, at)) = case.last_thread_gone {
        let evidence = vec![Evidence::of(Id::LastThreadGone).at(at).tid(tid)];
        return Some((Cause::WorkerThreadDead, 80, evidence));
    }
    // That no thread ever took it shows only where all marks were seen, or the table's slots.
    let sees = case.coverage.sees(Source::Marks) || case.coverage.sees(Source::Table);
    let evidence = vec![Evidence::of(Id::NoThreadServing)];
    sees.then_some((Cause::NeverEnqueued, 90, evidence))
}

/// That a peer's process is stopped.
const fn stopped(peer: &PeerCase) -> Evidence {
    Evidence::of(Id::PeerStopped).at(peer.life.1).since(peer.life_since).peer(peer.peer)
}

fn peer_frozen(case: &Case<'_>, _: &Policy, _: Nanos, search: &mut Search) -> Answer {
    if let Some(peer) = case.peers.iter().find(|peer| peer.life.0 == Life::Stopped) {
        let mut evidence = vec![stopped(peer)];
        evidence.extend(wire_evidence(case, peer));
        return Some((Cause::PeerFrozen, 97, evidence));
    }
    for peer in &case.peers {
        let Some((_, meter)) = peer.meter else {
            continue;
        };
        if meter.window_closed && peer.life.0 != Life::Gone {
            // A process that does not read: stopped, or stuck, or too busy for as long.
            let (life, confidence) = match peer.life.0 {
                Life::Running => (Evidence::of(Id::PeerRunning).at(peer.life.1), 85),
                _ => (Evidence::of(Id::PeerUnseen), 70),
            };
            let mut evidence = vec![life.peer(peer.peer)];
            evidence.extend(wire_evidence(case, peer));
            return Some((Cause::PeerFrozen, confidence, evidence));
        }
        if peer.life.0 == Life::Running {
            let running = Evidence::of(Id::PeerRunning).at(peer.life.1).peer(peer.peer);
            search.rule_out(Cause::PeerFrozen, running);
        }
    }
    None
}

/// The engine has given the room up, and its thread waits for its bytes still: rooms that are for
/// this thread are taken by nobody. What it waits for, its peer and its connections may say.
fn thread_captive(case: &Case<'_>, _: &Policy, _: Nanos, search: &mut Search) -> Answer {
    let (tid, at) = case.held_by?;
    let mut evidence = vec![Evidence::of(Id::ThreadHeld).at(at).tid(tid)];
    evidence.extend(peers_say(case));
    rule_out_dead(case, search);
    Some((Cause::WorkerThreadCaptive, 90, evidence))
}

/// What may be why a thread stays with its work: its peers and their connections.
fn peers_say(case: &Case<'_>) -> Vec<Evidence> {
    let mut evidence = Vec::new();
    for peer in &case.peers {
        match peer.life.0 {
            Life::Stopped => evidence.push(stopped(peer)),
            Life::Gone => evidence.push(Evidence::of(Id::PeerGone).at(peer.life.1).peer(peer.peer)),
            Life::Running | Life::Unseen => {}
        }
        evidence.extend(wire_evidence(case, peer));
    }
    evidence
}

/// Nothing of it is under way, more is to come, and the thread that worked for it is no more.
fn last_thread_dead(case: &Case<'_>, _: &Policy, _: Nanos, _: &mut Search) -> Answer {
    let (tid, at) = case.last_thread_gone.filter(|_| case.open_transfers == 0)?;
    let evidence = vec![Evidence::of(Id::LastThreadGone).at(at).tid(tid)];
    Some((Cause::WorkerThreadDead, 80, evidence))
}

fn link(case: &Case<'_>, _: &Policy, _: Nanos, search: &mut Search) -> Answer {
    if let Some(answer) = broken(case, search) {
        return Some(answer);
    }
    let peer = case.peers.iter().find(|peer| {
        peer.meter.is_some_and(|(_, meter)| meter.retransmitting && !meter.window_closed)
    })?;
    let mut evidence = wire_evidence(case, peer);
    if peer.life.0 == Life::Running {
        evidence.push(Evidence::of(Id::PeerRunning).at(peer.life.1).peer(peer.peer));
    }
    Some((Cause::LinkFault, 75, evidence))
}

/// What a peer's connections say.
fn wire_evidence(case: &Case<'_>, peer: &PeerCase) -> Vec<Evidence> {
    let Some((at, meter)) = peer.meter else {
        return Vec::new();
    };
    let mut evidence = Vec::new();
    if meter.connections == 0 {
        evidence.push(Evidence::of(Id::NoConnection).at(at).peer(peer.peer));
    }
    if !peer.unmetered {
        let still = peer.growth_at.unwrap_or(case.last_progress);
        evidence.push(Evidence::of(Id::WireStill).at(still).peer(peer.peer));
    }
    if meter.window_closed {
        let waiting = meter.unsent.saturating_add(meter.unacked);
        evidence.push(Evidence::of(Id::WindowClosed).amount(waiting).peer(peer.peer));
    }
    if meter.link_down {
        evidence.push(Evidence::of(Id::PortDown).at(at).peer(peer.peer));
    }
    if let Some(at) = meter.broken {
        evidence.push(Evidence::of(Id::QueuePairFailed).at(at).peer(peer.peer));
    }
    if meter.retransmitting {
        evidence.push(Evidence::of(Id::Retransmitting).amount(meter.unacked).peer(peer.peer));
    }
    evidence
}

fn posted(case: &Case<'_>) -> Evidence {
    let evidence = Evidence::of(Id::Posted).amount(case.bytes.posted);
    case.first_post.map_or(evidence, |at| evidence.at(at))
}

/// What was posted and what arrived.
pub(super) fn bytes_evidence(case: &Case<'_>) -> Vec<Evidence> {
    if let Some((count, since)) = case.inflight {
        return vec![Evidence::of(Id::EngineInflight).amount(count).at(since)];
    }
    if case.posts == 0 {
        return vec![Evidence::of(Id::NotPosted)];
    }
    let mut evidence = vec![posted(case)];
    if case.open_transfers > 0 {
        let open = Evidence::of(Id::TransfersOpen).amount(case.open_transfers);
        let oldest = case.oldest_open;
        evidence.push(oldest.map_or(open, |(handle, at)| open.handle(handle).at(at)));
    } else if let Some(at) = case.last_completion.filter(|_| case.is_complete()) {
        evidence.push(Evidence::of(Id::AllComplete).amount(case.bytes.completed).at(at));
    }
    if let Some((tid, since)) = case.serving.filter(|_| case.held_by.is_none()) {
        evidence.push(Evidence::of(Id::ThreadServing).at(since).tid(tid));
    }
    if let Some(peer) = case.unseen_bytes_to() {
        evidence.push(Evidence::of(Id::BytesUnseen).peer(peer.peer));
    }
    evidence.extend(counted::evidence(case));
    if case.open_transfers > 0 {
        evidence.extend(counted::of_ports(case));
    }
    for peer in case.peers.iter().filter(|peer| peer.moved.any()) {
        let moved = Evidence::of(Id::WireMoved).amount(peer.moved.bytes()).peer(peer.peer);
        evidence.push(peer.growth_at.map_or(moved, |at| moved.at(at)));
    }
    evidence
}

/// Events lost since the append, over all sources.
pub(super) fn lost(case: &Case<'_>) -> Option<Evidence> {
    let since = case.appended_at;
    let lossy = |source: &Source| case.coverage.lost_since(*source, since) > 0;
    let lost: u64 = Source::ALL
        .into_iter()
        .filter(lossy)
        .map(|source| case.coverage.lost_since(source, since))
        .sum();
    (lost > 0).then(|| Evidence::of(Id::EventsLost).amount(lost))
}

/// A late start and lost events each take from what the evidence would carry.
pub(super) fn confidence(base: u8, late: bool, lossy: bool) -> u8 {
    base.saturating_sub(if late { 5 } else { 0 }).saturating_sub(if lossy { 20 } else { 0 })
}
