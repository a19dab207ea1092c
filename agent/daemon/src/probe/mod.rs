//! The probes: which functions of a process carry one, how they get there, what comes back.
//!
//! In: a process id. Out: an [`AttachReport`] (what is seen of that process, and what is not and
//! why), and a stream of [`inflightd_abi::record::Record`]s with the count of what was lost.
//!
//! * `maps`, `elf`, `opcode`, `library`: what a process has mapped, and what is in it;
//! * `builds`: structure offsets by build-id, as data (`builds.toml`);
//! * `plan`: catalogue × library → points and gaps, a pure function;
//! * `attach`, `load`, `ring`, `logs`: the kernel side of it. They alone know aya.
//!
//! # What the records mean
//!
//! Measured on the libraries of `builds.toml`; see `tests/probe_nixl.rs`.
mod attach;
mod builds;
mod elf;
mod library;
mod load;
mod logs;
mod maps;
mod opcode;
mod plan;
mod preflight;
mod reap;
mod report;
mod ring;

pub use attach::Probes;
pub use builds::{Builds, BuildsError};
pub use elf::{BuildId, ElfError};
pub use library::{Family, ObjectKey};
pub use load::{ExitSource, LoadError, Options};
pub use opcode::Refusal;
pub use plan::{Gap, Group, ReturnRisk};
pub use preflight::Obstacle;
pub use report::{AttachError, AttachReport, LibraryReport, Released, WatchError};
pub use ring::DrainStats;
