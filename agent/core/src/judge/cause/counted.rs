//! What was counted of a suspect, of which nothing else shows whether it moves.

use crate::evidence::{Evidence, EvidenceId as Id};
use crate::judge::Case;
use crate::time::Nanos;

/// What moved of its open transfers while that was counted, and since when nothing has.
pub(super) fn evidence(case: &Case<'_>) -> impl Iterator<Item = Evidence> {
    let (done, still) = if case.by_batches {
        (Id::BatchMoved, Id::BatchStill)
    } else {
        (Id::OperationsDone, Id::OperationsStill)
    };
    let last = case.operations.map_or(Nanos::ZERO, |(at, _)| at);
    let done = case.operations.map(|(at, bytes)| Evidence::of(done).amount(bytes).at(at));
    let still =
        case.counted_since.filter(|since| *since > last).map(|at| Evidence::of(still).at(at));
    done.into_iter().chain(still)
}
