//! Rooms behind others, and threads that are no more.

use inflightd_core::evidence::EvidenceId;
use inflightd_core::fact::{Handle, Life, Phase, Seq, Tid};
use inflightd_core::judge::{Ahead, Case, PeerCase};
use inflightd_core::verdict::Bytes;
use inflightd_core::{Cause, Finding};

use crate::support::{ago, all_visible, appended, complete, look, peer, posted, says, stopped};

const AHEAD: Ahead = Ahead {
    head: Some(Seq(1)),
    tid: Some(Tid(7)),
    rooms: 2,
    since: ago(50),
    progress: ago(45),
    certain: true,
    visible: true,
};

#[test]
fn behind_a_head_that_does_not_move() {
    let coverage = all_visible();
    let case = Case { ahead: Some(AHEAD), peers: vec![stopped()], ..appended(&coverage) };
    let evidence = [EvidenceId::RoomsAhead, EvidenceId::HeadStill];
    let found = says(&case, Finding::NeverStarted, Cause::QueuedBehind, &evidence);
    let ahead = found.evidence.iter().find(|e| e.id == EvidenceId::RoomsAhead).unwrap();
    assert_eq!((ahead.amount, ahead.tid, ahead.at), (Some(2), Some(Tid(7)), Some(ago(50))));
    let guess = Case { ahead: Some(Ahead { certain: false, ..AHEAD }), ..case };
    let guessed = says(&guess, Finding::NeverStarted, Cause::QueuedBehind, &evidence);
    assert!(guessed.confidence < found.confidence);
}

#[test]
fn behind_a_head_that_moves() {
    let coverage = all_visible();
    let ahead = Ahead { progress: ago(1), ..AHEAD };
    let case = Case { ahead: Some(ahead), ..appended(&coverage) };
    says(&case, Finding::NeverStarted, Cause::QueuedBehind, &[EvidenceId::HeadMoves]);
}

#[test]
fn what_waits_has_not_met_its_dead_peer_yet() {
    let coverage = all_visible();
    let gone = PeerCase { life: (Life::Gone, ago(3)), ..peer() };
    let case = Case { ahead: Some(AHEAD), peers: vec![gone], ..appended(&coverage) };
    says(&case, Finding::NeverStarted, Cause::QueuedBehind, &[]);
    let young = Case { appended_at: ago(9), last_progress: ago(9), ..case };
    assert_eq!(look(&young), None, "its head is told at once, it is not");
    let first = Case { ahead: None, ..young };
    says(&first, Finding::NeverStarted, Cause::PeerDead, &[EvidenceId::PeerGone]);
}

#[test]
fn a_parked_room_waits_for_its_peer_and_not_for_others() {
    let coverage = all_visible();
    let case = Case { ahead: Some(AHEAD), phase: Phase::Parked, ..appended(&coverage) };
    says(&case, Finding::NeverStarted, Cause::HandshakeMissing, &[EvidenceId::Parked]);
}

#[test]
fn a_parked_room_whose_answer_nobody_hears() {
    let coverage = all_visible();
    let parked = Case { phase: Phase::Parked, ..appended(&coverage) };
    let deaf = Case { listener_ended: Some(ago(50)), ..parked };
    let evidence = [EvidenceId::Parked, EvidenceId::ListenerGone];
    says(&deaf, Finding::NeverStarted, Cause::WorkerThreadDead, &evidence);
    let answered = Case { phase: Phase::PeersReady, ..deaf };
    says(&answered, Finding::NeverStarted, Cause::NeverEnqueued, &[]);
}

#[test]
fn a_room_that_waited_gets_the_whole_deadline_afterwards() {
    let coverage = all_visible();
    let case = Case { waited_until: Some(ago(29)), ..appended(&coverage) };
    assert_eq!(look(&case), None);
    let case = Case { waited_until: Some(ago(31)), ..case };
    says(&case, Finding::NeverStarted, Cause::NeverEnqueued, &[]);
    let served = Case { waited_until: Some(ago(29)), ..posted(&coverage) };
    assert_eq!(look(&served), None, "also once it was taken");
}

#[test]
fn a_thread_that_stays_with_a_room_that_was_given_up() {
    let coverage = all_visible();
    let oldest_open = Some((Handle(0x7f00), ago(59)));
    let held = Case { held_by: Some((Tid(7), ago(60))), oldest_open, ..posted(&coverage) };
    let captive = Cause::WorkerThreadCaptive;
    let frozen = Case { peers: vec![stopped()], ..held.clone() };
    let evidence = [EvidenceId::TransfersOpen, EvidenceId::ThreadHeld, EvidenceId::PeerStopped];
    let found = says(&frozen, Finding::NeverStarted, captive, &evidence);
    let of = |id| found.evidence.iter().find(|e| e.id == id).unwrap();
    let (open, thread) = (of(EvidenceId::TransfersOpen), of(EvidenceId::ThreadHeld));
    assert_eq!((open.handle, open.at), (Some(Handle(0x7f00)), Some(ago(59))));
    assert_eq!((thread.tid, thread.at), (Some(Tid(7)), Some(ago(60))));
    says(&held, Finding::NeverStarted, captive, &[EvidenceId::ThreadHeld, EvidenceId::WireStill]);
    let wedged = Case { beat: ago(400), ..held.clone() };
    says(&wedged, Finding::NeverStarted, captive, &[]);
}

