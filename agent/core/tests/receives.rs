//! Rooms that a worker receives, and what they say of their senders'.

use inflightd_core::fact::{Append, Counts, Outcome, Peer, Phase, Room, Seq, Worker};
use inflightd_core::view::WorkerView;
use inflightd_core::{Cause, Event, Fact, Finding, Ledger, Nanos, Output, Policy, Sight, Source};

const WORKER: Worker = Worker(1);

/// The entry of room 7.
fn append(seq: Seq) -> Append {
    Append {
        seq,
        room: Room(7),
        expected: 0,
        peers: vec![Peer(0)],
        peers_whole: true,
        late: false,
        patient: false,
    }
}

/// What is said of a room that waits for its bytes for ten minutes, by a worker that sends or one
/// that receives.
fn told(receives: bool) -> Vec<Output> {
    let mut ledger = Ledger::new(Policy::DEFAULT);
    let say = |ledger: &mut Ledger, at: u64, fact: Fact| {
        ledger.observe(&Event { at: Nanos::from_secs(at), worker: WORKER, fact });
    };
    say(&mut ledger, 1, Fact::Found);
    for source in Source::ALL {
        say(&mut ledger, 1, Fact::Cover(source, Sight::Visible));
    }
    if receives {
        say(&mut ledger, 1, Fact::Receives);
    }
    let seq = Seq(1 << 14);
    say(&mut ledger, 2, Fact::Append(append(seq)));
    let counts = Counts { phase: Phase::Prealloc, ..Counts::default() };
    say(&mut ledger, 3, Fact::Entry(seq, counts));
    for at in 3..600 {
        say(&mut ledger, at, Fact::Beat);
        say(&mut ledger, at, Fact::Read);
        ledger.tick(Nanos::from_secs(at));
    }
    assert!(!ledger.has_suspects(WORKER) || !receives);
    let judged = |view: WorkerView<'_>| view.rooms().map(|room| room.judged).collect::<Vec<_>>();
    assert_eq!(ledger.view(WORKER).map(judged), Some(vec![!receives]));
    std::iter::from_fn(|| ledger.poll()).collect()
}

#[test]
fn a_room_that_is_received_gets_no_verdict() {
    assert_eq!(alerts(&told(true)), 0);
    assert_eq!(alerts(&told(false)), 1);
}

const FAR: Worker = Worker(77);

fn alerts(outputs: &[Output]) -> usize {
    let is_alert = |output: &&Output| matches!(output, Output::Verdict(told) if told.is_alert());
    outputs.iter().filter(is_alert).count()
}

/// A pair on one node. The sender's room 7 enters at second 2, in the phase that it says; the
/// receiver's facts come in between.
struct Pair(Ledger);

impl Pair {
    fn new(phase: Phase) -> Self {
        let mut pair = Self(Ledger::new(Policy::DEFAULT));
        for worker in [WORKER, FAR] {
            pair.say(1, worker, Fact::Found);
            for source in Source::ALL {
                pair.say(1, worker, Fact::Cover(source, Sight::Visible));
            }
        }
        pair.say(1, FAR, Fact::Receives);
        pair.append(2, WORKER, 1);
        pair.say(2, WORKER, Fact::Phase(Seq(1 << 14), phase));
        pair
    }

    fn say(&mut self, at: u64, worker: Worker, fact: Fact) {
        self.0.observe(&Event { at: Nanos::from_secs(at), worker, fact });
    }

    fn append(&mut self, at: u64, worker: Worker, seq: u64) {
        self.say(at, worker, Fact::Append(append(Seq(seq << 14))));
    }

    /// What is told until `end`, with the second of each verdict.
    fn until(&mut self, from: u64, end: u64) -> Vec<(u64, Finding, Cause, bool)> {
        for at in from..end {
            self.say(at, WORKER, Fact::Beat);
            self.say(at, WORKER, Fact::Read);
            self.0.tick(Nanos::from_secs(at));
        }
        let outputs = std::iter::from_fn(|| self.0.poll()).collect::<Vec<_>>();
        let verdicts = outputs.iter().filter_map(|output| match output {
            Output::Verdict(verdict) => Some(verdict),
            _ => None,
        });
        let told = |v: &inflightd_core::verdict::Verdict| {
            (v.at.0 / 1_000_000_000, v.finding, v.cause, v.is_alert())
        };
        verdicts.map(told).collect()
    }
}

#[test]
fn a_parked_room_waits_for_the_memory_of_its_receiver_and_nobody_is_alarmed() {
    let mut pair = Pair::new(Phase::Parked);
    pair.append(3, FAR, 5);
    pair.say(3, FAR, Fact::Phase(Seq(5 << 14), Phase::Prealloc));
    let backlogged = (32, Finding::NeverStarted, Cause::DecodeBacklogged, false);
    assert_eq!(pair.until(4, 50), [backlogged]);
    // It gets memory, and still no answer comes.
    pair.say(50, FAR, Fact::Phase(Seq(5 << 14), Phase::Transferring));
    let told = pair.until(50, 90);
    let missing = (Finding::NeverStarted, Cause::HandshakeMissing, true);
    assert_eq!(told.iter().map(|t| (t.1, t.2, t.3)).collect::<Vec<_>>(), [missing]);
}

#[test]
fn a_parked_room_that_its_receiver_has_given_up_is_an_orphan() {
    let mut pair = Pair::new(Phase::Parked);
    pair.append(3, FAR, 5);
    pair.say(10, FAR, Fact::Remove(Seq(5 << 14), Outcome::Aborted));
    assert_eq!(pair.until(11, 40), [(32, Finding::NeverStarted, Cause::Orphaned, true)]);
}

#[test]
fn what_was_received_or_is_received_anew_is_not_given_up() {
    for last in [Outcome::Success, Outcome::Failed] {
        let mut pair = Pair::new(Phase::Parked);
        pair.append(3, FAR, 5);
        pair.say(10, FAR, Fact::Remove(Seq(5 << 14), last));
        if last == Outcome::Failed {
            pair.append(11, FAR, 6);
        }
        let missing = (32, Finding::NeverStarted, Cause::HandshakeMissing, true);
        assert_eq!(pair.until(12, 40), [missing]);
    }
}

#[test]
fn a_receiver_that_has_ended_says_nothing() {
    let mut pair = Pair::new(Phase::Parked);
    pair.append(3, FAR, 5);
    pair.say(10, FAR, Fact::Remove(Seq(5 << 14), Outcome::Failed));
    pair.say(11, FAR, Fact::Ended);
    assert_eq!(pair.until(12, 40)[0].2, Cause::HandshakeMissing);
}
