//! Alert rules, their tests, and the pages that they point to.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use inflightd_core::verdict::Cause;

use super::text;
use crate::setup::prometheus;
use crate::shell::Step;
use crate::tree;

/// The rules, from the root.
pub(super) const RULES: &str = "dashboards/rules/inflightd.rules.yaml";
const TESTS: &str = "dashboards/rules/inflightd.test.yaml";
const PAGES: &str = "dashboards/runbooks";
/// What each link to a page begins with, until an operator puts his own there.
const BASE: &str = "https://runbooks.invalid/inflightd/";

/// Changes of the rules that are wrong: what is replaced, by what.
const MUTANTS: [(&str, &str); 10] = [
    ("cause!=\"queued_behind\"\n", "cause!=\"\"\n"),
    ("finding!~\"moving_slowly|blind\",\n", "finding!=\"\",\n"),
    ("index, cause) (", "index, cause, finding) ("),
    ("severity: page", "severity: ticket"),
    ("severity: ticket", "severity: page"),
    ("          unless on", "          or on"),
    ("for: 3m", "for: 30s"),
    ("result!=\"ok\"", "result=\"ok\""),
    ("(inflight_events_lost_total unless", "(inflight_events_lost_total and"),
    ("(increase(inflight_events_lost_total[10m]) > 0)", "inflight_events_lost_total > 0"),
];

/// promtool in the root.
pub(super) fn promtool(arguments: &[&str]) -> Command {
    let mut command = Command::new(prometheus("promtool"));
    command.current_dir(tree::root()).args(arguments);
    command
}

pub(super) fn are_rules() -> Result<()> {
    let step = Step { what: "checking the rules", fix: "mend what promtool names" };
    step.quietly(&mut promtool(&["check", "rules", RULES])).map(drop)
}

pub(super) fn tests_pass() -> Result<()> {
    let step = Step { what: "testing the rules", fix: "mend the rules, or the test" };
    step.quietly(&mut promtool(&["test", "rules", TESTS])).map(drop)
}

/// A test that cannot fail shows nothing.
pub(super) fn tests_notice() -> Result<()> {
    let (rules, tests) = (text(RULES)?, text(TESTS)?);
    for (right, wrong) in MUTANTS {
        if !rules.contains(right) {
            bail!("the rules have no {right:?}\nfix: bring MUTANTS up to date");
        }
        let directory = tempfile::tempdir().context("making a directory")?;
        write(directory.path(), RULES, &rules.replace(right, wrong))?;
        write(directory.path(), TESTS, &tests)?;
        let name = Path::new(TESTS).file_name().unwrap_or_default();
        let mut test = promtool(&["test", "rules"]);
        let output = test.arg(name).current_dir(directory.path()).output();
        if output.context("starting promtool")?.status.success() {
            bail!("no test of the rules notices {wrong:?} for {right:?}\nfix: add one");
        }
    }
    Ok(())
}

fn write(directory: &Path, path: &str, text: &str) -> Result<()> {
    let file = directory.join(Path::new(path).file_name().unwrap_or_default());
    fs::write(&file, text).with_context(|| format!("writing {}", file.display()))
}

pub(super) fn have_pages() -> Result<()> {
    let mut pages: Vec<String> = Cause::ALL.iter().map(|cause| cause.name().to_owned()).collect();
    for line in text(RULES)?.lines().filter(|line| line.contains("runbook_url:")) {
        let page = line.split_once(BASE).and_then(|(_, rest)| rest.split_once(".md"));
        let Some((page, _)) = page else {
            bail!("{} is no link to a page\nfix: {BASE}PAGE.md", line.trim());
        };
        if page != "{{ $labels.cause }}" {
            pages.push(page.to_owned());
        }
    }
    for page in pages {
        let page = text(&format!("{PAGES}/{page}.md"))?;
        for part in ["## Confirm\n", "## Do\n", "## Do not\n"] {
            if !page.contains(part) {
                bail!("{} lacks {}", page.lines().next().unwrap_or_default(), part.trim());
            }
        }
    }
    Ok(())
}
