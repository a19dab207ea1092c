//! `bench`: what inflightd costs, measured here and now, as the table of the README.
//!
//! Every number stands beside what it is compared with in the same run, and beside what two equal
//! runs differ by. Timings belong here and never in tests.

mod agent;
mod armed;
mod calls;
mod flood;
mod latency;
mod ledger;
mod load;
mod memory;
mod pair;
mod printing;
mod readme;
mod sample;
mod transfers;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::cases::build_agent;
use crate::clock::Moment;
use crate::say;
use crate::setup;

pub(crate) use load::{binary as load_program, build as build_load, compile};
pub(crate) use sample::{median, quantile};

/// Options of `cargo xtask bench`.
#[derive(Args)]
pub(crate) struct Options {
    /// Measures to run; all when none is named
    names: Vec<String>,
    /// Put the table into README.md, in place of the one that is there
    #[arg(long)]
    readme: bool,
}

/// One line of the table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// What was measured, with its conditions.
    what: String,
    /// The value with its unit, and the noise where there is one.
    value: String,
    /// What was aimed at, and whether it was reached; none where there is no goal.
    goal: Option<(String, bool)>,
}

impl Row {
    fn new(what: impl Into<String>, value: impl Into<String>) -> Self {
        Self { what: what.into(), value: value.into(), goal: None }
    }

    fn goal(mut self, goal: impl Into<String>, reached: bool) -> Self {
        self.goal = Some((goal.into(), reached));
        self
    }
}

/// A measure by its name.
type Measure = (&'static str, fn() -> Result<Vec<Row>>);

const MEASURES: [Measure; 9] = [
    ("calls", calls::measure),
    ("flood", flood::measure),
    ("ledger", ledger::measure),
    ("transfers", transfers::measure),
    ("armed", armed::measure),
    ("pair", pair::measure),
    ("printing", printing::measure),
    ("memory", memory::measure),
    ("latency", latency::measure),
];

/// Set up, then measure; every measure runs, also after one has failed.
pub(crate) fn run(options: &Options) -> Result<()> {
    let known: Vec<&str> = MEASURES.iter().map(|(name, _)| *name).collect();
    if let Some(unknown) = options.names.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("no measure is called {unknown}\nfix: choose from {}", known.join(", "));
    }
    setup::run()?;
    setup::bench_tools()?;
    build_agent()?;
    load::build()?;
    let wanted = |name: &str| options.names.is_empty() || options.names.iter().any(|n| n == name);
    let (mut rows, mut bad) = (Vec::new(), Vec::new());
    for (name, measure) in MEASURES.iter().filter(|(name, _)| wanted(name)) {
        let begun = Moment::now();
        say::line(format_args!("\n{name}"));
        match measure().with_context(|| format!("measuring {name}")) {
            Ok(more) => rows.extend(more),
            Err(error) => {
                say::line(format_args!("  {error:#}"));
                bad.push(*name);
            }
        }
        say::line(format_args!("  {name} … {:.1} min", Moment::now().seconds_after(begun) / 60.0));
    }
    let table = readme::table(&rows);
    say::line(format_args!("\n{table}"));
    if !bad.is_empty() {
        bail!("could not measure: {}", bad.join(", "));
    }
    if options.readme {
        readme::put(&table)?;
    }
    Ok(())
}
