//! A case as data: set-up, load, injection, and what is right to say about it.

use anyhow::{Result, bail};
use serde::Deserialize;

use super::folder::{CaseFile, Head};
use super::right::Right;
use super::step::{Step, family};

/// One case. An unknown key is an error: a misspelt expectation must not pass as none.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    /// The file's name without its ending.
    #[serde(skip)]
    pub(super) name: String,
    /// What is injected, in one sentence.
    pub(super) what: String,
    /// The order in which the cases are run.
    pub(super) order: u32,
    /// How the agent is run.
    #[serde(default)]
    pub(super) agent: Agent,
    /// How the pair is made.
    #[serde(default)]
    pub(super) pair: Pair,
    /// Healthy rooms beside the victims.
    pub(super) beside: Beside,
    /// What is done, in order.
    pub(super) steps: Vec<Step>,
    /// What is right, one for each victim room.
    #[serde(default)]
    pub(super) right: Vec<Right>,
}

/// How the agent is run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Agent {
    /// Seconds until a room is a suspect.
    pub(crate) suspect_s: f64,
    /// Seconds until a room is a stall.
    pub(crate) stall_s: f64,
    /// Whether it is started by a step rather than before the first one.
    pub(crate) late: bool,
    /// Where it is asked by HTTP; nowhere, where that is not said.
    #[serde(skip)]
    pub(crate) listen: Option<String>,
    /// Further settings, given to it as its configuration file.
    pub(crate) config: toml::Table,
    /// Resident MiB that it may have at the end.
    pub(crate) most_mib: Option<f64>,
}

impl Default for Agent {
    fn default() -> Self {
        Self {
            suspect_s: 1.0,
            stall_s: 3.0,
            late: false,
            listen: None,
            config: toml::Table::new(),
            most_mib: None,
        }
    }
}

/// How the pair is made.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own in a case file")]
pub(super) struct Pair {
    /// MiB of registered memory of each process; no room is larger.
    pub(super) memory_mib: u64,
    /// Without the hook.
    pub(super) bare: bool,
    /// A NIXL notification with each chunk, by which the room is known without the hook.
    pub(super) notify: bool,
    /// UCX chooses the transport: on one host `process_vm_writev`, beside TCP for the rest.
    pub(super) any_transport: bool,
    /// No thread of NIXL makes progress in the sick decode: its own polling does.
    pub(super) polled: bool,
    /// The sick decode lives in a network namespace of its own, reached over a pair of veth
    /// devices.
    pub(super) apart: bool,
    /// Bandwidth to the sick decode in Mbit/s, of a pair that lives apart; 0 for all there is.
    pub(super) mbit: u32,
    /// The prefill's table states an ABI version that the agent cannot read.
    pub(super) spoil_table: bool,
    /// The prefill marks its queue and not its transfer calls.
    pub(super) unmarked: bool,
    /// Queues of the prefill, each with a table of its own.
    pub(super) workers: u32,
}

impl Default for Pair {
    fn default() -> Self {
        Self {
            memory_mib: 256,
            bare: false,
            notify: false,
            any_transport: false,
            polled: false,
            apart: false,
            mbit: 0,
            spoil_table: false,
            unmarked: false,
            workers: 1,
        }
    }
}

/// Healthy rooms, appended one after another for as long as the case runs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Beside {
    /// Milliseconds from one append to the next.
    pub(super) every_ms: u64,
    /// Their sizes in bytes, taken in turn.
    pub(super) bytes: Vec<u64>,
    /// Sizes above this are sent in chunks of it; 0 for one chunk each.
    #[serde(default)]
    pub(super) chunk: u64,
    /// No more than so many rooms; 0 for no limit.
    #[serde(default)]
    pub(super) at_most: u64,
    /// With fewer rooms ended, the case is void.
    pub(super) at_least: u64,
    /// The number of the first one.
    #[serde(default)]
    pub(super) first: u64,
    /// Marks are lost and no table tells of them: nothing is asked of what is said of these rooms
    /// but that none is alarmed.
    #[serde(default)]
    pub(super) unseen: bool,
}

impl CaseFile for Case {
    const FOLDER: &'static str = "xtask/cases";

    fn parse(name: &str, text: &str) -> Result<Self> {
        parse(name, text)
    }

    fn head(&self) -> Head<'_> {
        Head { place: (self.order, &self.name), what: &self.what }
    }
}

