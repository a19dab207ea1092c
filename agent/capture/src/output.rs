//! Writing outputs: one line each, as scenes expect them.

use std::fmt::Write;

use inflightd_core::Output;
use inflightd_core::evidence::Evidence;
use inflightd_core::verdict::{Bytes, Verdict};

use crate::write::{OUTCOMES, word};

/// Appends one output as a line, without the line feed.
pub fn write_output(to: &mut String, output: &Output) {
    // Writing to a String cannot fail.
    let _infallible = match output {
        Output::Append(append) => write!(
            to,
            "{} w{} append seq={} room={} late={}",
            append.at.0,
            append.worker.0,
            append.seq.0,
            append.room.0,
            u8::from(append.late)
        ),
        Output::Verdict(verdict) => write_verdict(to, verdict),
        Output::Clear(clear) => write!(
            to,
            "{} w{} clear seq={} {}/{} why={}",
            clear.at.0,
            clear.worker.0,
            clear.seq.0,
            clear.finding.name(),
            clear.cause.name(),
            clear.why.name()
        ),
        Output::Dwell(dwell) => write!(
            to,
            "{} w{} dwell seq={} room={} outcome={} cause={} stalled={} dwell={} {}",
            dwell.at.0,
            dwell.worker.0,
            dwell.seq.0,
            dwell.room.0,
            word(&OUTCOMES, &dwell.outcome),
            dwell.cause.map_or("none", inflightd_core::Cause::name),
            u8::from(dwell.stalled),
            dwell.dwell.0,
            bytes(dwell.bytes),
        ),
        Output::Coverage(at, worker, _) => write!(to, "{} w{} coverage", at.0, worker.0),
        Output::Loss(at, worker, source, count) => {
            write!(to, "{} w{} loss source={} count={count}", at.0, worker.0, source.name())
        }
    };
}

fn bytes(bytes: Bytes) -> String {
    format!("bytes={}/{}/{}", bytes.completed, bytes.posted, bytes.expected)
}

/// What it says, and of which other worker.
fn evidence(evidence: &Evidence) -> String {
    let name = evidence.id.name();
    evidence.worker.map_or_else(|| name.to_owned(), |worker| format!("{name}(w{})", worker.0))
}

fn write_verdict(to: &mut String, verdict: &Verdict) -> std::fmt::Result {
    write!(
        to,
        "{} w{} verdict seq={} room={} {}/{} confidence={} tier={} dwell={} {} evidence=",
        verdict.at.0,
        verdict.worker.0,
        verdict.seq.0,
        verdict.room.0,
        verdict.finding.name(),
        verdict.cause.name(),
        verdict.confidence,
        verdict.tier.name(),
        verdict.dwell.0,
        bytes(verdict.bytes),
    )?;
    let names: Vec<_> = verdict.evidence.iter().map(evidence).collect();
    write!(to, "{} ruled_out=", names.join(","))?;
    let names: Vec<_> = verdict.ruled_out.iter().map(|(cause, _)| cause.name()).collect();
    write!(to, "{}", names.join(","))?;
    if let Some(head) = verdict.head {
        write!(to, " head={}", head.0)?;
    }
    if verdict.behind_count > 0 {
        let rooms: Vec<_> = verdict.behind.iter().map(|room| room.0.to_string()).collect();
        write!(to, " behind={} count={}", rooms.join(","), verdict.behind_count)?;
    }
    Ok(())
}
