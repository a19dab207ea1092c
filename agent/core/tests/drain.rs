//! What proves that a room's transfers are over, and what does not.

use inflightd_core::drain::{Drained, Undrained};
use inflightd_core::fact::{Append, Counts, Handle, Outcome, Peer, Phase, Room, Seq, Tid, Worker};
use inflightd_core::{Event, Fact, Ledger, Nanos, Policy, Reason, Sight, Source};

const WORKER: Worker = Worker(1);
const SEQ: Seq = Seq(1 << 14);
const PEER: Peer = Peer(1);
const THREAD: Tid = Tid(11);
const BYTES: u64 = 1000;

/// A worker that was seen from the start, and moments a millisecond apart.
struct World {
    ledger: Ledger,
    at: Nanos,
}

impl World {
    fn new() -> Self {
        let mut world = Self { ledger: Ledger::new(Policy::DEFAULT), at: Nanos::from_secs(1) };
        world.say(Fact::Found);
        for source in Source::ALL {
            world.say(Fact::Cover(source, Sight::Visible));
        }
        world
    }

    /// The same with a room in the queue.
    fn with_room() -> Self {
        let mut world = Self::new();
        world.enters(SEQ, false);
        world
    }

    fn say(&mut self, fact: Fact) {
        self.at = self.at.plus(Nanos::from_millis(1));
        self.ledger.observe(&Event { at: self.at, worker: WORKER, fact });
    }

    fn enters(&mut self, seq: Seq, late: bool) {
        self.say(Fact::Append(Append {
            seq,
            room: Room(seq.0),
            expected: BYTES,
            peers: vec![PEER],
            peers_whole: true,
            late,
            patient: false,
        }));
    }

    /// A thread posts a transfer with one flush.
    fn posts(&mut self, tid: Tid, handle: u64) {
        let (handle, peer) = (Handle(handle), Some(PEER));
        let (bytes, descs) = (Some(BYTES), Some(1));
        self.say(Fact::XferPost { tid, handle, peer, bytes, descs, room: None });
        self.say(Fact::Flush { tid, ep: 7, request: handle.0 + 1 });
        self.say(Fact::XferRet(tid, handle, 1));
    }

    /// Its flush completes.
    fn arrives(&mut self, handle: u64) {
        self.say(Fact::FlushDistance(0));
        self.say(Fact::FlushDone(handle + 1, Some(0)));
    }

    /// The table is read: what the engine has counted for the room.
    fn counts(&mut self, posts: u64, dones: u64, failures: u64) {
        let counts = Counts { posts, dones, failures, ..Counts::default() };
        self.say(Fact::Entry(SEQ, counts));
        self.say(Fact::Read);
    }

    fn drained(&self) -> Result<Drained, Undrained> {
        self.ledger.drained(WORKER, SEQ, self.at)
    }

    /// A room of which `transfers` were posted by a thread, all of which arrived and were counted.
    fn arrived(transfers: u64) -> Self {
        let mut world = Self::with_room();
        world.say(Fact::Serve(THREAD, SEQ));
        for handle in 1..=transfers {
            world.posts(THREAD, handle * 100);
            world.arrives(handle * 100);
        }
        world.say(Fact::ServeEnd(THREAD));
        world.counts(transfers, transfers, 0);
        world
    }
}

#[test]
fn a_room_of_which_nothing_was_posted_is_over() {
    let mut world = World::with_room();
    assert_eq!(world.drained(), Err(Undrained::Unread));
    world.counts(0, 0, 0);
    assert_eq!(world.drained(), Ok(Drained::NeverPosted));
    world.say(Fact::Phase(SEQ, Phase::Parked));
    world.say(Fact::Read);
    assert_eq!(world.drained(), Ok(Drained::NeverPosted), "a parked one, too");
}

#[test]
fn a_room_of_which_everything_arrived_is_over() {
    assert_eq!(World::arrived(1).drained(), Ok(Drained::Arrived(1)));
    assert_eq!(World::arrived(3).drained(), Ok(Drained::Arrived(3)));
}

#[test]
fn what_is_under_way_or_served_is_not_over() {
    let mut world = World::with_room();
    world.say(Fact::Serve(THREAD, SEQ));
    world.counts(0, 0, 0);
    assert_eq!(world.drained(), Err(Undrained::Served(THREAD)), "it may post at any moment");
    world.posts(THREAD, 100);
    world.say(Fact::ServeEnd(THREAD));
    world.counts(1, 0, 0);
    assert_eq!(world.drained(), Err(Undrained::Open(1)));
}

/// As measured: the bytes of a handle whose release had succeeded landed in reused memory.
#[test]
fn a_released_cancelled_or_failed_handle_is_not_over() {
    for status in [None, Some(1), Some(-1), Some(-3), Some(-12)] {
        let mut world = World::with_room();
        world.say(Fact::Serve(THREAD, SEQ));
        world.posts(THREAD, 100);
        world.say(Fact::XferRelease(Handle(100), status));
        world.say(Fact::ServeEnd(THREAD));
        world.counts(1, 1, 0);
        assert_eq!(world.drained(), Err(Undrained::NotArrived(1)), "{status:?}");
    }
    let mut world = World::arrived(1);
    world.say(Fact::XferRelease(Handle(100), Some(0)));
    world.say(Fact::Read);
    assert_eq!(world.drained(), Ok(Drained::Arrived(1)), "it had arrived before its release");
}

