//! Where values come from.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::Config;
use super::draft::{Draft, nearest};
use super::lift::lift;
use super::problem::{ConfigError, Origin, Problem};
use super::small::read_small;
use crate::cli;

/// The file that is read where no other is named, if it is there.
pub const CONFIG_FILE: &str = "/etc/inflightd/inflightd.toml";
/// Most bytes of a configuration file.
const BYTES_MAX: usize = 1 << 20;

/// Environment variables and their keys.
const VARIABLES: [(&str, &str); 13] = [
    ("INFLIGHTD_SUSPECT", "deadlines.suspect"),
    ("INFLIGHTD_STALL", "deadlines.stall"),
    ("INFLIGHTD_STALL_MOONCAKE", "deadlines.stall_mooncake"),
    ("INFLIGHTD_MAX_DWELL", "deadlines.max_dwell"),
    ("INFLIGHTD_HARD_GRACE", "deadlines.hard_grace"),
    ("INFLIGHTD_BEAT_FRESH", "deadlines.beat_fresh"),
    ("INFLIGHTD_SCHEDULER_WEDGED", "deadlines.scheduler_wedged"),
    ("INFLIGHTD_SETUP_GRACE", "deadlines.setup_grace"),
    ("INFLIGHTD_STATE_DIR", "state_dir"),
    ("INFLIGHTD_LISTEN", "http.listen"),
    ("INFLIGHTD_OTLP", "otlp.endpoint"),
    ("INFLIGHTD_LINES", "output.lines"),
    ("INFLIGHTD_HEALTHY_RATE", "output.healthy_rate"),
];

/// OpenTelemetry's own variable. It is often set for a whole cluster, so file and flag go before.
const OTEL_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// More of them, taken where an endpoint is known and nothing else says it: each with its key.
const OTEL_MORE: [(&str, &str); 5] = [
    ("OTEL_EXPORTER_OTLP_PROTOCOL", "otlp.protocol"),
    ("OTEL_EXPORTER_OTLP_TIMEOUT", "otlp.timeout"),
    ("OTEL_EXPORTER_OTLP_CERTIFICATE", "otlp.ca_file"),
    ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "otlp.cert_file"),
    ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "otlp.key_file"),
];

/// Environment variables, as `std::env::vars_os` gives them.
pub type Environment = Vec<(OsString, OsString)>;

impl Config {
    /// The configuration of `inflightd run` with these arguments, in this process's environment.
    pub fn load(run: &cli::Run) -> Result<Self, ConfigError> {
        Self::find(run.config.as_deref(), &run.flags)
    }

    /// The same for whoever has a file and flags, or neither.
    pub fn find(file: Option<&Path>, flags: &cli::Flags) -> Result<Self, ConfigError> {
        Self::assemble(Self::file(file).as_deref(), &std::env::vars_os().collect(), flags)
    }

    /// The file that is read: the one that is named, else the usual one where it is there.
    pub fn file(named: Option<&Path>) -> Option<PathBuf> {
        let usual = || Path::new(CONFIG_FILE).exists().then(|| PathBuf::from(CONFIG_FILE));
        named.map(Path::to_owned).or_else(usual)
    }

    /// The configuration that a file gives, in this process's environment and without flags.
    pub fn check(path: &Path) -> Result<Self, ConfigError> {
        Self::assemble(Some(path), &std::env::vars_os().collect(), &cli::Flags::default())
    }

    /// Where the agent keeps its socket: as the flag says, else the configuration.
    pub fn state_dir(flag: Option<&Path>) -> Result<PathBuf, ConfigError> {
        if let Some(flag) = flag {
            return Ok(flag.to_owned());
        }
        let path = Some(Path::new(CONFIG_FILE)).filter(|path| path.exists());
        let environment = std::env::vars_os().collect();
        Ok(Self::assemble(path, &environment, &cli::Flags::default())?.state_dir)
    }

    pub(super) fn assemble(
        path: Option<&Path>,
        environment: &Environment,
        flags: &cli::Flags,
    ) -> Result<Self, ConfigError> {
        let mut draft = Draft::new();
        if let Some(path) = path {
            draft.take_file(path, &read(path)?);
        }
        let warnings = take_environment(&mut draft, environment);
        take_flags(&mut draft, flags);
        take_standard(&mut draft, environment);
        // Before the checks, which take the draft.
        let is_foreign = is_foreign(draft.origins.get("otlp.endpoint"));
        let error = match lift(draft, warnings) {
            Err(error) if error.problems.iter().any(is_foreign_at) => error,
            done => return done,
        };
        let (left, told) = without_foreign(environment, &error, is_foreign);
        let mut config = Self::assemble(path, &left, flags)?;
        config.warnings.extend(told);
        Ok(config)
    }
}

/// Whether a value comes from one of OpenTelemetry's own variables.
fn is_foreign(origin: Option<&Origin>) -> bool {
    matches!(origin, Some(Origin::Env(name)) if name.starts_with("OTEL_"))
}

fn is_foreign_at(problem: &Problem) -> bool {
    is_foreign(Some(&problem.origin))
}

