//! What is right about what a machine said of RDMA: one case a pair of processes.

use anyhow::Result;
use serde::Deserialize;
use serde_json::Value;

use super::data;
use super::judge::{Said, agent_faults, word};

/// What the agent says of its probes on the kernel's functions, once they are on.
const SHOWN: [&str; 3] = [
    "the kernel shows queue pairs",
    "the kernel shows soft-RoCE",
    "the kernel shows queue pairs made by DEVX",
];

/// A case as data.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    /// What the script calls it.
    name: String,
    /// What happens in it.
    #[expect(dead_code, reason = "for who reads the file")]
    what: String,
    /// The verdict; none is right where it is missing.
    right: Option<String>,
    /// What it has to rest on, among the rest.
    #[serde(default)]
    evidence: Vec<String>,
    /// Bytes by which the verdict's count may be behind the engine's: it is told without waiting for
    /// the next reading.
    #[serde(default)]
    behind: u64,
    /// Rooms that end well.
    #[serde(default)]
    rooms: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cases {
    cases: Vec<Case>,
}

/// Every case.
pub(super) fn cases() -> Result<Vec<Case>> {
    Ok(data::<Cases>("rdma.toml")?.cases)
}

/// What is wrong; nothing when all is right.
pub(super) fn faults(cases: &[Case], said: &Said<'_>) -> Vec<String> {
    let lines: Vec<Value> =
        said.all("rdma_line").filter_map(|text| serde_json::from_str(text).ok()).collect();
    let mut faults: Vec<String> = cases.iter().flat_map(|case| case.faults(said, &lines)).collect();
    faults.extend(agent_faults(said, "rdma_exit", &lines));
    for shown in
        SHOWN.into_iter().filter(|shown| !said.all("rdma_log").any(|line| line.contains(shown)))
    {
        faults.push(format!("the agent does not say: {shown}"));
    }
    faults
}

impl Case {
    fn faults(&self, said: &Said<'_>, lines: &[Value]) -> Vec<String> {
        let of = |text: &str| format!("{}: {text}", self.name);
        let begun = said.all("case").find_map(|text| {
            let (name, pids) = text.split_once(' ')?;
            let pids: Option<Vec<u64>> = pids.split(' ').map(|pid| pid.parse().ok()).collect();
            (name == self.name).then_some(pids?)
        });
        let Some(pids) = begun else {
            return vec![of("it was not run")];
        };
        let own = |line: &&Value| pid(line).is_some_and(|pid| pids.contains(&pid));
        let lines: Vec<&Value> = lines.iter().filter(own).collect();
        let mut faults = self.verdict_faults(&lines, self.arrived(said));
        let ended = lines.iter().filter(|line| word(line, "outcome") == "success").count();
        if ended != self.rooms {
            faults.push(format!("{ended} rooms ended well, right are {}", self.rooms));
        }
        faults.iter().map(|fault| of(fault)).collect()
    }

    /// Bytes that the engine itself counts as arrived.
    fn arrived(&self, said: &Said<'_>) -> Option<u64> {
        let prefix = format!("{} final ", self.name);
        let counted = said.all("said").find_map(|text| text.strip_prefix(&prefix))?;
        counted.split_whitespace().find_map(|word| word.strip_prefix("bytes="))?.parse().ok()
    }

    fn verdict_faults(&self, lines: &[&Value], arrived: Option<u64>) -> Vec<String> {
        let verdicts: Vec<&&Value> =
            lines.iter().filter(|line| word(line, "type") == "verdict").collect();
        let name = |line: &Value| format!("{}/{}", word(line, "finding"), word(line, "cause"));
        let told: Vec<String> = verdicts.iter().map(|line| name(line)).collect();
        if told != Vec::from_iter(self.right.clone()) {
            return vec![format!("told were {told:?}, right is {:?}", self.right)];
        }
        let Some(verdict) = verdicts.first() else {
            return Vec::new();
        };
        let mut faults = Vec::new();
        for wanted in self.evidence.iter().filter(|wanted| !rests_on(verdict, wanted)) {
            faults.push(format!("it does not rest on {wanted}"));
        }
        let completed = verdict.pointer("/bytes/completed").and_then(Value::as_u64);
        let fits = completed
            .zip(arrived)
            .is_some_and(|(told, right)| told <= right && told + self.behind >= right);
        if !fits {
            faults.push(format!("{completed:?} bytes are told as arrived, right are {arrived:?}"));
        }
        faults
    }
}

fn pid(line: &Value) -> Option<u64> {
    line.pointer("/worker/pid")?.as_u64()
}

fn rests_on(verdict: &Value, id: &str) -> bool {
    let evidence = verdict.get("evidence").and_then(Value::as_array);
    evidence.into_iter().flatten().any(|evidence| word(evidence, "id") == id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    const GOOD: &str = r#"
@@ case healthy 10 11
@@ case port 20 21
@@ said port told chunks=3 bytes=300
@@ said port final chunks=4 bytes=400
@@ rdma_exit 0
@@ rdma_log INFO the kernel shows queue pairs
@@ rdma_log INFO the kernel shows soft-RoCE
@@ rdma_log INFO the kernel shows queue pairs made by DEVX (experimental)
@@ rdma_line {"type":"dwell","outcome":"success","worker":{"pid":10}}
@@ rdma_line {"type":"verdict","finding":"stopped_midway","cause":"link_fault","worker":{"pid":20},"bytes":{"completed":400},"evidence":[{"id":"port_down"}]}
"#;

    fn judged(serial: &str) -> Vec<String> {
        let healthy = "name = 'healthy'\nwhat = ''\nrooms = 1";
        let port = "name = 'port'\nwhat = ''\nright = 'stopped_midway/link_fault'\n\
                    evidence = ['port_down']";
        let cases = [healthy, port].map(|text| toml::from_str(text).unwrap());
        faults(&cases, &Said::of(serial))
    }

    #[test]
    fn cases_in_which_all_is_right() {
        assert_eq!(judged(GOOD), Vec::<String>::new());
    }

    #[test]
    fn each_thing_that_is_wrong_is_said() {
        for (from, to, told) in [
            ("case port", "case other", "port: it was not run"),
            ("link_fault", "peer_dead", "port: told were [\"stopped_midway/peer_dead\"]"),
            ("{\"id\":\"port_down\"}", "", "port: it does not rest on port_down"),
            ("\"completed\":400", "\"completed\":300", "port: Some(300) bytes are told"),
            ("success", "failed", "healthy: 0 rooms ended well"),
            (
                "shows soft-RoCE",
                "does not show soft-RoCE",
                "the agent does not say: the kernel shows soft",
            ),
            ("rdma_exit 0", "rdma_exit 1", "the agent ended with"),
            ("\"dwell\"", "\"verdict\"", "healthy: told were [\"/\"]"),
            ("\"dwell\"", "\"loss\"", "1 lines about lost events"),
        ] {
            let faults = judged(&GOOD.replacen(from, to, 1));
            assert!(faults.iter().any(|fault| fault.starts_with(told)), "{told}: {faults:?}");
        }
    }

    #[test]
    fn every_case_of_the_script_has_what_is_right_and_the_other_way_round() {
        let script = std::fs::read_to_string(tree::root().join("xtask/vm/rdma.sh")).unwrap();
        let run = script.lines().filter_map(|line| line.trim().strip_prefix("pair "));
        let run: Vec<&str> = run.filter_map(|line| line.split(' ').next()).collect();
        let cases = cases().unwrap();
        let known: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(run, known);
    }
}