#[test]
fn a_thread_that_is_about_to_put_a_room_down_is_not_captive() {
    let coverage = all_visible();
    let held = Case { held_by: Some((Tid(7), ago(60))), ..posted(&coverage) };
    let moves = Case { last_progress: ago(29), ..held.clone() };
    assert_eq!(look(&moves), None, "its bytes move");
    let done = Case { held_by: held.held_by, ..complete(&coverage) };
    assert_eq!(look(&done), None, "its bytes are there");
    let gone = PeerCase { life: (Life::Gone, ago(3)), ..peer() };
    let young = Case { last_progress: ago(9), peers: vec![gone], ..held.clone() };
    assert_eq!(look(&young), None, "the engine has acted on its dead peer already");
    let unmetered = Case { peers: vec![PeerCase { meter: None, ..peer() }], ..held };
    says(&unmetered, Finding::Blind, Cause::Unknown, &[]);
}

#[test]
fn the_thread_died_with_chunks_left() {
    let coverage = all_visible();
    let thread_gone = Some((Tid(7), ago(2)));
    let bytes = Bytes { expected: 1000, posted: 300, completed: 300 };
    let young = Case {
        appended_at: ago(9),
        last_progress: ago(8),
        bytes,
        open_transfers: 0,
        last_completion: Some(ago(8)),
        serving: None,
        thread_gone,
        ..posted(&coverage)
    };
    says(&young, Finding::StoppedMidway, Cause::WorkerThreadDead, &[EvidenceId::ThreadGone]);
    let all = Case { bytes: Bytes { posted: 1000, completed: 1000, ..bytes }, ..young };
    assert_eq!(look(&all), None, "all bytes are there: no hard evidence");
    let late = Case { appended_at: ago(40), last_progress: ago(39), ..all };
    says(&late, Finding::CompletedNotReaped, Cause::WorkerThreadDead, &[EvidenceId::ThreadGone]);
}

#[test]
fn the_thread_died_between_two_chunks() {
    let coverage = all_visible();
    let last_thread_gone = Some((Tid(7), ago(36)));
    let between = Case {
        bytes: Bytes { expected: 1000, posted: 300, completed: 300 },
        open_transfers: 0,
        last_completion: Some(ago(36)),
        last_progress: ago(36),
        serving: None,
        last_thread_gone,
        ..posted(&coverage)
    };
    says(&between, Finding::StoppedMidway, Cause::WorkerThreadDead, &[EvidenceId::LastThreadGone]);
    let young = Case { last_progress: ago(3), ..between.clone() };
    assert_eq!(look(&young), None, "another thread may take its place");
    let open = Case { open_transfers: 1, peers: vec![stopped()], ..between };
    says(&open, Finding::StoppedMidway, Cause::PeerFrozen, &[]);
}

#[test]
fn nobody_took_it_because_the_thread_of_its_peer_died() {
    let coverage = all_visible();
    let case = Case { last_thread_gone: Some((Tid(7), ago(60))), ..appended(&coverage) };
    says(&case, Finding::NeverStarted, Cause::WorkerThreadDead, &[EvidenceId::LastThreadGone]);
}

#[test]
fn nothing_under_way_is_seen_without_meters() {
    let coverage = all_visible();
    let unmetered = PeerCase { meter: None, ..peer() };
    let case = Case {
        bytes: Bytes { expected: 1000, posted: 300, completed: 300 },
        open_transfers: 0,
        last_completion: Some(ago(36)),
        last_progress: ago(36),
        serving: None,
        peers: vec![unmetered],
        ..posted(&coverage)
    };
    says(&case, Finding::StoppedMidway, Cause::Unknown, &[]);
    let unmarked = Case { table_tells_posts: false, ..case };
    says(&unmarked, Finding::Blind, Cause::Unknown, &[]);
}

#[test]
fn a_late_agent_gives_the_rooms_in_line_a_moment() {
    let coverage = all_visible();
    let case = Case { late_at: Some(ago(4)), ..appended(&coverage) };
    assert_eq!(look(&case), None, "its head may have left just before the agent came");
    let case = Case { late_at: Some(ago(6)), ..case };
    says(&case, Finding::NeverStarted, Cause::NeverEnqueued, &[EvidenceId::LateStart]);
}

#[test]
fn a_long_forward_pass_over_a_finished_room_is_normal_and_a_thread_is_no_excuse() {
    let coverage = all_visible();
    let case = Case { beat: ago(20), ..complete(&coverage) };
    assert_eq!(look(&case), None);
    let case = Case { thread_gone: Some((Tid(7), ago(34))), ..case };
    assert_eq!(look(&case), None, "the scheduler may read it still");
}
