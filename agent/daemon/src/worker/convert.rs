//! The table's words as the core's.

use inflightd_abi::table::{self, EntryView, PeerKind};
use inflightd_core::Nanos;
use inflightd_core::fact::{Counts, Outcome, Phase};

/// What an entry counts; moments that a clock has not reached are cut to `now`.
pub(super) fn counts(view: &EntryView, now: Nanos) -> Counts {
    let moment = |at: Option<u64>| at.map(|at| Nanos(at).min(now));
    Counts {
        phase: phase(view.phase),
        posts: view.posts,
        posted_bytes: view.posted_bytes,
        dones: view.dones,
        done_bytes: view.done_bytes,
        failures: view.failures,
        first_post: moment(view.first_post_at),
        last_done: moment(view.last_done_at),
    }
}

/// Whether a room goes to Mooncake sessions, which give up a silent transfer themselves.
pub(super) fn is_mooncake(view: &EntryView) -> bool {
    let mut kinds = view.peers.iter().filter(|peer| !peer.value.bytes().is_empty());
    let first = kinds.next().map(|peer| peer.kind);
    first == Some(PeerKind::MooncakeSession)
        && kinds.all(|peer| peer.kind == PeerKind::MooncakeSession)
}

/// The table's phase as the core's.
pub const fn phase(phase: table::Phase) -> Phase {
    match phase {
        table::Phase::None => Phase::None,
        table::Phase::Parked => Phase::Parked,
        table::Phase::PeersReady => Phase::PeersReady,
        table::Phase::Transferring => Phase::Transferring,
        table::Phase::Failed => Phase::Failed,
        table::Phase::Exempt => Phase::Exempt,
        table::Phase::DoneHere => Phase::DoneHere,
        table::Phase::Prealloc => Phase::Prealloc,
    }
}

/// The table's outcome as the core's.
pub const fn outcome(outcome: table::Outcome) -> Outcome {
    match outcome {
        table::Outcome::Unknown => Outcome::Unknown,
        table::Outcome::Success => Outcome::Success,
        table::Outcome::Failed => Outcome::Failed,
        table::Outcome::Aborted => Outcome::Aborted,
        table::Outcome::Requeued => Outcome::Requeued,
        table::Outcome::Superseded => Outcome::Superseded,
    }
}
