//! What stands around the agent: unit, manifest, rules, runbooks, dashboard.

mod dashboard;
mod deploy;
mod hold;
mod live;
mod rules;
mod server;
mod worker;

pub(crate) use hold::hold;
pub(crate) use live::{Options, live, run};
pub(crate) use server::free_port;

use anyhow::{Context as _, Result};

use crate::say;
use crate::tally::Tally;
use crate::tree;

/// A check by its name.
type Check = (&'static str, fn() -> Result<()>);

/// What can be checked without an agent.
const CHECKS: [Check; 10] = [
    ("the rules are rules", rules::are_rules),
    ("the tests of the rules pass", rules::tests_pass),
    ("the tests of the rules notice what is wrong", rules::tests_notice),
    ("every link of an alert, and every cause, has its page", rules::have_pages),
    ("rules and dashboard name metrics that the agent has", dashboard::names_metrics),
    ("the dashboard has the form of one", dashboard::has_form),
    ("every query of the dashboard is PromQL", dashboard::is_promql),
    ("the manifest fits Kubernetes, and a wrong one does not", deploy::manifest),
    ("the unit is right, and a wrong one is not", deploy::unit),
    ("unit, manifest, image and set-up agree", deploy::agree),
];

/// Run every check that needs no agent; all of them, so that one run names all that is wrong.
pub(crate) fn still() -> Tally {
    let mut tally = Tally::default();
    for (what, check) in CHECKS {
        match check() {
            Ok(()) => {
                tally.passed += 1;
                say::line(format_args!("  {what} … ok"));
            }
            Err(error) => {
                tally.failed += 1;
                say::line(format_args!("  {what} … failed\n{error:#}"));
            }
        }
    }
    tally
}

/// The text of a file of this repository.
fn text(path: &str) -> Result<String> {
    std::fs::read_to_string(tree::root().join(path)).with_context(|| format!("reading {path}"))
}
