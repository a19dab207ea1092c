//! An alert for whoever is woken by it: what is so first, then what that rests on, and what to do.

use super::line::{Line, PeerField};
use super::{next, text, words};

/// Where a row's own text begins.
const INDENT: usize = 4;
/// Width of a row's name.
const NAME: usize = 10;

/// The rows of an alert, the first one whole in itself.
pub(super) fn rows(line: &Line) -> Vec<String> {
    let mut rows = vec![head(line)];
    let worker = format!("{}{}", text::worker(line), text::rid(line));
    rows.push(row("worker", worker.trim_start()));
    rows.push(row("state", &state(line)));
    let evidence = line.evidence.iter().flatten().map(|evidence| evidence.text.clone());
    list(&mut rows, "evidence", evidence);
    let ruled_out = line.ruled_out.iter().flatten();
    list(
        &mut rows,
        "ruled out",
        ruled_out.map(|out| format!("{}: {}", out.cause, out.because.text)),
    );
    rows.push(row("coverage", &text::sights(line)));
    let behind = text::behind(line);
    if !behind.is_empty() {
        rows.push(row("behind", &behind));
    }
    if let Some(cause) = line.cause.flatten() {
        rows.push(row("next", next::step(cause)));
        rows.push(row("", &format!("runbook: inflightd runbook {cause}")));
    }
    rows
}

fn head(line: &Line) -> String {
    let whose = match line.room {
        Some(room) => format!("room {room}"),
        None => "the whole worker".to_owned(),
    };
    let repeated = if line.maybe_repeated { "  [may be a repetition]" } else { "" };
    let (time, what) = (words::stamp(&line.time), text::what(line));
    let peers = line.peers.as_deref().map(names).unwrap_or_default();
    format!("{time}  ALERT     {what}: {whose}{peers}{repeated}")
}

fn names(peers: &[PeerField]) -> String {
    let named: Vec<String> = peers.iter().map(words::name).collect();
    if named.is_empty() { String::new() } else { format!(" to {}", named.join(", ")) }
}

fn state(line: &Line) -> String {
    let sure = line.confidence.map(|sure| format!(", {:.0} % sure", sure * 100.0));
    format!(
        "in the queue {}, {}, still for {}{}",
        text::seconds(line.dwell_s),
        text::amounts(line),
        text::seconds(line.since_progress_s),
        sure.unwrap_or_default(),
    )
}

fn list(rows: &mut Vec<String>, name: &str, texts: impl Iterator<Item = String>) {
    let mut name = name;
    for text in texts {
        rows.push(row(name, &text));
        name = "";
    }
    if !name.is_empty() {
        rows.push(row(name, "nothing"));
    }
}

fn row(name: &str, text: &str) -> String {
    format!("{:INDENT$}{name:<NAME$} {text}", "")
}

#[cfg(test)]
mod tests {
    use super::super::line::{CoverageField, EvidenceField, RuledOut};
    use super::super::text::tests::line;
    use super::*;

    fn evidence(id: &'static str, text: &str) -> EvidenceField {
        let text = text.to_owned();
        let (at, since, amount, code, peer, tid) = (None, None, None, None, None, None);
        let (handle, worker) = (None, None);
        EvidenceField { id, text, at, since, amount, code, peer, tid, handle, worker }
    }

    #[test]
    fn an_alert_says_what_why_who_and_what_to_do_each_in_a_row() {
        let stopped = evidence("peer_stopped", "decode-0 (pid 8) is stopped");
        let still = evidence("wire_still", "no byte moved to decode-0 (pid 8)");
        let alive = evidence("peer_stopped", "decode-0 (pid 8) is stopped");
        let verdict = Line {
            severity: Some("alert"),
            finding: Some("stopped_midway"),
            cause: Some(Some("peer_frozen")),
            confidence: Some(0.97),
            dwell_s: Some(31.04),
            since_progress_s: Some(30.0),
            evidence: Some(vec![stopped, still]),
            ruled_out: Some(vec![RuledOut { cause: "peer_dead", because: alive }]),
            coverage: Some(vec![
                CoverageField { source: "table", sight: "visible", why: None },
                CoverageField { source: "marks", sight: "blind", why: Some("not_attached") },
            ]),
            ..line("verdict")
        };
        let expected = "\
2026-11-29T19:47:52.386Z  ALERT     stopped_midway / peer_frozen: room 50 to decode-0 (pid 8)
    worker     prefill pid 7 (sglang tp1/8)  rid rid-50
    state      in the queue 31.0 s, 1.0 KiB of 4.0 KiB arrived, still for 30.0 s, 97 % sure
    evidence   decode-0 (pid 8) is stopped
               no byte moved to decode-0 (pid 8)
    ruled out  peer_dead: decode-0 (pid 8) is stopped
    coverage   sees table; marks blind (not_attached)
    next       on the peer's node `kill -CONT` it if it was stopped by hand, else take its stacks \
                   and restart it
               runbook: inflightd runbook peer_frozen";
        assert_eq!(text::render(&verdict), expected);
    }

    #[test]
    fn a_name_cannot_begin_a_row_of_its_own() {
        let rid = Some("a\nb\x1b[2Jc".to_owned());
        let verdict = Line { rid, severity: Some("alert"), ..line("verdict") };
        let text = text::render(&verdict);
        assert!(text.contains("rid a?b?[2Jc\n    state"), "{text}");
    }
}
