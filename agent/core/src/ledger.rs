//! Every room's account, by worker and append sequence.

use alloc::collections::VecDeque;

use crate::fact::Event;
use crate::policy::Policy;
use crate::time::Nanos;
use crate::verdict::Output;

/// The machine: facts in, outputs out.
#[derive(Debug)]
pub struct Ledger {
    #[expect(dead_code, reason = "being written")]
    policy: Policy,
    outputs: VecDeque<Output>,
}

impl Ledger {
    /// A ledger without any account.
    pub const fn new(policy: Policy) -> Self {
        Self {
            policy,
            outputs: VecDeque::new(),
        }
    }

    /// Takes a fact. A fact that fits nothing is counted, never refused.
    pub fn observe(&mut self, event: Event) {
        let _ = event;
    }

    /// Lets time pass. Early or repeated calls do nothing.
    pub fn tick(&mut self, now: Nanos) {
        let _ = now;
    }

    /// When [`Ledger::tick`] has something to do next. Ask after each `observe` and `tick`.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        None
    }

    /// The oldest output that was not taken yet.
    #[must_use]
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }
}
