//! What a run came to, for people and for programs.

use std::time::Duration;

use serde::Serialize;

use super::compare::Compared;
use super::file::Case;
use super::idle::Idle;
use super::judge::{Fault, Judgement, Row};
use super::record::{Free, Record};
use crate::say;

/// One run of a case.
#[derive(Serialize)]
pub(crate) struct Report {
    case: String,
    right: bool,
    /// Why the run says nothing, where it does not.
    void: Option<String>,
    /// Whether the engine ran without the hook.
    bare: bool,
    healthy_rooms: usize,
    /// Free pages, slots and open rooms of the prefill before, after, and after further requests.
    free: [Free; 3],
    /// Further requests: how many were served, and how many sent.
    more: (usize, usize),
    /// The same steps without hook and agent, where they were taken.
    compared: Option<Compared>,
    /// What an iteration of the idle prefill costs, where that was measured.
    idle: Option<Idle>,
    /// Seconds that the run took, its servers' start included.
    took_s: f64,
    rooms: Vec<Row>,
    faults: Vec<Fault>,
}

impl Report {
    /// Put a judgement under its case.
    pub(super) fn new(case: &Case, took: Duration, record: &Record, judgement: Judgement) -> Self {
        let void = record.spoilt.first().cloned();
        Self {
            case: case.name.clone(),
            right: judgement.faults.is_empty() && void.is_none(),
            void,
            bare: record.bare,
            healthy_rooms: judgement.healthy,
            free: record.free,
            more: record.more,
            compared: record.compared.clone(),
            idle: record.idle,
            took_s: took.as_secs_f64(),
            rooms: judgement.rows,
            faults: judgement.faults,
        }
    }

    /// Whether the run says nothing about the agent.
    pub(super) const fn is_void(&self) -> bool {
        self.void.is_some()
    }

    /// Whether the run was right.
    pub(crate) const fn is_right(&self) -> bool {
        self.right
    }

    fn word(&self) -> &'static str {
        if self.is_void() {
            "void"
        } else if self.right {
            "right"
        } else {
            "WRONG"
        }
    }

    /// The run in a line, and one more for each fault.
    pub(super) fn line(&self) -> String {
        let why = self.void.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
        let word = self.word();
        let mut lines = vec![format!("    {} … {word}{why}, {:.1} s", self.case, self.took_s)];
        lines.extend(self.compared.iter().map(|compared| format!("      {compared}")));
        lines.extend(self.idle.iter().map(|idle| format!("      {idle}")));
        lines.extend(self.faults.iter().map(|fault| format!("      {fault}")));
        lines.join("\n")
    }

    fn rows(&self) -> Vec<[String; 9]> {
        let healthy = Row {
            room: format!("{} healthy", self.healthy_rooms),
            right: "no alert".to_owned(),
            given: if self.right { "no alert" } else { "see above" }.to_owned(),
            after_s: None,
            client: "all 200".to_owned(),
        };
        let rows = if self.rooms.is_empty() { vec![healthy] } else { self.rooms.clone() };
        let [before, after, end] = self.free;
        let cells = |row: Row| {
            [
                self.case.clone(),
                row.room,
                row.right,
                row.given,
                row.after_s.map_or_else(|| "-".to_owned(), |after| format!("{after:.1} s")),
                row.client,
                format!("{before} > {after} > {end}"),
                format!("{}/{}", self.more.0, self.more.1),
                self.word().to_owned(),
            ]
        };
        rows.into_iter().map(cells).collect()
    }
}

/// All runs as a table.
pub(crate) fn table(reports: &[Report]) -> String {
    let head = [
        "case",
        "room",
        "right verdict",
        "given",
        "after",
        "the client got",
        "free pages/slots/inflight",
        "served after",
        "result",
    ];
    let mut lines = vec![head.map(str::to_owned)];
    lines.extend(reports.iter().flat_map(Report::rows));
    say::aligned(&lines)
}
