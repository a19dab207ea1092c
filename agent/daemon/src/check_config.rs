//! `inflightd check-config`.

use std::io::Write as _;

use crate::cli;
use crate::config::{Config, schema_text};
use crate::error::RunError;

/// Prints the schema, or the configuration that a file gives; its errors are all in the error.
pub fn check_config(args: &cli::CheckConfig) -> Result<(), RunError> {
    let text = match &args.file {
        Some(file) if !args.schema => {
            let config = Config::check(file)?;
            let warnings = config.warnings.iter().map(|warning| format!("# note: {warning}\n"));
            format!("{}{}# ok\n", config.to_toml(), warnings.collect::<String>())
        }
        _ => schema_text(),
    };
    std::io::stdout().write_all(text.as_bytes()).map_err(RunError::io("writing the configuration"))
}
