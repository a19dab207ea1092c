//! The agent.

pub mod probe;
