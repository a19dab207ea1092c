//! What RDMA's ports and queue pairs say.

use super::{Answer, Search, rule_out_dead, wire_evidence};
use crate::evidence::{Evidence, EvidenceId as Id};
use crate::fact::Life;
use crate::judge::{Case, PeerCase};
use crate::policy::Policy;
use crate::time::Nanos;
use crate::verdict::Cause;

/// A port that is down holds up also what needs no process at the far end.
pub(super) fn port_down(case: &Case<'_>, _: &Policy, _: Nanos, _: &mut Search) -> Answer {
    let down = |peer: &&PeerCase| peer.meter.is_some_and(|(_, meter)| meter.link_down);
    let peer = case.peers.iter().find(down)?;
    Some((Cause::LinkFault, 92, wire_evidence(case, peer)))
}

/// A queue pair gives up when its far end has not answered for long. With a far process that runs it was
/// the way to it; of one that cannot be seen nobody can tell from here. (One that is stopped may have
/// had no receive posted: it comes first.)
pub(super) fn broken(case: &Case<'_>, search: &mut Search) -> Answer {
    let is_broken = |peer: &&PeerCase| peer.meter.is_some_and(|(_, meter)| meter.broken.is_some());
    let peer = case.peers.iter().find(is_broken)?;
    let mut evidence = wire_evidence(case, peer);
    rule_out_dead(case, search);
    if let (Life::Running, at) = peer.life {
        evidence.push(Evidence::of(Id::PeerRunning).at(at).peer(peer.peer));
        return Some((Cause::LinkFault, 75, evidence));
    }
    evidence.push(Evidence::of(Id::PeerUnseen).peer(peer.peer));
    Some((Cause::Unknown, 70, evidence))
}
