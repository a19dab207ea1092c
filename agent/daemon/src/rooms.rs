//! `inflightd rooms`: what is open now.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::cli;
use crate::config::Config;
use crate::error::RunError;
use crate::http::SOCKET;
use crate::http::client::{self, Answered, ClientError};
use crate::shown;
use crate::sink::{RoomId, counted, size, span, whole};
use crate::{subject, table};

/// Longest text of one cell, in characters.
const CELL_MAX: usize = 28;

/// What the agent says; [`crate::views`] has the whole.
#[derive(Debug, Deserialize)]
struct Answer {
    open: u64,
    // An agent that runs since before its binary was replaced does not say these two.
    #[serde(default)]
    left: u64,
    #[serde(default)]
    alerts: u64,
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
    finding: String,
    cause: String,
}

/// Asks the agent for the open rooms and prints them.
pub fn rooms(args: &cli::Rooms) -> Result<(), RunError> {
    let state_dir = state_dir(args.state_dir.as_deref(), args.config.as_deref())?;
    let pid = args.pid.map(|pid| format!("&pid={pid}")).unwrap_or_default();
    let path = format!("/rooms?limit={}{pid}", args.limit);
    let body = taken(client::get(&state_dir, &path)?, args.pid, &state_dir)?;
    let mut text = if args.json { body } else { page(&body)?.into_bytes() };
    if !text.ends_with(b"\n") {
        text.push(b'\n');
    }
    shown::print(&text, "writing the rooms")
}

/// Where the agent's socket is: what the flag says needs no configuration to be read.
pub(crate) fn state_dir(flag: Option<&Path>, config: Option<&Path>) -> Result<PathBuf, RunError> {
    if config.is_none() {
        return Ok(Config::state_dir(flag)?);
    }
    let flags = cli::Flags { state_dir: flag.map(Path::to_owned), ..cli::Flags::default() };
    Ok(Config::find(config, &flags)?.state_dir)
}

/// The body of an answer; an error where the agent has refused the question.
fn taken(answer: Answered, pid: Option<u32>, state_dir: &Path) -> Result<Vec<u8>, RunError> {
    match (answer.status, pid) {
        (200, _) => Ok(answer.body),
        (404, Some(pid)) => Err(unknown(pid)?),
        _ => Err(refused(&answer, state_dir)),
    }
}

/// What the agent said instead of an answer.
pub(crate) fn refused(answer: &Answered, state_dir: &Path) -> RunError {
    let said = serde_json::from_slice(&answer.body).ok();
    let said =
        said.and_then(|said: serde_json::Value| said.get("error")?.as_str().map(shown::plain));
    let status = answer.status;
    let source = said.unwrap_or_else(|| format!("it answered with status {status}")).into();
    ClientError::Io { path: state_dir.join(SOCKET), source }.into()
}

/// Why the agent has no such worker, as far as it shows from here.
fn unknown(pid: u32) -> Result<RunError, RunError> {
    let device = table::memfd_device().map_err(RunError::io("making a memfd"))?;
    let why = match subject::check(pid, device) {
        Err(why) => format!("the agent knows no such worker: {why}"),
        Ok(()) => "the agent does not watch it: it has just come, or the agent was started with \
                   --pid for others; without --pid this lists the rooms of all that it watches"
            .to_owned(),
    };
    Ok(RunError::Pid { pid, why, denied: false })
}

fn page(body: &[u8]) -> Result<String, RunError> {
    let answer: Answer = serde_json::from_slice(body)
        .map_err(|error| RunError::io("reading the agent's answer")(error.into()))?;
    Ok(render(&answer))
}

/// What all the rooms come to, those that are not shown counted.
fn sum(answer: &Answer) -> String {
    let Answer { open, left, alerts, rooms } = answer;
    let (shown, all) = (rooms.len() as u64, open + left);
    let left = match left {
        0 => String::new(),
        left => format!(" and {left} left whose thread stays with it"),
    };
    let which = match shown {
        _ if shown == all => String::new(),
        0 => "; none shown (--limit shows more)".to_owned(),
        shown => format!("; the oldest {shown} shown (--limit shows more)"),
    };
    format!("{}{left}, {alerts} of them in an alert{which}\n", counted(*open, "open room"))
}

