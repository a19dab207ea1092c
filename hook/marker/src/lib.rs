//! libinflight: what an engine calls to say what its inflight queue does.
//!
//! Every call tests the fork guard, writes the worker's table (shared memory that the agent
//! reads), then calls a marker: an empty exported function that the agent's uprobes sit on. The
//! table says what is open; the marks say when, and on which thread.
//!
//! The library for engines is built with `panic = "abort"` (profile `hook`): then it has no std,
//! no `DT_NEEDED` and no versioned symbol, and loads into any process. Without that setting it is
//! an ordinary crate, so that the usual cargo commands check it and run its unit tests.
#![cfg_attr(panic = "abort", no_std)]

#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!("libinflight is for Linux on x86_64 and aarch64");

mod api;
mod args;
mod error;
mod guard;
mod mark;
mod memory;
mod sys;
mod worker;

#[cfg(test)]
mod header_tests;

pub use api::{
    inflight_append, inflight_asked, inflight_beat, inflight_carry_out, inflight_close,
    inflight_command, inflight_done, inflight_gauge, inflight_open, inflight_phase,
    inflight_polled, inflight_post, inflight_remove, inflight_serve, inflight_serve_early,
    inflight_serve_end,
};
pub use args::{Fail, OpenArgs, Peer, Rank};
pub use error::{OpenError, inflight_errstr};
pub use mark::{
    inflight_mark_append, inflight_mark_done, inflight_mark_open, inflight_mark_phase,
    inflight_mark_post, inflight_mark_remove, inflight_mark_serve, inflight_mark_serve_end,
};
pub use worker::{WORKERS_MAX, Worker};

#[cfg(panic = "abort")]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // Nothing here is known to panic. If it does, a crash shows it; a loop would hang the engine
    // silently, which is the very thing this project is against.
    sys::trap()
}
