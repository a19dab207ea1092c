//! The file as it is written. Names, types, bounds and defaults stand here once: the checks and
//! the JSON schema are made from these types.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Configuration of inflightd.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "inflightd.toml")]
pub(crate) struct File {
    /// Where the agent keeps what it has told, and its socket. Needs a restart.
    pub(crate) state_dir: PathBuf,
    /// Whether probes are used; without them only tables and meters are read. Needs a restart.
    pub(crate) probes: bool,
    /// When the agent speaks.
    pub(crate) deadlines: Deadlines,
    /// What goes to standard output.
    pub(crate) output: OutputFile,
    /// Where spans, logs and metrics are sent. Without it: nowhere, or to
    /// `OTEL_EXPORTER_OTLP_ENDPOINT` where that is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "OtlpFile")]
    pub(crate) otlp: Option<OtlpFile>,
    /// The agent's own listener.
    pub(crate) http: HttpFile,
    /// Whether stuck rooms are failed on purpose, and which.
    pub(crate) force_fail: ForceFailFile,
}

impl Default for File {
    fn default() -> Self {
        Self {
            state_dir: PathBuf::from("/run/inflightd"),
            probes: true,
            deadlines: Deadlines::default(),
            output: OutputFile::default(),
            otlp: None,
            http: HttpFile::default(),
            force_fail: ForceFailFile::default(),
        }
    }
}

/// Deadlines in seconds. One alone is enough: those that are not given go along with `stall`.
/// Each can be given by an environment variable, such as `INFLIGHTD_STALL=20`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Deadlines {
    /// No progress for so long makes a suspect: meters are read more often. At most half the stall
    /// where it is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = 0.05, max = 604_800), extend("default" = 5, "x-unit" = "seconds"))]
    pub(crate) suspect: Option<f64>,
    /// No progress for so long is a stall.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = 0.05, max = 604_800), extend("default" = 30, "x-unit" = "seconds"))]
    pub(crate) stall: Option<f64>,
    /// The same for rooms to Mooncake sessions, whose own limit is 30 s. At least the stall where
    /// it is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = 0.05, max = 604_800), extend("default" = 35, "x-unit" = "seconds"))]
    pub(crate) stall_mooncake: Option<f64>,
    /// In the queue for so long although bytes move: said, not alarmed. At least the stall where
    /// it is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = 0.05, max = 604_800), extend("default" = 600, "x-unit" = "seconds"))]
    pub(crate) max_dwell: Option<f64>,
    /// How long an engine has to end a room by itself after hard evidence.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = 0.05, max = 604_800), extend("default" = 0.6, "x-unit" = "seconds"))]
    pub(crate) hard_grace: Option<f64>,
    /// A beat younger than this shows a scheduler that polls its queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = 0.05, max = 604_800), extend("default" = 5, "x-unit" = "seconds"))]
    pub(crate) beat_fresh: Option<f64>,
    /// No beat for so long while rooms are open: the scheduler is wedged.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = 0.05, max = 604_800), extend("default" = 300, "x-unit" = "seconds"))]
    pub(crate) scheduler_wedged: Option<f64>,
    /// A first transfer to a peer may take this long while its connection is set up.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = 0.05, max = 604_800), extend("default" = 60, "x-unit" = "seconds"))]
    pub(crate) setup_grace: Option<f64>,
}

/// What goes to standard output.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct OutputFile {
    /// `all`; `verdicts`: no line about a room that never stalled; `none`.
    pub(crate) lines: Lines,
    /// Most lines about healthy rooms for each worker in a second, on average; 0: no limit. What
    /// is left out is counted and said in one line. Verdicts, their ends and the dwells of stalled
    /// rooms have no limit.
    #[schemars(range(max = 1_000_000))]
    pub(crate) healthy_rate: u32,
    /// So many such lines may come at once.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub(crate) healthy_burst: u32,
}

impl Default for OutputFile {
    fn default() -> Self {
        Self { lines: Lines::All, healthy_rate: 100, healthy_burst: 20_000 }
    }
}

/// Which lines go to standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Lines {
    /// All.
    All,
    /// Verdicts, their ends, the dwells of rooms that stalled, coverage and loss.
    Verdicts,
    /// None: what the agent finds goes to OTLP and its listener only.
    None,
}

