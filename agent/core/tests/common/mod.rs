//! A small world: rooms that enter, move bytes and leave, and the facts that an agent would see
//! of them, with the source that each came by, so that a test can take a source away.

use inflightd_core::coverage::{Sight, Source};
use inflightd_core::fact::{
    Append, Counts, Handle, Life, Meter, Outcome, Peer, Phase, Room, Seq, Tid, Worker,
};
use inflightd_core::verdict::Verdict;
use inflightd_core::{Event, Fact, Ledger, Nanos, Output, Policy};
use proptest::prelude::*;

pub(crate) const WORKER: Worker = Worker(0);
pub(crate) const PEER: Peer = Peer(1);
const MILLI: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLI;
/// When the agent has everything attached.
const START: u64 = SECOND;

/// By which way a fact came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// A ring record: may be lost.
    Ring,
    /// A reading of the table or of a meter: the next one comes anyway.
    Reading,
}

/// One room's true story: times in milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    pub(crate) append_at: u64,
    /// From append to post; `None`: never posted.
    pub(crate) post_after: Option<u64>,
    /// From post to the last byte; `None`: stuck for ever.
    pub(crate) lasts: Option<u64>,
    pub(crate) bytes: u64,
    /// From the last byte to the removal.
    pub(crate) reaped_after: u64,
    /// The thread that works for it; `None`: one of its own.
    pub(crate) shard: Option<u32>,
    /// So long before its entry its first chunk is queued; 0: it is not.
    pub(crate) early: u64,
    /// So long before its entry a thread takes that up; negative: after it.
    pub(crate) taken: i64,
}

/// Rooms whose bytes always move and that the scheduler always reaps in time.
pub(crate) fn healthy_story() -> impl Strategy<Value = Story> {
    let times = (0..60_000_u64, 0..20_000_u64, 0..90_000_u64, 0..20_000_u64);
    // Within the deadline, for nothing moves until the room is posted.
    let early = prop_oneof![Just(0), 1..20_000_u64];
    (times, 1..1_000_000_000_u64, early).prop_map(
        |((append_at, post_after, lasts, reaped_after), bytes, early)| Story {
            append_at,
            post_after: Some(post_after),
            lasts: Some(lasts),
            // At least so many that each second's share is payload.
            bytes: bytes.max(lasts * 8),
            reaped_after,
            shard: None,
            early,
            taken: i64::try_from(early).unwrap_or(0),
        },
    )
}

/// Any room, healthy or stuck somewhere.
pub(crate) fn any_story() -> impl Strategy<Value = Story> {
    (healthy_story(), 0..4_u8).prop_map(|(mut story, stuck)| {
        match stuck {
            0 => story.post_after = None,
            1 => story.lasts = None,
            _ => {}
        }
        story
    })
}

/// The events of a world, in time order, with the way by which each came.
pub(crate) fn events(stories: &[Story]) -> Vec<(Way, Event)> {
    let mut world = World::default();
    world.attach();
    for (index, story) in stories.iter().enumerate() {
        let queued = story.append_at.saturating_sub(story.early);
        let after = stories.iter().filter(|other| other.append_at < queued).count() as u64;
        world.early(index as u64 + 1, story, after);
        world.room(index as u64 + 1, story);
    }
    world.readings(stories);
    let mut events = world.events;
    events.sort_by_key(|(_, event)| event.at);
    events
}

#[derive(Default)]
struct World {
    events: Vec<(Way, Event)>,
}

impl Story {
    fn appended(&self) -> u64 {
        START + self.append_at * MILLI
    }
    fn thread(&self, number: u64) -> Tid {
        Tid(self.shard.unwrap_or(100 + u32::try_from(number).unwrap_or(0)))
    }
    fn posted(&self) -> Option<u64> {
        Some(self.appended() + self.post_after? * MILLI)
    }
    fn complete(&self) -> Option<u64> {
        Some(self.posted()? + (self.lasts? + 1) * MILLI)
    }
    fn removed(&self) -> Option<u64> {
        Some(self.complete()? + (self.reaped_after + 1) * MILLI)
    }
    /// Bytes that the peer has taken at a moment.
    fn taken(&self, at: u64) -> u64 {
        let Some(posted) = self.posted() else { return 0 };
        let Some(complete) = self.complete() else { return 0 };
        let elapsed = at.saturating_sub(posted).min(complete - posted);
        let share = u128::from(self.bytes) * u128::from(elapsed) / u128::from(complete - posted);
        u64::try_from(share).unwrap_or(u64::MAX)
    }
}

impl World {
    fn push(&mut self, way: Way, at: u64, fact: Fact) {
        self.events.push((way, Event { at: Nanos(at), worker: WORKER, fact }));
    }

    fn attach(&mut self) {
        self.push(Way::Reading, START, Fact::Found);
        for source in Source::ALL {
            self.push(Way::Reading, START, Fact::Cover(source, Sight::Visible));
        }
        self.push(Way::Reading, START, Fact::Life(PEER, Life::Running));
    }

