//! Failing a room on two ranks, in every order of every step: agent, the threads that poll the queues,
//! the threads that transfer, and time. The words are changed by the real functions.
//!
//! Every step is one access to what others see, so that what stands between two steps may be cut off
//! there for ever (the agent dies, a rank stands still) or for as long as one likes.

#![expect(clippy::indexing_slicing, reason = "there are two ranks, 0 and 1")]

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use super::*;

/// Milliseconds of a tick: the margin, so that half of it is a clock that is off by less.
const TICK: u64 = MARGIN_MS;
const TICKS: u64 = 3;
/// A fail is valid for so many ticks.
const VALID: u64 = 1;
const SEQ: Seq = Seq::new(1, 0);
const OTHER_STAY: Seq = Seq::new(2, 0);

/// A rule that is broken, to see that the model would find it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// The clocks of the ranks differ by more than the margin.
    Clocks,
    /// The fail is carried out on a thread of its own, at any moment.
    OwnThread,
    /// A hold ends by the clock alone, without a poll.
    Timer,
    /// The agent commits without looking whether somebody works for the room.
    Unproven,
    /// The agent releases one rank after it has committed on the other.
    LateRelease,
}

/// The thread that polls the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Poll {
    Idle,
    /// Began at this time.
    Begun(u64),
    /// And has read the clock for the fail.
    Timed(u64, u64),
    /// In the reduction, with what it says: failed or not.
    Reducing(u64, bool),
    /// Out of it, with what all say together.
    Reduced(u64, bool),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Rank {
    word: u64,
    poll: Poll,
    /// It has failed the room.
    failed: bool,
    /// The room has left its queue.
    gone: bool,
    /// Its transfer thread works for the room.
    working: bool,
}

/// The agent's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Agent {
    Hold(usize),
    /// It looks whether anybody works for the room on this rank. What it sees idle under a hold
    /// stays so.
    Prove(usize),
    /// It looks whether the fail would still be in time, then commits.
    Look,
    Commit(usize),
    Release(usize),
    Done,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    time: u64,
    ranks: [Rank; 2],
    agent: Agent,
    until: Until,
    /// What this agent holds: it releases no other's hold, which may go by the same moment.
    held: [bool; 2],
    /// An agent that died may be started again once.
    lives: u8,
}

/// Runs one of the gate's functions on a word.
fn on<T>(word: &mut u64, act: impl FnOnce(&AtomicU64) -> T) -> T {
    let shared = AtomicU64::new(*word);
    let given = act(&shared);
    *word = shared.into_inner();
    given
}

impl World {
    fn new(working: [bool; 2]) -> Self {
        let rank = |working: bool| {
            let mut rank = Rank {
                word: Command::fresh(SEQ),
                poll: Poll::Idle,
                failed: false,
                gone: false,
                working: false,
            };
            if working {
                rank.work();
            }
            rank
        };
        Self {
            time: 1,
            ranks: working.map(rank),
            agent: Agent::Hold(0),
            until: Until::after(nanos(TICK), VALID * TICK),
            held: [false; 2],
            lives: 1,
        }
    }

    /// What must never be: somebody works for a room that a rank has failed.
    fn is_corrupt(&self) -> bool {
        self.ranks.iter().any(|rank| rank.failed) && self.ranks.iter().any(|rank| rank.working)
    }

    fn now(&self, rank: usize, broken: Broken) -> u64 {
        // The second rank's clock is behind.
        let off = match (rank, broken) {
            (0, _) => 0,
            (_, Broken::Clocks) => 2 * TICK,
            _ => TICK / 2,
        };
        nanos((self.time + 4) * TICK - off)
    }

    fn agent_now(&self) -> u64 {
        nanos((self.time + 4) * TICK)
    }

