//! What is right about what a machine said.

use serde_json::Value;

use super::Right;
use super::rdma::{self, Case};

/// What the script prints before what is read here.
const MARK: &str = "@@ ";
/// Exit code of an agent whose node lacks what it needs.
const CANNOT_RUN: &str = "4";

/// What is wrong with a machine's serial line; nothing when all is right.
pub(super) fn faults(right: Right, rdma: &[Case], serial: &str) -> Vec<String> {
    let said = Said::of(serial);
    if let Some(fault) = unfinished(&said, serial) {
        return vec![fault];
    }
    match right {
        Right::Refused => refused(&said),
        Right::Watches => [watches(&said), rdma::faults(rdma, &said)].concat(),
    }
}

/// What is wrong with the serial line of a machine that ran the pair.
pub(super) fn pair_faults(cases: &[Case], serial: &str) -> Vec<String> {
    let said = Said::of(serial);
    if let Some(fault) = unfinished(&said, serial) {
        return vec![fault];
    }
    let wrong = said.all("wrong").map(str::to_owned).collect();
    [missing(&said), wrong, rdma::faults(cases, &said)].concat()
}

/// A machine that did not come to its end, or does not say what it is.
fn unfinished(said: &Said<'_>, serial: &str) -> Option<String> {
    if said.get("end").is_none() {
        let tail: Vec<&str> = serial.lines().rev().take(5).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        return Some(format!(
            "the machine did not come to its end; it said last: {}",
            tail.join(" / ")
        ));
    }
    let silent = said.get("kernel").is_none_or(str::is_empty);
    silent.then(|| "the machine does not say which kernel it runs".to_owned())
}

/// What the script waited for in vain.
fn missing(said: &Said<'_>) -> Vec<String> {
    said.all("missing").map(|text| format!("nobody said {text}")).collect()
}

/// The kernel's release, as the machine says it.
pub(super) fn release(serial: &str) -> &str {
    Said::of(serial).get("kernel").unwrap_or("unknown")
}

/// Words and what stood behind them, in the order in which they came.
pub(super) struct Said<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Said<'a> {
    pub(super) fn of(serial: &'a str) -> Self {
        let told = serial.lines().filter_map(|line| line.trim_end().strip_prefix(MARK));
        Self(told.map(|line| line.split_once(' ').unwrap_or((line, ""))).collect())
    }

    /// What stood behind each such word.
    pub(super) fn all(&self, word: &str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(is, _)| *is == word).map(|(_, text)| *text)
    }

    /// What stood behind the first such word.
    pub(super) fn get(&self, word: &str) -> Option<&'a str> {
        self.all(word).next()
    }

    /// The agent's lines, as it prints them for machines.
    fn lines(&self) -> impl Iterator<Item = Value> {
        self.all("line").filter_map(|text| serde_json::from_str(text).ok())
    }
}

/// The agent names the oldest kernel that it can run on.
fn refused(said: &Said<'_>) -> Vec<String> {
    let mut faults = Vec::new();
    if said.get("agent_exit") != Some(CANNOT_RUN) {
        faults.push(format!(
            "the agent ended with {:?}, right is {CANNOT_RUN}",
            said.get("agent_exit")
        ));
    }
    if !said.all("log").any(|line| line.contains("5.15")) {
        faults.push("the agent does not name the oldest kernel that it can run on".to_owned());
    }
    if said.lines().any(|line| word(&line, "type") == "verdict") {
        faults.push("it told a verdict all the same".to_owned());
    }
    faults
}

/// What the doctor has to say of such a machine: each check, and what its finding has in it.
const DOCTOR: [(&str, &str); 2] = [
    ("programs and a probe", " loaded, one put on a file"),
    ("RDMA device", "rxe0 (soft-RoCE over v0), port 1 Ethernet ACTIVE v0; its sends pass"),
];

fn doctor(said: &Said<'_>) -> Vec<String> {
    let report: String = said.all("doctor").collect::<Vec<_>>().join("\n");
    let report: Value = match serde_json::from_str(&report) {
        Ok(report) => report,
        Err(error) => return vec![format!("the doctor's report is no JSON: {error}")],
    };
    let node = report.get("node").and_then(Value::as_array).into_iter().flatten();
    let found = |name: &str| {
        let check = node.clone().find(|check| word(check, "name") == name);
        check.map(|check| word(check, "found").to_owned()).unwrap_or_default()
    };
    let wrong = DOCTOR.into_iter().filter(|(name, right)| !found(name).contains(right));
    wrong
        .map(|(name, right)| {
            format!("the doctor says of {name}: {:?}, right is {right:?}", found(name))
        })
        .collect()
}

