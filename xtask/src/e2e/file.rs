//! A case as data: how the engine is made, what is done, and what is right to say about it.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use serde::Deserialize;

use super::step::{Step, Who};
use crate::cases::{AgentSetting, CaseFile, Head};

/// One case. An unknown key is an error: a misspelt expectation must not pass as none.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    /// The file's name without its ending.
    #[serde(skip)]
    pub(super) name: String,
    /// What is done to the engine, in one sentence.
    pub(super) what: String,
    /// The order in which the cases are run.
    pub(super) order: u32,
    /// How the agent is run.
    #[serde(default)]
    pub(super) agent: AgentSetting,
    /// How the servers are started.
    #[serde(default)]
    pub(super) pair: Pair,
    /// The same steps are taken without hook and agent too, before and after: the tokens must be
    /// the same, and what the times differ by is told.
    #[serde(default)]
    pub(super) compare: bool,
    /// What is done, in order.
    pub(super) steps: Vec<Step>,
    /// What is right, one for each room that is named and each rank that has something to say of
    /// it. A room that is not named is healthy: both sides answer it with 200 and no alert is given.
    #[serde(default)]
    pub(super) right: Vec<Right>,
    /// The engine does not recover: no more requests are sent after the steps.
    #[serde(default)]
    pub(super) ill: bool,
    /// How many incidents the alerts come to.
    #[serde(default)]
    pub(super) incidents: Option<usize>,
}

/// How the servers are started.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Pair {
    /// The decodes.
    pub(super) decodes: Vec<Who>,
    /// SGLang's name of the transfer library.
    pub(super) backend: String,
    /// Flags for each of them.
    pub(super) flags: BTreeMap<String, Vec<String>>,
    /// The sick decode lives in a network namespace of its own, reached over a pair of veth
    /// devices.
    pub(super) apart: bool,
    /// Bandwidth to the sick decode in Mbit/s, of servers that live apart; 0 for all there is.
    pub(super) mbit: u32,
    /// What goes wrong inside an engine, and when.
    pub(super) spoil: Spoil,
    /// Environment for all of them.
    pub(super) env: BTreeMap<String, String>,
}

impl Default for Pair {
    fn default() -> Self {
        Self {
            decodes: vec![Who::Sick],
            backend: "nixl".to_owned(),
            flags: BTreeMap::new(),
            apart: false,
            mbit: 0,
            spoil: Spoil::default(),
            env: BTreeMap::new(),
        }
    }
}

/// What goes wrong inside an engine.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Spoil {
    /// The room whose chunk ends the transfer thread of the prefill that takes it.
    pub(super) transfer_thread: Option<String>,
    /// A decode whose word that it gives a room up is lost on its way.
    pub(super) lost_aborts: Option<Who>,
}

/// What is right about one room.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Right {
    /// The room.
    pub(super) room: String,
    /// At which rank of the prefill.
    #[serde(default)]
    pub(super) rank: usize,
    /// The rank of the prefill that its evidence must name as not done.
    pub(super) names: Option<usize>,
    /// `finding / cause` of the alert, any of these; none when no alert is right.
    #[serde(default)]
    pub(super) alert: Vec<String>,
    /// `finding / cause` that must be told without alarm, any of these.
    #[serde(default)]
    pub(super) info: Vec<String>,
    /// How often the room must enter the queue, where that is more than once.
    pub(super) appends: Option<usize>,
    /// Whether the alert must be taken back.
    #[serde(default)]
    pub(super) clears: bool,
    /// `finding / cause` of the alert, any of these, that must take the first one's place and stand
    /// until the decode is let run again: the room has left the queue, and what holds its thread up
    /// is still there.
    #[serde(default)]
    pub(super) then: Vec<String>,
    /// `finding / cause` of further alerts that may be told, or not.
    #[serde(default)]
    pub(super) may: Vec<String>,
    /// At most so many seconds from the injection to what must be told.
    #[serde(default = "soon")]
    pub(super) within_s: f64,
    /// The statuses that the client may get of the prefill; 0 is no answer yet.
    pub(super) prefill: Option<Vec<i64>>,
    /// The same of the decode.
    pub(super) decode: Option<Vec<i64>>,
    /// What the client must be told by each side that answers with an error.
    pub(super) says: Option<String>,
}

