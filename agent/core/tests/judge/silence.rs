//! What keeps the judge silent, or without an accusation.

use inflightd_core::coverage::{Reason, Sight, Source};
use inflightd_core::evidence::EvidenceId;
use inflightd_core::fact::{Life, Phase};
use inflightd_core::judge::{Case, Failure, Moved, PeerCase};
use inflightd_core::{Cause, Finding, Nanos};

use crate::support::{
    NOW, ago, all_visible, appended, complete, look, metered, peer, posted, says, stopped,
};

#[test]
fn a_dead_peer_is_told_at_once_and_not_before_the_engine_had_its_chance() {
    let coverage = all_visible();
    let gone = |at| PeerCase { life: (Life::Gone, at), moved: Moved::Bytes(9), ..peer() };
    let just_now = Nanos(NOW.0 - 500_000_000);
    let case = Case {
        appended_at: ago(3),
        last_progress: ago(3),
        peers: vec![gone(just_now)],
        ..posted(&coverage)
    };
    assert_eq!(look(&case), None, "SGLang needs up to 0.5 s to fail it by itself");
    let case = Case { peers: vec![gone(ago(1))], ..case };
    assert_eq!(look(&case), None, "once UCX has noticed");
    let noticed = Case { failure: Some(Failure { at: ago(1), code: -25 }), ..case.clone() };
    says(&noticed, Finding::StoppedMidway, Cause::PeerDead, &[EvidenceId::PeerGone]);
    let late = Case { failure: Some(Failure { at: just_now, code: -25 }), ..noticed };
    let late = Case { peers: vec![gone(ago(2))], ..late };
    assert_eq!(look(&late), None, "which may take it a while");
    let case = Case { peers: vec![gone(ago(2))], ..case };
    says(&case, Finding::StoppedMidway, Cause::PeerDead, &[EvidenceId::PeerGone]);
    let case = Case { beat: ago(3), ..case };
    assert_eq!(look(&case), None, "the scheduler has not looked at its queue since");
}

#[test]
fn a_failed_try_that_was_followed_by_progress_is_not_held_against_anybody() {
    let coverage = all_visible();
    let failure = Some(Failure { at: ago(20), code: -25 });
    let case = Case { failure, last_progress: ago(10), ..posted(&coverage) };
    assert_eq!(look(&case), None);
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
fn within_the_deadline_nothing_is_said() {
    let coverage = all_visible();
    let case = Case { last_progress: ago(29), ..posted(&coverage) };
    assert_eq!(look(&case), None);
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
fn the_engines_bare_word_of_a_failure_is_no_hard_evidence() {
    let coverage = all_visible();
    let failure = Some(Failure { at: ago(2), code: 0 });
    let young = Case { appended_at: ago(3), last_progress: ago(3), ..posted(&coverage) };
    assert_eq!(look(&Case { failure, ..young }), None, "it knows, and may try again");
}

#[test]
fn a_room_whose_peers_have_just_answered_gets_time_to_be_posted() {
    let coverage = all_visible();
    let case = Case {
        phase: Phase::PeersReady,
        unparked_at: Some(ago(3)),
        served: true,
        ..appended(&coverage)
    };
    assert_eq!(look(&case), None);
    let case = Case { unparked_at: Some(ago(6)), ..case };
    assert!(look(&case).is_some());
}

#[test]
fn a_room_for_which_nothing_is_to_be_moved_is_never_judged() {
    let coverage = all_visible();
    let gone = PeerCase { life: (Life::Gone, ago(20)), ..peer() };
    let case = Case {
        phase: Phase::Exempt,
        appended_at: ago(900),
        last_progress: ago(900),
        peers: vec![gone],
        ..posted(&coverage)
    };
    assert_eq!(look(&case), None);
    says(&Case { phase: Phase::None, ..case }, Finding::NeverStarted, Cause::PeerDead, &[]);
}
