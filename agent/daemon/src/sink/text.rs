//! A line for people: time, kind, room, what and why, then who and how much.

use inflightd_core::evidence::EvidenceId;

use super::line::{EvidenceField, Line, PeerField};
use super::{alert, fail, words};
use crate::shown::plain;

/// The line as text, without a line feed at its end: several rows where it is an alert.
pub(super) fn render(line: &Line) -> String {
    match (line.kind, line.severity) {
        ("verdict", Some("alert")) => {
            let rows: Vec<String> = alert::rows(line).iter().map(|row| plain(row)).collect();
            rows.join("\n")
        }
        _ => one(line),
    }
}

/// The line as text in one line, without a line feed.
pub(super) fn one(line: &Line) -> String {
    let time = words::stamp(&line.time);
    let label = match (line.kind, line.severity) {
        ("verdict", Some("alert")) => "ALERT",
        ("verdict", _) => "info",
        (kind, _) => kind,
    };
    let room = line.room.map(|room| format!("room {room:<20}  ")).unwrap_or_default();
    let mut text = format!("{time}  {label:<8}  {room}");
    let rest = match line.kind {
        "append" => append(line),
        "verdict" => verdict(line),
        "clear" => clear(line),
        "dwell" => dwell(line),
        "coverage" => coverage(line),
        "suppressed" => suppressed(line),
        "fail" => fail::one(line),
        _ => loss(line),
    };
    text.push_str(&rest);
    if line.maybe_repeated {
        text.push_str("  [may be a repetition]");
    }
    plain(&text)
}

fn append(line: &Line) -> String {
    let late = if line.late == Some(true) { "already in the queue" } else { "entered the queue" };
    format!("{late:<36}  {}{}{}", worker(line), to(line.peers.as_deref()), rid(line))
}

fn verdict(line: &Line) -> String {
    let evidence: Vec<&str> =
        line.evidence.iter().flatten().map(|evidence| evidence.text.as_str()).collect();
    format!(
        "{:<36}  {}{}  in the queue {}, {}, still for {}: {}{}{}",
        what(line),
        worker(line),
        to(line.peers.as_deref()),
        seconds(line.dwell_s),
        amounts(line),
        seconds(line.since_progress_s),
        evidence.join("; "),
        after(&behind(line)),
        rid(line),
    )
}

fn clear(line: &Line) -> String {
    let why = match line.why {
        Some("progress") => "bytes move again",
        Some("ended") => "the room left the queue",
        Some("unblocked") => "it need not wait any more",
        _ => "another finding takes its place",
    };
    format!("{:<36}  {}  over: {why}", what(line), worker(line))
}

fn dwell(line: &Line) -> String {
    let outcome = line.outcome.unwrap_or("unknown");
    let how = match line.cause.flatten() {
        Some(cause) => format!("{outcome} ({cause})"),
        None => outcome.to_owned(),
    };
    format!(
        "{how:<36}  {}{}  after {}, {}{}",
        worker(line),
        to(line.peers.as_deref()),
        seconds(line.dwell_s),
        amounts(line),
        rid(line),
    )
}

/// What follows on something else in the same line.
fn after(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("; {text}") }
}

fn coverage(line: &Line) -> String {
    format!("{}  {}", worker(line), sights(line))
}

/// What is seen of a worker, and what is not and why.
pub(super) fn sights(line: &Line) -> String {
    let mut unseen = Vec::new();
    let mut seen = Vec::new();
    for field in line.coverage.iter().flatten() {
        match field.why {
            Some(why) => unseen.push(format!("{} {} ({why})", field.source, field.sight)),
            None => seen.push(field.source),
        }
    }
    let seen = if seen.is_empty() {
        "nothing is seen".to_owned()
    } else {
        format!("sees {}", seen.join(", "))
    };
    let unseen = if unseen.is_empty() { String::new() } else { format!("; {}", unseen.join(", ")) };
    format!("{seen}{unseen}")
}

