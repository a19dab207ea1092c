//! Since when something is so, beside when it was last seen.

use inflightd_capture::{feed, parse_input};
use inflightd_core::{EvidenceId, Ledger, Nanos, Output, Policy};

const SCENE: &str = include_str!("scenes/frozen_before.scene");

#[test]
fn a_stop_is_told_with_its_first_sight_however_often_it_was_seen_since() {
    let again = "31800000000 w0 life peer=1 life=stopped\n32010000000 tick";
    let scene = SCENE.replace("32010000000 tick", again);
    let mut ledger = Ledger::new(Policy::DEFAULT);
    for line in scene.lines().take_while(|line| !line.starts_with('>')) {
        if let Some(input) = parse_input(line).unwrap() {
            feed(&mut ledger, &input);
        }
    }
    let said = std::iter::from_fn(|| ledger.poll());
    let evidence = said.filter_map(|output| match output {
        Output::Verdict(verdict) => Some(verdict.evidence),
        _ => None,
    });
    let evidence: Vec<_> = evidence.flatten().collect();
    let stopped = evidence.iter().find(|e| e.id == EvidenceId::PeerStopped).unwrap();
    let moments = (stopped.since, stopped.at);
    assert_eq!(moments, (Some(Nanos::from_millis(1900)), Some(Nanos::from_millis(31_800))));
}
