//! The one definition of everything that crosses a boundary in inflightd.
//!
//! * [`record`]: what the kernel programs put in the ring, and the agent reads;
//! * [`layout`]: the structure offsets that the agent hands to the kernel programs;
//! * [`rdma`]: what the kernel programs keep of RDMA queue pairs;
//! * [`operations`]: what they count of UCX's operations;
//! * [`mishap`]: the failures that kernel programs count, by ids that are never reused;
//! * [`table`]: the shared table in which libinflight keeps a worker's inflight queue.
//!
//! The crate is `no_std`, so the kernel side, the hook and the agent compile the same text.
#![cfg_attr(not(any(test, loom)), no_std)]

pub mod layout;
pub mod mishap;
pub mod operations;
pub mod rdma;
pub mod record;
// The kernel's target has no compare-and-swap in Rust, and no program reads the table.
#[cfg(all(not(target_arch = "bpf"), not(loom)))]
mod sync;
#[cfg(loom)]
pub mod sync;
#[cfg(not(target_arch = "bpf"))]
pub mod table;
