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
    /// Its device is to try for ever. soft-RoCE of 6.12 was seen once to flush a queue pair all the
    /// same, within 40 ms of the fault: a run in which the engine hears of a failure says nothing.
    #[serde(default)]
    keeps: bool,
    /// Rooms that the engine itself ends as failed.
    #[serde(default)]
    failed: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cases {
    cases: Vec<Case>,
}

/// Every case of a file.
pub(super) fn cases(file: &str) -> Result<Vec<Case>> {
    Ok(data::<Cases>(file)?.cases)
}

/// Why a run says nothing about the agent, where it does not: a device did not do its part.
pub(super) fn void(cases: &[Case], said: &Said<'_>) -> Option<String> {
    let gave_up = |case: &&Case| {
        let failed = format!("{} failed status=", case.name);
        case.keeps && said.all("said").any(|text| text.starts_with(&failed))
    };
    let case = cases.iter().find(gave_up)?;
    Some(format!("{}: the device gave up, which was to try for ever", case.name))
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
        let mut faults = self.verdict_faults(&lines, said);
        let ended = |outcome| lines.iter().filter(|line| word(line, "outcome") == outcome).count();
        let (well, failed) = (ended("success"), ended("failed"));
        if (well, failed) != (self.rooms, self.failed) {
            let (rooms, right) = (self.rooms, self.failed);
            faults.push(format!(
                "{well} rooms ended well and {failed} failed, right are {rooms} and {right}"
            ));
        }
        faults.iter().map(|fault| of(fault)).collect()
    }

    /// Bytes that the engine itself counts: `bytes` as arrived, `posted`.
    fn counted(&self, said: &Said<'_>, field: &str) -> Option<u64> {
        let prefix = format!("{} final ", self.name);
        let counted = said.all("said").find_map(|text| text.strip_prefix(&prefix))?;
        let mut words = counted.split_whitespace().filter_map(|word| word.split_once('='));
        words.find_map(|(name, count)| (name == field).then_some(count))?.parse().ok()
    }

    fn verdict_faults(&self, lines: &[&Value], said: &Said<'_>) -> Vec<String> {
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
        faults.extend(self.bytes_faults(verdict, said));
        faults
    }

    fn bytes_faults(&self, verdict: &Value, said: &Said<'_>) -> Vec<String> {
        let told = |name: &str| verdict.get("bytes")?.get(name)?.as_u64();
        let mut faults = Vec::new();
        let (completed, arrived) = (told("completed"), self.counted(said, "bytes"));
        let fits = completed
            .zip(arrived)
            .is_some_and(|(told, right)| told <= right && told + self.behind >= right);
        if !fits {
            faults.push(format!("{completed:?} bytes are told as arrived, right are {arrived:?}"));
        }
        // An engine with one post mark for a whole room does not count what it posts.
        let (posted, right) = (told("posted"), self.counted(said, "posted"));
        if right.is_some() && posted != right {
            faults.push(format!("{posted:?} bytes are told as posted, right are {right:?}"));
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
    fn a_device_that_gives_up_where_it_must_not_makes_a_run_void() {
        let port = "name = 'port'\nwhat = ''\nkeeps = true";
        let cases: [Case; 1] = [toml::from_str(port).unwrap()];
        assert_eq!(void(&cases, &Said::of(GOOD)), None);
        let gave_up = GOOD.replace("port told chunks=3", "port failed status=5");
        assert!(void(&cases, &Said::of(&gave_up)).is_some_and(|why| why.starts_with("port: ")));
        let other = GOOD.replace("port told chunks=3", "healthy failed status=5");
        assert_eq!(void(&cases, &Said::of(&other)), None);
    }

    #[test]
    fn each_thing_that_is_wrong_is_said() {
        for (from, to, told) in [
            ("case port", "case other", "port: it was not run"),
            ("link_fault", "peer_dead", "port: told were [\"stopped_midway/peer_dead\"]"),
            ("{\"id\":\"port_down\"}", "", "port: it does not rest on port_down"),
            ("\"completed\":400", "\"completed\":300", "port: Some(300) bytes are told"),
            ("success", "failed", "healthy: 0 rooms ended well and 1 failed"),
            ("bytes=400", "bytes=400 posted=1", "port: None bytes are told as posted"),
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
    fn every_case_of_a_script_has_what_is_right_and_the_other_way_round() {
        for (script, file) in [("rdma.sh", "rdma.toml"), ("nixl.sh", "nixl.toml")] {
            let text = std::fs::read_to_string(tree::root().join("xtask/vm").join(script)).unwrap();
            let run = text.lines().filter_map(|line| line.trim().strip_prefix("pair "));
            let run: Vec<&str> = run.filter_map(|line| line.split(' ').next()).collect();
            let cases = cases(file).unwrap();
            let known: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
            assert_eq!(run, known, "{script}");
        }
    }
}
