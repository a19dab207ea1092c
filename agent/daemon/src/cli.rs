//! Arguments.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Parser, Subcommand};

use crate::runbook::PAGES;

/// Says why a KV transfer hangs: watches the inflight queues of LLM engines on this node.
#[derive(Debug, Parser)]
#[command(name = "inflightd", version, after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  ended as asked (SIGTERM, SIGINT, or its standard output was closed)
  1  failed while starting or running: it may pass, such as an address in use, and is worth another try
  2  wrong arguments or configuration: another try changes nothing
  3  a right is missing (root, or CAP_SYS_ADMIN and what deploy/README.md names; or to look at a process
     given by --pid, or to open the agent's socket), or lockdown forbids it
  4  this kernel offers no BPF, or is too old
  5  another agent is running
  6  a process given by --pid has gone or is not a worker
  7  no agent answers";

/// The variables that `config::environment` and `config::standard` read: a test compares the two.
pub(crate) const ENVIRONMENT: &str = "\
Environment, before the file and after a flag, each for the setting of that name:
  INFLIGHTD_SUSPECT INFLIGHTD_STALL INFLIGHTD_STALL_MOONCAKE INFLIGHTD_MAX_DWELL
  INFLIGHTD_HARD_GRACE INFLIGHTD_BEAT_FRESH INFLIGHTD_SCHEDULER_WEDGED
  INFLIGHTD_SETUP_GRACE INFLIGHTD_STATE_DIR INFLIGHTD_LISTEN INFLIGHTD_LINES
  INFLIGHTD_HEALTHY_RATE; INFLIGHTD_OTLP is `otlp.endpoint`.
  Other settings have no variable: the file sets them.
Of OpenTelemetry's own, for what neither flag nor INFLIGHTD_OTLP nor the file says (the file goes
before them: they are defaults of a cluster):
  OTEL_EXPORTER_OTLP_ENDPOINT, _PROTOCOL, _TIMEOUT (milliseconds), _HEADERS, _CERTIFICATE,
  _CLIENT_CERTIFICATE and _CLIENT_KEY.";

const ROOMS_CODES: &str = "\
Exit codes:
  0  the agent has answered, also where no room is open
  1  the answer could not be read or written
  2  wrong arguments or configuration
  3  a right is missing: the agent's socket is for root
  6  a process given by --pid has gone or is not a worker, or the agent does not watch it
  7  no agent answers";

const FAIL_CODES: &str = "\
Without --yes nothing is done: it says what would be.
Exit codes:
  0  the room was failed, or would be
  1  the answer could not be read or written
  2  wrong arguments or configuration
  3  a right is missing: the agent's socket is for root
  7  no agent answers
  8  the room was not failed: refused, or no rank carried it out";

const DOCTOR_CODES: &str = "\
Exit codes:
  0  an agent runs and every source sees every worker
  1  something is degraded or blind, or could not be looked at
  2  wrong arguments or configuration
  3  a right is missing
  4  the kernel lacks something
  6  a process given by --pid has gone or is not a worker
  7  no agent answers: nobody watches";

/// Subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch this node's workers.
    #[command(after_help = ENVIRONMENT)]
    Run(Run),
    /// Judge a capture again: the same lines as the agent printed when it was made.
    Replay(Replay),
    /// Show the rooms that are open now, the oldest first.
    #[command(after_help = ROOMS_CODES)]
    Rooms(Rooms),
    /// Fail a stuck room on all ranks of its engine, where it is proven that nothing of it is under way.
    #[command(after_help = FAIL_CODES)]
    Fail(Fail),
    /// What can be seen on this node, what cannot and why, and what would mend it.
    #[command(after_help = DOCTOR_CODES)]
    Doctor(Doctor),
    /// Print what to do about an alert: the page that the alert names. Without a name, list all.
    Runbook(Runbook),
    /// Check a configuration file: all its errors at once, or the configuration in force.
    CheckConfig(CheckConfig),
}

/// `inflightd run`.
#[derive(Debug, clap::Args)]
pub struct Run {
    /// Configuration file (TOML) [default: /etc/inflightd/inflightd.toml, where it is there].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// One JSON object a line on standard output, instead of text for people.
    #[arg(long)]
    pub json: bool,
    /// Watch this process; may be given several times. Without it all workers are found. Their
    /// peers on this node are found all the same.
    #[arg(long, value_name = "PID")]
    pub pid: Vec<u32>,
    /// Values that go before those of environment and file.
    #[command(flatten)]
    pub flags: Flags,
    /// Record everything that the judge is given, for `inflightd replay`.
    #[arg(long, value_name = "FILE")]
    pub capture: Option<PathBuf>,
    /// The capture ends when it is so large, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    pub capture_max: u64,
    /// Log level on standard error: error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log: tracing::Level,
}