/// Whether stuck rooms are failed on purpose, and which. What is not proven to be safe is never done,
/// whatever stands here. `inflightd fail` does not ask for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ForceFailFile {
    /// `off`; `dry_run`: everything is looked at and told, and nothing done; `on`.
    pub(crate) mode: FailMode,
    /// For which verdicts: `finding/cause`, separated by commas; `finding/*` for each of its causes.
    pub(crate) allow: String,
    /// Only rooms that have been in the queue for so long.
    #[schemars(range(min = 1, max = 604_800), extend("x-unit" = "seconds"))]
    pub(crate) min_dwell: f64,
    /// Most rooms in a minute, on this node.
    #[schemars(range(min = 1, max = 10_000))]
    pub(crate) per_minute: u32,
    /// Most rooms to one peer in a minute.
    #[schemars(range(min = 1, max = 10_000))]
    pub(crate) per_peer: u32,
    /// Most of a worker's rooms in a minute, as a share of those in its queue; one is always allowed.
    #[schemars(range(min = 0, max = 1))]
    pub(crate) share: f64,
}

impl Default for ForceFailFile {
    fn default() -> Self {
        Self {
            mode: FailMode::Off,
            allow: "never_started/handshake_missing, never_started/queued_behind, \
                    never_started/stale_peer, never_started/never_enqueued, \
                    never_started/worker_thread_dead"
                .to_owned(),
            min_dwell: 60.0,
            per_minute: 6,
            per_peer: 3,
            share: 0.25,
        }
    }
}

/// Whether stuck rooms are failed on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailMode {
    /// Not by the agent itself.
    Off,
    /// It tells what it would fail.
    DryRun,
    /// It fails them.
    On,
}

/// Export by OTLP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct OtlpFile {
    /// `http://` or `https://`, host and port. With `protocol = "http"` the paths `/v1/traces` and
    /// so on are added.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) endpoint: Option<String>,
    /// `grpc`, or `http` for protobuf over HTTP.
    pub(crate) protocol: Protocol,
    /// A file with one header a line, `name: value`, sent with every request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "PathBuf")]
    pub(crate) headers_file: Option<PathBuf>,
    /// Certificates that the collector's is checked against (PEM).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "PathBuf")]
    pub(crate) ca_file: Option<PathBuf>,
    /// The agent's own certificate (PEM), with `key_file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "PathBuf")]
    pub(crate) cert_file: Option<PathBuf>,
    /// The key of `cert_file` (PEM).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "PathBuf")]
    pub(crate) key_file: Option<PathBuf>,
    /// How long one request may take.
    #[schemars(range(min = 0.1, max = 600), extend("x-unit" = "seconds"))]
    pub(crate) timeout: f64,
    /// Whether spans are sent.
    pub(crate) traces: bool,
    /// Whether logs are sent.
    pub(crate) logs: bool,
    /// Whether metrics are sent.
    pub(crate) metrics: bool,
    /// How often metrics are sent.
    #[schemars(range(min = 1, max = 3600), extend("x-unit" = "seconds"))]
    pub(crate) metrics_every: f64,
    /// The share of healthy dwells that become spans.
    #[schemars(range(min = 0, max = 1))]
    pub(crate) healthy_share: f64,
    /// Most spans, and most logs, that wait to be sent; the newcomer is dropped and counted.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) queue: u32,
}

impl Default for OtlpFile {
    fn default() -> Self {
        Self {
            endpoint: None,
            protocol: Protocol::Grpc,
            headers_file: None,
            ca_file: None,
            cert_file: None,
            key_file: None,
            timeout: 10.0,
            traces: true,
            logs: true,
            metrics: true,
            metrics_every: 30.0,
            healthy_share: 0.01,
            queue: 2048,
        }
    }
}

/// How OTLP is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// gRPC.
    Grpc,
    /// Protobuf over HTTP.
    Http,
}

/// The agent's own listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct HttpFile {
    /// Address and port of `/metrics`, `/healthz`, `/readyz` and `/workers`; `off`: no listener
    /// but the socket in `state_dir`. Needs a restart.
    pub(crate) listen: String,
}

impl Default for HttpFile {
    fn default() -> Self {
        Self { listen: "127.0.0.1:9464".to_owned() }
    }
}
