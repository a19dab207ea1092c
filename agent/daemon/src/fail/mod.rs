//! Failing a room on purpose: what is asked for, what is refused and why, and what became of it.

mod refusal;
mod view;

pub use refusal::Refusal;
pub use view::{Decision, FailView, RankView, RefusedView};

/// So long after it holds a room the agent's fail may be carried out, in milliseconds: design's F.
pub const VALID_MS: u64 = 2_000;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// The engine's id of the room.
    pub room: u64,
    /// The worker in whose queue it is, by its process id; of any that has it where not said.
    pub pid: Option<u32>,
    /// Everything is looked at and nothing is done.
    pub dry_run: bool,
}
