//! What a source did not see or does not count, and workers that are seen by their transfers only.

use inflightd_core::coverage::Source;
use inflightd_core::evidence::EvidenceId;
use inflightd_core::fact::{Life, Phase, Tid};
use inflightd_core::judge::{Case, Failure, Moved, PeerCase};
use inflightd_core::verdict::Bytes;
use inflightd_core::{Cause, Finding, Nanos};

use crate::support::{
    ago, all_visible, appended, complete, look, metered, peer, posted, says, stopped,
};

#[test]
fn what_the_ring_lost_is_lost_only_where_no_table_tells_it() {
    let mut coverage = all_visible();
    coverage.lose(ago(9), Source::Transfers, 3);
    let read = Case { read_at: ago(1), peers: vec![stopped()], ..posted(&coverage) };
    says(&read, Finding::NeverStarted, Cause::PeerFrozen, &[EvidenceId::EventsLost]);
    let unmarked = Case { table_tells_posts: false, ..read };
    says(&unmarked, Finding::Blind, Cause::Unknown, &[EvidenceId::EventsLost]);
    let parked = Case {
        phase: Phase::Parked,
        table_tells_posts: false,
        read_at: ago(1),
        ..appended(&coverage)
    };
    says(&parked, Finding::NeverStarted, Cause::HandshakeMissing, &[EvidenceId::EventsLost]);
    let before = Case { appended_at: ago(8), last_progress: ago(8), ..unmarked };
    assert_eq!(look(&before), None);
    let no_table = Case { read_at: Nanos::ZERO, peers: vec![stopped()], ..posted(&coverage) };
    says(&no_table, Finding::Blind, Cause::Unknown, &[EvidenceId::EventsLost]);
}

fn unmetered(life: Life) -> PeerCase {
    let answered = metered(|meter| meter.received = 400);
    PeerCase { life: (life, ago(2)), moved: Moved::Unknown, unmetered: true, ..answered }
}

#[test]
fn what_goes_past_the_sockets_is_not_held_to_be_missing() {
    let coverage = all_visible();
    let case = Case { peers: vec![unmetered(Life::Stopped)], ..posted(&coverage) };
    let found = says(&case, Finding::StoppedMidway, Cause::PeerFrozen, &[EvidenceId::BytesUnseen]);
    assert!(found.evidence.iter().all(|evidence| evidence.id != EvidenceId::WireStill));
    assert_eq!(case.arrived(), 0, "the amount is not known");
    let running = Case { peers: vec![unmetered(Life::Running)], ..case.clone() };
    says(&running, Finding::Blind, Cause::Unknown, &[EvidenceId::BytesUnseen]);
    let gone = Case { peers: vec![unmetered(Life::Gone)], ..case.clone() };
    says(&gone, Finding::StoppedMidway, Cause::PeerDead, &[EvidenceId::PeerGone]);
    // Stopped while the connection was set up: 9 of the 78 bytes that it would have answered (seen).
    let half =
        PeerCase { meter: metered(|meter| meter.received = 9).meter, ..unmetered(Life::Stopped) };
    let half = Case { peers: vec![half], ..case.clone() };
    says(&half, Finding::NeverStarted, Cause::PeerFrozen, &[EvidenceId::PeerStopped]);
    let silent = PeerCase { meter: peer().meter, ..unmetered(Life::Stopped) };
    let case = Case { peers: vec![silent], ..case };
    says(&case, Finding::NeverStarted, Cause::PeerFrozen, &[EvidenceId::Posted]);
}

fn restarted() -> PeerCase {
    let unconnected = metered(|meter| meter.connections = 0);
    PeerCase { gone_at: Some(ago(50)), stale_at: Some(ago(50)), ..unconnected }
}

#[test]
fn posted_to_a_process_that_had_ended_before() {
    let coverage = all_visible();
    let failure = Some(Failure { at: ago(2), code: -10 });
    let case = Case {
        appended_at: ago(3),
        first_post: Some(ago(2)),
        last_progress: ago(3),
        failure,
        peers: vec![restarted()],
        ..posted(&coverage)
    };
    let evidence = [EvidenceId::PeerRestarted, EvidenceId::TransferFailed];
    let found = says(&case, Finding::NeverStarted, Cause::StalePeer, &evidence);
    assert!(found.confidence > 90);
    let dead = PeerCase { life: (Life::Gone, ago(50)), ..restarted() };
    let case = Case { peers: vec![dead], ..case };
    says(&case, Finding::NeverStarted, Cause::PeerDead, &[EvidenceId::PeerGone]);
}

