//! Tasks of this repository; `cargo xtask help` lists them.

mod cases;
mod check;
mod clock;
mod demo;
mod e2e;
mod price;
mod room;
mod say;
mod setup;
mod shell;
mod surroundings;
mod tally;
mod test;
mod tree;
mod usage;
mod vm;
mod watchdog;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Tasks of the inflightd repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install whatever is missing: eBPF tool chain, system packages, Python parts
    Setup,
    /// Set up, build, run faults of every kind on a real NIXL pair and show each verdict as it comes
    Demo(demo::Options),
    /// Set up and run every test
    Test(test::Options),
    /// Measure what inflightd costs: the table of the README
    Bench(price::Options),
    /// Formatting, lints, documentation, purity, licences, bounds; no root needed
    Check,
    /// Load, faults and decodes that come and go beside one agent, and whether that grows
    Soak(cases::soak::Options),
    /// A real Prometheus on the agent during a stall: every query of the dashboard, and the alert
    Surroundings(surroundings::Options),
    /// Run fault cases and judge the agent's verdicts
    Cases(cases::Options),
    /// The agent on other kernels, in virtual machines under software emulation
    Vm(vm::Options),
    /// Run the agent beside a real engine and judge its verdicts
    #[command(subcommand)]
    E2e(e2e::Engine),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().task {
        Task::Setup => setup::run(),
        Task::Demo(options) => demo::run(&options),
        Task::Test(options) => test::run(&options),
        Task::Bench(options) => price::run(&options),
        Task::Check => check::run(),
        Task::Soak(options) => cases::soak::run(&options),
        Task::Surroundings(options) => surroundings::run(&options),
        Task::Cases(options) => cases::run(&options),
        Task::Vm(options) => vm::run(&options),
        Task::E2e(engine) => e2e::run(&engine),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say::line(format_args!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