/// The environment without OpenTelemetry's variables that cannot be used, and what to say of them.
/// They are often set for a whole cluster and for other programs: they are no reason not to run.
/// An endpoint that comes from there too is then not used: half of what was meant for it is missing.
fn without_foreign(
    environment: &Environment,
    error: &ConfigError,
    is_endpoint_foreign: bool,
) -> (Environment, Vec<String>) {
    let mut names = Vec::new();
    let mut told = Vec::new();
    for problem in error.problems.iter().filter(|problem| is_foreign_at(problem)) {
        if let Origin::Env(name) = problem.origin {
            names.push(name);
        }
        let what = if is_endpoint_foreign { "OTLP is off" } else { "it is not used" };
        told.push(format!("{problem} ({what})"));
    }
    if is_endpoint_foreign {
        names.push(OTEL_ENDPOINT);
    }
    let mut left = environment.clone();
    left.retain(|(name, _)| names.iter().all(|other| name != other));
    (left, told)
}

fn read(path: &Path) -> Result<String, ConfigError> {
    let bad = |text: String| {
        let origin = Origin::File { path: path.to_owned(), line: 0, column: 0 };
        ConfigError::new(vec![Problem { origin, key: String::new(), value: None, text }], 0)
    };
    let bytes = read_small(path, BYTES_MAX).map_err(bad)?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        bad(format!("is no text: byte {at} is not UTF-8; write it as TOML"))
    })
}

fn take_environment(draft: &mut Draft, environment: &Environment) -> Vec<String> {
    let mut warnings = Vec::new();
    let value = |name: &str| {
        let found = environment.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.to_string_lossy().into_owned())
    };
    if let Some(text) = value(OTEL_ENDPOINT).filter(|text| !text.is_empty())
        && !draft.origins.contains_key("otlp.endpoint")
        && !draft.bad.contains("otlp.endpoint")
    {
        draft.take_text("otlp.endpoint", &text, Origin::Env(OTEL_ENDPOINT));
    }
    for (name, key) in VARIABLES {
        if let Some(text) = value(name) {
            draft.take_text(key, &text, Origin::Env(name));
        }
    }
    // Not an error: Kubernetes makes variables of the names of services.
    for name in environment.iter().filter_map(|(name, _)| name.to_str()) {
        let known = || VARIABLES.iter().map(|(name, _)| *name);
        if name.starts_with("INFLIGHTD_")
            && known().all(|known| known != name)
            && let Some(near) = near_variable(name)
        {
            warnings.push(format!("environment {name} is not read; did you mean {near}?"));
        }
    }
    warnings
}

/// The variable that was probably meant. The common beginning says nothing.
fn near_variable(name: &str) -> Option<String> {
    let rest = |name: &str| name.trim_start_matches("INFLIGHTD_").to_lowercase();
    let known: Vec<String> = VARIABLES.iter().map(|(name, _)| rest(name)).collect();
    let near = nearest(&rest(name), known.iter().map(String::as_str))?;
    Some(format!("INFLIGHTD_{}", near.to_uppercase()))
}

/// What OpenTelemetry's variables say of the export. Headers from there are read by the exporter.
fn take_standard(draft: &mut Draft, environment: &Environment) {
    if !draft.origins.contains_key("otlp.endpoint") {
        return;
    }
    let endpoint = draft.given.get("otlp").and_then(|otlp| otlp.get("endpoint")?.as_str());
    let is_plain = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
    for (name, key) in OTEL_MORE {
        let found = environment.iter().find(|(other, _)| other == name);
        let Some(text) = found.map(|(_, value)| value.to_string_lossy()) else {
            continue;
        };
        // Without TLS they say nothing.
        if is_plain && key.ends_with("_file") {
            continue;
        }
        if text.is_empty() || draft.origins.contains_key(key) || draft.bad.contains(key) {
            continue;
        }
        let text = match (key, text.parse::<f64>()) {
            // In milliseconds there.
            ("otlp.timeout", Ok(millis)) => (millis / 1e3).to_string(),
            ("otlp.protocol", _) => text.trim_end_matches("/protobuf").to_owned(),
            _ => text.into_owned(),
        };
        draft.take_text(key, &text, Origin::Env(name));
    }
}

fn take_flags(draft: &mut Draft, given: &cli::Flags) {
    // On a command line a path begins where the shell is.
    let state_dir = given.state_dir.as_ref().map(|path| {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        path.to_string_lossy().into_owned()
    });
    let flags = [
        ("--suspect", "deadlines.suspect", &given.suspect),
        ("--stall", "deadlines.stall", &given.stall),
        ("--state-dir", "state_dir", &state_dir),
        ("--listen", "http.listen", &given.listen),
        ("--lines", "output.lines", &given.lines),
        ("--otlp", "otlp.endpoint", &given.otlp),
    ];
    for (flag, key, value) in flags {
        if let Some(text) = value {
            draft.take_text(key, text, Origin::Flag(flag));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_every_variable() {
        let listed: Vec<&str> = cli::ENVIRONMENT.split([' ', ';', '\n']).collect();
        for (name, _) in VARIABLES {
            assert!(listed.contains(&name), "{name}");
        }
    }
}