#[test]
fn an_end_that_was_not_well_is_not_over() {
    let mut world = World::with_room();
    world.say(Fact::Serve(THREAD, SEQ));
    world.posts(THREAD, 100);
    world.say(Fact::FlushDistance(0));
    world.say(Fact::FlushDone(101, Some(-25)));
    world.say(Fact::ServeEnd(THREAD));
    world.counts(1, 1, 0);
    assert_eq!(world.drained(), Err(Undrained::NotArrived(1)));
    let mut world = World::arrived(1);
    world.counts(1, 1, 1);
    assert_eq!(world.drained(), Err(Undrained::CallsFailed(1)), "the engine says otherwise");
}

#[test]
fn engine_and_library_have_to_agree() {
    let mut world = World::with_room();
    world.counts(1, 1, 0);
    let unseen = Undrained::Miscounted { posts: 1, dones: 1, seen: 0 };
    assert_eq!(world.drained(), Err(unseen), "sent before the room entered, or not seen");
    let mut world = World::arrived(1);
    world.counts(2, 1, 0);
    let open = Undrained::Miscounted { posts: 2, dones: 1, seen: 1 };
    assert_eq!(world.drained(), Err(open));
    let mut world = World::with_room();
    world.say(Fact::Serve(THREAD, SEQ));
    world.posts(THREAD, 100);
    world.arrives(100);
    world.say(Fact::ServeEnd(THREAD));
    world.counts(0, 0, 0);
    let unmarked = Undrained::Miscounted { posts: 0, dones: 0, seen: 1 };
    assert_eq!(world.drained(), Err(unmarked));
}

#[test]
fn what_may_belong_to_the_room_keeps_it_open() {
    let mut world = World::with_room();
    world.posts(Tid(99), 500);
    world.arrives(500);
    world.counts(0, 0, 0);
    assert_eq!(world.drained(), Err(Undrained::Stray), "by a thread that says for no room");
    let mut world = World::new();
    world.say(Fact::ServeEarly(THREAD, Seq(0)));
    world.posts(THREAD, 500);
    world.enters(SEQ, false);
    world.counts(0, 0, 0);
    assert_eq!(world.drained(), Err(Undrained::Early(THREAD)));
    world.say(Fact::ServeEnd(THREAD));
    world.say(Fact::Read);
    assert_eq!(world.drained(), Err(Undrained::Stray), "it is still open");
    world.arrives(500);
    world.say(Fact::Read);
    assert_eq!(world.drained(), Ok(Drained::NeverPosted), "another's, and it is there");
}

/// Seen on a real SGLang: the first chunk of a long prompt was under way to a frozen decode before its
/// room entered, and the rooms behind it could not be failed.
#[test]
fn what_was_posted_before_its_room_entered_keeps_that_room_open_and_no_other() {
    let head = Seq(2 << 14);
    let mut world = World::new();
    world.say(Fact::ServeEarly(THREAD, Seq(0)));
    world.posts(THREAD, 500);
    world.enters(head, false);
    world.enters(SEQ, false);
    world.counts(0, 0, 0);
    assert_eq!(world.drained(), Err(Undrained::Early(THREAD)));
    world.say(Fact::Serve(THREAD, head));
    world.say(Fact::Read);
    assert_eq!(world.drained(), Ok(Drained::NeverPosted), "it is the other's");
    let of_head = world.ledger.drained(WORKER, head, world.at);
    assert_eq!(of_head, Err(Undrained::Served(THREAD)));
    world.say(Fact::ServeEnd(THREAD));
    world.say(Fact::Read);
    assert_eq!(world.ledger.drained(WORKER, head, world.at), Err(Undrained::Stray));
}

#[test]
fn what_was_not_seen_proves_nothing() {
    let mut late = World::new();
    late.enters(SEQ, true);
    late.counts(0, 0, 0);
    assert_eq!(late.drained(), Err(Undrained::Late));
    for source in [Source::Table, Source::Transfers] {
        let unseen = Err(Undrained::Unseen(source));
        let mut blind = World::with_room();
        blind.say(Fact::Cover(source, Sight::Degraded(Reason::UnknownBuild)));
        blind.counts(0, 0, 0);
        assert_eq!(blind.drained(), unseen);
        blind.say(Fact::Cover(source, Sight::Visible));
        blind.say(Fact::Read);
        let again = if source == Source::Table { Ok(Drained::NeverPosted) } else { unseen };
        assert_eq!(blind.drained(), again, "the table says all there is, whenever it is read");
    }
    let mut lossy = World::with_room();
    lossy.say(Fact::Lose(Source::Transfers, 1));
    lossy.counts(0, 0, 0);
    assert_eq!(lossy.drained(), Err(Undrained::Unseen(Source::Transfers)));
}

#[test]
fn only_a_room_that_this_worker_sends_can_be_over() {
    let mut world = World::with_room();
    world.say(Fact::Phase(SEQ, Phase::Exempt));
    world.say(Fact::Read);
    assert_eq!(world.drained(), Err(Undrained::Exempt));
    world.say(Fact::Remove(SEQ, Outcome::Failed));
    assert_eq!(world.drained(), Err(Undrained::NotHere));
    for kind in [Fact::Unhooked, Fact::Receives] {
        let mut world = World::new();
        world.say(kind);
        world.enters(SEQ, false);
        world.counts(0, 0, 0);
        assert_eq!(world.drained(), Err(Undrained::NotHere));
    }
    assert_eq!(World::new().drained(), Err(Undrained::NotHere));
}