#[test]
fn without_a_failure_a_connection_to_nobody_tells_it_at_the_deadline() {
    let coverage = all_visible();
    let frozen = PeerCase { life: (Life::Stopped, ago(1)), ..restarted() };
    let case = Case { peers: vec![frozen], ..posted(&coverage) };
    let found = says(&case, Finding::NeverStarted, Cause::StalePeer, &[EvidenceId::NoConnection]);
    assert!(found.confidence < 90);
    let meter = peer().meter;
    let connected = PeerCase { meter, ..frozen };
    let case = Case { peers: vec![connected], ..case };
    says(&case, Finding::NeverStarted, Cause::PeerFrozen, &[]);
}

#[test]
fn a_room_that_was_under_way_when_its_peer_ended_died_with_it() {
    let coverage = all_visible();
    let ended = PeerCase { gone_at: Some(ago(20)), stale_at: Some(ago(20)), ..restarted() };
    let failure = Some(Failure { at: ago(20), code: -25 });
    let case = Case { failure, peers: vec![ended], ..posted(&coverage) };
    says(&case, Finding::NeverStarted, Cause::PeerDead, &[EvidenceId::PeerGone]);
}

/// A room whose name another process has taken on this node, while its bytes went on elsewhere: measured
/// as a false alarm of a healthy room.
#[test]
fn a_peer_that_takes_payload_has_not_ended_whoever_takes_its_name() {
    let coverage = all_visible();
    let moving = |since: u64| Case {
        last_progress: ago(since),
        bytes: Bytes { expected: 1000, posted: 1000, completed: 100 },
        peers: vec![PeerCase { gone_at: Some(ago(20)), life: (Life::Running, ago(1)), ..peer() }],
        ..posted(&coverage)
    };
    assert!(look(&moving(2)).is_none(), "it moved 18 s after that end");
    let ended = says(&moving(20), Finding::StoppedMidway, Cause::PeerDead, &[EvidenceId::PeerGone]);
    assert!(ended.confidence > 90, "its last bytes are as old as the end");
}

#[test]
fn a_peer_that_ended_before_the_room_entered_may_go_on_elsewhere() {
    let coverage = all_visible();
    let gone = PeerCase { life: (Life::Gone, ago(60)), meter: None, ..peer() };
    let young = Case {
        appended_at: ago(9),
        last_progress: ago(9),
        first_post: Some(ago(8)),
        peers: vec![gone],
        ..posted(&coverage)
    };
    assert_eq!(look(&young), None, "it may be slow on another node");
    let old = Case { appended_at: ago(40), last_progress: ago(40), ..young };
    says(&old, Finding::Blind, Cause::Unknown, &[]);
    let failure = Some(Failure { at: ago(8), code: -25 });
    let failed = Case { failure, ..old.clone() };
    says(&failed, Finding::NeverStarted, Cause::PeerDead, &[EvidenceId::PeerGone]);
    let under = PeerCase { life: (Life::Gone, ago(39)), ..gone };
    says(&Case { peers: vec![under], ..old }, Finding::NeverStarted, Cause::PeerDead, &[]);
}

#[test]
fn without_the_hook_nothing_rests_on_a_scheduler() {
    let coverage = all_visible();
    let bare = |case| Case { hooked: false, beat: Nanos::ZERO, ..case };
    assert_eq!(look(&bare(complete(&coverage))), None, "more may be to come, or not");
    let wedged = Case { beat: ago(400), ..bare(posted(&coverage)) };
    says(&wedged, Finding::NeverStarted, Cause::Unknown, &[]);
    let frozen = Case { peers: vec![stopped()], ..bare(posted(&coverage)) };
    says(&frozen, Finding::NeverStarted, Cause::PeerFrozen, &[]);
    let pool = Case { thread_gone: Some((Tid(7), ago(2))), last_progress: ago(9), ..frozen };
    assert_eq!(look(&Case { appended_at: ago(9), ..pool }), None, "threads come and go");
}

#[test]
fn a_room_after_its_peers_end_waits_for_a_look_at_who_goes_by_the_name_now() {
    let coverage = all_visible();
    let gone = PeerCase { life: (Life::Gone, ago(9)), looked_at: ago(4), ..restarted() };
    let failure = Some(Failure { at: ago(2), code: -10 });
    let case = Case {
        appended_at: ago(3),
        last_progress: ago(3),
        first_post: Some(ago(2)),
        failure,
        peers: vec![gone],
        ..posted(&coverage)
    };
    assert_eq!(look(&case), None);
    let looked = PeerCase { looked_at: ago(1), ..gone };
    let case = Case { peers: vec![looked], ..case };
    says(&case, Finding::NeverStarted, Cause::PeerDead, &[EvidenceId::PeerGone]);
    let just_now = Nanos(crate::support::NOW.0 - 300_000_000);
    let young = Case { appended_at: just_now, first_post: Some(just_now), failure: None, ..case };
    let young = Case {
        last_progress: just_now,
        peers: vec![PeerCase { looked_at: ago(0), ..gone }],
        ..young
    };
    assert_eq!(look(&young), None, "the engine has its moment from the append on");
}
