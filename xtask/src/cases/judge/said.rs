//! What is said without alarm, what is said together, and what is said of nobody's room.

use std::collections::BTreeSet;

use super::super::record::{KnownBy, Line, Posting, Record, Seen, Stay};
use super::super::step::family;
use super::{Fault, Victim, firm, first_said, word};

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
fn incident_of(record: &Record, stay: &Stay) -> Option<String> {
    let lines = || record.about(stay).map(|seen| &seen.line);
    let verdict = lines().find_map(|line| line.incident.clone());
    verdict.or_else(|| lines().find(|line| line.kind == "append")?.id.clone())
}

/// Alerts about rooms that no append of the pair made, and all about its other processes: they keep
/// no queue, so nothing of theirs can stall.
pub(super) fn strangers(record: &Record, faults: &mut Vec<Fault>) {
    let stays = || record.victims.values().chain(&record.beside);
    let known: BTreeSet<(u64, u64)> = stays().map(Stay::key).collect();
    let rooms: BTreeSet<u64> = stays().map(|stay| stay.room).collect();
    let is_known = |seen: &Seen| {
        let Some(room) = seen.line.room else { return false };
        match record.known_by {
            KnownBy::Hook => known.contains(&(room, seen.line.seq.unwrap_or(0))),
            KnownBy::Notice => rooms.contains(&room),
            KnownBy::Handle => record.poster(room, seen).is_some_and(|it| known.contains(&it)),
        }
    };
    let is_ours = |seen: &Seen| record.is_of_prefill(&seen.line) && is_known(seen);
    let strange = record.lines.iter().filter(|seen| seen.line.is_alert() && !is_ours(seen));
    faults.extend(strange.map(|seen| Fault::Stranger {
        given: seen.line.says(),
        pid: seen.line.worker.as_ref().map_or(0, |worker| worker.pid),
    }));
}

/// Where a room is known by its handles only, each transfer of the healthy rooms must be told as one
/// stay that begins and ends once. Counted by handle: a line may be read when its handle serves the
/// next room already. What was posted before the agent was ready may be told or not, as may what
/// came of a victim's.
pub(super) fn transfers(record: &Record, faults: &mut Vec<Fault>) {
    if record.known_by != KnownBy::Handle {
        return;
    }
    let ended = record.beside.iter().filter(|stay| stay.removed.is_some());
    let healthy: BTreeSet<(u64, u64)> = ended.map(Stay::key).collect();
    for (&handle, postings) in &record.postings {
        let seen_whole = |posting: &&Posting| {
            let ready = record.agent_ready.is_some_and(|ready| posting.at >= ready);
            ready && healthy.contains(&posting.stay)
        };
        let (least, most) = (postings.iter().filter(seen_whole).count(), postings.len());
        for kind in ["append", "dwell"] {
            let of_it = |line: &&Line| {
                line.kind == kind && line.room == Some(handle) && record.is_of_prefill(line)
            };
            let lines: Vec<&Line> =
                record.lines.iter().map(|seen| &seen.line).filter(of_it).collect();
            if lines.len() < least || firm(&lines) > most {
                let (kind, told) = (kind.to_owned(), lines.len());
                faults.push(Fault::Transfers { handle, kind, told, posted: most });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

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

    /// A run without the hook: the victim has one handle, the healthy room had another, which is
    /// also the one that a room before it had.
    fn unhooked() -> (Case, Record) {
        let (case, mut record) = (sample(), good());
        record.known_by = KnownBy::Handle;
        let (victim, healthy) = (record.victims["victim"].clone(), record.beside[0].clone());
        let of = |stay: &Stay| Posting { at: stay.appended, stay: stay.key() };
        record.postings =
            BTreeMap::from([(0xabc0, vec![of(&victim)]), (0xdef0, vec![of(&healthy)])]);
        for seen in &mut record.lines {
            seen.line.room = seen.line.room.map(|room| if room == 5 { 0xabc0 } else { 0xdef0 });
        }
        (case, record)
    }

    #[test]
    fn without_the_hook_a_room_is_known_by_its_handles() {
        let (mut case, record) = unhooked();
        assert_eq!(judge(&case, &record).faults, []);
        case.right[0].alert.as_mut().unwrap().tier = Some("transfer".to_owned());
        let faults = judge(&case, &record).faults;
        assert!(matches!(faults.as_slice(), [Fault::Tier { .. }]), "{faults:?}");
    }

    #[test]
    fn a_handle_belongs_to_the_room_that_posted_it_last() {
        let (case, mut record) = unhooked();
        record.lines.push(verdict(0xdef0, 2.0, "never_started", "unknown"));
        let of = |record: &Record| match judge(&case, record).faults.as_slice() {
            [fault] => fault.room().unwrap_or("none").to_owned(),
            faults => panic!("{faults:?}"),
        };
        assert_eq!(of(&record), "healthy room 1");

        // The victim posts the healthy room's handle anew: what stands since then is about it.
        let victim = record.victims["victim"].clone();
        let later = victim.appended.plus(Duration::from_secs(1));
        let posting = Posting { at: later, stay: victim.key() };
        record.postings.get_mut(&0xdef0).unwrap().push(posting);
        last(&mut record).dwell_s = Some(0.9);
        assert_eq!(of(&record), "victim");
        last(&mut record).dwell_s = Some(1.1);
        assert_eq!(of(&record), "healthy room 1");
    }

    #[test]
    fn an_alert_about_a_handle_that_nobody_posted_is_a_stranger_s() {
        let (case, mut record) = unhooked();
        record.lines.push(verdict(1, 2.0, "never_started", "peer_frozen"));
        let faults = judge(&case, &record).faults;
        assert!(matches!(faults.as_slice(), [Fault::Stranger { .. }]), "{faults:?}");
    }

    #[test]
    fn each_transfer_of_a_healthy_room_is_told_once() {
        for (change, wrong) in [("dwell", 0), ("dwell", 2), ("append", 0), ("append", 2)] {
            let (case, mut record) = unhooked();
            let line = |seen: &Seen| seen.line.kind == change && seen.line.room == Some(0xdef0);
            let index = record.lines.iter().position(line).unwrap();
            let removed = record.lines.remove(index);
            record.lines.extend(std::iter::repeat_n(removed, wrong));
            let faults = judge(&case, &record).faults;
            let [Fault::Transfers { kind, told, posted: 1, .. }] = faults.as_slice() else {
                panic!("{faults:?}")
            };
            assert_eq!((kind.as_str(), *told), (change, wrong));
        }
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
