//! The report for people: 100 columns, what is wrong first in each part.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;

use super::node::State;
use super::{Engine, LibraryRow, Report};
use crate::shown::plain;
use crate::sink::counted;

/// Columns of a line.
const WIDTH: usize = 100;

/// A text that grows by lines of at most [`WIDTH`] columns.
#[derive(Default)]
struct Page(String);

impl Page {
    /// A line; what does not fit goes on, indented by `hang`.
    fn line(&mut self, text: &str, hang: usize) {
        // Names come from other processes.
        let text = plain(text);
        let mut rest = text.as_str();
        let mut indent = 0;
        loop {
            let room = WIDTH - indent;
            if rest.chars().count() <= room {
                let _infallible = writeln!(self.0, "{:indent$}{}", "", rest.trim_end());
                return;
            }
            let end = rest.char_indices().nth(room).map_or(rest.len(), |(at, _)| at);
            let (fits, _) = rest.split_at(end);
            // A word longer than the line is cut; the indent of the line is no place to break.
            let start = fits.len() - fits.trim_start().len();
            let at = fits.rfind(' ').filter(|at| *at > start).unwrap_or(end);
            let (now, later) = rest.split_at(at);
            let _infallible = writeln!(self.0, "{:indent$}{}", "", now.trim_end());
            rest = later.trim_start();
            indent = hang;
        }
    }
}

/// The report as text.
pub(super) fn render(report: &Report) -> String {
    let mut page = Page::default();
    summary(report, &mut page);
    page.line("", 0);
    page.line("NODE", 0);
    let mut checks: Vec<_> = report.node.iter().collect();
    checks.sort_by_key(|check| std::cmp::Reverse(check.state));
    for check in checks {
        let mark = match check.state {
            State::Ok => "ok",
            State::Note => "note",
            State::NoRight => "RIGHT",
            State::KernelLacks => "KERNEL",
        };
        page.line(&format!("  {mark:<7} {:<23} {}", check.name, check.found), 34);
        if !check.fix.is_empty() {
            page.line(&format!("{:10}-> {}", "", check.fix), 13);
        }
    }
    agent(report, &mut page);
    for worker in &report.workers {
        page.line("", 0);
        engine(worker, &mut page);
    }
    for process in &report.without_hook {
        page.line("", 0);
        let head = format!(
            "PROCESS {} ({}): no hook, its queue is not seen",
            process.pid, process.command
        );
        page.line(&head, 2);
        page.line("  -> install the hook in the engine (hook/README.md)", 5);
    }
    libraries(report, &mut page);
    page.0
}

fn summary(report: &Report, page: &mut Page) {
    let unseen = |worker: &&Engine| {
        worker.sources.iter().any(|row| row.sight == "degraded" || row.sight == "blind")
    };
    let dim = report.workers.iter().filter(unseen).count();
    let word = match (report.exit_code(), &report.agent_problem) {
        (0, _) => "Everything that is asked for can be seen.",
        (3, _) => "A right is missing: see RIGHT below.",
        (4, _) => "The kernel lacks something: see KERNEL below.",
        (7, None) => "No agent runs: nobody watches this node.",
        (7, Some(_)) => "No agent answers: whether anybody watches this node is not known.",
        _ => "Something cannot be seen: see below.",
    };
    page.line(word, 0);
    if report.agent.is_none() {
        page.line("What follows was looked at from outside, once, as the user who asked.", 0);
    }
    let counts = format!(
        "{} found, {dim} of them not wholly seen; {} with a transfer library and no hook.",
        counted(report.workers.len() as u64, "worker"),
        counted(report.without_hook.len() as u64, "engine"),
    );
    page.line(&counts, 0);
    if !report.hidden.is_empty() {
        let hidden = counted(report.hidden.len() as u64, "process");
        let remedy = if report.as_root {
            "not even by root: it has more rights than this shell, or a security module guards it"
        } else {
            "any may be a worker: run as root"
        };
        let pids = first_few(&report.hidden);
        page.line(&format!("! {hidden} may not be looked into (pid {pids}), {remedy}"), 2);
    }
    for problem in report.problems.iter().chain(&report.hindrance) {
        page.line(&format!("! {problem}"), 2);
    }
}

/// Process ids, the first few of many.
fn first_few(pids: &[u32]) -> String {
    const NAMED: usize = 8;
    let named: Vec<String> = pids.iter().take(NAMED).map(u32::to_string).collect();
    let more = if pids.len() > NAMED { ", …" } else { "" };
    format!("{}{more}", named.join(", "))
}

