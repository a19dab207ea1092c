//! What the worker's RDMA ports counted of packets that went wrong.

use alloc::collections::VecDeque;

use crate::fact::PortTroubles;
use crate::time::Nanos;

/// Changes that are remembered. The victim is the oldest: a room that is older than all is told
/// what was counted since the oldest that is left.
const CHANGES_MAX: usize = 32;

/// The counts, each with when it was read last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ports {
    changes: VecDeque<(Nanos, PortTroubles)>,
}

impl Ports {
    /// The counts were read.
    pub(crate) fn read(&mut self, at: Nanos, counts: PortTroubles) {
        if let Some(last) = self.changes.back_mut()
            && last.1 == counts
        {
            last.0 = last.0.max(at);
            return;
        }
        if self.changes.len() >= CHANGES_MAX {
            self.changes.pop_front();
        }
        self.changes.push_back((at, counts));
    }

    /// What was counted since the last reading before a moment, and when that was.
    pub(crate) fn since(&self, moment: Nanos) -> Option<(Nanos, PortTroubles)> {
        let before = self.changes.iter().rev().find(|(at, _)| *at <= moment);
        let (at, before) = before.or_else(|| self.changes.front())?;
        let (_, now) = self.changes.back()?;
        let grown = now.less(*before);
        (grown != PortTroubles::default()).then_some((*at, grown))
    }
}
