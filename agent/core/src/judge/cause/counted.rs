//! What was counted of a suspect, of which nothing else shows whether it moves.

use crate::evidence::{Evidence, EvidenceId as Id};
use crate::judge::Case;
use crate::time::Nanos;

/// What the RDMA ports counted meanwhile. It is of everybody who uses them: no cause rests on it.
pub(super) fn of_ports(case: &Case<'_>) -> impl Iterator<Item = Evidence> {
    case.port_troubles.into_iter().flat_map(|(at, counted)| {
        let all = [
            (Id::PortTimeouts, counted.timeouts),
            (Id::PortNotReady, counted.not_ready),
            (Id::PortDisorder, counted.disorder),
        ];
        let some = all.into_iter().filter(|(_, count)| *count > 0);
        some.map(move |(id, count)| Evidence::of(id).amount(count).at(at))
    })
}

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
