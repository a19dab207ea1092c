//! The configuration: read from TOML, lifted once to a typed [`Config`]. Defaults live here and
//! in the core's policy.

use std::path::{Path, PathBuf};
use std::time::Duration;

use inflightd_core::{Nanos, Policy};
use serde::Deserialize;

use crate::cli;

/// Where told verdicts are kept.
const STATE_DIR: &str = "/run/inflightd";
/// Shortest deadline that makes sense, in seconds: meters are read no more often.
const SECONDS_MIN: f64 = 0.05;
/// Longest deadline that makes sense, in seconds: a week.
const SECONDS_MAX: f64 = 604_800.0;

/// What is wrong with the configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("reading the configuration {}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// It is not TOML, or has a field that does not exist, or one of another type.
    #[error("in the configuration {}", path.display())]
    Form {
        /// Which file.
        path: PathBuf,
        /// Line, field and what is expected.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// A duration is out of bounds.
    #[error(
        "`{field}` is {value}: give seconds, at least 0.05 and at most 604800 (a week), such as \
         30 or 0.5"
    )]
    Seconds {
        /// The field or flag.
        field: &'static str,
        /// What was given.
        value: String,
    },
    /// Two deadlines in the wrong order.
    #[error(
        "`{later}` ({later_s} s) is before `{earlier}` ({earlier_s} s): raise `{later}` or lower `{earlier}`"
    )]
    Order {
        /// The one that must not be later.
        earlier: &'static str,
        /// In seconds.
        earlier_s: f64,
        /// The one that must not be earlier.
        later: &'static str,
        /// In seconds.
        later_s: f64,
    },
}

/// The file as it is written: durations in seconds, each optional.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    suspect: Option<f64>,
    stall: Option<f64>,
    max_dwell: Option<f64>,
    hard_grace: Option<f64>,
    beat_fresh: Option<f64>,
    scheduler_wedged: Option<f64>,
    setup_grace: Option<f64>,
    state_dir: Option<PathBuf>,
    probes: Option<bool>,
}

/// The configuration, valid by construction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Deadlines.
    pub policy: Policy,
    /// Where told verdicts are kept.
    pub state_dir: PathBuf,
    /// Whether probes are used; without them only tables and meters are read.
    pub probes: bool,
}

impl Config {
    /// The configuration of `inflightd run` with these arguments.
    pub fn load(run: &cli::Run) -> Result<Self, ConfigError> {
        let mut raw = match &run.config {
            Some(path) => read(path)?,
            None => Raw::default(),
        };
        if let Some(text) = &run.suspect {
            raw.suspect = Some(flag("--suspect", text)?);
        }
        if let Some(text) = &run.stall {
            raw.stall = Some(flag("--stall", text)?);
        }
        if let Some(state_dir) = &run.state_dir {
            raw.state_dir = Some(state_dir.clone());
        }
        Self::lift(&raw)
    }

    fn lift(raw: &Raw) -> Result<Self, ConfigError> {
        let base = Policy::default();
        let stall = seconds("stall", raw.stall, base.stall)?;
        // What was not given goes along with the stall that was: one flag is enough to shorten it.
        let policy = Policy {
            suspect: seconds("suspect", raw.suspect, base.suspect.min(Nanos(stall.0 / 2)))?,
            stall,
            max_dwell: seconds("max_dwell", raw.max_dwell, base.max_dwell.max(stall))?,
            hard_grace: seconds("hard_grace", raw.hard_grace, base.hard_grace)?,
            beat_fresh: seconds("beat_fresh", raw.beat_fresh, base.beat_fresh)?,
            scheduler_wedged: seconds(
                "scheduler_wedged",
                raw.scheduler_wedged,
                base.scheduler_wedged,
            )?,
            setup_grace: seconds("setup_grace", raw.setup_grace, base.setup_grace)?,
            ..base
        };
        ordered(("suspect", policy.suspect), ("stall", policy.stall))?;
        ordered(("stall", policy.stall), ("max_dwell", policy.max_dwell))?;
        Ok(Self {
            policy,
            state_dir: raw.state_dir.clone().unwrap_or_else(|| PathBuf::from(STATE_DIR)),
            probes: raw.probes.unwrap_or(true),
        })
    }
}

