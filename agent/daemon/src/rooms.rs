//! `inflightd rooms`: what is open now.

use std::io::{self, Write as _};

use serde::Deserialize;

use crate::cli;
use crate::config::Config;
use crate::error::RunError;
use crate::http::client;
use crate::sink::{RoomId, size, span};

/// Longest text of one cell, in characters.
const CELL_MAX: usize = 28;

/// What the agent says; [`crate::views`] has the whole.
#[derive(Debug, Deserialize)]
struct Rooms {
    open: u64,
    rooms: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    room: RoomId,
    rid: Option<String>,
    worker: Option<Worker>,
    dwell_s: f64,
    since_progress_s: f64,
    phase: String,
    bytes: Bytes,
    peers: Vec<Peer>,
    serving_tid: Option<u32>,
    verdict: Option<Standing>,
    behind: Option<RoomId>,
}

#[derive(Debug, Deserialize)]
struct Worker {
    pid: u32,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Bytes {
    expected: u64,
    posted: u64,
    completed: u64,
}

#[derive(Debug, Deserialize)]
struct Peer {
    value: String,
}

#[derive(Debug, Deserialize)]
struct Standing {
    severity: String,
    finding: String,
    cause: String,
}

/// Asks the agent for the open rooms and prints them.
pub fn rooms(args: &cli::Rooms) -> Result<(), RunError> {
    let state_dir = Config::state_dir(args.state_dir.as_deref())?;
    let pid = args.pid.map(|pid| format!("&pid={pid}")).unwrap_or_default();
    let path = format!("/rooms?limit={}{pid}", args.limit);
    let body = client::get(&state_dir, &path)?.body;
    let mut text = if args.json { body } else { table(&body)?.into_bytes() };
    if !text.ends_with(b"\n") {
        text.push(b'\n');
    }
    match io::stdout().write_all(&text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(RunError::io("writing the rooms")(error))
        }
        _ => Ok(()),
    }
}

fn table(body: &[u8]) -> Result<String, RunError> {
    let answer: Rooms = serde_json::from_slice(body)
        .map_err(|error| RunError::io("reading the agent's answer")(error.into()))?;
    Ok(render(&answer))
}