fn agent(report: &Report, page: &mut Page) {
    page.line("", 0);
    page.line("AGENT", 0);
    match (&report.agent, &report.agent_problem) {
        (Some(agent), _) => {
            let field = |key: &str| agent[key].to_string().replace('"', "");
            let text = format!("  running: pid {}, version {}", field("pid"), field("version"));
            page.line(&text, 4);
            let armed = agent.pointer("/probes/armed").and_then(Value::as_array);
            let armed: Vec<String> = armed.into_iter().flatten().map(Value::to_string).collect();
            if !armed.is_empty() {
                let text = format!("  counts UCX's operations of {}: a suspect", armed.join(", "));
                page.line(&text, 4);
            }
        }
        (None, Some(problem)) => page.line(&format!("  cannot be asked: {problem}"), 4),
        (None, None) => {
            page.line("  none is running: what is said of workers is what one would see", 4);
            page.line("  -> inflightd run, or systemctl start inflightd", 5);
        }
    }
}

fn engine(worker: &Engine, page: &mut Page) {
    let head = format!(
        "WORKER {} index {}: {} {}, as the {} sees it",
        worker.pid, worker.index, worker.engine, worker.role, worker.by
    );
    page.line(&head, 2);
    let visible = worker.sources.iter().filter(|row| row.sight == "visible");
    let visible: Vec<&str> = visible.map(|row| row.source.as_str()).collect();
    if !visible.is_empty() {
        page.line(&format!("  visible   {}", visible.join(", ")), 12);
    }
    for row in worker.sources.iter().filter(|row| row.sight != "visible") {
        let sight = match row.sight.as_str() {
            "unknown" => "unknown".to_owned(),
            sight => sight.to_uppercase(),
        };
        let why = row.why.as_deref().unwrap_or("only a running agent can tell");
        page.line(&format!("  {sight:<9} {:<16} {why}", row.source), 29);
        if let Some(fix) = row.fix {
            page.line(&format!("{:12}-> {fix}", ""), 15);
        }
    }
}

/// Family, path and build-id.
type Key<'a> = (&'a str, &'a str, Option<&'a str>);

/// Each library once, with the processes that map it.
fn libraries(report: &Report, page: &mut Page) {
    let cost = if report.hit.measured { "as measured here" } else { "not measured here" };
    let mut users: BTreeMap<Key<'_>, (&LibraryRow, BTreeSet<u32>)> = BTreeMap::new();
    let of_workers = report.workers.iter().map(|worker| (worker.pid, &worker.libraries));
    let of_others = report.without_hook.iter().map(|process| (process.pid, &process.libraries));
    for (pid, rows) in of_workers.chain(of_others) {
        for row in rows {
            let key = (row.family, row.path.as_str(), row.build_id.as_deref());
            users.entry(key).or_insert_with(|| (row, BTreeSet::new())).1.insert(pid);
        }
    }
    for (row, pids) in users.values() {
        page.line("", 0);
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        page.line(&format!("LIBRARY {} of {}", row.family, pids.join(", ")), 2);
        library(row, cost, page);
    }
}

fn library(row: &LibraryRow, cost: &str, page: &mut Page) {
    let build = match (&row.build, row.family) {
        (Some(build), _) => format!("known: {build}"),
        (None, "nixl" | "ucp" | "mooncake") => "build not known".to_owned(),
        _ => "any build".to_owned(),
    };
    page.line(&format!("  {}", row.path), 4);
    page.line(&format!("  {build}, build-id {}", row.build_id.as_deref().unwrap_or("none")), 4);
    if let Some(problem) = &row.problem {
        page.line(&format!("  ! {problem}"), 4);
    }
    if !row.points.is_empty() {
        let programs: BTreeSet<&str> = row.points.iter().map(|point| point.program).collect();
        let programs: Vec<&str> = programs.into_iter().collect();
        let most = row.points.iter().map(|point| point.expected_ns).max().unwrap_or(0);
        let points = counted(row.points.len() as u64, "point");
        let programs = programs.join(", ");
        page.line(
            &format!("  {points}, about {most} ns a hit ({cost}) and the program: {programs}"),
            4,
        );
    }
    for gap in &row.gaps {
        page.line(&format!("  not probed, {}: {}", gap.group, gap.why), 4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_longer_than_the_page_and_no_word_is_lost() {
        let mut page = Page::default();
        let words = "word ".repeat(60) + &"x".repeat(250) + " end\x1b";
        page.line(&words, 8);
        assert!(page.0.lines().all(|line| line.chars().count() <= WIDTH), "{}", page.0);
        let glued = |text: &str| text.split_whitespace().collect::<String>();
        assert_eq!(glued(&page.0), glued(&words).replace('\x1b', "?"));
        assert!(page.0.lines().skip(1).all(|line| line.starts_with("        ")));
    }
}
