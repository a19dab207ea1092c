//! What is said without alarm, what is said together, and what is said of nobody's room.

use std::collections::BTreeSet;

use super::super::record::{KnownBy, Line, Record, Seen};
use super::super::step::family;
use super::{Fault, Victim, first_said, word};

/// Verdicts that alarm nobody: the one that must be given, or those that may.
pub(super) fn infos(victim: &Victim<'_>, record: &Record, faults: &mut Vec<Fault>) {
    let infos: Vec<&Seen> =
        victim.lines.iter().copied().filter(|seen| seen.line.is_info()).collect();
    let not_right = |seen: &&Seen| Fault::Said { room: victim.room(), given: seen.line.says() };
    if let Some(info) = &victim.right.info {
        let expected = info.says();
        let right = |seen: &&&Seen| seen.line.says() == expected;
        faults.extend(infos.iter().filter(|seen| !right(seen)).map(not_right));
        match infos.iter().find(right) {
            Some(first) => first_said(info, first, victim, record, faults),
            None => faults.push(Fault::Missing { room: victim.room(), expected }),
        }
    }
    if let Some(may) = &victim.right.may {
        let allowed = |seen: &&&Seen| seen.line.finding.as_ref().is_some_and(|it| may.contains(it));
        faults.extend(infos.iter().filter(|seen| !allowed(seen)).map(not_right));
    }
}

/// One incident: the room and its head name the same, and the head names all that wait behind it.
pub(super) fn incident(victim: &Victim<'_>, record: &Record, faults: &mut Vec<Fault>) {
    let right = victim.right;
    let said = expected_line(
        victim.lines.iter().copied(),
        right.expected().map(super::Alert::says).as_ref(),
    );
    if let (Some(head), Some(said)) = (&right.incident, said) {
        let of_head = record.victims.get(head).map(|stay| incident_of(record, stay));
        let (given, expected) = (said.incident.clone(), of_head.flatten());
        if given.is_none() || given != expected {
            faults.push(Fault::Incident {
                room: victim.room(),
                given: word(given.as_deref()),
                expected: word(expected.as_deref()),
            });
        }
    }
    if let (Some(behind), Some(said)) = (&right.behind, said) {
        let of_family = record.victims.iter().filter(|(name, _)| family(name) == behind);
        let expected: BTreeSet<u64> = of_family.map(|(_, stay)| stay.room).collect();
        let given: BTreeSet<u64> = said.behind.iter().copied().collect();
        let count = said.behind_count.unwrap_or(0);
        if given != expected || count != expected.len() as u64 {
            faults.push(Fault::Behind {
                room: victim.room(),
                given: format!("{count} rooms {given:?}"),
                expected: format!("{expected:?}"),
            });
        }
    }
}

/// The first verdict that says that; the first of all where nothing is expected.
fn expected_line<'a>(
    lines: impl Iterator<Item = &'a Seen>,
    expected: Option<&String>,
) -> Option<&'a Line> {
    let mut verdicts = lines.map(|seen| &seen.line).filter(|line| line.kind == "verdict");
    verdicts.find(|line| expected.is_none_or(|expected| line.says() == *expected))
}

/// The incident that a room is the head of: its verdict's, or the id of its stay where none was
/// given about it.
fn incident_of(record: &Record, stay: &super::Stay) -> Option<String> {
    let lines = || record.about(stay).map(|seen| &seen.line);
    let verdict = lines().find_map(|line| line.incident.clone());
    verdict.or_else(|| lines().find(|line| line.kind == "append")?.id.clone())
}

/// Alerts about rooms that no append of the pair made.
pub(super) fn strangers(record: &Record, faults: &mut Vec<Fault>) {
    let known: BTreeSet<(u64, u64)> =
        record.victims.values().chain(&record.beside).fold(BTreeSet::new(), |mut known, stay| {
            match record.known_by {
                KnownBy::Hook => drop(known.insert((stay.room, stay.seq))),
                KnownBy::Notice => drop(known.insert((stay.room, 0))),
                KnownBy::Handle => known.extend(stay.handles.iter().map(|handle| (*handle, 0))),
            }
            known
        });
    let is_known = |line: &Line| {
        let seq = if record.known_by == KnownBy::Hook { line.seq.unwrap_or(0) } else { 0 };
        line.room.is_some_and(|room| known.contains(&(room, seq)))
    };
    let strange = record.lines.iter().map(|seen| &seen.line);
    let strange = strange.filter(|line| line.is_alert() && !is_known(line));
    faults.extend(strange.map(|line| Fault::Stranger { given: line.says() }));
}

#[cfg(test)]
mod tests {
    use super::super::super::file::Case;
    use super::super::super::file::tests::sample;
    use super::super::super::right::Alert;
    use super::super::judge;
    use super::super::tests::{good, verdict};
    use super::*;