    /// Every world that one step leads to.
    fn next(&self, broken: Broken) -> Vec<Self> {
        let mut next = Vec::new();
        let mut add = |change: &dyn Fn(&mut Self) -> bool| {
            let mut world = self.clone();
            if change(&mut world) && world != *self {
                next.push(world);
            }
        };
        add(&|world| {
            world.time += 1;
            world.time <= TICKS
        });
        add(&Self::restart);
        add(&|world| world.act(broken));
        add(&Self::reduce);
        for rank in [0, 1] {
            add(&|world| world.poll(rank, broken));
            add(&|world| world.ranks[rank].work());
            add(&|world| world.ranks[rank].rest());
            if broken == Broken::OwnThread {
                add(&|world| world.carry_out(rank, world.now(rank, broken)));
            }
            if broken == Broken::Timer {
                let now = self.now(rank, broken);
                add(&|world| on(&mut world.ranks[rank].word, |word| polled(word, SEQ, now)));
            }
        }
        next
    }

    /// The agent dies wherever it is, and another begins anew. It leaves what its predecessor holds.
    fn restart(&mut self) -> bool {
        if self.lives == 0 || self.agent == Agent::Hold(0) {
            return false;
        }
        self.lives -= 1;
        self.agent = Agent::Hold(0);
        self.held = [false; 2];
        true
    }

    fn act(&mut self, broken: Broken) -> bool {
        self.agent = match self.agent {
            Agent::Hold(rank) => {
                if rank == 0 {
                    self.until = Until::after(self.agent_now(), VALID * TICK);
                }
                let until = self.until;
                self.held[rank] =
                    on(&mut self.ranks[rank].word, |word| hold(word, SEQ, until)).is_some();
                match (self.held[rank], rank) {
                    (true, 0) => Agent::Hold(1),
                    (true, _) => Agent::Prove(0),
                    (false, _) => Agent::Release(0),
                }
            }
            Agent::Prove(rank) => {
                let idle = Command::decode(self.ranks[rank].word).active == 0;
                match (idle || broken == Broken::Unproven, rank) {
                    (true, 0) => Agent::Prove(1),
                    (true, _) => Agent::Look,
                    (false, _) => Agent::Release(0),
                }
            }
            Agent::Look if self.until.is_over(self.agent_now(), 0) => Agent::Release(0),
            Agent::Look => Agent::Commit(0),
            Agent::Commit(rank) => match (self.commit(rank, broken), rank) {
                (true, 0) if broken == Broken::LateRelease => Agent::Release(1),
                (true, 0) => Agent::Commit(1),
                (false, 0) => Agent::Release(0),
                // One is committed: the hold on the other must stay until it is over.
                _ => Agent::Done,
            },
            Agent::Release(rank) => {
                let until = self.until;
                if self.held[rank] {
                    on(&mut self.ranks[rank].word, |word| release(word, SEQ, until));
                }
                if rank == 0 { Agent::Release(1) } else { Agent::Done }
            }
            Agent::Done => return false,
        };
        true
    }

    fn commit(&mut self, rank: usize, broken: Broken) -> bool {
        let until = self.until;
        let idle = broken != Broken::Unproven;
        on(&mut self.ranks[rank].word, |word| turn(word, SEQ, until, (HELD, COMMITTED), idle))
    }

    fn carry_out(&mut self, rank: usize, now: u64) -> bool {
        let rank = &mut self.ranks[rank];
        let failed = !rank.gone && on(&mut rank.word, |word| carry_out(word, SEQ, now));
        rank.failed |= failed;
        failed
    }

    /// One step of a rank's poll.
    fn poll(&mut self, index: usize, broken: Broken) -> bool {
        let now = self.now(index, broken);
        self.ranks[index].poll = match self.ranks[index].poll {
            Poll::Idle => Poll::Begun(now),
            Poll::Begun(begun) => Poll::Timed(begun, now),
            Poll::Timed(begun, read) => {
                if broken != Broken::OwnThread {
                    self.carry_out(index, read);
                }
                Poll::Reducing(begun, self.ranks[index].failed)
            }
            Poll::Reducing(..) => return false,
            Poll::Reduced(begun, failed) => {
                self.ranks[index].hear(begun, failed);
                Poll::Idle
            }
        };
        true
    }

