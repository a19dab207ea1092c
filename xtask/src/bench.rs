//! `bench`: what the parts cost, measured here and now. Timings belong here and never in tests.

use anyhow::{Result, bail};

use crate::cases::bench::{self, Options};
use crate::say;
use crate::setup;
use crate::shell::Step;
use crate::tree::cargo;

/// What is measured, and by which cargo arguments.
const MEASURES: [(&str, &[&str]); 2] = [
    (
        "the ledger, per 11 events of a room's stay beside 1,000 to 100,000 open rooms, and a tick",
        &["bench", "--package", "inflightd-core", "--bench", "ledger"],
    ),
    (
        "a queue mark, bare and with the agent's probe on it",
        &[
            "test",
            "--release",
            "--package",
            "inflightd",
            "--test",
            "probe_marks",
            "--",
            "--ignored",
            "--nocapture",
        ],
    ),
];

const PAIR: &str = "a NIXL pair, bare, with the hook, and with hook and agent";

/// Set up, then measure; every measure runs, also after one has failed.
pub(crate) fn run(options: &Options) -> Result<()> {
    setup::run()?;
    let mut bad = Vec::new();
    for (what, arguments) in MEASURES {
        say::line(format_args!("\n{what}"));
        let step = Step { what, fix: "see the lines above" };
        let (_, good) = step.told(&mut cargo(arguments))?;
        if !good {
            bad.push(what);
        }
    }
    say::line(format_args!("\n{PAIR}"));
    if let Err(error) = bench::run(options) {
        say::line(format_args!("{error:#}"));
        bad.push(PAIR);
    }
    if !bad.is_empty() {
        bail!("could not measure: {}", bad.join("; "));
    }
    Ok(())
}
