//! What can be wrong with a run.

use serde::Serialize;
use thiserror::Error;

/// Something that is not right.
#[derive(Clone, Debug, PartialEq, Error, Serialize)]
#[serde(rename_all = "snake_case")]
pub(in super::super) enum Fault {
    #[error("{room}: no alert, expected {expected}")]
    Missing { room: String, expected: String },
    #[error("{room}: {given}, expected {expected}")]
    Wrong { room: String, expected: String, given: String },
    #[error("{room}: alert {given} where none is right")]
    Extra { room: String, given: String },
    #[error("{room}: alert after {after_s:.1} s, due within {within_s:.1} s")]
    Late { room: String, after_s: f64, within_s: f64 },
    #[error("{room}: alert after {after_s:.1} s, not right before {earliest_s:.1} s")]
    Early { room: String, after_s: f64, earliest_s: f64 },
    #[error("{room}: the evidence does not state {id}")]
    Unstated { room: String, id: String },
    #[error("{room}: rests on {given}, expected {expected}")]
    Tier { room: String, given: String, expected: String },
    #[error("{room}: {given} is said, which is not right")]
    Said { room: String, given: String },
    #[error("{room}: belongs to incident {given}, its head to {expected}")]
    Incident { room: String, given: String, expected: String },
    #[error("{room}: says that {given} wait behind it, right is {expected}")]
    Behind { room: String, given: String, expected: String },
    #[error(
        "{room}: {dwell_s:.1} s in the queue are told, no more than {at_most_s:.1} s are right"
    )]
    Slow { room: String, dwell_s: f64, at_most_s: f64 },
    #[error("an alert about what is none of the case's rooms: {given}, of process {pid}")]
    Stranger { given: String, pid: u32 },
    #[error("handle {handle:#x}: {told} times {kind} is told, {posted} transfers were posted")]
    Transfers { handle: u64, kind: String, told: usize, posted: usize },
    #[error("the agent has {mib:.1} MiB resident, no more than {most:.1} MiB are right")]
    Heavy { mib: f64, most: f64 },
    #[error("{room}: the alert came when the room had already ended")]
    TooLateToHelp { room: String },
    #[error("{room}: the alert was given {count} times under {ids} ids")]
    Double { room: String, count: usize, ids: usize },
    #[error("{room}: the alert was taken back by {why} while the room still stalled")]
    TakenBack { room: String, why: String },
    #[error("{room}: not taken back by {why}")]
    NotCleared { room: String, why: String },
    #[error("{room}: reported to have ended as {given}, expected {expected}")]
    WrongEnd { room: String, given: String, expected: String },
    #[error("{room}: its end was reported {count} times")]
    Ends { room: String, count: usize },
    #[error("{room}: never reported as open")]
    Lost { room: String },
    #[error("{room}: not said to have been open before the agent came")]
    NotLate { room: String },
    #[error("{why}")]
    Process { why: String },
}

impl Fault {
    /// The room that it is about.
    pub(super) fn room(&self) -> Option<&str> {
        match self {
            Self::Missing { room, .. }
            | Self::Wrong { room, .. }
            | Self::Extra { room, .. }
            | Self::Late { room, .. }
            | Self::Early { room, .. }
            | Self::Unstated { room, .. }
            | Self::Tier { room, .. }
            | Self::Said { room, .. }
            | Self::Incident { room, .. }
            | Self::Behind { room, .. }
            | Self::Slow { room, .. }
            | Self::TooLateToHelp { room }
            | Self::Double { room, .. }
            | Self::TakenBack { room, .. }
            | Self::NotCleared { room, .. }
            | Self::WrongEnd { room, .. }
            | Self::Ends { room, .. }
            | Self::Lost { room }
            | Self::NotLate { room } => Some(room),
            Self::Stranger { .. }
            | Self::Transfers { .. }
            | Self::Heavy { .. }
            | Self::Process { .. } => None,
        }
    }

    /// Whether only time may be what is missing.
    pub(super) const fn is_absence(&self) -> bool {
        matches!(
            self,
            Self::Missing { .. }
                | Self::Late { .. }
                | Self::NotCleared { .. }
                | Self::Lost { .. }
                | Self::Ends { count: 0, .. }
                | Self::Slow { .. }
        )
    }
}
