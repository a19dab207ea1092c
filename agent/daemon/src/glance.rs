//! A worker at a glance: what gauges, health endpoints and lists say of it.
//!
//! # When a worker is wedged
//!
//! A liveness probe restarts a wedged worker and a router sends it no more requests, so one stuck
//! room, or one frozen decode engine among others, must not make a worker wedged. It is when
//!
//! * one of its rooms stands in an alert whose cause is `scheduler_wedged` or
//!   `worker_thread_dead`: the worker itself does not work; or
//! * nothing gets through: at least two rooms are stuck (one in an alert, the others in an alert
//!   or behind one), no room older than `stall` is anything else, and for as long as `stall` no
//!   room has left with success and no payload byte of an open room has moved. The word for this
//!   is `nothing_completes`; whose fault it is, the alerts' causes say; or
//! * its process is stopped, for longer than a tool takes that looks at its stacks.
//!
//! A single stuck room with no other traffic does not count: nobody has tried whether others pass.

use std::collections::BTreeMap;

use inflightd_abi::table::Gauge;
use inflightd_core::fact::{Outcome, Worker};
use inflightd_core::view::{RoomView, WorkerView};
use inflightd_core::{Cause, Finding, Ledger, Nanos, Output, Policy, Sight, Source};

/// Why a worker counts as wedged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The cause of an alert that stands: the worker itself does not work.
    Own(Cause),
    /// Rooms are stuck and none gets through.
    NothingCompletes,
    /// Its process is stopped.
    Stopped,
}

impl Why {
    /// The word for it in outputs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Own(cause) => cause.name(),
            Self::NothingCompletes => "nothing_completes",
            Self::Stopped => "stopped",
        }
    }

    /// Whether it is the worker's own trouble: a restart of it helps.
    pub const fn is_own(self) -> bool {
        !matches!(self, Self::NothingCompletes)
    }
}

/// A worker that gets nothing through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wedged {
    /// Why it counts as that.
    pub why: Why,
    /// Since when.
    pub since: Nanos,
}

/// A worker at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Glance {
    /// Rooms in its queue.
    pub open: u64,
    /// Of them, without progress for longer than `suspect`.
    pub suspects: u64,
    /// Of them, past the deadline and not to be judged.
    pub blind: u64,
    /// In an alert that stands: by what and why. A room that has left the queue is among them while
    /// its thread stays with it.
    pub stalled: BTreeMap<(Finding, Cause), u64>,
    /// Time in the queue of the oldest.
    pub oldest_dwell: Nanos,
    /// Longest time without progress.
    pub oldest_still: Nanos,
    /// Time since the scheduler last polled its queue; `None` when that was never seen.
    pub beat_age: Option<Nanos>,
    /// Whether it gets anything through.
    pub wedged: Option<Wedged>,
    /// How well each source sees it.
    pub coverage: Vec<(Source, Sight)>,
    /// What it says of itself in its table.
    pub says: Vec<(Gauge, u64)>,
}

/// The word for what a worker says of itself.
pub const fn gauge_name(gauge: Gauge) -> &'static str {
    match gauge {
        Gauge::KvFree => "kv_free_tokens",
        Gauge::KvTotal => "kv_total_tokens",
        Gauge::SlotsFree => "slots_free",
        Gauge::SlotsTotal => "slots_total",
        Gauge::ThreadsAlive => "threads_alive",
        Gauge::ThreadsStarted => "threads_started",
        Gauge::ListenersAlive => "listeners_alive",
        Gauge::Faults => "faults",
        Gauge::Missing => "missing",
        Gauge::Commands => "commands",
    }
}

/// What has to be remembered of a worker between two looks.
#[derive(Clone, Copy, Debug)]
struct Pulse {
    /// When a room last left with success; the agent's coming where none has.
    success_at: Nanos,
    wedged: Option<Wedged>,
}

/// Looks at workers. Bounded by the agent's workers: who ends is forgotten.
#[derive(Debug, Default)]
pub struct Glances {
    pulses: BTreeMap<Worker, Pulse>,
}

