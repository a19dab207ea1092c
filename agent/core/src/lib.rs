//! The ledger and the judge of inflightd: a pure machine.
//!
//! Facts go in ([`Ledger::observe`], [`Ledger::tick`]), outputs come out ([`Ledger::poll`]). There
//! is no clock, no I/O, no randomness and no hash map in here: the same inputs give the same
//! outputs, so a capture replays exactly. The crate has no `std` and no dependency, and nothing
//! in it can fail: a fact that fits nothing is counted.
//!
//! * [`fact`]: what happened, as the agent's sources saw it;
//! * [`ledger`]: every room's account, by worker and append sequence;
//! * [`judge()`]: what an account means; a pure function over account, coverage and policy;
//! * [`verdict`]: findings, causes, evidence and the outputs that carry them;
//! * [`drain`]: whether anything of a room can still be read or written;
//! * [`view`]: what is open now, for whoever asks.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod account;
mod book;
pub mod coverage;
pub mod drain;
pub mod evidence;
pub mod fact;
mod flush;
pub mod judge;

pub mod ledger;
pub mod policy;
mod time;
pub mod verdict;
pub mod view;
mod wire;

pub use coverage::{Coverage, Reason, Sight, Source};
pub use evidence::{Evidence, EvidenceId};
pub use fact::{Event, Fact};
pub use judge::judge;
pub use ledger::Ledger;
pub use policy::Policy;
pub use time::Nanos;
pub use verdict::{Cause, Finding, Output};
