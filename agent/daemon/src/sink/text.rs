//! A line for people: time, kind, room, what and why, then who and how much.

use super::line::{Line, PeerField, WorkerField};
use super::words;

/// The line as text, without a line feed.
pub(super) fn render(line: &Line) -> String {
    let time = words::time_of_day(&line.time);
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
        _ => loss(line),
    };
    text.push_str(&rest);
    if line.maybe_repeated {
        text.push_str("  [may be a repetition]");
    }
    // A name comes from another process: it must not be able to start a line of its own.
    text.replace(|c: char| c.is_control(), "?")
}

fn append(line: &Line) -> String {
    let late = if line.late == Some(true) { "already in the queue" } else { "entered the queue" };
    format!("{late:<36}  {}{}{}", worker(line), to(line.peers.as_deref()), rid(line))
}

fn verdict(line: &Line) -> String {
    let evidence: Vec<&str> =
        line.evidence.iter().flatten().map(|evidence| evidence.text.as_str()).collect();
    format!(
        "{:<36}  {}{}  in the queue {}, {}, still for {}: {}{}",
        what(line),
        worker(line),
        to(line.peers.as_deref()),
        seconds(line.dwell_s),
        amounts(line),
        seconds(line.since_progress_s),
        evidence.join("; "),
        rid(line),
    )
}

fn clear(line: &Line) -> String {
    let why = match line.why {
        Some("progress") => "bytes move again",
        Some("ended") => "the room left the queue",
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

fn coverage(line: &Line) -> String {
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
    format!("{}  {seen}{unseen}", worker(line))
}

fn loss(line: &Line) -> String {
    format!(
        "{}  {} events of {} were lost",
        worker(line),
        line.lost.unwrap_or(0),
        line.source.unwrap_or("a source")
    )
}

fn what(line: &Line) -> String {
    let cause = line.cause.flatten().unwrap_or("unknown");
    format!("{} / {cause}", line.finding.unwrap_or("unknown"))
}

fn worker(line: &Line) -> String {
    line.worker.as_ref().map_or_else(String::new, describe)
}

fn describe(worker: &WorkerField) -> String {
    let ranks = &worker.ranks;
    let stated = [("dp", ranks.dp), ("pp", ranks.pp), ("tp", ranks.tp), ("cp", ranks.cp)];
    let ranks: String = stated
        .into_iter()
        .filter_map(|(name, rank)| rank.map(|(index, size)| format!(" {name}{index}/{size}")))
        .collect();
    format!("{} pid {} ({}{ranks})", worker.role, worker.pid, worker.engine)
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

fn rid(line: &Line) -> String {
    line.rid.as_ref().map_or_else(String::new, |rid| format!("  rid {rid}"))
}

fn seconds(seconds: Option<f64>) -> String {
    seconds.map_or_else(String::new, |seconds| format!("{seconds:.1} s"))
}

fn amounts(line: &Line) -> String {
    line.bytes.map_or_else(String::new, |bytes| {
        format!(
            "{} of {} arrived",
            words::size(bytes.completed),
            words::size(bytes.posted.max(bytes.expected))
        )
    })
}