fn render(answer: &Answer) -> String {
    if answer.open + answer.left == 0 {
        return "no open rooms\n".to_owned();
    }
    let mut text = sum(answer);
    if answer.rooms.is_empty() {
        return text;
    }
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
    let whole = whole(bytes.expected, bytes.posted);
    format!("{} / {}", size(bytes.completed), whole.unwrap_or_else(|| "?".to_owned()))
}

/// A text that an engine gave: cut, and without anything that a terminal would act on.
fn cell(text: &str) -> String {
    let mut cut: String = shown::plain(text).chars().take(CELL_MAX + 1).collect();
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
    use crate::error::chain;

    const ANSWER: &str = r#"{"open":3,"left":0,"alerts":2,"rooms":[
        {"seq":1,"room":"9223372036854775809","rid":"r\u001b[31m1\u202e","worker":{"pid":7},
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
        let text = page(ANSWER.as_bytes()).unwrap();
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            text.lines().next().unwrap(),
            "3 open rooms, 2 of them in an alert; the oldest 2 shown (--limit shows more)"
        );
        assert_eq!(lines[1][..4], ["AGE", "STILL", "PID", "ROOM"]);
        let stuck = lines[2].join(" ");
        assert_eq!(
            stuck,
            "31.2 s 30.5 s 7 9223372036854775809 r?[31m1? transferring 512.0 KiB / 1.0 MiB \
             decode-0 +1 stopped_midway / peer_frozen"
        );
        assert_eq!(
            lines[3].join(" "),
            "4 ms 4 ms - 0 - none 0 B / ? - never_started / queued_behind room 9223372036854775809"
        );
        assert!(!text.contains('\u{1b}'));
    }

    #[test]
    fn nothing_open_is_said() {
        let none = br#"{"open":0,"left":0,"alerts":0,"rooms":[]}"#;
        assert_eq!(page(none).unwrap(), "no open rooms\n");
        assert!(page(b"<html>").is_err());
    }

    #[test]
    fn what_is_not_shown_is_counted_all_the_same() {
        let first = |open, left, shown| {
            let mut answer: Answer = serde_json::from_str(ANSWER).unwrap();
            (answer.open, answer.left) = (open, left);
            answer.rooms.truncate(shown);
            render(&answer).lines().next().unwrap().to_owned()
        };
        let left = "1 open room and 1 left whose thread stays with it, 2 of them in an alert";
        assert_eq!(first(1, 1, 2), left);
        let one = "; the oldest 1 shown (--limit shows more)";
        assert_eq!(first(1, 1, 1), format!("{left}{one}"));
        let none = "3 open rooms, 2 of them in an alert; none shown (--limit shows more)";
        assert_eq!(first(3, 0, 0), none);
    }

    #[test]
    fn a_refusal_is_an_error_and_not_an_answer() {
        let answered = |status, body: &str| Answered { status, body: body.as_bytes().to_vec() };
        let refused = |answer, pid| taken(answer, pid, Path::new("/state")).unwrap_err();
        assert_eq!(taken(answered(200, "{}"), Some(7), Path::new("/state")).unwrap(), b"{}");
        let gone = refused(answered(404, "{}"), Some(u32::MAX));
        assert_eq!(
            gone.to_string(),
            "--pid 4294967295: the agent knows no such worker: no such process"
        );
        let own = refused(answered(404, "{}"), Some(std::process::id()));
        assert!(own.to_string().contains("no such worker: it is no worker"), "{own}");
        let busy = refused(answered(503, r#"{"error":"it is busy"}"#), None);
        assert_eq!(chain(&busy), format!("asking the agent at /state/{SOCKET}: it is busy"));
        let odd = refused(answered(500, "?"), None);
        assert!(chain(&odd).ends_with("it answered with status 500"), "{}", chain(&odd));
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(cell(&"x".repeat(CELL_MAX)), "x".repeat(CELL_MAX));
        assert_eq!(cell(&"x".repeat(99)).chars().count(), CELL_MAX);
        assert!(cell(&"x".repeat(99)).ends_with('…'));
        assert_eq!(cell(""), "-");
    }
}
