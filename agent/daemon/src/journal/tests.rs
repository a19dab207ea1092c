//! Lives of the agent that end at any byte.

use inflightd_core::fact::{Peer, Room};
use inflightd_core::verdict::Bytes;
use inflightd_core::{Cause, Coverage, Finding, Nanos};

use super::keep::MEND_EVERY;
use super::*;
use crate::worker::Removals;

const BOOT: &str = "boot";

fn past() -> Past {
    Past {
        identity: Identity { boot: BOOT.to_owned(), pid: 7, start: 99, index: 0 },
        role: "prefill".to_owned(),
        engine: "test".to_owned(),
        version: "1".to_owned(),
        names: vec![("nixl_agent".to_owned(), "p0".to_owned())],
        told: Removals::through(3),
        open: BTreeMap::new(),
        standing: BTreeMap::new(),
    }
}

fn appended(seq: u64) -> Appended {
    Appended {
        at: Nanos(seq),
        worker: Worker(0),
        seq: Seq(seq),
        room: Room(seq * 10),
        expected: 5,
        peers: vec![Peer(0)],
        tier: inflightd_core::verdict::Tier::Room,
        late: false,
    }
}

fn verdict(seq: u64) -> Verdict {
    Verdict {
        at: Nanos(9),
        worker: Worker(0),
        seq: Seq(seq),
        room: Room(seq * 10),
        finding: Finding::StoppedMidway,
        cause: Cause::PeerDead,
        confidence: 90,
        tier: inflightd_core::verdict::Tier::Room,
        dwell: Nanos(8),
        bytes: Bytes::default(),
        since_progress: Nanos(7),
        peers: Vec::new(),
        evidence: Vec::new(),
        ruled_out: Vec::new(),
        head: None,
        behind: Vec::new(),
        behind_count: 0,
        coverage: Coverage::default(),
    }
}

/// A life that has told two rooms, one of them gone, and a verdict.
fn life(dir: &Path) {
    let mut journal = Journal::open(dir, BOOT).unwrap();
    journal.meet(Worker(0), &past());
    journal.appended(&appended(1));
    journal.appended(&appended(2));
    let telling = journal.verdict(&verdict(2)).unwrap();
    assert!(!telling.maybe_repeated);
    journal.told(telling);
    let telling = journal.dwell(Worker(0), Seq(1), 5).unwrap();
    journal.told(telling);
}

#[test]
fn the_next_life_knows_what_was_told() {
    let dir = tempfile::tempdir().unwrap();
    life(dir.path());
    let journal = Journal::open(dir.path(), BOOT).unwrap();
    let known = journal.past(&past().identity).unwrap();
    assert!(known.told.contains(3) && known.told.contains(5) && !known.told.contains(4));
    let open = OpenRoom { room: 20, at: 2, expected: 5 };
    assert_eq!(known.open, BTreeMap::from([(Seq(2), open)]));
    let stands = (Finding::StoppedMidway, Cause::PeerDead);
    assert_eq!(known.standing, BTreeMap::from([(Seq(2), stands)]));
    assert_eq!(journal.strangers(), [known]);
}

#[test]
fn a_line_that_was_only_begun_is_marked_when_it_comes_again() {
    let dir = tempfile::tempdir().unwrap();
    {
        let mut journal = Journal::open(dir.path(), BOOT).unwrap();
        journal.meet(Worker(0), &past());
        journal.appended(&appended(1));
        drop(journal.dwell(Worker(0), Seq(1), 4));
    }
    let mut journal = Journal::open(dir.path(), BOOT).unwrap();
    let known = journal.past(&past().identity).unwrap();
    assert!(!known.told.contains(4) && known.open.contains_key(&Seq(1)));
    journal.meet(Worker(5), &known);
    let telling = journal.dwell(Worker(5), Seq(1), 4).unwrap();
    assert!(telling.maybe_repeated);
    journal.told(telling);
    assert!(!journal.verdict(&Verdict { worker: Worker(5), ..verdict(1) }).unwrap().maybe_repeated);
}

#[test]
fn a_journal_cut_at_any_byte_loses_its_last_line_only() {
    let whole = tempfile::tempdir().unwrap();
    life(whole.path());
    let text = fs::read(whole.path().join("journal")).unwrap();
    for len in 0..text.len() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("journal"), &text[..len]).unwrap();
        let journal = Journal::open(dir.path(), BOOT).unwrap();
        let lines = String::from_utf8_lossy(&text[..len]).matches('\n').count();
        // Line 1 is the worker, 2 and 3 the appends, 7 the end of the first room.
        let known = journal.past(&past().identity);
        let open = known.as_ref().map_or(0, |past| past.open.len());
        let full = len < text.len() && text[len] == b'\n';
        let lines = lines + usize::from(full);
        assert_eq!(known.is_some(), lines >= 1, "{len} bytes");
        let expected = [0, 0, 1, 2, 2, 2, 2, 1][lines.min(7)];
        assert_eq!(open, expected, "{len} bytes, {lines} lines");
    }
}

#[test]
fn what_was_given_up_is_not_looked_for_again() {
    let dir = tempfile::tempdir().unwrap();
    life(dir.path());
    {
        let mut journal = Journal::open(dir.path(), BOOT).unwrap();
        let known = journal.past(&past().identity).unwrap();
        journal.meet(Worker(0), &known);
        journal.give_up(Worker(0), 9);
    }
    let known = Journal::open(dir.path(), BOOT).unwrap().past(&past().identity).unwrap();
    assert_eq!(known.told, Removals::through(9));
}

