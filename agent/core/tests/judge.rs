//! The judge as a table: one row for each finding and cause that this evidence can carry, and for
//! each thing that must keep it silent.

#![expect(clippy::expect_used, clippy::similar_names, reason = "a test fails by panicking")]

use inflightd_core::coverage::{Coverage, Reason, Sight, Source};
use inflightd_core::evidence::EvidenceId;
use inflightd_core::fact::{Life, Meter, Peer, Phase, Tid};
use inflightd_core::judge::{Ahead, Case, Failure, Found, Judgement, Moved, PeerCase};
use inflightd_core::verdict::Bytes;
use inflightd_core::{Cause, Finding, Nanos, Policy, judge};

const NOW: Nanos = Nanos::from_secs(1000);

const fn ago(secs: u64) -> Nanos {
    Nanos(NOW.0 - secs * 1_000_000_000)
}

fn all_visible() -> Coverage {
    let mut coverage = Coverage::default();
    for source in Source::ALL {
        coverage.set(Nanos(1), source, Sight::Visible);
    }
    coverage
}

fn peer() -> PeerCase {
    let meter = Meter { connections: 1, acked: 200, unread: Some(0), ..Meter::default() };
    PeerCase {
        peer: Peer(1),
        life: (Life::Running, ago(1)),
        meter: Some((ago(1), meter)),
        growth_at: None,
        moved: Moved::Bytes(0),
    }
}

/// A room appended 40 s ago to a running peer that can be seen, and nothing else.
fn appended(coverage: &Coverage) -> Case<'_> {
    Case {
        appended_at: ago(40),
        late_at: None,
        read_at: ago(0),
        phase: Phase::None,
        bytes: Bytes { expected: 1000, posted: 0, completed: 0 },
        posts: 0,
        open_transfers: 0,
        first_post: None,
        last_completion: None,
        last_progress: ago(40),
        serving: None,
        served: false,
        thread_gone: None,
        failure: None,
        endpoint_failure: None,
        peers: vec![peer()],
        peers_whole: true,
        ahead: None,
        beat: ago(0),
        posts_would_show: true,
        coverage,
    }
}

/// The same, served and posted 40 s ago, nothing arrived.
fn posted(coverage: &Coverage) -> Case<'_> {
    Case {
        bytes: Bytes { expected: 1000, posted: 1000, completed: 0 },
        posts: 1,
        open_transfers: 1,
        first_post: Some(ago(40)),
        serving: Some((Tid(7), ago(40))),
        served: true,
        ..appended(coverage)
    }
}

fn look(case: &Case<'_>) -> Option<Found> {
    match judge(case, &Policy::DEFAULT, NOW) {
        Judgement::Found(found) => Some(found),
        Judgement::Quiet(until) => {
            assert!(until > NOW, "quiet until the past would spin");
            None
        }
    }
}

#[track_caller]
fn says(case: &Case<'_>, finding: Finding, cause: Cause, evidence: &[EvidenceId]) -> Found {
    let found = look(case).expect("a verdict");
    assert_eq!((found.finding, found.cause), (finding, cause), "{found:#?}");
    for id in evidence {
        assert!(found.evidence.iter().any(|e| e.id == *id), "no {id:?} in {found:#?}");
    }
    assert!(found.ruled_out.iter().all(|(cause, _)| *cause != found.cause), "{found:#?}");
    found
}

fn stopped() -> PeerCase {
    PeerCase { life: (Life::Stopped, ago(1)), ..peer() }
}

fn metered(change: impl FnOnce(&mut Meter)) -> PeerCase {
    let mut peer = peer();
    if let Some((_, meter)) = &mut peer.meter {
        change(meter);
    }
    peer
}

#[test]
fn nothing_posted_and_no_thread_took_it() {
    let coverage = all_visible();
    let evidence = [EvidenceId::NotPosted, EvidenceId::NoThreadServing];
    let found = says(&appended(&coverage), Finding::NeverStarted, Cause::NeverEnqueued, &evidence);
    let ruled_out: Vec<_> = found.ruled_out.iter().map(|(cause, _)| *cause).collect();
    assert_eq!(ruled_out, [Cause::PeerDead, Cause::SchedulerWedged]);
}