/// What no agent may do: end badly, or lose an event. `exit` is the word before its exit code.
pub(super) fn agent_faults(said: &Said<'_>, exit: &str, lines: &[Value]) -> Vec<String> {
    let mut faults = Vec::new();
    if said.get(exit) != Some("0") {
        faults.push(format!("the agent ended with {:?}, right is 0", said.get(exit)));
    }
    let lost = lines.iter().filter(|line| word(line, "type") == "loss").count();
    if lost > 0 {
        faults.push(format!("{lost} lines about lost events"));
    }
    faults
}

fn watches(said: &Said<'_>) -> Vec<String> {
    let lines: Vec<Value> = said.lines().collect();
    let mut faults = missing(said);
    faults.extend(doctor(said));
    faults.extend(agent_faults(said, "agent_exit", &lines));
    let stays = lines.iter().filter(|line| word(line, "type") == "dwell");
    let well = stays.filter(|line| word(line, "outcome") == "success").count();
    let rooms = said.all("load").find(|line| line.starts_with("@stays")).and_then(rooms_of);
    if rooms != Some(well) || well == 0 {
        faults.push(format!("{well} healthy rooms are told as such, right are {rooms:?}"));
    }
    let verdicts = lines.iter().filter(|line| word(line, "type") == "verdict");
    let told = verdicts.map(|line| format!("{}/{}", word(line, "finding"), word(line, "cause")));
    let told: Vec<String> = told.collect();
    let right = ["never_started/worker_thread_dead", "blind/unknown"];
    if told != right {
        faults.push(format!("told were {told:?}, right is {right:?}"));
    }
    faults
}

/// A text of a line; empty where it has none of that name.
pub(super) fn word<'a>(line: &'a Value, key: &str) -> &'a str {
    line.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// How many rooms the load has had when it said so.
fn rooms_of(line: &str) -> Option<usize> {
    line.split_whitespace().find_map(|word| word.strip_prefix("rooms="))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"booting
@@ kernel 6.1.0-57-amd64
@@ doctor {"node": [{"name": "programs and a probe", "found": "11 loaded, one put on a file that nobody maps"},
@@ doctor  {"name": "RDMA device", "found": "rxe0 (soft-RoCE over v0), port 1 Ethernet ACTIVE v0; its sends pass the kernel"}]}
@@ load @stays marks=400 seconds=1.000 rooms=2
@@ agent_exit 0
@@ rdma_exit 0
@@ rdma_log INFO the kernel shows queue pairs
@@ rdma_log INFO the kernel shows soft-RoCE
@@ rdma_log INFO the kernel shows queue pairs made by DEVX (experimental)
@@ line {"type":"dwell","outcome":"success"}
@@ line {"type":"dwell","outcome":"success"}
@@ line {"type":"verdict","finding":"never_started","cause":"worker_thread_dead"}
@@ line {"type":"verdict","finding":"blind","cause":"unknown"}
@@ end
"#;

    #[test]
    fn a_machine_on_which_all_is_right() {
        assert_eq!(faults(Right::Watches, &[], GOOD), Vec::<String>::new());
    }

    #[test]
    fn each_thing_that_is_wrong_is_said() {
        let wrong = |from: &str, to: &str| faults(Right::Watches, &[], &GOOD.replacen(from, to, 1));
        assert_eq!(wrong("@@ kernel 6.1.0-57-amd64", "").len(), 1);
        assert!(wrong("@@ end", "").first().is_some_and(|fault| fault.contains("its end")));
        assert_eq!(wrong("agent_exit 0", "agent_exit 1").len(), 1);
        assert_eq!(wrong("ACTIVE", "DOWN").len(), 1);
        assert_eq!(wrong("loaded, one", "not loaded").len(), 1);
        assert_eq!(wrong("@@ doctor {", "@@ doctor ").len(), 1);
        assert_eq!(wrong("rooms=2", "rooms=3").len(), 1);
        assert_eq!(wrong("\"blind\"", "\"stopped_midway\"").len(), 1);
        assert_eq!(wrong("@@ end", "@@ missing that\n@@ end").len(), 1);
        assert_eq!(wrong("@@ end", "@@ line {\"type\":\"loss\"}\n@@ end").len(), 1);
    }

    #[test]
    fn a_kernel_that_is_too_old_is_refused_by_its_number() {
        let good = "@@ kernel 5.10.0-46-amd64\n@@ agent_exit 4\n@@ log kernel 5.10 is older than 5.15\n@@ end\n";
        assert_eq!(faults(Right::Refused, &[], good), Vec::<String>::new());
        assert_eq!(faults(Right::Refused, &[], &good.replace("5.15", "that")).len(), 1);
        assert_eq!(faults(Right::Refused, &[], &good.replace("exit 4", "exit 0")).len(), 1);
    }
}
