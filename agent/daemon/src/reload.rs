//! SIGHUP: the configuration is read again and taken over while the agent runs.

use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;

use crate::cli;
use crate::config::{Config, ConfigError};

/// Reads the configuration again in a thread of its own: a file system that does not answer must
/// not hold up the loop.
#[derive(Debug, Default)]
pub struct Reload {
    /// What is being read.
    reading: Option<Receiver<Result<Config, ConfigError>>>,
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
        let read = move || drop(tell.send(Config::find(file.as_deref(), &flags)));
        match thread::Builder::new().name("reload".to_owned()).spawn(read) {
            Ok(_) => self.reading = Some(told),
            Err(error) => tracing::error!(%error, "the configuration was not read again"),
        }
    }

    /// Takes over what was read, once it is there: whether that went well. On any error the old
    /// configuration stays.
    pub fn done(&mut self, args: &cli::Run, config: &mut Config) -> Option<bool> {
        let read = match self.reading.as_ref()?.try_recv() {
            Ok(read) => read,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => {
                tracing::error!("the configuration was not read again: its thread broke down");
                self.reading = None;
                return Some(false);
            }
        };
        self.reading = None;
        if std::mem::take(&mut self.again) {
            self.ask(args);
        }
        Some(take_over(read, config))
    }
}

fn take_over(read: Result<Config, ConfigError>, config: &mut Config) -> bool {
    let new = match read {
        Ok(new) => new,
        Err(error) => {
            tracing::error!("the configuration was not taken over, the old one stays");
            for line in error.lines() {
                tracing::error!("{line}");
            }
            return false;
        }
    };
    note(&new);
    let kept = config.take_over(new);
    if !kept.is_empty() {
        let keys = kept.join(", ");
        tracing::warn!(keys, "changed in the configuration, but it needs a restart");
    }
    tracing::info!("the configuration was read again and is in force");
    true
}

/// Says what looks like a mistake in a configuration.
pub fn note(config: &Config) {
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
}