fn suppressed(line: &Line) -> String {
    let lines = words::counted(line.lines.unwrap_or(0), "line");
    let since = words::stamp(line.since.as_deref().unwrap_or_default());
    format!("{}  {lines} about healthy rooms left out since {since}", worker(line))
}

fn loss(line: &Line) -> String {
    let lost = words::counted(line.lost.unwrap_or(0), "event");
    format!("{}  {lost} of {} lost", worker(line), line.source.unwrap_or("a source"))
}

pub(super) fn what(line: &Line) -> String {
    let cause = line.cause.flatten().unwrap_or("unknown");
    format!("{} / {cause}", line.finding.unwrap_or("unknown"))
}

pub(super) fn worker(line: &Line) -> String {
    line.worker.as_ref().map_or_else(String::new, words::worker)
}

fn to(peers: Option<&[PeerField]>) -> String {
    match peers {
        None | Some([]) => String::new(),
        Some(peers) => {
            let names: Vec<String> = peers.iter().map(words::name).collect();
            format!(" to {}", names.join(", "))
        }
    }
}

/// The rooms that wait behind this one, the first few by name.
pub(super) fn behind(line: &Line) -> String {
    const NAMED: usize = 8;
    let (Some(rooms), Some(count)) = (&line.behind, line.behind_count) else {
        return String::new();
    };
    let named: Vec<_> = rooms.iter().take(NAMED).map(ToString::to_string).collect();
    let more = if count > named.len() as u64 { ", …" } else { "" };
    let waits = if count == 1 { "waits" } else { "wait" };
    let rooms = words::counted(count, "room");
    format!("{rooms} {waits} behind it: {}{more}", named.join(", "))
}

pub(super) fn rid(line: &Line) -> String {
    line.rid.as_ref().map_or_else(String::new, |rid| format!("  rid {rid}"))
}

pub(super) fn seconds(seconds: Option<f64>) -> String {
    seconds.map_or_else(String::new, words::span)
}

