//! Stays that a verdict was told of: where they belong, and how often one was taken back. The next
//! verdict is another then, even by the same words.

use std::collections::BTreeMap;

use inflightd_core::fact::{Seq, Worker};
use inflightd_core::verdict::ClearReason;

use super::span::Place;

/// Most stays that are remembered. The victim is the newcomer, whose later spans go by the id of
/// its first.
const STAYS_MAX: usize = 16 * 1024;

#[derive(Clone, Copy, Debug)]
struct Stay {
    place: Place,
    /// How many of its verdicts were taken back.
    turn: u32,
    /// The last one was, for good. Its room may have left before, under a thread that stayed.
    over: bool,
}

/// Stays by worker and sequence.
#[derive(Debug, Default)]
pub(super) struct Stays(BTreeMap<(Worker, Seq), Stay>);

impl Stays {
    /// A verdict is told; gives how many were taken back before it.
    pub(super) fn stall(&mut self, worker: Worker, seq: Seq, place: Place) -> u32 {
        let key = (worker, seq);
        if self.0.len() >= STAYS_MAX && !self.0.contains_key(&key) {
            self.0.retain(|_, stay| !stay.over);
            if self.0.len() >= STAYS_MAX {
                return 0;
            }
        }
        let stay = self.0.entry(key).or_insert(Stay { place, turn: 0, over: false });
        stay.over = false;
        stay.turn
    }

    /// A verdict is taken back; gives where it belongs and how many were taken back before it.
    pub(super) fn clear(
        &mut self,
        worker: Worker,
        seq: Seq,
        why: ClearReason,
    ) -> Option<(Place, u32)> {
        let stay = self.0.get_mut(&(worker, seq))?;
        let known = (stay.place, stay.turn);
        stay.over = why == ClearReason::Ended;
        if !stay.over {
            stay.turn = stay.turn.saturating_add(1);
        }
        Some(known)
    }

    /// The stay has ended; whether a verdict was told of it.
    pub(super) fn end(&mut self, worker: Worker, seq: Seq) -> bool {
        self.0.remove(&(worker, seq)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{SpanId, TraceId};

    use super::super::ids::Trace;
    use super::*;

    fn place() -> Place {
        let trace = Trace { id: TraceId::from(7), parent: None };
        Place { trace, stay: SpanId::from(8) }
    }

    #[test]
    fn a_stay_counts_what_was_taken_back_until_it_ends() {
        let mut stays = Stays::default();
        let (worker, seq) = (Worker(1), Seq(2));
        assert!(stays.clear(worker, seq, ClearReason::Progress).is_none());
        assert_eq!(stays.stall(worker, seq, place()), 0);
        let known = stays.clear(worker, seq, ClearReason::Progress).unwrap();
        assert_eq!((known.1, known.0.stay), (0, place().stay));
        assert_eq!(stays.stall(worker, seq, place()), 1);
        assert_eq!(stays.clear(worker, seq, ClearReason::Changed).unwrap().1, 1);
        assert_eq!(stays.clear(worker, seq, ClearReason::Ended).unwrap().1, 2);
        assert!(stays.end(worker, seq) && !stays.end(worker, seq));
        assert_eq!(stays.stall(worker, seq, place()), 0);
    }

    #[test]
    fn a_stay_that_is_over_makes_room_for_the_newcomer() {
        let mut stays = Stays::default();
        let fill = (0..STAYS_MAX as u64).map(Seq);
        for seq in fill {
            stays.stall(Worker(1), seq, place());
        }
        assert!(stays.clear(Worker(1), Seq(5), ClearReason::Ended).is_some());
        stays.stall(Worker(2), Seq(1), place());
        assert!(stays.clear(Worker(2), Seq(1), ClearReason::Progress).is_some());
        assert!(!stays.end(Worker(1), Seq(5)));
    }

    #[test]
    fn the_newcomer_beyond_the_bound_is_not_remembered() {
        let mut stays = Stays::default();
        for seq in 0..=STAYS_MAX as u64 {
            stays.stall(Worker(1), Seq(seq), place());
        }
        assert!(stays.clear(Worker(1), Seq(STAYS_MAX as u64), ClearReason::Progress).is_none());
        assert!(stays.clear(Worker(1), Seq(0), ClearReason::Progress).is_some());
    }
}