    /// The sample case with a room that waits behind its victim, and a run in which all is right.
    fn queued() -> (Case, Record) {
        let (mut case, mut record) = (sample(), good());
        case.right[0].incident = Some("victim".to_owned());
        case.right[0].behind = Some("small".to_owned());
        let mut small = case.right[0].clone();
        small.room = "small".to_owned();
        (small.alert, small.behind) = (None, None);
        small.info = Some(Alert {
            finding: "never_started".to_owned(),
            cause: "queued_behind".to_owned(),
            states: Vec::new(),
            tier: None,
            earliest_s: 2.5,
            within_s: 6.0,
        });
        case.right.push(small);
        let head = record.lines.last_mut().unwrap();
        head.line.incident = Some("one".to_owned());
        (head.line.behind, head.line.behind_count) = (vec![6], Some(1));
        let mut stay = record.victims["victim"].clone();
        (stay.room, stay.seq) = (6, 7);
        record.victims.insert("small.1".to_owned(), stay);
        let mut append = record.lines[0].clone();
        (append.line.room, append.line.seq) = (Some(6), Some(7));
        let mut behind = verdict(6, 3.2, "never_started", "queued_behind");
        behind.line.severity = Some("info".to_owned());
        behind.line.incident = Some("one".to_owned());
        record.lines.extend([append, behind]);
        (case, record)
    }

    fn faults(change: impl FnOnce(&mut Case, &mut Record)) -> Vec<Fault> {
        let (mut case, mut record) = queued();
        change(&mut case, &mut record);
        judge(&case, &record).faults
    }

    fn last(record: &mut Record) -> &mut Line {
        &mut record.lines.last_mut().unwrap().line
    }

    #[test]
    fn one_incident_with_its_followers_is_right() {
        assert_eq!(faults(|_, _| ()), []);
    }

    #[test]
    fn an_alert_about_a_follower_is_extra() {
        let faults = faults(|_, record| last(record).severity = Some("alert".to_owned()));
        assert!(faults.iter().any(|fault| matches!(fault, Fault::Extra { .. })), "{faults:?}");
        assert!(faults.iter().any(|fault| matches!(fault, Fault::Missing { .. })), "{faults:?}");
    }

    #[test]
    fn a_follower_of_another_incident_or_none_is_named() {
        for incident in [None, Some("two".to_owned())] {
            let faults = faults(|_, record| last(record).incident = incident);
            let [Fault::Incident { room, .. }] = faults.as_slice() else { panic!("{faults:?}") };
            assert_eq!(room, "small.1");
        }
    }

    #[test]
    fn a_head_that_does_not_name_just_its_followers_is_named() {
        let behind =
            [(vec![], Some(0)), (vec![6, 9], Some(2)), (vec![6], Some(3)), (vec![6], None)];
        for (rooms, count) in behind {
            let faults = faults(|_, record| {
                let head = &mut record.lines[3].line;
                (head.behind, head.behind_count) = (rooms, count);
            });
            assert!(matches!(faults.as_slice(), [Fault::Behind { .. }]), "{faults:?}");
        }
    }

    #[test]
    fn what_may_not_be_said_is_named() {
        let faults = faults(|_, record| {
            let mut line = record.lines.last().unwrap().clone();
            line.line.finding = Some("blind".to_owned());
            record.lines.push(line);
        });
        assert!(matches!(faults.as_slice(), [Fault::Said { .. }]), "{faults:?}");
        let faults = self::faults(|case, _| {
            case.right[1].info = None;
            case.right[1].may = Some(Vec::new());
        });
        assert!(matches!(faults.as_slice(), [Fault::Said { .. }]), "{faults:?}");
    }

    #[test]
    fn a_verdict_on_another_tier_is_named() {
        let faults = faults(|case, _| {
            case.right[1].info.as_mut().unwrap().tier = Some("transfer".to_owned());
        });
        assert!(matches!(faults.as_slice(), [Fault::Tier { .. }]), "{faults:?}");
    }

    #[test]
    fn an_alert_about_nobody_s_room_is_a_stranger_s() {
        let faults = faults(|_, record| {
            record.lines.push(verdict(99, 3.0, "never_started", "peer_dead"));
        });
        assert!(matches!(faults.as_slice(), [Fault::Stranger { .. }]), "{faults:?}");
    }

    #[test]
    fn without_the_hook_a_room_is_known_by_its_handles() {
        let (mut case, mut record) = (sample(), good());
        record.known_by = KnownBy::Handle;
        record.victims.get_mut("victim").unwrap().handles = vec![0xabc0];
        for seen in &mut record.lines {
            if seen.line.room == Some(5) {
                seen.line.room = Some(0xabc0);
            }
        }
        assert_eq!(judge(&case, &record).faults, []);
        case.right[0].alert.as_mut().unwrap().tier = Some("transfer".to_owned());
        let faults = judge(&case, &record).faults;
        assert!(matches!(faults.as_slice(), [Fault::Tier { .. }]), "{faults:?}");
    }

    #[test]
    fn an_agent_that_grows_too_large_and_a_dwell_too_long_are_named() {
        let faults = faults(|case, record| {
            case.agent.most_mib = Some(60.0);
            record.agent_mib = Some(61.0);
        });
        assert!(matches!(faults.as_slice(), [Fault::Heavy { .. }]), "{faults:?}");
    }
}
