//! The configuration: file, environment and flags, checked all at once and lifted to a typed
//! [`Config`].
//!
//! A flag goes before the agent's own variables, those before the file, that before
//! OpenTelemetry's variables, and all before the default. What a key is called, takes and defaults
//! to stands in `file.rs` only; the core's policy has the deadlines' defaults.

mod draft;
mod environment;
mod failing;
mod file;
mod headers;
mod lift;
mod load;
mod problem;
mod schema;
mod show;
mod small;
mod standard;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use inflightd_core::Policy;

pub use environment::{Environment, seclude};
pub use failing::ForceFail;
pub(crate) use failing::is_fit;
pub use file::{FailMode, Lines, Protocol};
pub use headers::{Headers, read_headers};
pub(crate) use lift::PEM_MAX;
pub use load::CONFIG_FILE;
pub use problem::{ConfigError, Origin, Problem, clean};
pub use schema::{schema, schema_text};
pub use show::Setting;
pub use small::read_small;

/// The configuration, valid by construction.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Deadlines.
    pub policy: Policy,
    /// Where told verdicts are kept, and the agent's socket.
    pub state_dir: PathBuf,
    /// Whether probes are used; without them only tables and meters are read.
    pub probes: bool,
    /// What goes to standard output.
    pub output: Output,
    /// Export by OTLP; `None`: off.
    pub otlp: Option<Otlp>,
    /// The agent's listener.
    pub http: Http,
    /// Which stuck rooms are failed on purpose.
    pub force_fail: ForceFail,
    /// Every value in force and where it comes from, for people and for `/agent`.
    pub settings: Vec<Setting>,
    /// What looks like a mistake and is none for certain.
    pub warnings: Vec<String>,
}

/// What goes to standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    /// Which lines.
    pub lines: Lines,
    /// Most lines about healthy rooms for each worker in a second; 0: no limit.
    pub healthy_rate: u32,
    /// So many of them may come at once.
    pub healthy_burst: u32,
}

/// Export by OTLP.
#[derive(Clone, Debug, PartialEq)]
pub struct Otlp {
    /// `http://` or `https://` with host and port.
    pub endpoint: String,
    /// How it is carried.
    pub protocol: Protocol,
    /// Headers to send, one a line; [`read_headers`] reads it. It could be read when the
    /// configuration was loaded.
    pub headers_file: Option<PathBuf>,
    /// Further headers, from OpenTelemetry's variable; the file's go before them.
    pub headers: Headers,
    /// Certificates (PEM) that the collector's is checked against.
    pub ca_file: Option<PathBuf>,
    /// The agent's own certificate and key (PEM).
    pub identity: Option<(PathBuf, PathBuf)>,
    /// How long one request may take.
    pub timeout: Duration,
    /// Whether spans are sent.
    pub traces: bool,
    /// Whether logs are sent.
    pub logs: bool,
    /// Whether metrics are sent.
    pub metrics: bool,
    /// How often metrics are sent.
    pub metrics_every: Duration,
    /// The share of healthy dwells that become spans, 0 to 1.
    pub healthy_share: f64,
    /// Most spans, and most logs, that wait to be sent.
    pub queue: usize,
}

/// The agent's listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http {
    /// Where it listens; `None`: only on the socket in the state directory.
    pub listen: Option<SocketAddr>,
    /// Somebody asked for this very address. Where nobody did, a port that is taken is no reason
    /// not to run.
    pub asked: bool,
}

impl Config {
    /// The value and origin of a key, by its path.
    pub fn setting(&self, key: &str) -> Option<&Setting> {
        self.settings.iter().find(|setting| setting.key == key)
    }

    /// Takes over `new`, except for what only a restart can change; gives the keys of that in
    /// which `new` differs.
    pub fn take_over(&mut self, new: Self) -> Vec<&'static str> {
        let differs = [
            ("state_dir", self.state_dir != new.state_dir),
            ("probes", self.probes != new.probes),
            ("http.listen", self.http.listen != new.http.listen),
        ];
        let kept: Vec<&str> =
            differs.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect();
        let old = std::mem::replace(self, new);
        (self.state_dir, self.probes) = (old.state_dir, old.probes);
        self.http = old.http;
        for setting in &mut self.settings {
            let was = old.settings.iter().find(|was| was.key == setting.key);
            if let Some(was) = was.filter(|_| kept.contains(&setting.key.as_str())) {
                setting.clone_from(was);
            }
        }
        kept
    }
}

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod tests;
