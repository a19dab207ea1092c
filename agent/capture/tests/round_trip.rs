//! What is written is read back, and no text makes the parser panic.

use inflightd_capture::{Input, ParseError, parse_input, write_input};
use inflightd_core::coverage::{Reason, Sight, Source};
use inflightd_core::fact::{
    Append, Counts, Handle, Life, Load, Meter, Outcome, Peer, Phase, PortTroubles, Room, Seq, Tid,
    Worker,
};
use inflightd_core::{Cause, Event, Fact, Finding, Nanos};
use proptest::prelude::*;

fn append() -> impl Strategy<Value = Fact> {
    (
        any::<u64>(),
        any::<u64>(),
        any::<u64>(),
        prop::collection::vec(any::<u32>(), 0..6),
        any::<[bool; 3]>(),
    )
        .prop_map(|(seq, room, expected, peers, [peers_whole, late, patient])| {
            let peers = peers.into_iter().map(Peer).collect();
            Fact::Append(Append {
                seq: Seq(seq),
                room: Room(room),
                expected,
                peers,
                peers_whole,
                late,
                patient,
            })
        })
}

fn counts() -> impl Strategy<Value = Fact> {
    (any::<u64>(), any::<[u64; 5]>(), any::<[Option<u64>; 2]>()).prop_map(
        |(seq, n, [first, last])| {
            let [posts, posted_bytes, dones, done_bytes, failures] = n;
            let counts = Counts {
                phase: Phase::Transferring,
                posts,
                posted_bytes,
                dones,
                done_bytes,
                failures,
                first_post: first.map(Nanos),
                last_done: last.map(Nanos),
            };
            Fact::Entry(Seq(seq), counts)
        },
    )
}

fn meter() -> impl Strategy<Value = Fact> {
    (any::<[u32; 2]>(), any::<[u64; 4]>(), any::<[Option<u64>; 2]>(), any::<[bool; 2]>()).prop_map(
        |(
            [peer, connections],
            [acked, received, unsent, unacked],
            [unread, last],
            [closed, again],
        )| {
            let meter = Meter {
                connections,
                acked,
                received,
                unsent,
                unacked,
                unread,
                last_received: last.map(Nanos),
                window_closed: closed,
                retransmitting: again,
                broken: Some(Nanos(5)),
                link_down: true,
            };
            Fact::Wire(Peer(peer), meter)
        },
    )
}

fn xfer_post() -> impl Strategy<Value = Fact> {
    let room = any::<Option<(u64, bool)>>();
    let sizes = any::<(Option<u64>, Option<u64>)>();
    (any::<u32>(), any::<u64>(), any::<Option<u32>>(), sizes, room).prop_map(
        |(tid, handle, peer, (bytes, descs), room)| Fact::XferPost {
            tid: Tid(tid),
            handle: Handle(handle),
            peer: peer.map(Peer),
            bytes,
            descs,
            room: room.map(|(room, last)| (Room(room), last)),
        },
    )
}