/// Parse a case and check that its parts name each other's rooms.
fn parse(name: &str, text: &str) -> Result<Case> {
    let mut case: Case = toml::from_str(text)?;
    name.clone_into(&mut case.name);
    let appended: Vec<&str> = case
        .steps
        .iter()
        .filter_map(|step| match step {
            Step::Append(append) => Some(append.room.as_str()),
            _ => None,
        })
        .collect();
    for right in &case.right {
        let named = [Some(&right.room), right.incident.as_ref(), right.behind.as_ref()];
        if let Some(room) = named.into_iter().flatten().find(|room| !appended.contains(&&***room)) {
            bail!("right.room: no step appends {room:?}\nfix: append it or name another room");
        }
        if right.alert.is_some() && right.info.is_some() {
            bail!("right: {:?} has an alert and an info\nfix: give one of them", right.room);
        }
    }
    if let Some(room) = appended.iter().find(|room| case.right_of(room).is_none()) {
        bail!("steps: nothing is said about room {room:?}\nfix: add a [[right]] for it");
    }
    if let Some(room) = appended.iter().find(|room| room.contains('.')) {
        bail!("steps: {room:?} has a dot, which is for rooms alike\nfix: use another name");
    }
    if case.beside.bytes.is_empty() {
        bail!("beside.bytes: empty\nfix: give at least one size");
    }
    if !case.pair.apart && case.steps.iter().any(|step| matches!(step, Step::Cut { .. })) {
        bail!("steps: a pair on one network cannot be cut\nfix: `apart = true` in [pair]");
    }
    let shakes = |step: &Step| matches!(step, Step::Append(append) if append.handshake);
    if case.pair.apart && case.steps.iter().any(shakes) {
        bail!(
            "steps: a decode that lives apart hears no hand-shake\nfix: `apart = false` in [pair]"
        );
    }
    if !case.pair.apart && case.pair.mbit > 0 {
        bail!("pair.mbit: a pair on one network is not limited\nfix: `apart = true` in [pair]");
    }
    Ok(case)
}

impl Case {
    /// Whether a decode is started while the agent runs.
    pub(super) fn restarts(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Restart { .. }))
    }

    /// What is right about a room.
    pub(super) fn right_of(&self, room: &str) -> Option<&Right> {
        self.right.iter().find(|right| right.room == family(room))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::folder::{load, read};
    use super::*;
    use crate::tree;

    const GOOD: &str = r#"
        what = "a test"
        order = 1
        [beside]
        every_ms = 50
        bytes = [1024]
        at_least = 1
        [[steps]]
        do = "append"
        room = "victim"
        to = "sick"
        bytes = 65536
        [[right]]
        room = "victim"
        alert = { finding = "never_started", cause = "peer_frozen", states = ["posted"], within_s = 6 }
    "#;

    /// A small case that expects one alert.
    pub(in crate::cases) fn sample() -> Case {
        parse("sample", GOOD).unwrap()
    }

    #[test]
    fn every_case_file_in_the_tree_is_well_formed() {
        let cases: Vec<Case> = load(&[]).unwrap();
        assert!(cases.len() >= 10, "one for each row of the table");
        let orders: std::collections::BTreeSet<u32> = cases.iter().map(|case| case.order).collect();
        assert_eq!(orders.len(), cases.len(), "each case has its own place in the order");
        read::<Case>(&tree::root().join(Case::FOLDER).join("soak/round.toml")).unwrap();
    }

    #[test]
    fn an_unknown_key_is_refused_and_named() {
        for (good, bad, key) in [
            ("order = 1", "order = 1\nordre = 2", "ordre"),
            ("at_least = 1", "at_least = 1\nat_lest = 1", "at_lest"),
            ("to = \"sick\"", "to = \"sick\"\nsize = 1", "size"),
            ("states =", "sates =", "sates"),
        ] {
            let error = parse("sample", &GOOD.replace(good, bad)).unwrap_err();
            assert!(format!("{error:#}").contains(key), "{key}: {error:#}");
        }
    }

    #[test]
    fn rooms_and_what_is_right_about_them_must_match() {
        let error = parse(
            "sample",
            &GOOD.replace(
                "[[right]]\n        room = \"victim\"",
                "[[right]]\n        room = \"victom\"",
            ),
        );
        assert!(error.unwrap_err().to_string().contains("victom"));
    }

    #[test]
    fn a_case_that_is_not_there_is_named_with_those_that_are() {
        let text = load::<Case>(&["no_such".to_owned()]).unwrap_err().to_string();
        assert!(text.contains("no_such") && text.contains("healthy"), "{text}");
        let text = load::<Case>(&["frozen_midwy".to_owned()]).unwrap_err().to_string();
        assert!(text.contains("did you mean frozen_midway? "), "{text}");
    }
}
