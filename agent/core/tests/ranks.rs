//! Ranks that decide together when a room leaves: one is done, another is stuck.

use inflightd_core::evidence::EvidenceId;
use inflightd_core::fact::{Append, Life, Outcome, Peer, Phase, Room, Seq, Worker};
use inflightd_core::verdict::{ClearReason, Verdict};
use inflightd_core::{Cause, Event, Fact, Finding, Ledger, Nanos, Output, Policy, Sight, Source};

const DONE: Worker = Worker(1);
const STUCK: Worker = Worker(2);
const BYTES: u64 = 1000;

/// A room's stay at each rank: sequences differ.
const fn seq(worker: Worker, stay: u64) -> Seq {
    Seq(stay * 7 + worker.0 as u64)
}

/// Two ranks of one engine, each with a peer of its own.
struct Ranks(Ledger);

impl Ranks {
    fn new() -> Self {
        let mut ranks = Self(Ledger::new(Policy::DEFAULT));
        for worker in [DONE, STUCK] {
            ranks.found(worker);
        }
        ranks
    }

    fn found(&mut self, worker: Worker) {
        self.say(1, worker, Fact::Found);
        for source in Source::ALL {
            self.say(1, worker, Fact::Cover(source, Sight::Visible));
        }
        self.say(1, worker, Fact::Life(Peer(worker.0), Life::Running));
    }

    fn say(&mut self, at: u64, worker: Worker, fact: Fact) {
        self.0.observe(&Event { at: Nanos::from_secs(at), worker, fact });
    }

    /// The room enters the queue of a rank and is posted.
    fn enters(&mut self, at: u64, worker: Worker, stay: u64, room: u64) {
        let append = Append {
            seq: seq(worker, stay),
            room: Room(room),
            expected: BYTES,
            peers: vec![Peer(worker.0)],
            peers_whole: true,
            late: false,
            patient: false,
        };
        self.say(at, worker, Fact::Append(append));
        self.say(at, worker, Fact::Post(seq(worker, stay), BYTES));
    }

    /// All bytes of a rank are there, and it says so.
    fn is_done(&mut self, at: u64, worker: Worker, stay: u64) {
        self.say(at, worker, Fact::Done(seq(worker, stay), BYTES, true));
        self.say(at, worker, Fact::Phase(seq(worker, stay), Phase::DoneHere));
    }

    /// Time passes; what is told in it.
    fn until(&mut self, from: u64, end: u64) -> Vec<Output> {
        for at in from..end {
            for worker in [DONE, STUCK] {
                self.say(at, worker, Fact::Beat);
                self.say(at, worker, Fact::Read);
            }
            self.0.tick(Nanos::from_secs(at));
        }
        std::iter::from_fn(|| self.0.poll()).collect()
    }
}

fn verdicts(outputs: &[Output]) -> Vec<&Verdict> {
    let mut verdicts = Vec::new();
    for output in outputs {
        if let Output::Verdict(verdict) = output {
            verdicts.push(verdict);
        }
    }
    verdicts
}

/// The workers that a verdict names as not done.
fn named(verdict: &Verdict) -> Vec<Worker> {
    let waits = verdict.evidence.iter().filter(|e| e.id == EvidenceId::OtherRankWaits);
    waits.filter_map(|e| e.worker).collect()
}

#[test]
fn the_done_rank_names_the_stuck_one_which_has_a_cause_of_its_own() {
    let mut ranks = Ranks::new();
    for worker in [DONE, STUCK] {
        ranks.enters(2, worker, 1, 50);
    }
    ranks.is_done(3, DONE, 1);
    ranks.say(3, STUCK, Fact::Life(Peer(STUCK.0), Life::Stopped));
    let told = ranks.until(3, 50);
    let told: Vec<_> =
        verdicts(&told).iter().map(|v| (v.worker, v.finding, v.cause, named(v))).collect();
    let frozen = (STUCK, Finding::NeverStarted, Cause::PeerFrozen, vec![]);
    let remote = (DONE, Finding::CompletedNotReaped, Cause::RemoteRank, vec![STUCK]);
    assert_eq!(told, [frozen, remote]);
}

