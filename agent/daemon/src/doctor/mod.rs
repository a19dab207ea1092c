//! `inflightd doctor`: what can be seen on this node, what cannot and why, and what would mend it.
//!
//! It asks the running agent, and looks at the rest itself: read-only, without a probe on anything.

mod ask;
mod engines;
mod fixes;
mod node;
mod rdma;
mod text;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use inflightd_core::Reason;
use serde::Serialize;
use serde_json::Value;

pub use engines::{Engine, GapRow, HitCost, Hookless, LibraryRow, PointRow, SourceRow};
pub use fixes::fix;
pub use node::{Check, State};

use crate::cli;
use crate::clock::Clock;
use crate::config::Config;
use crate::discover::{Census, Read};
use crate::error::RunError;
use crate::probe::hit_cost;
use crate::shown;
use crate::subject::{self, Unfit};
use crate::table;

/// Everything that the doctor found. Field names are promises.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// This machine.
    pub node: Vec<Check>,
    /// What a hit of a probe costs here.
    pub hit: HitCost,
    /// What keeps an agent started like this from using probes; `null` where nothing does.
    pub hindrance: Option<String>,
    /// What the running agent says of itself; `null` where none runs.
    pub agent: Option<Value>,
    /// Why a running agent could not be asked.
    pub agent_problem: Option<String>,
    /// Each worker.
    pub workers: Vec<Engine>,
    /// Processes with a transfer library and without the hook.
    pub without_hook: Vec<Hookless>,
    /// Processes that could not be looked into for want of a right: any may be a worker.
    pub hidden: Vec<u32>,
    /// Whether root has looked: what is hidden from it no other user sees.
    pub as_root: bool,
    /// What could not be looked at.
    pub problems: Vec<String>,
}

impl Report {
    /// 0: an agent runs and every source sees every worker; 1: something is degraded, blind or
    /// could not be looked at; 3: a right is missing; 4: the kernel lacks something; 7: no agent
    /// answers, so that nobody watches.
    pub fn exit_code(&self) -> u8 {
        let worst = self.node.iter().map(|check| check.state).max();
        let unseen = |row: &SourceRow| row.sight == "degraded" || row.sight == "blind";
        let mut sources = self.workers.iter().flat_map(|worker| &worker.sources);
        match worst {
            Some(State::KernelLacks) => 4,
            Some(State::NoRight) => 3,
            // Of what is hidden the agent may know; without one nobody does.
            _ if !self.hidden.is_empty() && !self.as_root && self.agent.is_none() => 3,
            _ if self.agent.is_none() => 7,
            _ if sources.any(unseen) || !self.problems.is_empty() => 1,
            _ if self.agent_problem.is_some() => 1,
            _ => 0,
        }
    }
}

/// Examines this node and prints what was found.
pub fn doctor(args: &cli::Doctor) -> Result<ExitCode, RunError> {
    let flags = cli::Flags { state_dir: args.state_dir.clone(), ..cli::Flags::default() };
    let config = Config::find(args.config.as_deref(), &flags)?;
    let device = table::memfd_device().map_err(RunError::io("making a memfd"))?;
    for pid in &args.pid {
        match subject::check(*pid, device) {
            // What the agent knows of it is worth a report.
            Ok(()) | Err(Unfit::Denied { .. }) => {}
            Err(why) => return Err(RunError::pid(*pid, &why)),
        }
    }
    let report = examine(&config.state_dir, &args.pid)?;
    let text = if args.json {
        let json = serde_json::to_string_pretty(&report).map_err(std::io::Error::from);
        json.map_err(RunError::io("writing the report"))? + "\n"
    } else {
        text::render(&report)
    };
    shown::print(text.as_bytes(), "writing the report")?;
    Ok(ExitCode::from(report.exit_code()))
}

/// Looks at everything; at these processes only, where any are named.
pub fn examine(state_dir: &Path, pids: &[u32]) -> Result<Report, RunError> {
    let node = node::checks();
    let hit = HitCost::of(hit_cost().ok().flatten());
    let hindrance = node::hindrance();
    let worst = node.iter().map(|check| check.state).max();
    let hindered = hindrance.is_some().then_some(match worst {
        Some(State::KernelLacks) => Reason::KernelLacks,
        _ => Reason::NotPermitted,
    });
    let mut report = Report {
        node,
        hit,
        hindrance,
        agent: None,
        agent_problem: None,
        workers: Vec::new(),
        without_hook: Vec::new(),
        hidden: Vec::new(),
        as_root: rustix::process::geteuid().is_root(),
        problems: Vec::new(),
    };
    let told = report.ask(state_dir);
    let device = table::memfd_device().map_err(RunError::io("making a memfd"))?;
    let mut census = Census::new(device, pids.to_vec());
    let reads = census.look(Clock::now()).map_err(RunError::io("listing the processes"))?;
    report.hidden = census.denied();
    let mut libraries = BTreeMap::new();
    for pid in pids.iter().filter(|pid| reads.iter().all(|read| read.pid != **pid)) {
        let why = subject::check(*pid, device).err();
        let why = why.map_or_else(|| "it could not be looked at".to_owned(), |w| w.to_string());
        report.problems.push(format!("process {pid}: {why}"));
    }
    for read in &reads {
        report.look_at(read, hindered, &mut libraries);
    }
    if let Some(answer) = told {
        let mut told = engines::told(&answer, &libraries);
        told.retain(|worker| pids.is_empty() || pids.contains(&worker.pid));
        // The agent knows more than a look from outside shows.
        let known = |engine: &Engine| told.iter().any(|worker| worker.pid == engine.pid);
        report.workers.retain(|engine| !known(engine));
        report.workers.extend(told);
    }
    report.workers.sort_by_key(|worker| (worker.pid, worker.index));
    Ok(report)
}

impl Report {
    fn ask(&mut self, state_dir: &Path) -> Option<Value> {
        let asked = ask::get(state_dir, "/agent").and_then(|agent| {
            self.agent = agent;
            let lacks = self.agent.iter().filter_map(|agent| agent["lacks"].as_array()).flatten();
            self.problems.extend(lacks.filter_map(|lack| lack.as_str().map(str::to_owned)));
            if self.agent.is_some() { ask::get(state_dir, "/workers") } else { Ok(None) }
        });
        asked.unwrap_or_else(|problem| {
            self.agent_problem = Some(problem);
            None
        })
    }

    fn look_at(
        &mut self,
        read: &Read,
        hindered: Option<Reason>,
        libraries: &mut BTreeMap<u32, Vec<LibraryRow>>,
    ) {
        let is_worker = !read.maps.tables.is_empty();
        let promising = read.maps.objects.iter().any(|map| crate::probe::is_telling(&map.path));
        if !is_worker && !promising {
            return;
        }
        let survey = match engines::survey_of(read) {
            Ok(survey) => survey,
            Err(problem) => {
                self.problems.push(format!("process {}: {problem}", read.pid));
                return;
            }
        };
        if survey.unfinished {
            self.problems.push(format!("process {}: not all files were searched", read.pid));
        }
        let rows = engines::rows(&survey, self.hit);
        libraries.insert(read.pid, rows.clone());
        if is_worker {
            self.workers.extend(engines::workers(read, survey, &rows, hindered));
        } else if rows.iter().any(|row| row.family != "inflight") {
            let command = fs::read_to_string(format!("/proc/{}/comm", read.pid));
            let command = command.unwrap_or_default().trim().to_owned();
            self.without_hook.push(Hookless { pid: read.pid, command, libraries: rows });
        }
    }
}

#[cfg(test)]
mod tests;