    /// Both ranks are in the reduction: each learns what either said.
    fn reduce(&mut self) -> bool {
        let [Poll::Reducing(first, one), Poll::Reducing(second, other)] =
            self.ranks.map(|rank| rank.poll)
        else {
            return false;
        };
        self.ranks[0].poll = Poll::Reduced(first, one || other);
        self.ranks[1].poll = Poll::Reduced(second, one || other);
        true
    }

    /// Whether no hold is left once all that live have polled twice, after the last moment.
    fn comes_free(&self) -> bool {
        let mut world = self.clone();
        world.time = TICKS + VALID + 2;
        for _ in 0..12 {
            for rank in [0, 1] {
                world.poll(rank, Broken::Nothing);
            }
            world.reduce();
        }
        world
            .ranks
            .iter()
            .all(|rank| rank.gone || Command::decode(rank.word).state == CommandState::Open)
    }
}

impl Rank {
    fn work(&mut self) -> bool {
        self.working = !self.gone
            && !self.working
            && on(&mut self.word, |word| enter(word, SEQ)) == Gate::Entered;
        self.working
    }

    fn rest(&mut self) -> bool {
        let worked = std::mem::replace(&mut self.working, false);
        if worked {
            on(&mut self.word, |word| leave(word, SEQ));
        }
        worked
    }

    /// What all ranks say together: the room has failed and leaves, or it stays.
    fn hear(&mut self, begun: u64, failed: bool) {
        if failed {
            self.gone = true;
            self.word = Command::fresh(OTHER_STAY);
        } else if !self.gone {
            on(&mut self.word, |word| polled(word, SEQ, begun));
        }
    }
}

const fn nanos(ms: u64) -> u64 {
    ms * NANOS_PER_MS
}

/// Goes through every world that can be reached: how many there are, and the way to a corrupt one.
fn explore(broken: Broken, mut each: impl FnMut(&World)) -> (usize, Option<Vec<World>>) {
    let starts = [[false, false], [true, false], [false, true], [true, true]].map(World::new);
    let mut from: HashMap<World, Option<World>> = starts.clone().map(|world| (world, None)).into();
    let mut queue: VecDeque<World> = starts.into();
    while let Some(world) = queue.pop_front() {
        if world.is_corrupt() {
            let way = std::iter::successors(Some(&world), |world| from.get(*world)?.as_ref());
            return (from.len(), Some(way.cloned().collect()));
        }
        each(&world);
        for next in world.next(broken) {
            if let Entry::Vacant(place) = from.entry(next.clone()) {
                place.insert(Some(world.clone()));
                queue.push_back(next);
            }
        }
    }
    (from.len(), None)
}

/// A way in words, the first world first.
fn told(way: &[World]) -> String {
    let rank_told = |rank: &Rank| {
        let Command { state, active, until, .. } = Command::decode(rank.word);
        format!(
            "{state:?} {active} {} {:?} failed={} gone={}",
            until.0, rank.poll, rank.failed, rank.gone
        )
    };
    let world = |world: &World| {
        let [first, second] = &world.ranks;
        format!(
            "t={} {:?} until={} | {} | {}",
            world.time,
            world.agent,
            world.until.0,
            rank_told(first),
            rank_told(second)
        )
    };
    way.iter().rev().map(world).collect::<Vec<_>>().join("\n")
}

#[test]
fn no_rank_works_for_a_room_that_another_has_failed_and_no_hold_stays() {
    let mut failed = 0;
    let (worlds, corrupt) = explore(Broken::Nothing, |world| {
        failed += usize::from(world.ranks.iter().any(|rank| rank.failed));
        assert!(world.comes_free(), "a hold stays");
    });
    println!("{worlds} worlds, in {failed} of them a rank has failed the room");
    assert!(corrupt.is_none(), "{}", told(&corrupt.unwrap()));
    assert!(failed > 1000 && worlds > 100_000, "{failed} of {worlds}: too little was gone through");
}

#[test]
fn each_rule_is_needed() {
    for broken in
        [Broken::Clocks, Broken::OwnThread, Broken::Timer, Broken::Unproven, Broken::LateRelease]
    {
        let (worlds, corrupt) = explore(broken, |_| {});
        assert!(corrupt.is_some(), "{worlds} worlds without a corrupt one");
    }
}
