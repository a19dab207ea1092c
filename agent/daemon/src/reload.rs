//! SIGHUP: the configuration is read again and taken over while the agent runs.

use std::path::Path;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;

use crate::cli;
use crate::config::{Config, ConfigError};
use crate::telemetry::Export;
use crate::telemetry::otlp::OtlpError;

/// What was read: a configuration, and what its export needs from further files.
type Read = Result<(Config, NewExport), ConfigError>;

/// Reads the configuration again in a thread of its own: a file system that does not answer must
/// not hold up the loop.
#[derive(Debug, Default)]
pub struct Reload {
    /// What is being read.
    reading: Option<Receiver<Read>>,
    /// Somebody asked meanwhile: what is being read may be old.
    again: bool,
}

impl Reload {
    /// Begins to read, with the same file and flags.
    pub fn ask(&mut self, args: &cli::Run) {
        if self.reading.is_some() {
            if !self.again {
                tracing::info!("the configuration is still being read: it is read again then");
            }
            self.again = true;
            return;
        }
        let (tell, told) = channel();
        let (file, flags) = (args.config.clone(), args.flags.clone());
        // An agent that has ended does not listen any more.
        let read = move || drop(tell.send(read(file.as_deref(), &flags)));
        match thread::Builder::new().name("reload".to_owned()).spawn(read) {
            Ok(_) => self.reading = Some(told),
            Err(error) => tracing::error!(%error, "the configuration was not read again"),
        }
    }

    /// Takes over what was read, once it is there. On any error the old configuration stays, and
    /// `None` is inside; with files of the export that cannot be read, the old export stays.
    pub fn done(&mut self, args: &cli::Run, config: &mut Config) -> Option<Option<NewExport>> {
        let read = match self.reading.as_ref()?.try_recv() {
            Ok(read) => read,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => {
                tracing::error!("the configuration was not read again: its thread broke down");
                self.reading = None;
                return Some(None);
            }
        };
        self.reading = None;
        if std::mem::take(&mut self.again) {
            self.ask(args);
        }
        Some(take_over(read, config))
    }
}

/// What an export needs, or why it goes on as it was.
pub type NewExport = Result<Export, OtlpError>;

fn read(file: Option<&Path>, flags: &cli::Flags) -> Read {
    let config = Config::find(file, flags)?;
    let export = Export::read(&config);
    Ok((config, export))
}

fn take_over(read: Read, config: &mut Config) -> Option<NewExport> {
    let (new, export) = match read {
        Ok(new) => new,
        Err(error) => {
            tracing::error!("the configuration was not taken over, the old one stays");
            for line in error.lines() {
                tracing::error!("{line}");
            }
            return None;
        }
    };
    note(&new);
    let kept = config.take_over(new);
    if !kept.is_empty() {
        let keys = kept.join(", ");
        tracing::warn!(keys, "changed in the configuration, but it needs a restart");
    }
    tracing::info!("the configuration was read again and is in force");
    Some(export)
}

/// Says what looks like a mistake in a configuration.
pub fn note(config: &Config) {
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser as _;

    use super::*;
    use crate::telemetry::Telemetry;

    #[test]
    fn what_an_export_needs_is_read_before_the_loop_takes_it_over() {
        let dir = tempfile::tempdir().unwrap();
        let (file, headers) = (dir.path().join("inflightd.toml"), dir.path().join("headers"));
        std::fs::write(&headers, "authorization: token\n").unwrap();
        let otlp = format!("[otlp]\nendpoint = 'http://127.0.0.1:1'\nheaders_file = {headers:?}\n");
        std::fs::write(&file, otlp).unwrap();
        let line = ["inflightd", "run", "--config", file.to_str().unwrap()];
        let cli::Command::Run(args) = cli::Cli::parse_from(line).command else {
            panic!("it is `run`");
        };
        let mut config = Config::load(&args).unwrap();
        let mut telemetry = Telemetry::start(&config).unwrap();
        let mut reload = Reload::default();
        reload.ask(&args);
        let read = reload.reading.as_ref().unwrap().recv_timeout(Duration::from_mins(1)).unwrap();
        // From here on no file is looked at.
        drop(dir);
        let export = take_over(read, &mut config).unwrap().unwrap();
        telemetry.reload(&export).unwrap();
    }
}
