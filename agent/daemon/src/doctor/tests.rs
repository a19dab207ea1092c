//! The report as a whole.

use super::*;

fn report(state: State, sight: &str) -> Report {
    let row =
        SourceRow { source: "table".to_owned(), sight: sight.to_owned(), why: None, fix: None };
    Report {
        node: vec![Check { name: "x", state, found: "y".to_owned(), fix: "z".to_owned() }],
        hit: HitCost::of(None),
        hindrance: None,
        agent: Some(serde_json::json!({"pid": 3, "version": "1"})),
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
        hidden: Vec::new(),
        as_root: false,
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
    problem.agent_problem = Some("it does not say how its workers are".to_owned());
    assert_eq!(problem.exit_code(), 1);
}

#[test]
fn where_no_agent_runs_nothing_is_called_seen() {
    let mut alone = Report { agent: None, ..report(State::Ok, "visible") };
    assert_eq!(alone.exit_code(), 7);
    let page = text::render(&alone);
    assert!(page.starts_with("No agent runs: nobody watches this node.\n"), "{page}");
    alone.agent_problem = Some("it did not answer within 10 s".to_owned());
    assert_eq!(alone.exit_code(), 7);
    assert!(text::render(&alone).starts_with("No agent answers"));
}

#[test]
fn what_is_hidden_is_counted_and_not_called_absent() {
    let hidden = Report {
        agent: None,
        hidden: (10..50).collect(),
        workers: Vec::new(),
        ..report(State::Ok, "")
    };
    assert_eq!(hidden.exit_code(), 3);
    let page = text::render(&hidden);
    assert!(
        page.contains(
            "! 40 processes may not be looked into (pid 10, 11, 12, 13, 14, 15, 16, 17, …)"
        ),
        "{page}"
    );
    let root = Report { as_root: true, hidden: vec![31], ..hidden };
    assert_eq!(root.exit_code(), 7, "nothing is missing but an agent");
    assert!(
        text::render(&root)
            .contains("! 1 process may not be looked into (pid 31), not even by root")
    );
    let known = Report { hidden: vec![31], ..report(State::Ok, "visible") };
    assert_eq!(known.exit_code(), 0, "the agent has the rights");
    assert!(text::render(&known).contains("! 1 process may not be"));
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
