//! The stall dashboard: its form, its queries.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use super::rules::{RULES, promtool};
use super::text;
use crate::shell::Step;
use crate::tree;

const DASHBOARD: &str = "dashboards/inflightd-stalls.json";
/// Where the agent defines its metrics.
const METRICS: &str = "agent/daemon/src/telemetry/metrics";
/// Panels that can be drawn without a Grafana server; `text` and `row` are none of its data.
const TYPES: [&str; 5] = ["timeseries", "stat", "bargauge", "table", "row"];
/// Columns of the grid.
const COLUMNS: u64 = 24;

/// The dashboard as far as it is looked at here.
#[derive(Deserialize)]
struct Dashboard {
    uid: String,
    title: String,
    panels: Vec<Panel>,
    templating: Templating,
}

#[derive(Deserialize)]
struct Templating {
    list: Vec<Variable>,
}

#[derive(Deserialize)]
struct Variable {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Panel {
    id: u64,
    #[serde(rename = "type")]
    kind: String,
    title: String,
    grid_pos: Place,
    #[serde(default)]
    targets: Vec<Target>,
}

#[derive(Clone, Copy, Deserialize)]
struct Place {
    x: u64,
    y: u64,
    w: u64,
    h: u64,
}

impl Place {
    const fn meets(self, other: Self) -> bool {
        self.x < other.x + other.w
            && other.x < self.x + self.w
            && self.y < other.y + other.h
            && other.y < self.y + self.h
    }
}

#[derive(Deserialize)]
struct Target {
    expr: String,
    datasource: Source,
    #[serde(default)]
    instant: bool,
}

#[derive(Deserialize)]
struct Source {
    uid: String,
}

/// A query of a panel, ready to be asked.
pub(super) struct Query {
    /// The panel's title.
    pub(super) panel: String,
    /// `PromQL`, without variables.
    pub(super) expr: String,
    /// Whether it is asked for one moment.
    pub(super) instant: bool,
}

fn load() -> Result<Dashboard> {
    serde_json::from_str(&text(DASHBOARD)?).with_context(|| format!("reading {DASHBOARD}"))
}

/// Every query, with all workers chosen and a rate over `interval`, such as `20s`.
pub(super) fn queries(interval: &str) -> Result<Vec<Query>> {
    let dashboard = load()?;
    let fill = |target: &Target| {
        let mut expr = target.expr.replace("$__rate_interval", interval);
        for variable in &dashboard.templating.list {
            expr = expr.replace(&format!("${}", variable.name), ".*");
        }
        expr
    };
    let of = |panel: &Panel| {
        let query = |target: &Target| Query {
            panel: panel.title.clone(),
            expr: fill(target),
            instant: target.instant,
        };
        panel.targets.iter().map(query).collect::<Vec<_>>()
    };
    Ok(dashboard.panels.iter().flat_map(of).collect())
}

pub(super) fn has_form() -> Result<()> {
    let dashboard = load()?;
    if dashboard.uid.is_empty() || dashboard.title.is_empty() {
        bail!("uid and title must be there");
    }
    let mut ids = BTreeSet::new();
    for (index, panel) in dashboard.panels.iter().enumerate() {
        let bad = |why: &str| bail!("panel {} ({}): {why}", panel.id, panel.title);
        if !TYPES.contains(&panel.kind.as_str()) {
            return bad(&format!("type {} is not one of {TYPES:?}", panel.kind));
        }
        if !ids.insert(panel.id) {
            return bad("another panel has its id");
        }
        if panel.targets.is_empty() != (panel.kind == "row") {
            return bad("queries, or none in a row");
        }
        if panel.targets.iter().any(|target| target.datasource.uid != "${datasource}") {
            return bad("a query does not ask the chosen data source");
        }
        let place = panel.grid_pos;
        let others = dashboard.panels.iter().skip(index + 1);
        if place.x + place.w > COLUMNS || place.w == 0 || place.h == 0 {
            return bad("outside of the grid");
        }
        if let Some(other) = others.map(|other| other.grid_pos).find(|other| place.meets(*other)) {
            return bad(&format!("lies over the panel at {}, {}", other.x, other.y));
        }
    }
    Ok(())
}

/// As a recording rule each, which promtool reads.
pub(super) fn is_promql() -> Result<()> {
    let mut rules = Vec::new();
    for (index, query) in queries("5m")?.iter().enumerate() {
        rules.push(serde_json::json!({"record": format!("q{index}"), "expr": query.expr}));
    }
    let file = tempfile::NamedTempFile::new().context("making a file")?;
    let groups = serde_json::json!({"groups": [{"name": "dashboard", "rules": rules}]});
    fs::write(file.path(), groups.to_string()).context("writing the queries")?;
    let step = Step { what: "reading the queries", fix: "mend what promtool names" };
    step.quietly(promtool(&["check", "rules"]).arg(file.path())).map(drop)
}

pub(super) fn names_metrics() -> Result<()> {
    let known = metrics(&tree::root().join(METRICS))?;
    let rules: BTreeSet<String> = names(&text(RULES)?);
    let asked: String = queries("5m")?.into_iter().map(|query| query.expr + "\n").collect();
    for name in rules.iter().chain(&names(&asked)) {
        let base = name.strip_suffix("_bucket").unwrap_or(name);
        if !known.contains(base) {
            bail!("the agent has no metric {name}; it has {known:?}");
        }
    }
    Ok(())
}

/// Words that can only be metrics of the agent.
fn names(text: &str) -> BTreeSet<String> {
    let begins =
        |word: &&str| ["inflight_", "inflightd_", "process_"].iter().any(|p| word.starts_with(p));
    let ends = |c: char| !c.is_ascii_alphanumeric() && c != '_';
    text.split(ends).filter(begins).map(str::to_owned).collect()
}

/// Metrics that the agent's sources define, each as a string of its own.
fn metrics(directory: &Path) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(directory).with_context(|| format!("in {}", directory.display()))? {
        let path = entry?.path();
        let text = fs::read_to_string(&path).with_context(|| format!("in {}", path.display()))?;
        let strings = text.split('"').filter(|word| names(word).contains(*word));
        found.extend(strings.map(str::to_owned));
    }
    Ok(found)
}
