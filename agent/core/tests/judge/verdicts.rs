//! What is told, with which cause and evidence.

use inflightd_core::evidence::EvidenceId;
use inflightd_core::fact::{Life, Meter, Phase, Tid, Worker};
use inflightd_core::judge::{Case, Failure, Far, Judgement, Moved, PeerCase};
use inflightd_core::verdict::Bytes;
use inflightd_core::{Cause, Finding, Nanos, Policy, judge};

use crate::support::{
    NOW, ago, all_visible, appended, complete, look, metered, other, peer, posted, says, stopped,
};

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
fn an_endpoint_error_is_a_dead_peer_even_from_afar() {
    let coverage = all_visible();
    let unseen = PeerCase { life: (Life::Unseen, Nanos::ZERO), ..peer() };
    let endpoint_failure = Some(Failure { at: ago(2), code: -25 });
    let case = Case { peers: vec![unseen], endpoint_failure, ..posted(&coverage) };
    says(&case, Finding::NeverStarted, Cause::PeerDead, &[EvidenceId::EndpointError]);
}

#[test]
fn the_thread_that_worked_for_it_died() {
    let coverage = all_visible();
    let case = Case { serving: None, thread_gone: Some((Tid(7), ago(2))), ..posted(&coverage) };
    says(&case, Finding::NeverStarted, Cause::WorkerThreadDead, &[EvidenceId::ThreadGone]);
}

#[test]
fn complete_and_never_read() {
    let coverage = all_visible();
    let evidence = [EvidenceId::AllComplete];
    says(&complete(&coverage), Finding::CompletedNotReaped, Cause::Unknown, &evidence);
}

