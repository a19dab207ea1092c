//! What became of a room that was to be failed, for people.

use super::line::Line;
use super::{text, words};
use crate::fail::{Decision, FailView, RankView};

/// The decision and what it rests on, in one line.
pub(super) fn one(line: &Line) -> String {
    let Some(fail) = &line.fail else {
        return String::new();
    };
    let what = if line.finding.is_some() { text::what(line) } else { "no verdict".to_owned() };
    let because = match &fail.refused {
        Some(refused) => format!("{} ({}); {}", refused.why, refused.code, refused.remedy),
        None => ranks(fail),
    };
    format!(
        "{what:<36}  {}  {}: {because}{}",
        text::worker(line),
        word(fail.decision),
        text::rid(line)
    )
}

const fn word(decision: Decision) -> &'static str {
    match decision {
        Decision::Refused => "not failed",
        Decision::WouldFail => "would be failed",
        Decision::Committed => "to be failed",
        Decision::Failed => "FAILED",
        Decision::NotCarriedOut => "not failed, no rank carried it out within 2 s",
        Decision::Ended => "not failed, the engine ended it itself",
        Decision::Unconfirmed => "failed by some ranks, not confirmed by all",
    }
}

fn ranks(fail: &FailView) -> String {
    let each: Vec<String> = fail.ranks.iter().map(rank).collect();
    let told = if fail.peers_told { "; its far end may be told" } else { "" };
    format!("{}{told}", each.join(", "))
}

fn rank(rank: &RankView) -> String {
    let proof = match (rank.proof, rank.transfers) {
        (Some("never_posted"), _) => "nothing was ever posted".to_owned(),
        (Some(_), Some(transfers)) => format!("{} arrived", words::counted(transfers, "transfer")),
        _ => "not proven".to_owned(),
    };
    let left = rank.outcome.map(|outcome| format!(", left as {outcome}")).unwrap_or_default();
    format!("process {}: {proof}{left}", rank.pid)
}
