use inflightd_core::fact::{Append, Peer, Room, Seq};
use inflightd_core::{Event, Fact};

use super::*;

const WORKER: Worker = Worker(1);

const fn at(secs: u64) -> Nanos {
    Nanos::from_secs(secs)
}

/// A ledger and what was seen of it so far.
struct World {
    ledger: Ledger,
    glances: Glances,
}

impl World {
    fn new() -> Self {
        let mut world = Self { ledger: Ledger::new(Policy::DEFAULT), glances: Glances::default() };
        world.glances.meet(WORKER, at(0));
        world.tell(0, Fact::Found);
        world
    }

    fn tell(&mut self, secs: u64, fact: Fact) {
        self.ledger.observe(&Event { at: at(secs), worker: WORKER, fact });
        while let Some(output) = self.ledger.poll() {
            self.glances.take(&output);
        }
    }

    fn append(&mut self, secs: u64, seq: u64) {
        self.tell(
            secs,
            Fact::Append(Append {
                seq: Seq(seq),
                room: Room(seq),
                expected: 10,
                peers: vec![Peer(1)],
                peers_whole: true,
                late: false,
                patient: false,
            }),
        );
    }

    fn told(&mut self, secs: u64, seq: u64, finding: Finding, cause: Cause) {
        self.tell(secs, Fact::Told(Seq(seq), finding, cause));
    }

    fn frozen(&mut self, secs: u64, seq: u64) {
        self.told(secs, seq, Finding::StoppedMidway, Cause::PeerFrozen);
    }

    fn look(&mut self, secs: u64) -> Glance {
        self.glances.look(&self.ledger, WORKER, at(secs)).unwrap()
    }

    fn wedged(&mut self, secs: u64) -> Option<(&'static str, Nanos)> {
        self.look(secs).wedged.map(|wedged| (wedged.why.name(), wedged.since))
    }
}

#[test]
fn rooms_are_counted_by_what_stands_about_them() {
    let mut world = World::new();
    for seq in 1..=5 {
        world.append(seq, seq);
    }
    world.tell(6, Fact::Beat);
    world.frozen(35, 1);
    world.frozen(35, 2);
    world.told(35, 3, Finding::Blind, Cause::Unknown);
    world.told(35, 4, Finding::NeverStarted, Cause::QueuedBehind);
    let glance = world.look(40);
    assert_eq!((glance.open, glance.suspects, glance.blind), (5, 5, 1));
    let stalled: Vec<_> = glance.stalled.into_iter().collect();
    assert_eq!(stalled, [((Finding::StoppedMidway, Cause::PeerFrozen), 2)]);
    assert_eq!((glance.oldest_dwell, glance.oldest_still), (at(39), at(39)));
    assert_eq!(glance.beat_age, Some(at(34)));
    assert_eq!(glance.coverage.len(), Source::ALL.len());
}

#[test]
fn an_idle_worker_is_not_wedged() {
    let mut world = World::new();
    let glance = world.look(1000);
    assert_eq!((glance.open, glance.oldest_dwell, glance.beat_age), (0, Nanos::ZERO, None));
    assert_eq!(glance.wedged, None);
}

#[test]
fn one_frozen_peer_among_healthy_ones_wedges_nobody() {
    let mut world = World::new();
    world.append(1, 1);
    world.append(1, 2);
    world.frozen(31, 1);
    world.frozen(31, 2);
    for second in 31..120 {
        world.append(second, second);
        world.tell(second, Fact::Remove(Seq(second), Outcome::Success));
        assert_eq!(world.wedged(second), None, "others get through");
    }
}

#[test]
fn a_single_stuck_room_says_nothing_about_others() {
    let mut world = World::new();
    world.append(1, 1);
    world.frozen(31, 1);
    assert_eq!(world.wedged(500), None);
}

#[test]
fn rooms_that_all_are_stuck_wedge_the_worker_until_one_gets_through() {
    let mut world = World::new();
    world.append(10, 1);
    world.append(20, 2);
    world.append(21, 3);
    world.tell(25, Fact::Remove(Seq(3), Outcome::Success));
    world.frozen(40, 1);
    assert_eq!(world.wedged(45), None, "one of them has time left");
    world.told(50, 2, Finding::NeverStarted, Cause::QueuedBehind);
    assert_eq!(world.wedged(54), None, "a room got through less than `stall` ago");
    assert_eq!(world.wedged(55), Some(("nothing_completes", at(55))));
    world.append(56, 4);
    assert_eq!(world.wedged(60), Some(("nothing_completes", at(55))), "a newcomer proves nothing");
    assert_eq!(world.wedged(90), None, "an old room that nothing is said of is not stuck");
    world.told(91, 4, Finding::NeverStarted, Cause::QueuedBehind);
    assert_eq!(world.wedged(92), Some(("nothing_completes", at(92))));
    world.tell(93, Fact::Done(Seq(4), 10, true));
    assert_eq!(world.wedged(94), None, "payload moved");
}

#[test]
fn a_room_that_fails_is_no_success() {
    let mut world = World::new();
    for seq in 1..=3 {
        world.append(1, seq);
        world.frozen(31, seq);
    }
    world.tell(40, Fact::Remove(Seq(3), Outcome::Failed));
    assert_eq!(world.wedged(41), Some(("nothing_completes", at(41))));
}

#[test]
fn a_worker_that_does_not_work_itself_is_wedged_at_once() {
    for cause in [Cause::SchedulerWedged, Cause::WorkerThreadDead] {
        let mut world = World::new();
        world.append(1, 1);
        world.told(3, 1, Finding::StoppedMidway, cause);
        assert_eq!(world.wedged(4), Some((cause.name(), at(3))));
        world.tell(5, Fact::Remove(Seq(1), Outcome::Aborted));
        assert_eq!(world.wedged(6), None);
    }
}

#[test]
fn a_worker_that_is_gone_is_not_looked_at() {
    let mut world = World::new();
    world.glances.end(WORKER);
    assert_eq!(world.glances.look(&world.ledger, WORKER, at(1)), None);
}
