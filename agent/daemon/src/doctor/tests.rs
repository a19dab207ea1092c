//! The report as a whole.

use super::*;

fn report(state: State, sight: &str) -> Report {
    let row =
        SourceRow { source: "table".to_owned(), sight: sight.to_owned(), why: None, fix: None };
    Report {
        node: vec![Check { name: "x", state, found: "y".to_owned(), fix: "z".to_owned() }],
        hindrance: None,
        agent: None,
        agent_problem: None,
        workers: vec![Engine {
            pid: 7,
            index: 0,
            engine: "test".to_owned(),
            role: "prefill".to_owned(),
            by: "doctor",
            sources: vec![row],
            libraries: Vec::new(),
        }],
        without_hook: Vec::new(),
        problems: Vec::new(),
    }
}

#[test]
fn the_exit_code_says_what_is_worst() {
    for (state, sight, code) in [
        (State::Ok, "visible", 0),
        (State::Note, "unknown", 0),
        (State::Ok, "degraded", 1),
        (State::Note, "blind", 1),
        (State::NoRight, "blind", 3),
        (State::KernelLacks, "visible", 4),
    ] {
        assert_eq!(report(state, sight).exit_code(), code, "{state:?} {sight}");
    }
    let mut problem = report(State::Ok, "visible");
    problem.agent_problem = Some("it does not answer".to_owned());
    assert_eq!(problem.exit_code(), 1);
}

#[test]
fn what_the_agent_says_of_a_worker_is_shown_with_remedies() {
    let answer = serde_json::json!({"workers": [{
        "pid": 7, "index": 1, "engine": "sglang", "role": "decode",
        "coverage": [
            {"source": "table", "sight": "visible", "why": null},
            {"source": "transfers", "sight": "degraded", "why": "unknown_build"},
        ],
    }]});
    let engines = engines::told(&answer, &BTreeMap::new());
    let [engine] = engines.as_slice() else { panic!("{engines:?}") };
    assert_eq!((engine.pid, engine.index, engine.by), (7, 1, "agent"));
    assert_eq!(engine.sources[0].fix, None);
    assert!(engine.sources[1].fix.unwrap().contains("build-id"));
}