#[test]
fn posted_to_a_stopped_peer_before_the_first_byte() {
    let coverage = all_visible();
    let case = Case { peers: vec![stopped()], ..posted(&coverage) };
    let evidence = [EvidenceId::Posted, EvidenceId::PeerStopped, EvidenceId::WireStill];
    let found = says(&case, Finding::NeverStarted, Cause::PeerFrozen, &evidence);
    assert!(found.confidence >= 90);
}

#[test]
fn a_peer_stopped_midway() {
    let coverage = all_visible();
    let moved = PeerCase { moved: Moved::Bytes(400), ..stopped() };
    let case = Case { peers: vec![moved], ..posted(&coverage) };
    says(&case, Finding::StoppedMidway, Cause::PeerFrozen, &[EvidenceId::WireMoved]);
    assert_eq!(case.arrived(), 400);
}

#[test]
fn a_chunk_completed_and_then_nothing_is_midway_too() {
    let coverage = all_visible();
    let bytes = Bytes { expected: 1000, posted: 600, completed: 300 };
    let case = Case { bytes, peers: vec![stopped()], ..posted(&coverage) };
    says(&case, Finding::StoppedMidway, Cause::PeerFrozen, &[EvidenceId::PeerStopped]);
}

#[test]
fn a_dead_peer_is_told_at_once_and_not_before_the_engine_had_its_chance() {
    let coverage = all_visible();
    let gone = |at| PeerCase { life: (Life::Gone, at), moved: Moved::Bytes(9), ..peer() };
    let just_now = Nanos(NOW.0 - 500_000_000);
    let case = Case {
        appended_at: ago(2),
        last_progress: ago(2),
        peers: vec![gone(just_now)],
        ..posted(&coverage)
    };
    assert_eq!(look(&case), None, "SGLang needs up to 0.5 s to fail it by itself");
    let case = Case { peers: vec![gone(ago(1))], ..case };
    says(&case, Finding::StoppedMidway, Cause::PeerDead, &[EvidenceId::PeerGone]);
    let case = Case { beat: ago(3), ..case };
    assert_eq!(look(&case), None, "the scheduler has not looked at its queue since");
}

#[test]
fn an_endpoint_error_is_a_dead_peer_even_from_afar() {
    let coverage = all_visible();
    let unseen = PeerCase { life: (Life::Unseen, Nanos::ZERO), ..peer() };
    let endpoint_failure = Some(Failure { at: ago(2), code: -25 });
    let case = Case { peers: vec![unseen], endpoint_failure, ..posted(&coverage) };
    says(&case, Finding::NeverStarted, Cause::PeerDead, &[EvidenceId::EndpointError]);
}

#[test]
fn a_failed_try_that_was_followed_by_progress_is_not_held_against_anybody() {
    let coverage = all_visible();
    let failure = Some(Failure { at: ago(20), code: -25 });
    let case = Case { failure, last_progress: ago(10), ..posted(&coverage) };
    assert_eq!(look(&case), None);
}

#[test]
fn the_thread_that_worked_for_it_died() {
    let coverage = all_visible();
    let case = Case { serving: None, thread_gone: Some((Tid(7), ago(2))), ..posted(&coverage) };
    says(&case, Finding::NeverStarted, Cause::WorkerThreadDead, &[EvidenceId::ThreadGone]);
}

fn complete(coverage: &Coverage) -> Case<'_> {
    Case {
        bytes: Bytes { expected: 1000, posted: 1000, completed: 1000 },
        open_transfers: 0,
        last_completion: Some(ago(35)),
        last_progress: ago(35),
        ..posted(coverage)
    }
}

#[test]
fn complete_and_never_read() {
    let coverage = all_visible();
    let evidence = [EvidenceId::AllComplete];
    says(&complete(&coverage), Finding::CompletedNotReaped, Cause::Unknown, &evidence);
}

#[test]
fn complete_is_not_blamed_on_what_the_peer_does_afterwards() {
    let coverage = all_visible();
    let gone = PeerCase { life: (Life::Gone, ago(20)), ..peer() };
    let case = Case { peers: vec![gone], ..complete(&coverage) };
    says(&case, Finding::CompletedNotReaped, Cause::Unknown, &[]);
    let fresh = Case { last_progress: ago(3), last_completion: Some(ago(3)), ..case };
    assert_eq!(look(&fresh), None, "nor told before its deadline");
}

