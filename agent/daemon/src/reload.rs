//! SIGHUP: the configuration is read again and taken over while the agent runs.

use crate::cli;
use crate::config::{Config, ConfigError};

/// Reads the configuration again, with the same flags. On any error the old one stays.
pub fn reload(args: &cli::Run, config: &mut Config) -> Result<(), ConfigError> {
    match Config::load(args) {
        Ok(new) => {
            note(&new);
            let kept = config.take_over(new);
            if !kept.is_empty() {
                tracing::warn!(
                    keys = kept.join(", "),
                    "changed in the configuration, but it needs a restart"
                );
            }
            tracing::info!("the configuration was read again and is in force");
            Ok(())
        }
        Err(error) => {
            tracing::error!("the configuration was not taken over, the old one stays: {error}");
            Err(error)
        }
    }
}

/// Says what looks like a mistake in a configuration.
pub fn note(config: &Config) {
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
}