impl Glances {
    /// A worker was found.
    pub fn meet(&mut self, worker: Worker, now: Nanos) {
        self.pulses.insert(worker, Pulse { success_at: now, wedged: None });
    }

    /// A worker has ended.
    pub fn end(&mut self, worker: Worker) {
        self.pulses.remove(&worker);
    }

    /// Takes note of what the ledger says.
    pub fn take(&mut self, output: &Output) {
        if let Output::Dwell(dwell) = output
            && dwell.outcome == Outcome::Success
            && let Some(pulse) = self.pulses.get_mut(&dwell.worker)
        {
            pulse.success_at = pulse.success_at.max(dwell.at);
        }
    }

    /// Looks at a worker: a walk over its open rooms. `None` when the ledger does not know it.
    pub fn look(&mut self, ledger: &Ledger, worker: Worker, now: Nanos) -> Option<Glance> {
        let view = ledger.view(worker)?;
        let pulse = self.pulses.get_mut(&worker)?;
        let (mut glance, stuck) = survey(&view, ledger.policy(), now);
        let why = stuck.why(pulse.success_at, ledger.policy(), now);
        pulse.wedged = why.map(|(why, since)| match pulse.wedged {
            Some(known) if known.why == why => known,
            _ => Wedged { why, since },
        });
        glance.wedged = pulse.wedged;
        Some(glance)
    }
}

/// What the rule of the module's head rests on.
#[derive(Clone, Copy, Debug, Default)]
struct Stuck {
    own: Option<(Cause, Nanos)>,
    alerts: u64,
    behind: u64,
    /// A room older than `stall` that is not stuck.
    free: bool,
    /// When payload of an open room last moved.
    moved_at: Nanos,
}

impl Stuck {
    fn take(&mut self, room: &RoomView<'_>, policy: &Policy, now: Nanos) {
        if room.last_progress > room.appended_at {
            self.moved_at = self.moved_at.max(room.last_progress);
        }
        match room.standing {
            Some(standing) if standing.is_alert() => {
                self.alerts += 1;
                let own =
                    matches!(standing.cause, Cause::SchedulerWedged | Cause::WorkerThreadDead);
                if own && self.own.is_none_or(|(_, since)| standing.since < since) {
                    self.own = Some((standing.cause, standing.since));
                }
            }
            Some(standing) if standing.cause == Cause::QueuedBehind => self.behind += 1,
            _ if room.left => {}
            _ => self.free |= now.since(room.appended_at) >= policy.stall,
        }
    }

    fn why(&self, success_at: Nanos, policy: &Policy, now: Nanos) -> Option<(Why, Nanos)> {
        if let Some((cause, since)) = self.own {
            return Some((Why::Own(cause), since));
        }
        let quiet = now.since(self.moved_at.max(success_at)) >= policy.stall;
        let stuck = self.alerts >= 1 && self.alerts + self.behind >= 2 && !self.free && quiet;
        stuck.then_some((Why::NothingCompletes, now))
    }
}

fn survey(view: &WorkerView<'_>, policy: &Policy, now: Nanos) -> (Glance, Stuck) {
    let mut glance = Glance {
        beat_age: view.beat().map(|beat| now.since(beat)),
        coverage: view.coverage().each().map(|(source, sight, _)| (source, sight)).collect(),
        ..Glance::default()
    };
    let mut stuck = Stuck::default();
    for room in view.rooms() {
        glance.open += u64::from(!room.left);
        if !room.judged {
            // It may well stay for minutes.
            continue;
        }
        let still = now.since(room.last_progress);
        if !room.left {
            glance.suspects += u64::from(still >= policy.suspect);
            glance.oldest_dwell = glance.oldest_dwell.max(now.since(room.appended_at));
            glance.oldest_still = glance.oldest_still.max(still);
        }
        if let Some(standing) = room.standing {
            glance.blind += u64::from(standing.finding == Finding::Blind);
            if standing.is_alert() {
                *glance.stalled.entry((standing.finding, standing.cause)).or_default() += 1;
            }
        }
        stuck.take(&room, policy, now);
    }
    (glance, stuck)
}

#[cfg(test)]
#[path = "glance_tests.rs"]
mod tests;
