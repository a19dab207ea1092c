//! Cases to start from, and what is asked of the judge.

use inflightd_core::coverage::{Coverage, Sight, Source};
use inflightd_core::evidence::EvidenceId;
use inflightd_core::fact::{Life, Meter, Peer, Phase, Tid, Worker};
use inflightd_core::judge::{Case, Far, Found, Judgement, Moved, OtherRank, PeerCase};
use inflightd_core::verdict::Bytes;
use inflightd_core::{Cause, Finding, Nanos, Policy, judge};

pub(crate) const NOW: Nanos = Nanos::from_secs(1000);

pub(crate) const fn ago(secs: u64) -> Nanos {
    Nanos(NOW.0 - secs * 1_000_000_000)
}

pub(crate) fn all_visible() -> Coverage {
    let mut coverage = Coverage::default();
    for source in Source::ALL {
        coverage.set(Nanos(1), source, Sight::Visible);
    }
    coverage
}

pub(crate) fn peer() -> PeerCase {
    let meter = Meter { connections: 1, acked: 200, unread: Some(0), ..Meter::default() };
    PeerCase {
        peer: Peer(1),
        life: (Life::Running, ago(1)),
        life_since: ago(60),
        gone_at: None,
        resumed_at: None,
        looked_at: ago(1),
        meter: Some((ago(1), meter)),
        growth_at: None,
        stale_at: None,
        reached: false,
        unmetered: false,
        moved: Moved::Bytes(0),
    }
}

/// A room appended 40 s ago to a running peer that can be seen, and nothing else.
pub(crate) fn appended(coverage: &Coverage) -> Case<'_> {
    Case {
        appended_at: ago(40),
        late_at: None,
        read_at: ago(0),
        phase: Phase::None,
        bytes: Bytes { expected: 1000, posted: 0, completed: 0 },
        posts: 0,
        open_transfers: 0,
        calls_ended: false,
        first_post: None,
        last_completion: None,
        last_progress: ago(40),
        hooked: true,
        inflight: None,
        waited_until: None,
        serving: None,
        served: false,
        unparked_at: None,
        thread_gone: None,
        last_thread_gone: None,
        failure: None,
        endpoint_failure: None,
        far: Far::Unknown,
        others: Vec::new(),
        peers: vec![peer()],
        peers_whole: true,
        ahead: None,
        held_by: None,
        listener_ended: None,
        blocks: false,
        oldest_open: None,
        counted_since: None,
        port_troubles: None,
        by_batches: false,
        operations: None,
        beat: ago(0),
        posts_would_show: true,
        table_tells_posts: true,
        coverage,
    }
}

/// The same, served and posted 40 s ago, nothing arrived.
pub(crate) fn posted(coverage: &Coverage) -> Case<'_> {
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

pub(crate) fn look(case: &Case<'_>) -> Option<Found> {
    match judge(case, &Policy::DEFAULT, NOW) {
        Judgement::Found(found) => Some(found),
        Judgement::Quiet(until) => {
            assert!(until > NOW, "quiet until the past would spin");
            None
        }
    }
}

#[track_caller]
pub(crate) fn says(
    case: &Case<'_>,
    finding: Finding,
    cause: Cause,
    evidence: &[EvidenceId],
) -> Found {
    let found = look(case).expect("a verdict");
    assert_eq!((found.finding, found.cause), (finding, cause), "{found:#?}");
    for id in evidence {
        assert!(found.evidence.iter().any(|e| e.id == *id), "no {id:?} in {found:#?}");
    }
    assert!(found.ruled_out.iter().all(|(cause, _)| *cause != found.cause), "{found:#?}");
    found
}

/// A rank that is not done, where payload last moved so many seconds ago.
pub(crate) const fn other(worker: u32, secs: u64) -> OtherRank {
    OtherRank { worker: Worker(worker), progress: ago(secs) }
}

pub(crate) fn stopped() -> PeerCase {
    PeerCase { life: (Life::Stopped, ago(1)), ..peer() }
}

pub(crate) fn metered(change: impl FnOnce(&mut Meter)) -> PeerCase {
    let mut peer = peer();
    if let Some((_, meter)) = &mut peer.meter {
        change(meter);
    }
    peer
}

pub(crate) fn complete(coverage: &Coverage) -> Case<'_> {
    Case {
        bytes: Bytes { expected: 1000, posted: 1000, completed: 1000 },
        open_transfers: 0,
        last_completion: Some(ago(35)),
        last_progress: ago(35),
        ..posted(coverage)
    }
}