#[test]
fn complete_while_the_scheduler_is_in_a_long_forward_pass_is_normal() {
    let coverage = all_visible();
    let case = Case { beat: ago(20), ..complete(&coverage) };
    assert_eq!(look(&case), None);
    let case = Case { beat: ago(301), ..complete(&coverage) };
    says(&case, Finding::CompletedNotReaped, Cause::SchedulerWedged, &[EvidenceId::BeatOld]);
}

#[test]
fn never_taken_while_the_scheduler_is_busy_is_normal() {
    let coverage = all_visible();
    assert_eq!(look(&Case { beat: ago(20), ..appended(&coverage) }), None);
}

#[test]
fn parked_past_the_deadline_misses_its_handshake() {
    let coverage = all_visible();
    let case = Case { phase: Phase::Parked, served: true, ..appended(&coverage) };
    says(&case, Finding::NeverStarted, Cause::HandshakeMissing, &[EvidenceId::Parked]);
}

#[test]
fn behind_another_room() {
    let coverage = all_visible();
    let case = Case { ahead: Some(Ahead { rooms: 2, since: ago(50) }), ..appended(&coverage) };
    says(&case, Finding::NeverStarted, Cause::QueuedBehind, &[EvidenceId::RoomsAhead]);
}

#[test]
fn a_distant_peer_that_does_not_read() {
    let coverage = all_visible();
    let mut peer = metered(|meter| {
        meter.unread = None;
        meter.window_closed = true;
        meter.unsent = 5000;
    });
    peer.life = (Life::Unseen, Nanos::ZERO);
    let case = Case { peers: vec![peer], ..posted(&coverage) };
    let evidence = [EvidenceId::WindowClosed, EvidenceId::PeerUnseen];
    let found = says(&case, Finding::NeverStarted, Cause::PeerFrozen, &evidence);
    assert!(found.confidence < 80, "its state cannot be seen");
}

#[test]
fn a_link_that_does_not_carry() {
    let coverage = all_visible();
    let peer = metered(|meter| {
        meter.retransmitting = true;
        meter.unacked = 3000;
    });
    let case = Case { peers: vec![peer], ..posted(&coverage) };
    says(&case, Finding::NeverStarted, Cause::LinkFault, &[EvidenceId::Retransmitting]);
}

#[test]
fn still_without_a_reason_is_unknown() {
    let coverage = all_visible();
    let found = says(&posted(&coverage), Finding::NeverStarted, Cause::Unknown, &[]);
    assert!(found.confidence <= 60);
}

#[test]
fn within_the_deadline_nothing_is_said() {
    let coverage = all_visible();
    let case = Case { last_progress: ago(29), ..posted(&coverage) };
    assert_eq!(look(&case), None);
}

#[test]
fn a_long_stay_that_moves_is_slow_and_not_a_stall() {
    let coverage = all_visible();
    let case = Case { appended_at: ago(700), last_progress: ago(1), ..posted(&coverage) };
    says(&case, Finding::MovingSlowly, Cause::Unknown, &[]);
}

#[test]
fn where_progress_cannot_be_seen_nobody_is_accused() {
    let mut coverage = all_visible();
    coverage.set(ago(900), Source::Connections, Sight::Blind(Reason::PeerElsewhere));
    let unseen = PeerCase {
        life: (Life::Unseen, Nanos::ZERO),
        meter: None,
        moved: Moved::Unknown,
        ..peer()
    };
    let case = Case { peers: vec![unseen], ..posted(&coverage) };
    let found = says(&case, Finding::Blind, Cause::Unknown, &[EvidenceId::NothingVisible]);
    assert_eq!(found.confidence, 0);
    let no_peers = Case { peers: vec![], peers_whole: false, ..posted(&coverage) };
    says(&no_peers, Finding::Blind, Cause::Unknown, &[EvidenceId::PeersUnknown]);
}

#[test]
fn after_a_loss_nobody_is_accused_until_the_table_is_read_again() {
    let mut coverage = all_visible();
    coverage.lose(ago(5), Source::Marks, 3);
    let stale = Case { read_at: ago(6), peers: vec![stopped()], ..posted(&coverage) };
    says(&stale, Finding::Blind, Cause::Unknown, &[EvidenceId::EventsLost]);
    let read = Case { read_at: ago(5), peers: vec![stopped()], ..posted(&coverage) };
    let found = says(&read, Finding::NeverStarted, Cause::PeerFrozen, &[EvidenceId::EventsLost]);
    assert!(found.confidence < 90, "a loss lowers confidence");
}

