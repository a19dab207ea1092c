//! A case as data: set-up, load, injection, and what is right to say about it.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::tree;

/// Where the case files lie.
const FOLDER: &str = "xtask/cases";

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
pub(super) struct Agent {
    /// Seconds until a room is a suspect.
    pub(super) suspect_s: f64,
    /// Seconds until a room is a stall.
    pub(super) stall_s: f64,
    /// Whether it is started by a step rather than before the first one.
    pub(super) late: bool,
}

impl Default for Agent {
    fn default() -> Self {
        Self { suspect_s: 1.0, stall_s: 3.0, late: false }
    }
}

/// How the pair is made.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Pair {
    /// MiB of registered memory of each process; no room is larger.
    pub(super) memory_mib: u64,
    /// Without the hook.
    pub(super) bare: bool,
}

impl Default for Pair {
    fn default() -> Self {
        Self { memory_mib: 256, bare: false }
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
}

/// The processes of a pair that a step can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Who {
    /// The decode that faults hit.
    Sick,
    /// The decode of the healthy rooms.
    Well,
}

impl Who {
    /// Its NIXL agent's name: of this runner only, for a name that processes of two pairs claim is
    /// nobody's.
    pub(super) fn agent(self) -> String {
        agent_of(self.name())
    }

    /// Its name in a pair.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Sick => "sick",
            Self::Well => "well",
        }
    }
}

/// The NIXL agent's name of a process of the pair.
pub(super) fn agent_of(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

/// One step of a case.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Step {
    /// A healthy transfer, awaited: it wires the connection up.
    Transfer { to: Who, bytes: u64 },
    /// A room enters the queue.
    Append(Append),
    /// The decode looks for the room's bytes and, once `after` of them landed, hits itself.
    Watch { room: String, to: Who, bytes: u64, after: u64, then: Fault },
    /// Wait until that has happened.
    Landed { room: String },
    /// SIGSTOP.
    Stop { who: Who },
    /// SIGCONT.
    Continue { who: Who },
    /// Start the agent, of a case whose agent is late.
    StartAgent,
    /// Kill the agent with SIGKILL at a random moment and start it again, so many times.
    KillAgent { times: u32, within_ms: u64 },
    /// Let time pass.
    Sleep { seconds: f64 },
    /// Wait until the agent has given the room's verdict, or should have.
    Verdict { room: String },
    /// Wait until the agent has taken the room's verdict back, for at most so many seconds.
    Clear { room: String, within_s: f64 },
    /// Wait until the pair has removed the room, for at most so many seconds.
    Removed { room: String, within_s: f64 },
    /// Wait until all healthy rooms that `at_most` allows have ended.
    BesideEnded { within_s: f64 },
}

/// What a decode does to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Fault {
    /// SIGSTOP.
    Stop,
    /// SIGKILL.
    Kill,
}

impl Fault {
    /// The word of the decode's `watch` command.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Kill => "kill",
        }
    }
}

/// A victim room.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Append {
    /// What the case calls it.
    pub(super) room: String,
    /// Its decode.
    pub(super) to: Who,
    /// Its size in bytes.
    pub(super) bytes: u64,
    /// Bytes of a chunk; 0 for one chunk.
    #[serde(default)]
    pub(super) chunk: u64,
    /// Seconds before each chunk.
    #[serde(default)]
    pub(super) pace: f64,
    /// A switch of the pair's scheduler: `never_post`, `drop_status`, `never_read`.
    pub(super) fault: Option<String>,
}

/// What is right to say about one room.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Right {
    /// The room.
    pub(super) room: String,
    /// The alert; none when the room must not be alarmed.
    pub(super) alert: Option<Alert>,
    /// Why the alert must be taken back, where it must.
    pub(super) clear: Option<String>,
    /// How the room must be reported to have ended, where it ends.
    pub(super) dwell: Option<Dwell>,
    /// Whether the agent must say that it came after the append.
    #[serde(default)]
    pub(super) late: bool,
}

/// A right alert.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Alert {
    /// The finding's word.
    pub(super) finding: String,
    /// The cause's word.
    pub(super) cause: String,
    /// Ids of evidence that must be stated.
    #[serde(default)]
    pub(super) states: Vec<String>,
    /// No sooner than so many seconds after the injection.
    #[serde(default)]
    pub(super) earliest_s: f64,
    /// At most so many seconds after the injection, or after the agent came where it is late.
    pub(super) within_s: f64,
}

/// A right ending.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Dwell {
    /// The outcome's word.
    pub(super) outcome: String,
    /// The cause's word, where one is due.
    pub(super) cause: Option<String>,
}

/// Load the named cases, or all, in their order.
pub(super) fn load(names: &[String]) -> Result<Vec<Case>> {
    let folder = tree::root().join(FOLDER);
    let mut cases = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("listing {FOLDER}"))? {
        let path = entry.with_context(|| format!("listing {FOLDER}"))?.path();
        if path.extension().is_some_and(|ending| ending == "toml") {
            cases.push(read(&path)?);
        }
    }
    cases.sort_by(|a, b| (a.order, &a.name).cmp(&(b.order, &b.name)));
    if let Some(unknown) = names.iter().find(|name| !cases.iter().any(|case| case.name == **name)) {
        let known: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        bail!("no case is called {unknown}\nfix: choose from {}", known.join(", "));
    }
    cases.retain(|case| names.is_empty() || names.contains(&case.name));
    Ok(cases)
}

fn read(path: &Path) -> Result<Case> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    parse(&name, &text).with_context(|| format!("in {}", path.display()))
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
    if let Some(right) = case.right.iter().find(|right| !appended.contains(&right.room.as_str())) {
        bail!("right.room: no step appends {:?}\nfix: append it or name another room", right.room);
    }
    if let Some(room) = appended.iter().find(|room| case.right_of(room).is_none()) {
        bail!("steps: nothing is said about room {room:?}\nfix: add a [[right]] for it");
    }
    if case.beside.bytes.is_empty() {
        bail!("beside.bytes: empty\nfix: give at least one size");
    }
    Ok(case)
}

impl Case {
    /// What is right about a room.
    pub(super) fn right_of(&self, room: &str) -> Option<&Right> {
        self.right.iter().find(|right| right.room == room)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

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
        let cases = load(&[]).unwrap();
        assert!(cases.len() >= 10, "one for each row of the table");
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
        let text = load(&["no_such".to_owned()]).unwrap_err().to_string();
        assert!(text.contains("no_such") && text.contains("healthy"), "{text}");
    }
}
