//! `test`: set-up, then every test there is, each stage timed.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;

use crate::cases;
use crate::clock::Moment;
use crate::e2e;
use crate::say;
use crate::setup::{self, python};
use crate::shell::Step;
use crate::surroundings;
use crate::tally::Tally;
use crate::tree::{self, cargo, target};
use crate::vm;

/// The cases that every test run takes: one for each kind of finding, and the healthy pair.
const SHORT: [&str; 10] = [
    "healthy",
    "never_posted",
    "frozen_before_wired",
    "frozen_midway",
    "killed_handled",
    "killed_dropped",
    "lost_notice",
    "queued_behind_frozen",
    "partition",
    "no_hook",
];

/// How many of the others a plain test run takes, in turn: by what they take, three minutes at most.
const MORE: usize = 3;

/// How long a stage of tests may take, its compiling included: several times what it takes on two
/// loaded cores, and little enough that CI still has time to say which one hung.
const LIMIT: Duration = Duration::from_mins(40);

/// Options of `cargo xtask test`.
#[derive(Args)]
pub(crate) struct Options {
    /// Run every fault case rather than ten of them and three in turn
    #[arg(long)]
    all: bool,
}

/// A stage: its name and what counts its tests.
type Stage<'a> = (&'static str, &'a dyn Fn(Step<'_>) -> Result<Tally>);

/// Run every stage; all of them, so that one run names all that is wrong.
pub(crate) fn run(options: &Options) -> Result<()> {
    let begun = Moment::now();
    setup::run()?;
    let mut times = vec![("setup", Moment::now().seconds_after(begun) / 60.0)];
    let mut sum = Tally::default();
    let mut bad = Vec::new();
    let cases = |_: Step<'_>| fault_cases(options.all);
    let stages: [Stage<'_>; 9] = [
        ("workspace", &workspace),
        ("libinflight", &marker),
        ("models of the table", &models),
        ("python", &hook),
        ("surroundings", &|_| Ok(surroundings::still())),
        ("a real Prometheus", &|_| one(surroundings::live())),
        ("cases", &cases),
        ("another kernel, and RDMA", &|_| kernel()),
        ("a real SGLang", &|_| engine()),
    ];
    for (what, stage) in stages {
        say::line(format_args!("\n{what}"));
        let begun = Moment::now();
        let step = Step { what, fix: "see the lines above" };
        let tally = stage(step).unwrap_or_else(|error| {
            say::line(format_args!("{error:#}"));
            Tally { failed: 1, ..Tally::default() }
        });
        sum += tally;
        if !tally.is_good() {
            bad.push(what);
        }
        times.push((what, Moment::now().seconds_after(begun) / 60.0));
    }
    say::line("\nminutes");
    for (what, minutes) in times {
        say::line(format_args!("  {minutes:5.1}  {what}"));
    }
    say::line(sum);
    if !bad.is_empty() {
        bail!("failed: {}", bad.join(", "));
    }
    Ok(())
}

/// Everything that a plain `cargo test` covers, tests on the kernel included: they need root.
fn workspace(step: Step<'_>) -> Result<Tally> {
    counted(step, &mut cargo(&["test", "--no-fail-fast"]))
}

/// libinflight has its own panic handler and so its own build.
fn marker(step: Step<'_>) -> Result<Tally> {
    counted(step, &mut cargo(&["test", "--no-fail-fast", "--package", "libinflight"]))
}

/// The table under every interleaving that loom finds within its bounds.
fn models(step: Step<'_>) -> Result<Tally> {
    let mut test = cargo(&["test", "--release", "--package", "inflightd-abi", "--test", "model"]);
    test.env("RUSTFLAGS", "--cfg loom").arg("--target-dir").arg(target().join("loom"));
    counted(step, &mut test)
}

fn hook(step: Step<'_>) -> Result<Tally> {
    let tests = "hook/python/tests";
    let (variable, wheels) = setup::sglang_wheels();
    let mut unittest = python(&["-m", "unittest", "discover", "-v", "-s", tests]);
    counted(step, unittest.env(variable, wheels))
}

/// A failed run still has its counts in its closing lines; a run without any has failed.
fn counted(step: Step<'_>, command: &mut std::process::Command) -> Result<Tally> {
    let (lines, good) = step.told(command, LIMIT)?;
    let mut tally = Tally::read(&lines);
    if !good && tally.failed == 0 {
        tally.failed = 1;
    }
    Ok(tally)
}

/// SGLang from its wheel, healthy and with a frozen decode, beside the agent that the cases before
/// have built.
fn engine() -> Result<Tally> {
    cases::build_agent()?;
    let (right, of) = e2e::run_short()?;
    Ok(Tally { passed: right as u64, failed: (of - right) as u64, skipped: 0 })
}

/// A Debian kernel in a virtual machine, with soft-RoCE.
fn kernel() -> Result<Tally> {
    cases::build_agent()?;
    let right = vm::run_short()?;
    Ok(Tally { passed: u64::from(right), failed: u64::from(!right), skipped: 0 })
}

/// What is one test, and says by its error why it failed.
fn one(done: Result<()>) -> Result<Tally> {
    done.map(|()| Tally { passed: 1, ..Tally::default() })
}

fn fault_cases(all: bool) -> Result<Tally> {
    cases::build_agent()?;
    let mut names = Vec::new();
    if !all {
        let commit = tree::commit()?;
        let turn = in_turn(&cases::names()?, &commit);
        let (short, more) = (SHORT.len(), turn.join(", "));
        say::line(format_args!("  {short} cases always, and by the commit {commit}: {more}"));
        names = SHORT.iter().map(|name| (*name).to_owned()).chain(turn).collect();
    }
    let reports = cases::run_built(&cases::Options::of(names), false)?;
    say::line(cases::table(&reports));
    let passed = reports.iter().filter(|report| report.is_right()).count() as u64;
    Ok(Tally { passed, failed: reports.len() as u64 - passed, skipped: 0 })
}

/// Of the cases that are not always run those whose turn it is: the same for one commit, and over
/// the commits each as often as another. What is alike stands side by side in their order, so a turn
/// takes every so manieth of them.
fn in_turn(known: &[String], commit: &str) -> Vec<String> {
    let others: Vec<&String> =
        known.iter().filter(|name| !SHORT.contains(&name.as_str())).collect();
    let turns = others.len().div_ceil(MORE).max(1);
    let digits = commit.get(..12).unwrap_or_default();
    let turn = u64::from_str_radix(digits, 16).unwrap_or(0) % turns as u64;
    let turn = usize::try_from(turn).unwrap_or(0);
    others.into_iter().skip(turn).step_by(turns).cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn over_the_commits_every_case_is_run() {
        let known = cases::names().unwrap();
        assert!(SHORT.iter().all(|name| known.iter().any(|known| known == name)));
        let commit = |at: usize| format!("{at:012x}7cd2bb");
        let mut run = BTreeSet::new();
        for at in 0..known.len() {
            let turn = in_turn(&known, &commit(at));
            assert_eq!(turn, in_turn(&known, &commit(at)), "the same for one commit");
            assert!((1..=MORE).contains(&turn.len()), "{turn:?}");
            run.extend(turn);
        }
        assert_eq!(run.len(), known.len() - SHORT.len());
    }
}