fn fact() -> impl Strategy<Value = Fact> {
    let n = any::<u64>;
    prop_oneof![
        Just(Fact::Found),
        Just(Fact::Ended),
        Just(Fact::Read),
        Just(Fact::Beat),
        append(),
        counts(),
        meter(),
        n().prop_map(|s| Fact::Phase(Seq(s), Phase::Parked)),
        (any::<u32>(), n()).prop_map(|(t, s)| Fact::Serve(Tid(t), Seq(s))),
        (any::<u32>(), n()).prop_map(|(t, s)| Fact::ServeEarly(Tid(t), Seq(s))),
        any::<u32>().prop_map(|t| Fact::ServeEnd(Tid(t))),
        (n(), n()).prop_map(|(s, b)| Fact::Post(Seq(s), b)),
        (n(), n(), any::<bool>()).prop_map(|(s, b, ok)| Fact::Done(Seq(s), b, ok)),
        n().prop_map(|s| Fact::Remove(Seq(s), Outcome::Requeued)),
        xfer_post(),
        Just(Fact::Unhooked),
        Just(Fact::Receives),
        Just(Fact::ListenerEnded),
        any::<[u64; 5]>().prop_map(|[running, bootstrap, inflight, prealloc, transfer]| {
            Fact::Load(Load { running, bootstrap, inflight, prealloc, transfer })
        }),
        (any::<u32>(), n(), any::<i32>()).prop_map(|(t, h, s)| Fact::XferRet(Tid(t), Handle(h), s)),
        (n(), any::<i32>()).prop_map(|(h, s)| Fact::XferStatus(Handle(h), s)),
        (n(), any::<Option<i32>>()).prop_map(|(h, s)| Fact::XferRelease(Handle(h), s)),
        (any::<u32>(), n(), n()).prop_map(|(t, ep, request)| Fact::Flush {
            tid: Tid(t),
            ep,
            request
        }),
        (n(), any::<Option<i32>>()).prop_map(|(c, s)| Fact::FlushDone(c, s)),
        any::<i64>().prop_map(Fact::FlushDistance),
        (n(), any::<i32>()).prop_map(|(e, s)| Fact::EpError(e, s)),
        (any::<u32>(), n(), any::<bool>()).prop_map(|(p, b, w)| Fact::History(Peer(p), b, w)),
        any::<u32>().prop_map(|p| Fact::Life(Peer(p), Life::Stopped)),
        any::<u32>().prop_map(|t| Fact::ThreadExit(Tid(t))),
        Just(Fact::Cover(Source::Transfers, Sight::Degraded(Reason::UnknownBuild))),
        Just(Fact::Cover(Source::Table, Sight::Visible)),
        n().prop_map(|count| Fact::Lose(Source::Marks, count)),
        (any::<u32>(), n()).prop_map(|(t, b)| Fact::Batch(Tid(t), Handle(b))),
        (n(), any::<Option<u64>>()).prop_map(|(b, bytes)| Fact::BatchRead(Handle(b), bytes)),
        n().prop_map(|b| Fact::BatchEnd(Handle(b))),
        any::<bool>().prop_map(Fact::Armed),
        any::<[u64; 3]>().prop_map(|[timeouts, not_ready, disorder]| {
            Fact::Ports(PortTroubles { timeouts, not_ready, disorder })
        }),
        (n(), n()).prop_map(|(ep, bytes)| Fact::Operations(ep, bytes)),
        n().prop_map(|s| Fact::Told(Seq(s), Finding::StoppedMidway, Cause::PeerFrozen)),
    ]
}

proptest! {
    #[test]
    fn every_input_reads_back(at in any::<u64>(), worker in any::<u32>(), fact in fact()) {
        let input = Input::Event(Event { at: Nanos(at), worker: Worker(worker), fact });
        let mut line = String::new();
        write_input(&mut line, &input);
        prop_assert_eq!(parse_input(&line), Ok(Some(input)), "{}", line);
    }

    #[test]
    fn no_text_makes_it_panic(line in "\\PC{0,80}") {
        drop(parse_input(&line));
    }

    #[test]
    fn no_damaged_line_makes_it_panic(fact in fact(), cut in any::<prop::sample::Index>()) {
        let input = Input::Event(Event { at: Nanos(1), worker: Worker(0), fact });
        let mut line = String::new();
        write_input(&mut line, &input);
        line.truncate(cut.index(line.len() + 1));
        drop(parse_input(&line));
    }
}

#[test]
fn errors_name_the_key() {
    let missing = parse_input("1 w0 serve tid=5").unwrap_err();
    assert_eq!(missing.to_string(), "fact `serve` needs the key `seq`");
    let bad = parse_input("1 w0 serve tid=five seq=1").unwrap_err();
    assert_eq!(bad.to_string(), "`five` is no value for `tid`");
    let unknown = parse_input("1 w0 dance").unwrap_err();
    assert_eq!(unknown, ParseError::UnknownFact("dance".to_owned()));
    assert_eq!(parse_input("x tick").unwrap_err().to_string(), "`x` is no value for `time`");
    assert_eq!(parse_input("# a comment"), Ok(None));
}

#[test]
fn a_flag_that_may_be_missing_is_read_by_its_value() {
    let line = "1 w0 wire peer=1 connections=1 acked=0 received=0 unsent=0 unacked=0 closed=0 \
                retransmitting=0";
    let down = |text: &str| match parse_input(&format!("{line}{text}")) {
        Ok(Some(Input::Event(event))) => match event.fact {
            Fact::Wire(_, meter) => Ok(meter.link_down),
            fact => panic!("{fact:?}"),
        },
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error.to_string()),
    };
    assert_eq!(
        (down(""), down(" link_down=0"), down(" link_down=1")),
        (Ok(false), Ok(false), Ok(true))
    );
    assert_eq!(down(" link_down=7"), Err("`7` is no value for `link_down`".to_owned()));
}
