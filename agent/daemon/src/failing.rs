//! `inflightd fail`: asks the agent to fail a room.

use std::process::ExitCode;

use serde::Deserialize;

use crate::cli;
use crate::error::RunError;
use crate::http::client;
use crate::rooms::{refused, state_dir};
use crate::shown::{plain, print};

/// The room was not failed.
const NOT_FAILED: u8 = 8;

/// What the agent says; [`crate::fail::FailView`] has the whole.
#[derive(Debug, Deserialize)]
struct Answer {
    fail: Fail,
}

#[derive(Debug, Deserialize)]
struct Fail {
    decision: String,
    refused: Option<Refused>,
    ranks: Vec<Rank>,
}

#[derive(Debug, Deserialize)]
struct Refused {
    code: String,
    why: String,
    remedy: String,
}

#[derive(Debug, Deserialize)]
struct Rank {
    pid: u32,
    proof: Option<String>,
    outcome: Option<String>,
}

/// Asks that a room be failed, and prints what became of it.
pub fn fail(args: &cli::Fail) -> Result<ExitCode, RunError> {
    let state_dir = state_dir(args.state_dir.as_deref(), args.config.as_deref())?;
    let pid = args.worker.map(|pid| format!("&pid={pid}")).unwrap_or_default();
    let path = format!("/fail?room={}&dry_run={}{pid}", args.room, !args.yes);
    let answered = client::post(&state_dir, &path)?;
    if answered.status != 200 {
        return Err(refused(&answered, &state_dir));
    }
    let answer: Answer = serde_json::from_slice(&answered.body)
        .map_err(|error| RunError::io("reading the agent's answer")(error.into()))?;
    let mut text =
        if args.json { answered.body } else { page(args.room, &answer.fail).into_bytes() };
    if !text.ends_with(b"\n") {
        text.push(b'\n');
    }
    print(&text, "writing the answer")?;
    let done = matches!(answer.fail.decision.as_str(), "failed" | "would_fail");
    Ok(if done { ExitCode::SUCCESS } else { ExitCode::from(NOT_FAILED) })
}

fn page(room: u64, fail: &Fail) -> String {
    let what = match fail.decision.as_str() {
        "failed" => format!("room {room} was failed on all ranks of its engine"),
        "would_fail" => format!("room {room} would be failed; --yes does it"),
        "refused" => format!("room {room} was not failed"),
        "not_carried_out" => format!(
            "room {room} was not failed: no rank carried it out within 2 s, and none will; its \
             scheduler does not poll (`inflightd rooms` says whether it is wedged)"
        ),
        "ended" => format!("room {room} was not failed: its engine has ended it meanwhile"),
        other => format!(
            "room {room}: {other}: some ranks have carried it out and it has not left the queues of \
             all; look at `inflightd rooms`"
        ),
    };
    let mut rows = vec![what];
    if let Some(refused) = &fail.refused {
        rows.push(format!("  why   {} ({})", refused.why, refused.code));
        rows.push(format!("  next  {}", refused.remedy));
    }
    rows.extend(fail.ranks.iter().map(rank));
    let rows: Vec<String> = rows.iter().map(|row| plain(row)).collect();
    rows.join("\n")
}

fn rank(rank: &Rank) -> String {
    let proof = match rank.proof.as_deref() {
        Some("never_posted") => "nothing of it was ever posted",
        Some("arrived") => "all that was posted has arrived",
        _ => "not proven",
    };
    let left = rank.outcome.as_ref().map(|outcome| format!("; left the queue as {outcome}"));
    format!("  rank  process {}: {proof}{}", rank.pid, left.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_why_and_what_helps() {
        let fail: Answer = serde_json::from_str(
            r#"{"fail":{"decision":"refused","refused":{"code":"open","why":"2 under way",
                "remedy":"restart decode\u001b"},"ranks":[{"pid":7,"proof":null,"outcome":null}]}}"#,
        )
        .unwrap();
        let text = page(9, &fail.fail);
        assert_eq!(
            text,
            "room 9 was not failed\n  why   2 under way (open)\n  next  restart decode?\n  rank  \
             process 7: not proven"
        );
    }

    #[test]
    fn what_became_of_it_is_said_in_words() {
        for (decision, word) in [
            ("failed", "was failed on all ranks"),
            ("would_fail", "--yes does it"),
            ("not_carried_out", "within 2 s"),
            ("ended", "meanwhile"),
            ("unconfirmed", "some ranks"),
        ] {
            let ranks = vec![Rank {
                pid: 7,
                proof: Some("arrived".into()),
                outcome: Some("failed".into()),
            }];
            let fail = Fail { decision: decision.to_owned(), refused: None, ranks };
            let text = page(9, &fail);
            assert!(text.contains(word), "{text}");
            assert!(text.ends_with("all that was posted has arrived; left the queue as failed"));
        }
    }
}
