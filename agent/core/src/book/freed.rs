//! When services ended, for those who waited behind them.

use alloc::collections::VecDeque;

use crate::fact::Seq;
use crate::time::Nanos;

/// Most ends of services that are remembered; the victim is the one of the oldest room.
const FREED_MAX: usize = 64;

/// When services ended, for those who waited behind them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Freed {
    /// Rising in both: of an older room that was freed earlier nobody needs to know.
    ends: VecDeque<(Seq, Nanos)>,
}

impl Freed {
    pub(super) fn push(&mut self, seq: Seq, at: Nanos) {
        let at = self.ends.back().map_or(at, |(_, last)| at.max(*last));
        while self.ends.back().is_some_and(|(other, _)| *other >= seq) {
            self.ends.pop_back();
        }
        if self.ends.len() >= FREED_MAX {
            self.ends.pop_front();
        }
        self.ends.push_back((seq, at));
    }

    /// When the last room that came before this one was out of its way.
    pub(crate) fn before(&self, seq: Seq) -> Option<Nanos> {
        self.ends.iter().rev().find(|(other, _)| *other < seq).map(|(_, at)| *at)
    }
}