const fn soon() -> f64 {
    20.0
}

impl Right {
    /// Whether an alert may say this.
    pub(super) fn allows(&self, says: &str) -> bool {
        self.expected().iter().chain(&self.then).chain(&self.may).any(|right| right == says)
    }

    /// What must be told, with alarm or without.
    pub(super) fn expected(&self) -> &[String] {
        if self.alert.is_empty() { &self.info } else { &self.alert }
    }
}

impl Case {
    /// What is right about a room at a rank of the prefill; none where it is healthy.
    pub(super) fn right_of(&self, room: &str, rank: usize) -> Option<&Right> {
        self.right.iter().find(|right| right.room == room && right.rank == rank)
    }

    /// How many ranks the prefill must have for what is right.
    pub(super) fn ranks(&self) -> usize {
        let stated = self.right.iter().map(|right| right.rank.max(right.names.unwrap_or(0)));
        stated.max().map_or(1, |last| last + 1)
    }
}

impl CaseFile for Case {
    const FOLDER: &'static str = "xtask/sglang/cases";

    fn parse(name: &str, text: &str) -> Result<Self> {
        parse(name, text)
    }

    fn head(&self) -> Head<'_> {
        Head { place: (self.order, &self.name), what: &self.what }
    }
}

/// Parse a case and check that what is right is about rooms that its steps make.
fn parse(name: &str, text: &str) -> Result<Case> {
    let mut case: Case = toml::from_str(text)?;
    name.clone_into(&mut case.name);
    let made = |room: &str| {
        let makes = |step: &Step| matches!(step, Step::Request { room: made, .. } if made == room);
        case.steps.iter().any(makes)
    };
    if let Some(right) = case.right.iter().find(|right| !made(&right.room)) {
        bail!("right.room: no step requests {:?}\nfix: request it or name another", right.room);
    }
    let unsaid = case.steps.iter().find_map(|step| match step {
        Step::Request { room, .. } if case.right_of(room, 0).is_none() => Some(room),
        _ => None,
    });
    if let Some(room) = unsaid {
        bail!("steps: nothing is said about room {room:?}\nfix: add a [[right]] for it");
    }
    let unsaid = case.steps.iter().find_map(|step| match step {
        Step::Verdict { room, rank } | Step::Clear { room, rank, .. } => {
            case.right_of(room, *rank).is_none().then_some((room, rank))
        }
        _ => None,
    });
    if let Some((room, rank)) = unsaid {
        bail!(
            "steps: a verdict on {room:?} at rank {rank} is waited for\nfix: add a [[right]] for it"
        );
    }
    Ok(case)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const GOOD: &str = r#"
        what = "a test"
        order = 1
        [[steps]]
        do = "request"
        room = "victim"
        to = "sick"
        prompt = 64
        [[right]]
        room = "victim"
        alert = ["never_started / peer_frozen"]
        prefill = [0]
    "#;

    /// A small case that expects one alert.
    pub(in crate::e2e) fn sample() -> Case {
        parse("sample", GOOD).unwrap()
    }

    #[test]
    fn every_case_file_in_the_tree_is_well_formed() {
        let cases: Vec<Case> = crate::cases::load(&[]).unwrap();
        assert!(!cases.is_empty());
        let orders: std::collections::BTreeSet<u32> = cases.iter().map(|case| case.order).collect();
        assert_eq!(orders.len(), cases.len(), "each case has its own place in the order");
    }

    #[test]
    fn an_unknown_key_and_an_unknown_room_are_named() {
        for (good, bad, key) in [
            ("order = 1", "order = 1\nordre = 2", "ordre"),
            ("prompt = 64", "prompt = 64\npromt = 1", "promt"),
            ("prefill = [0]", "prefil = [0]", "prefil"),
            (
                "[[right]]\n        room = \"victim\"",
                "[[right]]\n        room = \"victom\"",
                "victom",
            ),
        ] {
            let error = parse("sample", &GOOD.replace(good, bad)).unwrap_err();
            assert!(format!("{error:#}").contains(key), "{key}: {error:#}");
        }
    }
}
