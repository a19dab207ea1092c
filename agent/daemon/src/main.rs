//! `inflightd`: says why a KV transfer hangs.

use std::process::ExitCode;

use clap::Parser;
use inflightd::agent::chain;
use inflightd::cli::{Cli, Command};
use inflightd::{check_config, doctor, replay, rooms, run};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match &cli.command {
        Command::Run(args) => {
            log_to_stderr(args.log);
            run::run(args).map(|()| ExitCode::SUCCESS)
        }
        Command::Replay(args) => replay::replay(args).map(|()| ExitCode::SUCCESS),
        Command::CheckConfig(args) => check_config::check_config(args).map(|()| ExitCode::SUCCESS),
        Command::Rooms(args) => rooms::rooms(args).map(|()| ExitCode::SUCCESS),
        Command::Doctor(args) => doctor::doctor(args),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "the last word before the exit code")]
            {
                eprintln!("inflightd: {}", chain(&error));
            }
            error.exit_code()
        }
    }
}

fn log_to_stderr(level: tracing::Level) {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(level)
        .with_target(false)
        .init();
}