#[test]
fn nobody_is_named_who_is_done_or_does_not_have_the_room_or_receives_it() {
    let (receiver, idle) = (Worker(3), Worker(4));
    let mut ranks = Ranks::new();
    ranks.found(receiver);
    ranks.say(1, receiver, Fact::Receives);
    ranks.found(idle);
    for worker in [DONE, STUCK, receiver] {
        ranks.enters(2, worker, 1, 50);
    }
    ranks.enters(2, idle, 1, 51);
    ranks.is_done(3, DONE, 1);
    ranks.is_done(3, STUCK, 1);
    ranks.say(4, idle, Fact::Remove(seq(idle, 1), Outcome::Success));
    let told = ranks.until(4, 50);
    let told: Vec<_> = verdicts(&told).iter().map(|v| (v.worker, v.cause, named(v))).collect();
    assert_eq!(told, [(DONE, Cause::RemoteRank, vec![]), (STUCK, Cause::RemoteRank, vec![])]);
}

#[test]
fn a_room_that_left_and_came_again_is_looked_up_by_its_last_stay() {
    let mut ranks = Ranks::new();
    for worker in [DONE, STUCK] {
        ranks.enters(2, worker, 1, 50);
    }
    ranks.is_done(3, DONE, 1);
    ranks.say(3, STUCK, Fact::Life(Peer(STUCK.0), Life::Stopped));
    assert_eq!(verdicts(&ranks.until(3, 40)).len(), 2, "the rooms are looked up from now on");
    ranks.say(40, STUCK, Fact::Remove(seq(STUCK, 1), Outcome::Aborted));
    ranks.say(40, DONE, Fact::Remove(seq(DONE, 1), Outcome::Aborted));
    for (worker, stay) in [(DONE, 2), (STUCK, 2)] {
        ranks.enters(41, worker, stay, 50);
    }
    ranks.is_done(42, DONE, 2);
    ranks.until(41, 42);
    let told = ranks.until(42, 90);
    let remote = verdicts(&told).into_iter().find(|v| v.worker == DONE).map(named);
    assert_eq!(remote, Some(vec![STUCK]));
}

#[test]
fn a_rank_that_waits_for_one_that_moves_is_not_told_and_taken_back_when_it_moves_again() {
    let mut ranks = Ranks::new();
    for worker in [DONE, STUCK] {
        ranks.enters(2, worker, 1, 50);
        ranks.say(2, worker, Fact::Post(seq(worker, 1), BYTES));
    }
    ranks.say(3, DONE, Fact::Done(seq(DONE, 1), BYTES, true));
    ranks.is_done(3, DONE, 1);
    let mut told = ranks.until(3, 20);
    ranks.say(20, STUCK, Fact::Done(seq(STUCK, 1), BYTES / 2, true));
    told.extend(ranks.until(20, 50));
    assert_eq!(verdicts(&told), [] as [&Verdict; 0], "30 s from the last byte of the other");
    ranks.say(49, STUCK, Fact::Life(Peer(STUCK.0), Life::Stopped));
    let told = ranks.until(50, 60);
    let at: Vec<_> = verdicts(&told).iter().map(|v| (v.worker, v.at)).collect();
    let due = Nanos::from_secs(50);
    assert_eq!(at, [(DONE, due), (STUCK, due)]);
    ranks.say(60, STUCK, Fact::Done(seq(STUCK, 1), BYTES / 4, true));
    let clear = |output| match output {
        Output::Clear(clear) => Some((clear.worker, clear.cause, clear.why)),
        _ => None,
    };
    let clears: Vec<_> = ranks.until(60, 63).into_iter().filter_map(clear).collect();
    let expected = [(STUCK, Cause::PeerFrozen), (DONE, Cause::RemoteRank)];
    for (worker, cause) in expected {
        assert!(clears.contains(&(worker, cause, ClearReason::Progress)), "{clears:?}");
    }
}