fn render(answer: &Rooms) -> String {
    let alerts = answer.rooms.iter().filter(|room| is_alert(room)).count();
    let mut text = match (answer.open, answer.rooms.len() as u64) {
        (0, 0) => return "no open rooms\n".to_owned(),
        (open, shown) if shown < open => format!(
            "{open} open rooms; the oldest {shown}, {alerts} of them in an alert (--limit shows more)\n"
        ),
        (open, shown) if shown > open => format!(
            "{open} open rooms and {} left whose thread stays with it, {alerts} in an alert\n",
            shown - open
        ),
        (open, _) => format!("{open} open rooms, {alerts} of them in an alert\n"),
    };
    let head = ["AGE", "STILL", "PID", "ROOM", "REQUEST", "PHASE", "BYTES", "PEER", "VERDICT"];
    let mut rows = vec![head.map(ToOwned::to_owned)];
    rows.extend(answer.rooms.iter().map(cells));
    let widths: Vec<usize> = (0..head.len())
        .map(|column| {
            rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
        })
        .map(Option::unwrap_or_default)
        .collect();
    for row in &rows {
        let padded: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(padded.join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn is_alert(room: &Entry) -> bool {
    room.verdict.as_ref().is_some_and(|verdict| verdict.severity == "alert")
}

fn cells(room: &Entry) -> [String; 9] {
    let behind = room.behind.map(|head| format!(" room {head}")).unwrap_or_default();
    let verdict = match (&room.verdict, room.serving_tid) {
        (Some(verdict), _) => format!("{} / {}{behind}", verdict.finding, verdict.cause),
        (None, Some(tid)) => format!("- (thread {tid} works for it)"),
        (None, None) => "-".to_owned(),
    };
    let peer = match room.peers.as_slice() {
        [] => "-".to_owned(),
        [peer] => cell(&peer.value),
        [first, others @ ..] => format!("{} +{}", cell(&first.value), others.len()),
    };
    [
        span(room.dwell_s),
        span(room.since_progress_s),
        room.worker.as_ref().map_or_else(|| "-".to_owned(), |worker| worker.pid.to_string()),
        room.room.to_string(),
        room.rid.as_deref().map_or_else(|| "-".to_owned(), cell),
        room.phase.clone(),
        moved(room.bytes),
        peer,
        verdict,
    ]
}

/// What has arrived of what is to arrive.
fn moved(bytes: Bytes) -> String {
    match bytes.expected.max(bytes.posted) {
        0 => size(bytes.completed),
        all => format!("{} / {}", size(bytes.completed), size(all)),
    }
}

/// A text that an engine gave: cut, and without anything that a terminal would act on.
fn cell(text: &str) -> String {
    let clean = text.chars().map(|c| if c.is_control() { '?' } else { c });
    let mut cut: String = clean.take(CELL_MAX + 1).collect();
    if cut.chars().count() > CELL_MAX {
        cut.pop();
        cut.pop();
        cut.push('…');
    }
    if cut.is_empty() { "-".to_owned() } else { cut }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = r#"{"open":3,"rooms":[
        {"seq":1,"room":"9223372036854775809","rid":"r\u001b[31m1","worker":{"pid":7},
         "since":"x","dwell_s":31.24,"since_progress_s":30.5,"phase":"transferring",
         "bytes":{"expected":1048576,"posted":1048576,"completed":524288},"posts":1,
         "peers":[{"kind":"nixl_agent","value":"decode-0"},{"kind":"nixl_agent","value":"d1"}],
         "serving_tid":9,
         "verdict":{"severity":"alert","finding":"stopped_midway","cause":"peer_frozen"}},
        {"seq":2,"room":0,"rid":null,"worker":null,"dwell_s":0.004,"since_progress_s":0.004,
         "phase":"none","bytes":{"expected":0,"posted":0,"completed":0},"peers":[],
         "serving_tid":null,"verdict":{"severity":"info","finding":"never_started",
         "cause":"queued_behind"},"behind":"9223372036854775809"}]}"#;

    #[test]
    fn rooms_show_as_a_table() {
        let text = table(ANSWER.as_bytes()).unwrap();
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            text.lines().next().unwrap(),
            "3 open rooms; the oldest 2, 1 of them in an alert (--limit shows more)"
        );
        assert_eq!(lines[1][..4], ["AGE", "STILL", "PID", "ROOM"]);
        let stuck = lines[2].join(" ");
        assert_eq!(
            stuck,
            "31.2 s 30.5 s 7 9223372036854775809 r?[31m1 transferring 512.0 KiB / 1.0 MiB \
             decode-0 +1 stopped_midway / peer_frozen"
        );
        assert_eq!(
            lines[3].join(" "),
            "4 ms 4 ms - 0 - none 0 B - never_started / queued_behind room 9223372036854775809"
        );
        assert!(!text.contains('\u{1b}'));
    }

    #[test]
    fn nothing_open_is_said() {
        assert_eq!(table(br#"{"open":0,"rooms":[]}"#).unwrap(), "no open rooms\n");
        let left = ANSWER.replace(r#""open":3"#, r#""open":1"#);
        let text = table(left.as_bytes()).unwrap();
        assert!(
            text.starts_with("1 open rooms and 1 left whose thread stays with it, 1 in"),
            "{text}"
        );
        assert!(table(b"<html>").is_err());
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(cell(&"x".repeat(CELL_MAX)), "x".repeat(CELL_MAX));
        assert_eq!(cell(&"x".repeat(99)).chars().count(), CELL_MAX);
        assert!(cell(&"x".repeat(99)).ends_with('…'));
        assert_eq!(cell(""), "-");
    }
}