#[test]
fn an_ended_worker_and_another_boot_are_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    life(dir.path());
    assert!(Journal::open(dir.path(), "another").unwrap().strangers().is_empty());
    life(dir.path());
    {
        let mut journal = Journal::open(dir.path(), BOOT).unwrap();
        let known = journal.past(&past().identity).unwrap();
        journal.meet(Worker(0), &known);
        journal.end(Worker(0), Nanos(5));
    }
    for _ in 0..2 {
        let journal = Journal::open(dir.path(), BOOT).unwrap();
        assert!(journal.strangers().is_empty());
        let gone: Vec<&Gone> = journal.gone().collect();
        assert_eq!((gone.len(), gone[0].at, &gone[0].names), (1, 5, &past().names));
    }
    assert_eq!(Journal::open(dir.path(), "another").unwrap().gone().count(), 0);
}

#[test]
fn one_agent_holds_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::open(dir.path(), BOOT).unwrap();
    let second = Journal::open(dir.path(), BOOT).unwrap_err();
    let own = Some(std::process::id());
    assert!(matches!(second, JournalError::Busy(pid) if pid == own), "{second}");
    drop(journal);
    Journal::open(dir.path(), BOOT).unwrap();
}

#[test]
fn the_journal_stays_small() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(dir.path(), BOOT).unwrap();
    journal.meet(Worker(0), &past());
    for seq in 4..20_000 {
        journal.appended(&appended(seq));
        let telling = journal.dwell(Worker(0), Seq(seq), seq).unwrap();
        journal.told(telling);
    }
    let size = fs::metadata(dir.path().join("journal")).unwrap().len();
    assert!(size < 2 * LARGE, "{size} bytes");
    assert_eq!(journal.state.entries().len(), 1);
}

#[test]
fn what_a_full_disk_did_not_take_is_written_once_there_is_room_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(dir.path(), BOOT).unwrap();
    journal.meet(Worker(0), &past());
    journal.appended(&appended(1));
    journal.appended(&appended(2));
    // Every write fails as on a full disk, and a new file cannot be made either.
    journal.file = Some(OpenOptions::new().append(true).open("/dev/full").unwrap());
    let new = dir.path().join("journal.new");
    fs::create_dir(&new).unwrap();
    let telling = journal.verdict(&verdict(1)).unwrap();
    journal.told(telling);
    let begun = journal.verdict(&verdict(2)).unwrap();
    assert!(!begun.maybe_repeated);
    let failed_at = journal.failed_at.unwrap();
    journal.mend(failed_at.plus(MEND_EVERY));
    assert_eq!(journal.failed_at, Some(failed_at.plus(MEND_EVERY)));
    fs::remove_dir(&new).unwrap();
    journal.mend(failed_at.plus(MEND_EVERY));
    assert!(journal.failed_at.is_some(), "it is not tried all the time");
    journal.mend(failed_at.plus(Nanos(2 * MEND_EVERY.0)));
    assert_eq!(journal.failed_at, None);
    // From here it goes on as ever.
    journal.appended(&appended(3));
    drop(journal);
    let mut journal = Journal::open(dir.path(), BOOT).unwrap();
    let known = journal.past(&past().identity).unwrap();
    assert_eq!(known.open.keys().copied().collect::<Vec<_>>(), [Seq(1), Seq(2), Seq(3)]);
    assert_eq!(known.standing.keys().copied().collect::<Vec<_>>(), [Seq(1)]);
    journal.meet(Worker(0), &known);
    assert!(journal.verdict(&verdict(2)).unwrap().maybe_repeated);
}

#[test]
fn what_was_removed_under_a_living_agent_is_made_again_whole() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let mut journal = Journal::open(&state, BOOT).unwrap();
    journal.meet(Worker(0), &past());
    let mut now = Nanos::from_secs(1000);
    let mut look = |journal: &mut Journal| {
        now = now.plus(Nanos::from_secs(1));
        journal.mend(now)
    };
    assert!(!look(&mut journal));
    for (seq, gone) in [(1, "journal"), (2, "lock"), (3, "")] {
        journal.appended(&appended(seq));
        if gone.is_empty() {
            fs::remove_dir_all(&state).unwrap();
        } else {
            fs::remove_file(state.join(gone)).unwrap();
        }
        assert!(look(&mut journal), "{gone} is missed");
        assert!(!look(&mut journal), "{gone} is there again");
        assert_eq!(journal.problem(), None);
        let second = Journal::open(&state, BOOT).unwrap_err();
        assert!(matches!(second, JournalError::Busy(_)), "{second}");
    }
    journal.appended(&appended(4));
    drop(journal);
    let known = Journal::open(&state, BOOT).unwrap().past(&past().identity).unwrap();
    assert_eq!(known.open.len(), 4);
}

#[test]
fn a_directory_that_another_agent_has_taken_is_left_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let mut journal = Journal::open(&state, BOOT).unwrap();
    let holds = journal.holds();
    fs::remove_dir_all(&state).unwrap();
    let other = Journal::open(&state, BOOT).unwrap();
    assert!(journal.mend(Nanos::from_secs(1000)));
    assert!(journal.problem().unwrap().contains("another agent"), "{:?}", journal.problem());
    assert!(!holds.load(std::sync::atomic::Ordering::Relaxed));
    drop(other);
    journal.mend(Nanos::from_secs(1002));
    assert_eq!(journal.problem(), None);
    assert!(holds.load(std::sync::atomic::Ordering::Relaxed));
}
