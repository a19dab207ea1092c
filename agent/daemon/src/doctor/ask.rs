//! Asks the agent of this node, by the socket in its state directory.

use std::path::Path;

use serde_json::Value;

use crate::error::chain;
use crate::http::client::{self, ClientError};

/// What the agent answers; `None` where none runs.
pub(super) fn get(state_dir: &Path, path: &str) -> Result<Option<Value>, String> {
    match client::get(state_dir, path) {
        Ok(answer) => serde_json::from_slice(&answer.body)
            .map(Some)
            .map_err(|error| format!("{path} of the agent is no JSON: {error}")),
        Err(ClientError::Nobody(_)) => Ok(None),
        Err(error) => Err(chain(&error)),
    }
}
