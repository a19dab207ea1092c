//! `inflightd`: says why a KV transfer hangs.

use std::process::ExitCode;

use clap::Parser;
use inflightd::cli::{self, Cli, Command};
use inflightd::config::seclude;
use inflightd::error::RunError;
use inflightd::error::chain;
use inflightd::log::Log;
use inflightd::{check_config, doctor, failing, replay, rooms, run, runbook};

fn main() -> ExitCode {
    // SAFETY: this is the only thread, and nothing has started another yet.
    unsafe { seclude() };
    let cli = Cli::parse();
    let result = match &cli.command {
        Command::Run(args) => return logged(args),
        Command::Replay(args) => replay::replay(args).map(|()| ExitCode::SUCCESS),
        Command::CheckConfig(args) => check_config::check_config(args).map(|()| ExitCode::SUCCESS),
        Command::Rooms(args) => rooms::rooms(args).map(|()| ExitCode::SUCCESS),
        Command::Fail(args) => failing::fail(args),
        Command::Runbook(args) => runbook::runbook(args).map(|()| ExitCode::SUCCESS),
        Command::Doctor(args) => doctor::doctor(args),
    };
    match result {
        Ok(code) => code,
        Err(error) => failed(&error),
    }
}

fn failed(error: &RunError) -> ExitCode {
    #[expect(clippy::print_stderr, reason = "the last word before the exit code")]
    {
        eprintln!("inflightd: {}", chain(error));
    }
    error.exit_code()
}

/// Runs the agent with its log on standard error. Its last word goes the way of the log: it must
/// not wait for a reader either.
fn logged(args: &cli::Run) -> ExitCode {
    let log = match Log::start(std::io::stderr()) {
        Ok(log) => log,
        Err(error) => return failed(&RunError::io("starting the thread of the log")(error)),
    };
    // Nothing else sets one before.
    drop(tracing::subscriber::set_global_default(log.subscriber(args.log)));
    let code = match run::run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log.say(&format!("inflightd: {}", chain(&error)));
            error.exit_code()
        }
    };
    log.end();
    code
}