#[test]
fn a_connection_that_is_just_being_set_up_has_longer() {
    let coverage = all_visible();
    let young = metered(|meter| {
        meter.received = 42;
        meter.last_received = Some(ago(3));
    });
    let case = Case { peers: vec![young], ..posted(&coverage) };
    assert_eq!(look(&case), None);
    let old = Case { first_post: Some(ago(61)), ..case.clone() };
    says(&old, Finding::NeverStarted, Cause::Unknown, &[]);
    let frozen = PeerCase { life: (Life::Stopped, ago(1)), ..young };
    says(&Case { peers: vec![frozen], ..case }, Finding::NeverStarted, Cause::PeerFrozen, &[]);
}

#[test]
fn a_late_agent_watches_before_it_accuses() {
    let coverage = all_visible();
    let silent = |secs| {
        metered(|meter| {
            meter.received = 50_000;
            meter.last_received = Some(ago(secs));
        })
    };
    let case = Case { late_at: Some(ago(6)), peers: vec![silent(36)], ..posted(&coverage) };
    let evidence = [EvidenceId::LateStart];
    says(&case, Finding::NeverStarted, Cause::Unknown, &evidence);
    let case = Case { late_at: Some(ago(4)), ..case };
    assert_eq!(look(&case), None, "not yet watched for as long as a suspect");
    let case = Case { late_at: Some(ago(6)), peers: vec![silent(10)], ..case };
    assert_eq!(look(&case), None, "it may have moved before the agent came");
    let case = Case { late_at: Some(ago(31)), ..case };
    says(&case, Finding::NeverStarted, Cause::Unknown, &evidence);
}

#[test]
fn what_never_shows_is_not_held_to_be_missing() {
    let coverage = all_visible();
    let gone = PeerCase { life: (Life::Gone, ago(2)), ..peer() };
    let unmarked = Case { posts_would_show: false, ..appended(&coverage) };
    says(&unmarked, Finding::Blind, Cause::Unknown, &[EvidenceId::NothingVisible]);
    let young = Case { appended_at: ago(9), last_progress: ago(9), ..unmarked };
    let young = Case { peers: vec![gone], ..young };
    assert_eq!(look(&young), None, "its bytes may have arrived before the peer ended");
    let overdue = Case { appended_at: ago(40), last_progress: ago(40), ..young };
    says(&overdue, Finding::Blind, Cause::Unknown, &[EvidenceId::NotPosted]);
}

#[test]
fn a_room_posted_at_the_deadline_gets_time_to_move() {
    let coverage = all_visible();
    assert_eq!(look(&Case { first_post: Some(ago(1)), ..posted(&coverage) }), None);
    let late = Case { first_post: Some(ago(6)), ..posted(&coverage) };
    says(&late, Finding::NeverStarted, Cause::Unknown, &[EvidenceId::Posted]);
}

#[test]
fn a_poll_from_before_the_bytes_arrived_was_no_chance_to_act() {
    let coverage = all_visible();
    let complete = Case {
        bytes: Bytes { expected: 1000, posted: 1000, completed: 1000 },
        open_transfers: 0,
        last_completion: Some(ago(3)),
        last_progress: ago(3),
        beat: ago(4),
        ..posted(&coverage)
    };
    let short =
        Policy { suspect: Nanos::from_secs(1), stall: Nanos::from_secs(2), ..Policy::DEFAULT };
    assert!(matches!(judge(&complete, &short, NOW), Judgement::Quiet(_)));
    let polled = Case { beat: ago(1), ..complete };
    assert!(matches!(judge(&polled, &short, NOW), Judgement::Found(_)));
}

#[test]
fn an_engine_that_never_beats_is_not_called_wedged() {
    let coverage = all_visible();
    let mute = Case { beat: Nanos::ZERO, ..appended(&coverage) };
    says(&mute, Finding::NeverStarted, Cause::NeverEnqueued, &[EvidenceId::NotPosted]);
}
