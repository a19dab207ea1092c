//! A child of fork is off for good: it has neither the table nor, on some kernels, a marker that
//! it could call and live.

use inflightd_abi::record::Kind;

use crate::probe::Probe;
use crate::setup::{Engine, library};

#[test]
fn a_child_forked_after_a_probed_hit_calls_everything_and_lives() {
    let (mut engine, mapped) = Engine::opened();
    let attach = |(symbol, _kind)| Probe::attach(library(), symbol, engine.pid());
    let probes: Vec<_> = Kind::MARKS.into_iter().map(attach).collect();
    let seq = engine.append(7);
    engine.ask(&format!("serve {}", seq.0));
    let hits = |probes: &[Probe]| probes.iter().map(Probe::hits).sum::<u64>();
    assert_eq!(hits(&probes), 2, "the probes are on before the fork");
    let before = mapped.entry(seq);
    for _ in 0..3 {
        let said = engine.ask("fork");
        assert_eq!(said, "append 0 serve 1 open 2 null 1 again 0 exit 7 signal 0");
    }
    assert_eq!(mapped.entry(seq), before, "no child wrote its parent's table");
    assert_eq!(mapped.table().counters().beats, 0);
    drop(probes);
    let said = engine.ask("fork");
    assert!(said.ends_with("exit 7 signal 0"), "after the agent has gone: {said}");
    engine.ask(&format!("post {} 5", seq.0));
    assert_eq!(mapped.entry(seq).posted_bytes, 5, "the parent goes on");
}

#[test]
fn a_child_of_a_process_without_the_hook_may_open_it() {
    let mut engine = Engine::start();
    let said = engine.ask("fork");
    assert!(said.starts_with("append 0 serve 1 open 0 null 0 again "), "{said}");
    assert!(said.ends_with("exit 7 signal 0"), "{said}");
}
