//! Why the agent does not run, and the exit code that says so.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::config::ConfigError;
use crate::http::HttpError;
use crate::http::client::ClientError;
use crate::journal::JournalError;
use crate::probe::{LoadError, Obstacle};
use crate::subject::Unfit;
use crate::telemetry::TelemetryError;

/// An error with its sources, as one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// Why `inflightd` ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The configuration or a flag.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The probes.
    #[error("loading the probes")]
    Probes(#[source] LoadError),
    /// Somebody else has this node.
    #[error("another agent is running{}: stop it, or give this one its own --state-dir", pid(*.0))]
    Busy(Option<u32>),
    /// `--pid` names a process that cannot be watched.
    #[error("--pid {pid}: {why}")]
    Pid {
        /// The process.
        pid: u32,
        /// What is wrong with it.
        why: String,
        /// A right is missing to look at it.
        denied: bool,
    },
    /// The state directory.
    #[error("opening the state directory; --state-dir names another")]
    State(#[source] JournalError),
    /// Telemetry.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// Metrics and health.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The agent that was asked.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The system.
    #[error("{doing}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file.
    #[error("{doing} {}", path.display())]
    File {
        /// What was being done with it.
        doing: &'static str,
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A capture that cannot be read.
    #[error("the capture {}: {said}", path.display())]
    Capture {
        /// Which.
        path: PathBuf,
        /// Line and what is wrong with it.
        said: String,
    },
}

fn pid(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (pid {pid})"))
}

impl From<JournalError> for RunError {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Busy(pid) => Self::Busy(pid),
            error @ JournalError::Io { .. } => Self::State(error),
        }
    }
}

impl RunError {
    /// Names what was being done when the system said no.
    pub fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, source }
    }

    /// Names the file as well.
    pub fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { doing, path: path.to_owned(), source }
    }

    /// Says why a process given by `--pid` is none to look at.
    pub fn pid(pid: u32, why: &Unfit) -> Self {
        let denied = |source: &io::Error| source.kind() == io::ErrorKind::PermissionDenied;
        let denied = matches!(why, Unfit::Denied { source, .. } if denied(source));
        Self::Pid { pid, why: why.to_string(), denied }
    }

    /// The exit code; `--help` lists them.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Config(_) | Self::Capture { .. } | Self::Telemetry(TelemetryError::Otlp(_)) => 2,
            Self::Http(error) => error.exit_code(),
            Self::Probes(
                LoadError::Obstacle(Obstacle::Capabilities(_) | Obstacle::Lockdown)
                | LoadError::Denied { .. },
            )
            | Self::Pid { denied: true, .. }
            | Self::Client(ClientError::Denied(_)) => 3,
            Self::Probes(LoadError::Obstacle(_) | LoadError::NoBpf) => 4,
            Self::Busy(_) => 5,
            Self::Pid { .. } => 6,
            Self::Client(_) => 7,
            Self::Probes(_)
            | Self::State(_)
            | Self::Telemetry(_)
            | Self::Io { .. }
            | Self::File { .. } => 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_right_is_told_apart_from_what_is_not_there() {
        let code = |error: &RunError| format!("{:?}", error.exit_code());
        let three = format!("{:?}", ExitCode::from(3));
        let denied =
            Unfit::Denied { pid: 7, source: io::Error::from(io::ErrorKind::PermissionDenied) };
        assert_eq!(code(&RunError::pid(7, &denied)), three);
        assert_eq!(code(&RunError::pid(7, &Unfit::Gone)), format!("{:?}", ExitCode::from(6)));
        let path = PathBuf::from("/run/inflightd");
        assert_eq!(code(&ClientError::Denied(path.clone()).into()), three);
        let nobody = ClientError::Nobody(path).into();
        assert_eq!(code(&nobody), format!("{:?}", ExitCode::from(7)));
    }
}
