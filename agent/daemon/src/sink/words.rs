//! Evidence in words, for people.

use inflightd_core::{Evidence, EvidenceId as Id};

use super::line::{PeerField, WorkerField};
use crate::clock::Clock;

/// Whom a piece of evidence is about.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct About<'a> {
    pub(super) peer: Option<&'a PeerField>,
    pub(super) worker: Option<&'a WorkerField>,
}

/// What a piece of evidence says.
pub(super) fn evidence(evidence: &Evidence, about: About<'_>, clock: Clock) -> String {
    let bytes = evidence.amount.map_or_else(|| "bytes".to_owned(), size);
    let count = evidence.amount.unwrap_or(0);
    let code = evidence.code.unwrap_or(0);
    let tid = evidence.tid.map_or(0, |tid| tid.0);
    let moment = |at| stamp(&clock.wall(at).to_string());
    let at = evidence.at.map(moment).unwrap_or_default();
    let who = about.peer.map_or_else(|| "the peer".to_owned(), name);
    let since = |text: &str| if at.is_empty() { String::new() } else { format!("{text} {at}") };
    match evidence.id {
        Id::Posted => format!("{bytes} posted{}", since(", the first at")),
        Id::NotPosted => "no transfer call was made for the room".to_owned(),
        Id::NoThreadServing => "no thread has ever worked for the room".to_owned(),
        Id::ThreadServing => format!("thread {tid} works for it{}", since(" since")),
        Id::ThreadGone => format!("thread {tid}, which worked for it, ended{}", since(" at")),
        Id::PeerStopped => match evidence.since.map(moment) {
            Some(first) => {
                format!("{who} is stopped, first seen so at {first}{}", since(", last at"))
            }
            None => format!("{who} is stopped{}", since(", seen at")),
        },
        Id::PeerGone => format!("{who} has ended{}", since(" at")),
        Id::PeerRunning => format!("{who} is running{}", since(", seen at")),
        Id::PeerUnseen => format!("{who} is not on this node: its process cannot be seen"),
        Id::WireMoved => format!("{who} took {bytes}{}", since(", the last at")),
        Id::WireStill => format!("no byte moved to {who}{}", since(" since")),
        Id::WindowClosed => format!("{who} does not read: its window is closed, {bytes} wait"),
        Id::Retransmitting => format!("{bytes} to {who} are sent again without an answer"),
        Id::NoConnection => format!("no connection to {who} is established"),
        Id::EndpointError => format!("the endpoint failed with status {code}{}", since(" at")),
        Id::TransferFailed => format!("a transfer ended with status {code}{}", since(" at")),
        Id::AllComplete => format!("every posted transfer is complete, {bytes}{}", since(", at")),
        Id::TransfersOpen => {
            let oldest = evidence.handle.map(|handle| format!(", the oldest {:#x}", handle.0));
            let oldest = oldest.unwrap_or_default();
            format!("{} still open{oldest}{}", counted(count, "posted transfer"), since(", since"))
        }
        Id::BeatFresh => format!("the scheduler polls its queue{}", since(", last at")),
        Id::BeatOld => format!("the scheduler has not polled its queue{}", since(" since")),
        Id::Parked => "the engine says that the peers have not answered".to_owned(),
        Id::RoomsAhead => {
            let thread = evidence.tid.map(|tid| format!(" on thread {}", tid.0));
            let thread = thread.unwrap_or_default();
            format!("{} before it{thread}{}", counted(count, "room"), since(", the first since"))
        }
        Id::LateStart => format!("the agent came{}, after the append", since(" at")),
        Id::EventsLost => format!("{} lost{}", counted(count, "event"), since(" at")),
        Id::PeerServesOthers => format!("other transfers to {who} moved{}", since(" at")),
        Id::NothingVisible => "nothing that would show its progress can be seen".to_owned(),
        Id::PeersUnknown => "some of its peers are not known".to_owned(),
        Id::BytesUnseen => {
            format!("bytes go to {who} past its connections: how many arrived is not seen")
        }
        Id::HeadMoves => format!("what is before it moves{}", since(", last at")),
        Id::HeadStill => format!("what is before it does not move{}", since(" since")),
        Id::ThreadHeld => {
            format!(
                "the room has left the queue and thread {tid} stays with it{}",
                since(", since")
            )
        }
        Id::PeerRestarted => {
            format!("{who} ended before the post and another goes by its name{}", since(", since"))
        }
        Id::LastThreadGone => {
            format!("thread {tid}, the last to work for it or its peer, ended{}", since(" at"))
        }
        Id::DoneHere => "this rank is done, the engine says, and another is not".to_owned(),
        Id::OtherRankWaits => {
            let other = about.worker.map_or_else(|| "another rank".to_owned(), worker);
            format!(
                "{other} has it too and is not done{}",
                since("; nothing of it has moved there since")
            )
        }
        Id::FarGaveUp => "the decode engine has failed it or given it up".to_owned(),
        Id::FarWaitsForMemory => "the decode engine has it and waits for memory".to_owned(),
        Id::ListenerGone => {
            format!(
                "the thread by which the engine hears from its peers ended{}",
                since(", seen at")
            )
        }
        Id::EngineInflight => {
            format!("the engine counts {} in flight{}", counted(count, "room"), since(" since"))
        }
    }
}

