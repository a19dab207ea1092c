//! What RDMA's queue pairs and ports say.

use inflightd_core::coverage::{Reason, Sight, Source};
use inflightd_core::evidence::EvidenceId;
use inflightd_core::fact::{Life, Meter};
use inflightd_core::judge::{Case, PeerCase};
use inflightd_core::{Cause, Finding, Nanos, Policy};

use crate::support::{NOW, ago, all_visible, complete, look, metered, posted, says};

/// A peer to which a queue pair failed so many seconds ago, and how its process was last seen.
fn broken(secs: u64, life: Life) -> PeerCase {
    let mut peer = metered(|meter| {
        meter.connections = 0;
        meter.broken = Some(ago(secs));
    });
    peer.life = (life, ago(1));
    peer
}

#[test]
fn a_port_that_is_down_is_a_link_fault_also_beside_a_stopped_peer() {
    let coverage = all_visible();
    let mut down = metered(|meter| meter.link_down = true);
    for life in [Life::Running, Life::Stopped, Life::Unseen] {
        down.life = (life, ago(1));
        let case = Case { peers: vec![down], ..posted(&coverage) };
        let found = says(&case, Finding::NeverStarted, Cause::LinkFault, &[EvidenceId::PortDown]);
        assert!(found.confidence > 90);
    }
}

#[test]
fn a_port_that_is_down_shows_where_nothing_else_does() {
    let mut coverage = all_visible();
    let unseen = Sight::Degraded(Reason::OtherTransport);
    coverage.set(Nanos(2), Source::Connections, unseen);
    let mut down = metered(|meter| {
        meter.connections = 0;
        meter.link_down = true;
    });
    down.unmetered = true;
    let case = Case { peers: vec![down], ..posted(&coverage) };
    says(&case, Finding::NeverStarted, Cause::LinkFault, &[EvidenceId::PortDown]);
    let up = PeerCase { meter: Some((ago(1), Meter::default())), ..down };
    let case = Case { peers: vec![up], ..posted(&coverage) };
    says(&case, Finding::Blind, Cause::Unknown, &[]);
}

#[test]
fn a_queue_pair_that_failed_under_a_running_peer_is_the_links_and_a_stopped_one_is_named() {
    let coverage = all_visible();
    let evidence = [EvidenceId::QueuePairFailed];
    for (life, cause) in [(Life::Running, Cause::LinkFault), (Life::Stopped, Cause::PeerFrozen)] {
        let case = Case { peers: vec![broken(5, life)], ..posted(&coverage) };
        says(&case, Finding::NeverStarted, cause, &evidence);
    }
}

#[test]
fn of_a_peer_that_cannot_be_seen_nobody_can_tell_why_its_queue_pair_failed() {
    let coverage = all_visible();
    let case = Case { peers: vec![broken(5, Life::Unseen)], ..posted(&coverage) };
    let evidence = [EvidenceId::QueuePairFailed, EvidenceId::PeerUnseen];
    says(&case, Finding::NeverStarted, Cause::Unknown, &evidence);
    let mut gone = broken(5, Life::Gone);
    gone.gone_at = Some(ago(6));
    let case = Case { peers: vec![gone], ..posted(&coverage) };
    says(&case, Finding::NeverStarted, Cause::PeerDead, &[EvidenceId::PeerGone]);
}

#[test]
fn a_failed_queue_pair_does_not_wait_for_the_deadline_but_for_the_engine() {
    let coverage = all_visible();
    let fresh = |ms: u64| {
        let at = Nanos(NOW.0 - ms * 1_000_000);
        let mut peer = broken(0, Life::Running);
        if let Some((_, meter)) = &mut peer.meter {
            meter.broken = Some(at);
        }
        let begun = Case { appended_at: ago(3), last_progress: ago(2), ..posted(&coverage) };
        Case { first_post: Some(ago(3)), peers: vec![peer], ..begun }
    };
    let grace = Policy::DEFAULT.hard_grace.0 / 1_000_000;
    assert!(look(&fresh(grace - 100)).is_none());
    says(&fresh(grace + 100), Finding::NeverStarted, Cause::LinkFault, &[]);
    let moved = Case { last_progress: ago(0), ..fresh(grace + 100) };
    assert!(look(&moved).is_none(), "what moved since was mended");
}

#[test]
fn nothing_of_it_matters_to_bytes_that_are_there() {
    let coverage = all_visible();
    let down = metered(|meter| meter.link_down = true);
    let case = Case { peers: vec![down, broken(5, Life::Running)], ..complete(&coverage) };
    says(&case, Finding::CompletedNotReaped, Cause::Unknown, &[]);
}
