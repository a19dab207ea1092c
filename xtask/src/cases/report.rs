//! What a run came to, for people and for programs.

use std::time::Duration;

use anyhow::{Result, bail};
use serde::Serialize;

use super::file::Case;
use super::judge::{Fault, Judgement, Row};
use crate::say;

/// One run of a case.
#[derive(Serialize)]
pub(crate) struct Report {
    case: String,
    /// Which of the repetitions.
    turn: u32,
    /// How many void runs went before.
    retried: u32,
    right: bool,
    /// Why the run says nothing more, where it does not.
    void: Option<String>,
    healthy_rooms: usize,
    agent_mib: Option<f64>,
    agent_kills: u32,
    /// Seconds that the run took, its pair's start included.
    took_s: f64,
    rooms: Vec<Row>,
    faults: Vec<Fault>,
    /// What the reason to be void explains.
    excused: Vec<Fault>,
}

impl Report {
    /// Put a judgement under its case.
    pub(super) fn new(
        case: &Case,
        turn: u32,
        retried: u32,
        took: Duration,
        judgement: Judgement,
    ) -> Self {
        Self {
            case: case.name.clone(),
            turn,
            retried,
            right: judgement.faults.is_empty() && judgement.void.is_none(),
            void: judgement.void,
            healthy_rooms: judgement.healthy,
            agent_mib: judgement.agent_mib,
            agent_kills: judgement.agent_kills,
            took_s: took.as_secs_f64(),
            rooms: judgement.rows,
            faults: judgement.faults,
            excused: judgement.excused,
        }
    }

    /// Whether the run says nothing about the agent. One with a fault that the reason for that does
    /// not explain says enough.
    pub(super) const fn is_void(&self) -> bool {
        self.void.is_some() && self.faults.is_empty()
    }

    /// Whether the run was right.
    pub(crate) const fn is_right(&self) -> bool {
        self.right
    }

    /// Of the alerts, how many came while their room was still in the queue, and how many in all.
    pub(crate) fn while_stalled(&self) -> (usize, usize) {
        let told: Vec<bool> = self.rooms.iter().filter_map(|row| row.while_stalled).collect();
        (told.iter().filter(|yes| **yes).count(), told.len())
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
        let agent = self.agent_mib.map_or_else(String::new, |mib| format!(", agent {mib:.1} MiB"));
        let mut lines = vec![format!(
            "  {} {} … {}{why}, {:.1} s{agent}",
            self.case,
            self.turn,
            self.word(),
            self.took_s
        )];
        lines.extend(self.faults.iter().map(|fault| format!("      {fault}")));
        lines.extend(self.excused.iter().map(|fault| format!("      excused: {fault}")));
        lines.join("\n")
    }
}

/// Below a table in which a verdict came before its deadline.
const EARLY: &str = "a time below zero: the deadline runs from the room's last byte, which moved before \
                     the injection";

/// All runs as a table.
pub(crate) fn table(reports: &[Report]) -> String {
    let mut lines = vec![
        [
            "case",
            "room",
            "right verdict",
            "given",
            "after injection",
            "after deadline",
            "stalls",
            "result",
        ]
        .map(str::to_owned),
    ];
    for report in reports {
        if report.rooms.is_empty() {
            let rooms = format!("{} healthy", report.healthy_rooms);
            lines.push(cells(report, &rooms, "no alert", "no alert", None));
        }
        for row in &report.rooms {
            lines.push(cells(report, &row.room, &row.expected, &row.given, Some(row)));
        }
    }
    let mut table = say::aligned(&lines);
    let early = |row: &Row| row.after_deadline_s.is_some_and(|time| time < 0.0);
    if reports.iter().flat_map(|report| &report.rooms).any(early) {
        table.push_str("\n\n");
        table.push_str(EARLY);
    }
    table
}

fn cells(report: &Report, room: &str, right: &str, given: &str, row: Option<&Row>) -> [String; 8] {
    let seconds =
        |time: Option<f64>| time.map_or_else(|| "-".to_owned(), |time| format!("{time:.2} s"));
    let stalls =
        row.and_then(|row| row.while_stalled).map_or("-", |yes| if yes { "yes" } else { "no" });
    [
        report.case.clone(),
        room.to_owned(),
        right.to_owned(),
        given.to_owned(),
        seconds(row.and_then(|row| row.after_injection_s)),
        seconds(row.and_then(|row| row.after_deadline_s)),
        stalls.to_owned(),
        report.word().to_owned(),
    ]
}

/// An error unless every run was right and none void.
pub(crate) fn verdict(reports: &[Report]) -> Result<()> {
    let count = |word: &str| reports.iter().filter(|report| report.word() == word).count();
    let (wrong, void) = (count("WRONG"), count("void"));
    if wrong + void > 0 {
        bail!("{} of {} runs right, {wrong} wrong, {void} void", count("right"), reports.len());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::file::tests::sample;

    fn report(faults: Vec<Fault>, void: Option<&str>) -> Report {
        let row = Row {
            room: "victim".to_owned(),
            expected: "never_started / peer_frozen".to_owned(),
            given: "no alert".to_owned(),
            ..Row::default()
        };
        let judgement = Judgement {
            rows: vec![row],
            healthy: 3,
            faults,
            excused: vec![],
            void: void.map(str::to_owned),
            agent_mib: None,
            agent_kills: 0,
        };
        Report::new(&sample(), 1, 0, Duration::ZERO, judgement)
    }

    #[test]
    fn only_right_runs_end_well() {
        assert!(verdict(&[report(vec![], None)]).is_ok());
        let fault = Fault::Process { why: "ended".to_owned() };
        let text =
            verdict(&[report(vec![fault], None), report(vec![], None)]).unwrap_err().to_string();
        assert_eq!(text, "1 of 2 runs right, 1 wrong, 0 void");
        assert!(verdict(&[report(vec![], Some("too soon"))]).is_err());
    }

    #[test]
    fn a_void_run_with_a_fault_that_this_does_not_excuse_is_wrong() {
        let fault = || Fault::Process { why: "ended".to_owned() };
        let wrong = report(vec![fault()], Some("too soon"));
        assert!(!wrong.is_void() && !wrong.is_right());
        let text = verdict(&[wrong]).unwrap_err().to_string();
        assert_eq!(text, "0 of 1 runs right, 1 wrong, 0 void");
        let mut void = report(vec![], Some("too soon"));
        void.excused = vec![fault()];
        assert!(void.is_void() && void.line().ends_with("excused: ended"), "{}", void.line());
    }

    #[test]
    fn the_table_has_a_line_for_each_room() {
        let text = table(&[report(vec![], None)]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[1].starts_with("sample") && lines[1].ends_with("right"), "{text}");
    }
}