pub(super) fn amounts(line: &Line) -> String {
    line.bytes.map_or_else(String::new, |bytes| {
        let whole = words::whole(bytes.expected, bytes.posted);
        if whole.is_none() && bytes.completed == 0 {
            // As of every room of a decode: its sender counts them.
            return "bytes not counted".to_owned();
        }
        let whole = whole.unwrap_or_else(|| "an unknown number".to_owned());
        // What nothing counts may have arrived, all of it even.
        let unseen = |evidence: &EvidenceField| evidence.id == EvidenceId::BytesUnseen.name();
        let known = if line.evidence.iter().flatten().any(unseen) { "known to have " } else { "" };
        format!("{} of {whole} {known}arrived", words::size(bytes.completed))
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::line::{BytesField, RanksField, WorkerField};
    use super::super::room::RoomId;
    use super::*;

    pub(in super::super) fn line(kind: &'static str) -> Line {
        Line {
            time: "2026-11-29T19:47:52.386123456Z".to_owned(),
            kind,
            room: Some(RoomId(50)),
            rid: Some("rid-50".to_owned()),
            worker: Some(WorkerField {
                pid: 7,
                index: 0,
                engine: "sglang".to_owned(),
                version: "1".to_owned(),
                role: "prefill".to_owned(),
                ranks: RanksField { dp: None, pp: None, tp: Some((1, 8)), cp: None },
            }),
            peers: Some(vec![PeerField {
                kind: "nixl_agent".to_owned(),
                value: "decode-0".to_owned(),
                pid: Some(8),
            }]),
            bytes: Some(BytesField { expected: 4096, posted: 2048, completed: 1024 }),
            ..Line::default()
        }
    }

    #[test]
    fn what_is_no_alert_says_all_in_a_line() {
        let verdict = Line {
            severity: Some("info"),
            finding: Some("moving_slowly"),
            cause: Some(Some("unknown")),
            dwell_s: Some(31.04),
            since_progress_s: Some(30.0),
            ..line("verdict")
        };
        assert_eq!(
            render(&verdict),
            "2026-11-29T19:47:52.386Z  info      room 50                    \
             moving_slowly / unknown               prefill pid 7 (sglang tp1/8) to \
             decode-0 (pid 8)  in the queue 31.0 s, 1.0 KiB of 4.0 KiB arrived, still for \
             30.0 s:   rid rid-50"
        );
    }

    #[test]
    fn a_head_names_who_waits_behind_it() {
        let head = Line {
            behind: Some((1..=32).map(RoomId).collect()),
            behind_count: Some(40),
            ..line("verdict")
        };
        let text = render(&head);
        assert!(text.contains("; 40 rooms wait behind it: 1, 2, 3, 4, 5, 6, 7, 8, …"), "{text}");
        let one = Line { behind: Some(vec![RoomId(9)]), behind_count: Some(1), ..line("verdict") };
        assert!(render(&one).contains("; 1 room waits behind it: 9  rid"), "{}", render(&one));
    }

    #[test]
    fn what_was_left_out_is_said() {
        let since = Some("2026-01-01T19:47:42.000000000Z".to_owned());
        let text = render(&Line { lines: Some(7), since, ..line("suppressed") });
        assert!(
            text.ends_with("7 lines about healthy rooms left out since 2026-01-01T19:47:42.000Z"),
            "{text}"
        );
    }

    #[test]
    fn what_may_be_a_repetition_says_so() {
        let dwell = Line {
            outcome: Some("success"),
            dwell_s: Some(0.02),
            maybe_repeated: true,
            ..line("dwell")
        };
        let text = render(&dwell);
        assert!(text.contains("after 20 ms") && text.ends_with("[may be a repetition]"), "{text}");
    }

    #[test]
    fn a_name_cannot_begin_a_line_move_the_cursor_or_turn_the_text() {
        let rid = Some("a\nb\x1b[2Jc\u{202e}d\u{2028}e\u{200f}".to_owned());
        let append = Line { rid: rid.clone(), ..line("append") };
        assert!(render(&append).ends_with("rid a?b?[2Jc?d?e?"));
        let alert = Line { rid, severity: Some("alert"), ..line("verdict") };
        assert!(render(&alert).contains("rid a?b?[2Jc?d?e?\n    state"), "{}", render(&alert));
    }

    #[test]
    fn what_the_engine_does_not_say_is_not_called_nothing() {
        let of = |expected, posted| {
            let bytes = BytesField { expected, posted, completed: 1024 };
            amounts(&Line { bytes: Some(bytes), ..Line::default() })
        };
        let nothing = BytesField { expected: 0, posted: 0, completed: 0 };
        let nothing = amounts(&Line { bytes: Some(nothing), ..Line::default() });
        assert_eq!(nothing, "bytes not counted");
        assert_eq!(of(0, 0), "1.0 KiB of an unknown number arrived");
        assert_eq!(of(0, 2048), "1.0 KiB of 2.0 KiB posted arrived");
        assert_eq!(of(4096, 2048), "1.0 KiB of 4.0 KiB arrived");
        assert_eq!(of(4096, 8192), "1.0 KiB of 8.0 KiB arrived", "more was posted than expected");
    }

    #[test]
    fn what_nothing_counts_is_not_said_to_be_missing() {
        let bytes = Some(BytesField { expected: 4096, posted: 4096, completed: 0 });
        let unseen = EvidenceField { id: "bytes_unseen", ..evidence() };
        let line = Line { bytes, evidence: Some(vec![evidence(), unseen]), ..Line::default() };
        assert_eq!(amounts(&line), "0 B of 4.0 KiB known to have arrived");
        let line = Line { evidence: Some(vec![evidence()]), ..line };
        assert_eq!(amounts(&line), "0 B of 4.0 KiB arrived");
    }

    fn evidence() -> EvidenceField {
        let (at, since, amount, code, peer, tid) = (None, None, None, None, None, None);
        let (handle, worker, text) = (None, None, String::new());
        EvidenceField { id: "posted", text, at, since, amount, code, peer, tid, handle, worker }
    }
}