/// `1 room`, `2 rooms`.
pub(crate) fn counted(count: u64, what: &str) -> String {
    let ending = match count {
        1 => "",
        _ if what.ends_with('s') => "es",
        _ => "s",
    };
    format!("{count} {what}{ending}")
}

/// Seconds for people.
pub fn span(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.0} ms", seconds * 1e3) } else { format!("{seconds:.1} s") }
}

/// A peer for people.
pub(super) fn name(peer: &PeerField) -> String {
    match peer.pid {
        Some(pid) => format!("{} (pid {pid})", peer.value),
        None => peer.value.clone(),
    }
}

/// A worker for people.
pub(super) fn worker(worker: &WorkerField) -> String {
    let ranks = &worker.ranks;
    let stated = [("dp", ranks.dp), ("pp", ranks.pp), ("tp", ranks.tp), ("cp", ranks.cp)];
    let ranks: String = stated
        .into_iter()
        .filter_map(|(name, rank)| rank.map(|(index, size)| format!(" {name}{index}/{size}")))
        .collect();
    format!("{} pid {} ({}{ranks})", worker.role, worker.pid, worker.engine)
}

/// An RFC 3339 time in UTC, to the millisecond.
pub(super) fn stamp(rfc3339: &str) -> String {
    rfc3339.get(..23).map_or_else(|| rfc3339.to_owned(), |short| format!("{short}Z"))
}

/// Bytes for people.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown: 53 bits are plenty")]
pub fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    UNITS.into_iter().find(|(_, unit)| bytes >= *unit).map_or_else(
        || format!("{bytes} B"),
        |(name, unit)| format!("{:.1} {name}", bytes as f64 / unit as f64),
    )
}

#[cfg(test)]
mod tests {
    use inflightd_core::Nanos;
    use inflightd_core::fact::Peer;

    use super::super::line::RanksField;
    use super::*;

    #[test]
    fn every_piece_of_evidence_has_words() {
        for id in Id::ALL {
            let text = evidence(&Evidence::of(*id), About::default(), Clock::with_offset(0));
            assert!(text.len() > 10, "{text}");
        }
    }

    #[test]
    fn the_words_name_the_peer_its_process_and_the_moment() {
        let peer = PeerField {
            kind: "nixl_agent".to_owned(),
            value: "decode-0".to_owned(),
            pid: Some(42),
        };
        let about = About { peer: Some(&peer), worker: None };
        let stopped = Evidence::of(Id::PeerStopped).peer(Peer(0)).at(Nanos::from_secs(61));
        assert_eq!(
            evidence(&stopped, about, Clock::with_offset(0)),
            "decode-0 (pid 42) is stopped, seen at 1970-01-01T00:01:01.000Z"
        );
        assert_eq!(
            evidence(&stopped.since(Nanos::from_secs(3)), about, Clock::with_offset(0)),
            "decode-0 (pid 42) is stopped, first seen so at 1970-01-01T00:00:03.000Z, last at \
             1970-01-01T00:01:01.000Z"
        );
    }

    #[test]
    fn the_words_name_the_rank_that_is_not_done() {
        let ranks = RanksField { tp: Some((1, 2)), dp: None, pp: None, cp: None };
        let other = WorkerField {
            pid: 31,
            index: 0,
            engine: "sglang".to_owned(),
            version: "0.5.23".to_owned(),
            role: "prefill".to_owned(),
            ranks,
        };
        let waits = Evidence::of(Id::OtherRankWaits).at(Nanos::from_secs(61));
        assert_eq!(
            evidence(&waits, About { peer: None, worker: Some(&other) }, Clock::with_offset(0)),
            "prefill pid 31 (sglang tp1/2) has it too and is not done; nothing of it has moved \
             there since 1970-01-01T00:01:01.000Z"
        );
    }

    #[test]
    fn sizes_are_short() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(64 << 20), "64.0 MiB");
        assert_eq!((span(0.0042), span(30.04)), ("4 ms".to_owned(), "30.0 s".to_owned()));
        assert_eq!(counted(1, "room") + ", " + &counted(2, "room"), "1 room, 2 rooms");
    }
}