fn read(path: &Path) -> Result<Raw, ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    toml::from_str(&text)
        .map_err(|source| ConfigError::Form { path: path.to_owned(), source: Box::new(source) })
}

fn flag(field: &'static str, text: &str) -> Result<f64, ConfigError> {
    let value = text.parse().ok();
    let bad = || ConfigError::Seconds { field, value: text.to_owned() };
    value.filter(|value| is_span(*value)).ok_or_else(bad)
}

fn is_span(value: f64) -> bool {
    (SECONDS_MIN..=SECONDS_MAX).contains(&value)
}

fn seconds(field: &'static str, value: Option<f64>, default: Nanos) -> Result<Nanos, ConfigError> {
    match value {
        None => Ok(default),
        Some(value) if is_span(value) => Ok(Duration::from_secs_f64(value).into()),
        Some(value) => Err(ConfigError::Seconds { field, value: value.to_string() }),
    }
}

fn ordered(
    earlier: (&'static str, Nanos),
    later: (&'static str, Nanos),
) -> Result<(), ConfigError> {
    if earlier.1 <= later.1 {
        return Ok(());
    }
    Err(ConfigError::Order {
        earlier: earlier.0,
        earlier_s: earlier.1.secs_f64(),
        later: later.0,
        later_s: later.1.secs_f64(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::chain;

    fn lift(text: &str) -> Result<Config, String> {
        let raw: Raw = toml::from_str(text).map_err(|error| error.to_string())?;
        Config::lift(&raw).map_err(|error| chain(&error))
    }

    #[test]
    fn nothing_given_means_the_design() {
        let config = lift("").unwrap();
        assert_eq!(config.policy, Policy::default());
        assert!(config.probes);
        assert_eq!(config.state_dir, Path::new("/run/inflightd"));
    }

    #[test]
    fn whole_and_broken_seconds_are_read() {
        let config = lift("suspect = 1\nstall = 2.5").unwrap();
        assert_eq!(config.policy.suspect, Nanos::from_secs(1));
        assert_eq!(config.policy.stall, Nanos::from_millis(2500));
    }

    #[test]
    fn one_deadline_alone_is_enough() {
        let short = lift("stall = 3").unwrap().policy;
        assert_eq!((short.suspect, short.stall), (Nanos::from_millis(1500), Nanos::from_secs(3)));
        let long = lift("stall = 700").unwrap().policy;
        assert_eq!((long.suspect, long.max_dwell), (Nanos::from_secs(5), Nanos::from_secs(700)));
    }

    #[test]
    fn every_bad_value_names_the_field_and_the_remedy() {
        let cases = [
            ("stall = 0", "`stall` is 0: give seconds"),
            ("stall = -1", "`stall` is -1"),
            ("stall = 1e-12", "at least 0.05"),
            ("hard_grace = nan", "`hard_grace` is NaN"),
            ("max_dwell = 1e9", "at most 604800"),
            ("stall = \"soon\"", "stall"),
            ("stal = 3", "unknown field `stal`"),
            ("suspect = 40", "raise `stall` or lower `suspect`"),
            ("max_dwell = 20", "`max_dwell` (20 s) is before `stall` (30 s)"),
            ("probes = 1", "probes"),
        ];
        for (text, told) in cases {
            let message = lift(text).unwrap_err();
            assert!(message.contains(told), "{text}: {message}");
        }
    }

    #[test]
    fn flags_are_checked_as_the_file_is() {
        assert_eq!(flag("--stall", "0.5").unwrap().to_string(), "0.5");
        for text in ["", "soon", "0", "0.01", "-2", "inf", "1e300"] {
            let message = flag("--stall", text).unwrap_err().to_string();
            assert!(message.contains("`--stall` is"), "{message}");
        }
    }
}