/// Flags that set a value of the configuration.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Flags {
    /// No progress for so long makes a suspect, in seconds [default: 5, or half the stall].
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true)]
    pub suspect: Option<String>,
    /// No progress for so long is a stall, in seconds [default: 30].
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true)]
    pub stall: Option<String>,
    /// Where the agent keeps what it has told, so that a restarted one tells nothing twice
    /// [default: /run/inflightd].
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Address of metrics and health, such as `127.0.0.1:9464`, or `off`.
    #[arg(long, value_name = "ADDR|off")]
    pub listen: Option<String>,
    /// Which lines go to standard output: all, verdicts or none, as `output.lines` in the file says
    /// [default: all]. Their form is text, or JSON with --json.
    #[arg(long, value_name = "all|verdicts|none")]
    pub lines: Option<String>,
    /// Send spans, logs and metrics to this OTLP endpoint, such as `http://127.0.0.1:4317`.
    #[arg(long, value_name = "ENDPOINT")]
    pub otlp: Option<String>,
}

/// `inflightd rooms`.
#[derive(Debug, clap::Args)]
pub struct Rooms {
    /// The agent's answer as it is, one JSON object, instead of a table for people.
    #[arg(long)]
    pub json: bool,
    /// Only the rooms of this process.
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Most rooms to show.
    #[arg(long, value_name = "COUNT", default_value_t = 1000,
          value_parser = clap::value_parser!(u32).range(0..=16_384))]
    pub limit: u32,
    /// State directory of the agent to ask [default: `INFLIGHTD_STATE_DIR`, else as the file of
    /// --config says, else /run/inflightd].
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// The agent's configuration file [default: /etc/inflightd/inflightd.toml, where it is there].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// `inflightd fail`.
#[derive(Debug, clap::Args)]
pub struct Fail {
    /// The room's id, as `inflightd rooms` shows it.
    #[arg(value_name = "ROOM")]
    pub room: u64,
    /// In whose queue it is, by process id: where several engines have it.
    #[arg(long, value_name = "PID")]
    pub worker: Option<u32>,
    /// Say what would be done, and do nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Do it.
    #[arg(long, conflicts_with = "dry_run")]
    pub yes: bool,
    /// The agent's answer as it is, one JSON object, instead of a line for people.
    #[arg(long)]
    pub json: bool,
    /// State directory of the agent to ask [default: `INFLIGHTD_STATE_DIR`, else as the file of
    /// --config says, else /run/inflightd].
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// The agent's configuration file [default: /etc/inflightd/inflightd.toml, where it is there].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// `inflightd runbook`.
#[derive(Debug, clap::Args)]
pub struct Runbook {
    /// Which page, such as `peer_frozen`.
    #[arg(hide_possible_values = true, value_parser =
          PossibleValuesParser::new(PAGES.iter().map(|(name, _)| *name)))]
    pub name: Option<String>,
}

/// `inflightd check-config`.
#[derive(Debug, clap::Args)]
pub struct CheckConfig {
    /// The file to check.
    #[arg(required_unless_present = "schema")]
    pub file: Option<PathBuf>,
    /// Print the JSON schema of the file instead.
    #[arg(long)]
    pub schema: bool,
}

/// `inflightd doctor`.
#[derive(Debug, clap::Args)]
pub struct Doctor {
    /// The report as JSON.
    #[arg(long)]
    pub json: bool,
    /// Look at this process; may be given several times. Without it at all.
    #[arg(long, value_name = "PID")]
    pub pid: Vec<u32>,
    /// State directory of the agent to ask [default: `INFLIGHTD_STATE_DIR`, else as the file of
    /// --config says, else /run/inflightd].
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// The agent's configuration file [default: /etc/inflightd/inflightd.toml, where it is there].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// `inflightd replay`.
#[derive(Debug, clap::Args)]
pub struct Replay {
    /// A file that `inflightd run --capture` has written.
    pub file: PathBuf,
    /// One JSON object a line, instead of text for people.
    #[arg(long)]
    pub json: bool,
}
