//! Which stuck rooms are failed on purpose, and how many.

use std::collections::BTreeSet;
use std::time::Duration;

use inflightd_core::{Cause, Finding, Nanos};

use super::draft::{Draft, nearest, short};
use super::file::{FailMode, ForceFailFile};

/// Which stuck rooms are failed on purpose, and how many.
#[derive(Clone, Debug, PartialEq)]
pub struct ForceFail {
    /// Whether any.
    pub mode: FailMode,
    /// For which verdicts.
    pub allow: BTreeSet<(Finding, Cause)>,
    /// Only after so long in the queue.
    pub min_dwell: Nanos,
    /// Most in a minute on this node.
    pub per_minute: u32,
    /// Most to one peer in a minute.
    pub per_peer: u32,
    /// Most of a worker's rooms in a minute, as a share of those in its queue.
    pub share: f64,
}

/// Findings of which no room is ever failed: bytes move, or nobody knows.
const NEVER: [Finding; 2] = [Finding::MovingSlowly, Finding::Blind];
/// Causes for which none is: who does not poll carries nothing out, and who is busy is waited for.
const NEVER_FOR: [Cause; 2] = [Cause::SchedulerWedged, Cause::DecodeBacklogged];

/// Whether a room with this verdict may be failed at all.
pub(crate) fn is_fit(finding: Finding, cause: Cause) -> bool {
    !NEVER.contains(&finding) && !NEVER_FOR.contains(&cause)
}

/// Checks and lifts the table.
pub(super) fn lift(draft: &mut Draft, file: &ForceFailFile) -> ForceFail {
    let allow = verdicts(&file.allow).unwrap_or_else(|text| {
        let value = format!("`{}`", short(&file.allow));
        draft.wrong("force_fail.allow", Some(value), text);
        BTreeSet::new()
    });
    ForceFail {
        mode: file.mode,
        allow,
        min_dwell: Duration::try_from_secs_f64(file.min_dwell).unwrap_or_default().into(),
        per_minute: file.per_minute,
        per_peer: file.per_peer,
        share: file.share,
    }
}

/// The verdicts of a list; what is wrong with it.
fn verdicts(list: &str) -> Result<BTreeSet<(Finding, Cause)>, String> {
    let mut found = BTreeSet::new();
    for entry in list.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let shown = short(entry);
        let (finding, cause) = entry.split_once('/').ok_or_else(|| {
            format!(
                "`{shown}` is no `finding/cause`: write for instance `never_started/queued_behind`"
            )
        })?;
        let finding = word(finding.trim(), Finding::ALL, Finding::name)?;
        let any = cause.trim() == "*";
        let causes = if any {
            Cause::ALL.to_vec()
        } else {
            vec![word(cause.trim(), Cause::ALL, Cause::name)?]
        };
        let fit = causes.into_iter().filter(|cause| is_fit(finding, *cause));
        let before = found.len();
        found.extend(fit.map(|cause| (finding, cause)));
        if found.len() == before && !any || NEVER.contains(&finding) {
            return Err(format!(
                "no room is failed for `{shown}`, or it stands there twice: leave it out"
            ));
        }
    }
    Ok(found)
}

fn word<T: Copy>(word: &str, all: &[T], name: fn(T) -> &'static str) -> Result<T, String> {
    let names = || all.iter().map(|value| name(*value));
    all.iter().copied().find(|value| name(*value) == word).ok_or_else(|| {
        let near = nearest(word, names()).map(|near| format!("did you mean `{near}`? "));
        let known: Vec<&str> = names().collect();
        format!(
            "`{}` is no verdict's: {}known are {}",
            short(word),
            near.unwrap_or_default(),
            known.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_off_and_allows_only_what_was_never_started() {
        let file = ForceFailFile::default();
        let mut draft = Draft::new();
        let lifted = lift(&mut draft, &file);
        assert!(draft.problems.is_empty());
        assert_eq!((lifted.mode, lifted.allow.len()), (FailMode::Off, 5));
        assert!(lifted.allow.iter().all(|(finding, _)| *finding == Finding::NeverStarted));
    }

    #[test]
    fn a_star_stands_for_every_cause_that_may_be() {
        let all = verdicts("stopped_midway/*").unwrap();
        assert_eq!(all.len(), Cause::ALL.len() - NEVER_FOR.len());
        assert_eq!(verdicts("").unwrap().len(), 0);
        let one = verdicts(" never_started / queued_behind , ").unwrap();
        assert_eq!(one, BTreeSet::from([(Finding::NeverStarted, Cause::QueuedBehind)]));
    }

    #[test]
    fn what_is_no_verdict_or_never_fails_a_room_is_named() {
        for (list, told) in [
            ("peer_dead", "is no `finding/cause`"),
            ("never_start/peer_dead", "did you mean `never_started`?"),
            ("never_started/peer_ded", "did you mean `peer_dead`?"),
            ("moving_slowly/*", "no room is failed for"),
            ("blind/unknown", "no room is failed for"),
            ("never_started/scheduler_wedged", "no room is failed for"),
            ("never_started/peer_dead, never_started/peer_dead", "twice"),
        ] {
            let error = verdicts(list).unwrap_err();
            assert!(error.contains(told), "{list}: {error}");
        }
    }
}