    /// Its thread takes up its first chunk, which was queued when so many rooms had entered.
    fn early(&mut self, number: u64, story: &Story, after: u64) {
        let before = story.taken * i64::try_from(MILLI).unwrap_or(0);
        let taken = story.appended().saturating_add_signed(-before).max(START);
        if story.early > 0 && story.posted().is_some_and(|posted| taken <= posted) {
            let early = Fact::ServeEarly(story.thread(number), Seq(after << 14));
            self.push(Way::Ring, taken, early);
        }
    }

    fn room(&mut self, number: u64, story: &Story) {
        let (seq, tid) = (Seq(number << 14), story.thread(number));
        let append = Append {
            seq,
            room: Room(number),
            expected: story.bytes,
            peers: vec![PEER],
            peers_whole: true,
            late: false,
            patient: false,
        };
        self.push(Way::Reading, story.appended(), Fact::Append(append));
        let Some(posted) = story.posted() else { return };
        let handle = Handle(number << 12);
        self.push(Way::Ring, posted, Fact::Serve(tid, seq));
        self.push(Way::Ring, posted, Fact::Post(seq, story.bytes));
        let (peer, bytes) = (Some(PEER), Some(story.bytes));
        self.push(
            Way::Ring,
            posted,
            Fact::XferPost { tid, handle, peer, bytes, room: None, descs: None },
        );
        let request = (number << 20) + 0xa0;
        self.push(Way::Ring, posted, Fact::Flush { tid, ep: 9, request });
        self.push(Way::Ring, posted, Fact::XferRet(tid, handle, 1));
        let (Some(complete), Some(removed)) = (story.complete(), story.removed()) else { return };
        self.push(Way::Ring, complete, Fact::FlushDone(number << 20, Some(0)));
        self.push(Way::Ring, complete, Fact::XferRelease(handle, Some(0)));
        self.push(Way::Ring, complete, Fact::Done(seq, story.bytes, true));
        self.push(Way::Ring, complete, Fact::ServeEnd(tid));
        self.push(Way::Ring, removed, Fact::Remove(seq, Outcome::Success));
    }

    /// Table, meter and heartbeat, each half second until long after the last room.
    fn readings(&mut self, stories: &[Story]) {
        let last = stories.iter().map(|story| story.removed().unwrap_or(story.appended())).max();
        let end = last.unwrap_or(START) + 90 * SECOND;
        let mut at = START + SECOND / 2;
        while at < end {
            self.push(Way::Reading, at, Fact::Beat);
            self.push(Way::Reading, at, Fact::Life(PEER, Life::Running));
            let taken = stories.iter().map(|story| story.taken(at)).sum::<u64>() + 126;
            let meter = Meter { connections: 1, acked: taken, unread: Some(0), ..Meter::default() };
            self.push(Way::Reading, at, Fact::Wire(PEER, meter));
            for (index, story) in stories.iter().enumerate() {
                self.entry(at, Seq((index as u64 + 1) << 14), story);
            }
            at += SECOND / 2;
        }
    }

    fn entry(&mut self, at: u64, seq: Seq, story: &Story) {
        if story.appended() > at {
            return;
        }
        if let Some(removed) = story.removed().filter(|removed| *removed <= at) {
            // The table remembers who left; the daemon says so once, here at each reading.
            if at - removed < SECOND / 2 {
                self.push(Way::Reading, at, Fact::Remove(seq, Outcome::Success));
            }
            return;
        }
        let posted = story.posted().filter(|posted| *posted <= at);
        let complete = story.complete().filter(|complete| *complete <= at);
        let counts = Counts {
            phase: Phase::None,
            posts: u64::from(posted.is_some()),
            posted_bytes: posted.map_or(0, |_| story.bytes),
            dones: u64::from(complete.is_some()),
            done_bytes: complete.map_or(0, |_| story.bytes),
            failures: 0,
            first_post: posted.map(Nanos),
            last_done: complete.map(Nanos),
        };
        self.push(Way::Reading, at, Fact::Entry(seq, counts));
    }
}

/// Feeds events, ticking at every deadline that passes and at each of `extra` as well.
pub(crate) fn drive(events: &[Event], extra: &[Nanos]) -> (Ledger, Vec<Output>) {
    let mut ledger = Ledger::new(Policy::DEFAULT);
    let mut outputs = Vec::new();
    let mut extra = extra.iter().copied().peekable();
    for event in events {
        loop {
            let early = extra.next_if(|at| *at <= event.at);
            let due = ledger.deadline().filter(|due| *due <= event.at);
            let Some(at) = early.into_iter().chain(due).min() else { break };
            ledger.tick(at);
            outputs.extend(std::iter::from_fn(|| ledger.poll()));
        }
        ledger.observe(event);
        outputs.extend(std::iter::from_fn(|| ledger.poll()));
    }
    (ledger, outputs)
}

/// The verdicts that accuse somebody.
pub(crate) fn alerts(outputs: &[Output]) -> Vec<&Verdict> {
    let verdicts = outputs.iter().filter_map(|output| match output {
        Output::Verdict(verdict) => Some(verdict),
        _ => None,
    });
    verdicts.filter(|verdict| verdict.is_alert()).collect()
}
