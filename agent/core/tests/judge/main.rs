//! The judge as a table: one row for each finding and cause that this evidence can carry, and for
//! each thing that must keep it silent.

#![expect(clippy::expect_used, clippy::similar_names, reason = "a test fails by panicking")]

mod queue;
mod rdma;
mod silence;
mod sources;
mod support;
mod verdicts;