#[test]
fn parked_past_the_deadline_misses_its_handshake() {
    let coverage = all_visible();
    let case = Case { phase: Phase::Parked, served: true, ..appended(&coverage) };
    says(&case, Finding::NeverStarted, Cause::HandshakeMissing, &[EvidenceId::Parked]);
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
fn a_long_stay_that_moves_is_slow_and_not_a_stall() {
    let coverage = all_visible();
    let case = Case { appended_at: ago(700), last_progress: ago(1), ..posted(&coverage) };
    says(&case, Finding::MovingSlowly, Cause::Unknown, &[]);
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
    // The thread that saw the last byte tells the scheduler a moment later.
    let soon = Case { beat: ago(3).plus(Nanos::from_millis(500)), ..complete.clone() };
    assert!(matches!(judge(&soon, &short, NOW), Judgement::Quiet(_)));
    let polled = Case { beat: ago(1), ..complete };
    assert!(matches!(judge(&polled, &short, NOW), Judgement::Found(_)));
}

#[test]
fn an_engine_that_never_beats_is_not_called_wedged() {
    let coverage = all_visible();
    let mute = Case { beat: Nanos::ZERO, ..appended(&coverage) };
    says(&mute, Finding::NeverStarted, Cause::NeverEnqueued, &[EvidenceId::NotPosted]);
}

#[test]
fn a_disconnect_while_the_peer_lived_all_the_time_is_the_links() {
    let coverage = all_visible();
    let failure = Some(Failure { at: ago(2), code: -25 });
    let case = Case { failure, ..posted(&coverage) };
    let evidence = [EvidenceId::TransferFailed];
    let found = says(&case, Finding::NeverStarted, Cause::LinkFault, &evidence);
    assert!(found.ruled_out.iter().any(|(cause, _)| *cause == Cause::PeerDead), "{found:#?}");
}

/// UCX over RDMA gives a stopped peer up after half a minute.
#[test]
fn a_disconnect_from_a_stopped_peer_is_of_its_stop() {
    let coverage = all_visible();
    let failure = Some(Failure { at: ago(2), code: -80 });
    let case = Case { peers: vec![stopped()], failure, ..posted(&coverage) };
    let evidence = [EvidenceId::TransferFailed, EvidenceId::PeerStopped];
    says(&case, Finding::NeverStarted, Cause::PeerFrozen, &evidence);
}

#[test]
fn a_peer_that_runs_and_does_not_read_is_frozen_too() {
    let coverage = all_visible();
    let deaf = |life| {
        let meter = Meter { connections: 1, window_closed: true, ..Meter::default() };
        PeerCase { meter: Some((ago(1), meter)), life: (life, ago(1)), ..peer() }
    };
    for (life, seen) in
        [(Life::Running, EvidenceId::PeerRunning), (Life::Unseen, EvidenceId::PeerUnseen)]
    {
        let case = Case { peers: vec![deaf(life)], ..posted(&coverage) };
        let evidence = [seen, EvidenceId::WindowClosed];
        says(&case, Finding::NeverStarted, Cause::PeerFrozen, &evidence);
    }
}

#[test]
fn a_peer_that_was_restarted_under_its_name_is_dead_all_the_same() {
    let coverage = all_visible();
    let restarted = PeerCase { gone_at: Some(ago(5)), ..peer() };
    let failure = Some(Failure { at: ago(5), code: -25 });
    let case = Case { peers: vec![restarted], failure, ..posted(&coverage) };
    says(&case, Finding::NeverStarted, Cause::PeerDead, &[EvidenceId::PeerGone]);
    let long_ago = PeerCase { gone_at: Some(ago(90)), ..peer() };
    let case = Case { peers: vec![long_ago], failure: None, ..case };
    says(&case, Finding::NeverStarted, Cause::Unknown, &[]);
}

#[test]
fn complete_is_less_sure_where_the_engine_does_not_say_how_much_is_to_come() {
    let coverage = all_visible();
    let told = look(&complete(&coverage)).unwrap().confidence;
    let bytes = Bytes { expected: 0, ..complete(&coverage).bytes };
    let open_end = look(&Case { bytes, ..complete(&coverage) }).unwrap().confidence;
    assert!(open_end < told, "{open_end} {told}");
}

#[test]
fn a_rank_that_is_done_waits_for_another() {
    let coverage = all_visible();
    // What this rank's peer and link do now is not why it stays.
    let case = Case { phase: Phase::DoneHere, peers: vec![stopped()], ..posted(&coverage) };
    let evidence = [EvidenceId::DoneHere];
    let elsewhere = says(&case, Finding::CompletedNotReaped, Cause::RemoteRank, &evidence);
    let others = vec![other(3, 40), other(5, 35)];
    let case = Case { others, ..case };
    let evidence = [EvidenceId::DoneHere, EvidenceId::OtherRankWaits];
    let named = says(&case, Finding::CompletedNotReaped, Cause::RemoteRank, &evidence);
    let waits = named.evidence.iter().filter(|e| e.id == EvidenceId::OtherRankWaits);
    let waits: Vec<_> = waits.map(|e| (e.worker, e.at)).collect();
    assert_eq!(waits, [(Some(Worker(3)), Some(ago(40))), (Some(Worker(5)), Some(ago(35)))]);
    assert!(named.confidence > elsewhere.confidence);
    let case = Case { beat: ago(400), ..case };
    says(&case, Finding::CompletedNotReaped, Cause::SchedulerWedged, &[EvidenceId::BeatOld]);
}

#[test]
fn a_rank_that_is_done_has_the_whole_deadline_from_the_last_byte_of_the_others() {
    let coverage = all_visible();
    let done = Case { phase: Phase::DoneHere, ..complete(&coverage) };
    let moves = Case { others: vec![other(3, 40), other(5, 29)], ..done.clone() };
    assert_eq!(look(&moves), None);
    let still = Case { others: vec![other(3, 40), other(5, 30)], ..done };
    says(&still, Finding::CompletedNotReaped, Cause::RemoteRank, &[EvidenceId::OtherRankWaits]);
}

#[test]
fn a_rank_that_is_done_says_nothing_while_its_scheduler_is_busy() {
    let coverage = all_visible();
    let case = Case { phase: Phase::DoneHere, beat: ago(20), ..complete(&coverage) };
    assert_eq!(look(&case), None);
}

#[test]
fn nobody_waits_for_it_any_more() {
    let coverage = all_visible();
    let case = Case { far: Far::GaveUp, ..posted(&coverage) };
    says(&case, Finding::NeverStarted, Cause::Orphaned, &[EvidenceId::FarGaveUp]);
    let parked = Case { far: Far::GaveUp, phase: Phase::Parked, ..appended(&coverage) };
    says(&parked, Finding::NeverStarted, Cause::Orphaned, &[EvidenceId::FarGaveUp]);
    // Where all bytes are there, only the scheduler has not looked.
    let case = Case { far: Far::GaveUp, ..complete(&coverage) };
    says(&case, Finding::CompletedNotReaped, Cause::Unknown, &[]);
}

#[test]
fn a_parked_room_whose_decode_has_no_memory_is_nobodys_fault() {
    let coverage = all_visible();
    let case = Case { phase: Phase::Parked, far: Far::WaitsForMemory, ..appended(&coverage) };
    let evidence = [EvidenceId::Parked, EvidenceId::FarWaitsForMemory];
    says(&case, Finding::NeverStarted, Cause::DecodeBacklogged, &evidence);
    let case = Case { far: Far::Waits, ..case };
    says(&case, Finding::NeverStarted, Cause::HandshakeMissing, &[]);
}
