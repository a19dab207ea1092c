//! What to do about an alert, in a line: the first thing that its runbook says.

use inflightd_core::Cause;

/// What to do where this is the cause.
pub(super) fn step(cause: &str) -> &'static str {
    match Cause::from_name(cause).unwrap_or(Cause::Unknown) {
        Cause::HandshakeMissing => {
            "ask the decode engine's log for the rid: is it full, or does it not know the request?"
        }
        Cause::PeerDead => {
            "bring the decode engine back; rooms that stay need a restart of this worker"
        }
        Cause::PeerFrozen => {
            "on the peer's node `kill -CONT` it if it was stopped by hand, else take its stacks and restart it"
        }
        Cause::StalePeer => {
            "restart this worker: it still holds the metadata of a decode that has ended"
        }
        Cause::LinkFault => {
            "compare with other workers of the node, then mend the link before any engine is restarted"
        }
        Cause::WorkerThreadDead => {
            "take this worker out of the router, let its healthy rooms end, restart it"
        }
        Cause::WorkerThreadCaptive => {
            "let the peer of the room that was given up run again, or end it; else restart this worker"
        }
        Cause::QueuedBehind => "look at the room before it: its own verdict says why",
        Cause::NeverEnqueued => {
            "abort the request at the engine; if there are many, restart this worker"
        }
        Cause::RemoteRank => {
            "work on the rank that the evidence names; if it names none, on those of other nodes"
        }
        Cause::SchedulerWedged => {
            "take the scheduler's stacks twice, then restart this worker's rank group"
        }
        Cause::DecodeBacklogged => "add decode capacity or shed load: nothing is broken",
        Cause::Orphaned => "abort the request at this engine: its decode has given it up",
        Cause::Misconfig => "compare UCX and NIXL settings and versions of both ends",
        Cause::Unknown => {
            "take the stacks of this worker's scheduler and threads, and keep these lines"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runbook::PAGES;

    #[test]
    fn each_cause_has_a_step_and_a_runbook() {
        for cause in Cause::ALL {
            let name = cause.name();
            assert!((20..=110).contains(&step(name).len()), "{name}");
            assert!(PAGES.iter().any(|(page, _)| *page == name), "{name}");
        }
    }
}
