//! Evidence in words, for people.

use inflightd_core::{Evidence, EvidenceId as Id, Nanos};

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
    let said = Said { evidence, about, clock };
    let text = said.of_transfers().or_else(|| said.of_peers()).or_else(|| said.of_threads());
    text.or_else(|| said.of_engine()).unwrap_or_default()
}

/// A piece of evidence and what its numbers stand for. Each kind has its words in one of the groups.
struct Said<'a> {
    evidence: &'a Evidence,
    about: About<'a>,
    clock: Clock,
}

impl Said<'_> {
    fn bytes(&self) -> String {
        self.evidence.amount.map_or_else(|| "bytes".to_owned(), size)
    }

    fn count(&self, what: &str) -> String {
        counted(self.evidence.amount.unwrap_or(0), what)
    }

    fn code(&self) -> i32 {
        self.evidence.code.unwrap_or(0)
    }

    fn tid(&self) -> u32 {
        self.evidence.tid.map_or(0, |tid| tid.0)
    }

    fn moment(&self, at: Nanos) -> String {
        stamp(&self.clock.wall(at).to_string())
    }

    /// The text and the moment; nothing where there is none.
    fn at(&self, text: &str) -> String {
        let at = self.evidence.at.map(|at| format!("{text} {}", self.moment(at)));
        at.unwrap_or_default()
    }

    fn of_ports(&self, what: &str, how: &str) -> String {
        let (count, since) = (self.count(what), self.at(" since"));
        format!(
            "the RDMA ports that it may use counted {count}{since}, {how}, of whoever uses them"
        )
    }

    fn of_transfers(&self) -> Option<String> {
        let (bytes, code) = (self.bytes(), self.code());
        Some(match self.evidence.id {
            Id::Posted => format!("{bytes} posted{}", self.at(", the first at")),
            Id::NotPosted => "no transfer call was made for the room".to_owned(),
            Id::EndpointError => {
                format!("the endpoint failed with status {code}{}", self.at(" at"))
            }
            Id::TransferFailed => format!("a transfer ended with status {code}{}", self.at(" at")),
            Id::AllComplete => {
                format!("every posted transfer is complete, {bytes}{}", self.at(", at"))
            }
            Id::TransfersOpen => {
                let oldest = self.evidence.handle;
                let oldest = oldest.map(|handle| format!(", the oldest {:#x}", handle.0));
                let (open, oldest) = (self.count("posted transfer"), oldest.unwrap_or_default());
                format!("{open} still open{oldest}{}", self.at(", since"))
            }
            Id::EventsLost => format!("{} lost{}", self.count("event"), self.at(" at")),
            Id::NothingVisible => "nothing that would show its progress can be seen".to_owned(),
            _ => return None,
        })
    }

    fn of_peers(&self) -> Option<String> {
        let bytes = self.bytes();
        let who = self.about.peer.map_or_else(|| "the peer".to_owned(), name);
        Some(match self.evidence.id {
            Id::PeerStopped => match self.evidence.since.map(|first| self.moment(first)) {
                Some(first) => {
                    format!("{who} is stopped, first seen so at {first}{}", self.at(", last at"))
                }
                None => format!("{who} is stopped{}", self.at(", seen at")),
            },
            Id::PeerGone => format!("{who} has ended{}", self.at(" at")),
            Id::PeerRunning => format!("{who} is running{}", self.at(", seen at")),
            Id::PeerUnseen => format!("{who} is not on this node: its process cannot be seen"),
            Id::WireMoved => format!("{who} took {bytes}{}", self.at(", the last at")),
            Id::WireStill => format!("no byte moved to {who}{}", self.at(" since")),
            Id::WindowClosed => format!("{who} does not read: its window is closed, {bytes} wait"),
            Id::PortDown => {
                format!("no RDMA port on the way to {who} can send{}", self.at(", seen at"))
            }
            Id::QueuePairFailed => {
                format!("the RDMA queue pair to {who} failed{}", self.at(" at"))
            }
            Id::Retransmitting => format!("{bytes} to {who} are sent again without an answer"),
            Id::NoConnection => format!("no connection to {who} is established"),
            Id::PeerServesOthers => format!("other transfers to {who} moved{}", self.at(" at")),
            Id::PeersUnknown => "some of its peers are not known".to_owned(),
            Id::BytesUnseen => {
                format!("bytes go to {who} past its connections: how many arrived is not seen")
            }
            Id::OperationsDone => {
                let last = self.at(", the last at");
                format!("operations of UCX of {bytes} completed on its endpoint{last}")
            }
            Id::OperationsStill => {
                let since = self.at(" since");
                format!("no operation of UCX completed on its endpoint{since}, each is counted")
            }
            Id::BatchMoved => {
                let last = self.at(", the last at");
                format!("{bytes} more arrived of its batch, by Mooncake's memory{last}")
            }
            Id::BatchStill => {
                let since = self.at(" since");
                format!("nothing more arrived of its batch{since}, by Mooncake's memory")
            }
            Id::PortTimeouts => self.of_ports("request", "not acknowledged in time"),
            Id::PortNotReady => self.of_ports("send", "for which no receive was posted"),
            Id::PortDisorder => self.of_ports("packet", "missed or out of order"),
            Id::PeerRestarted => {
                let since = self.at(", since");
                format!("{who} ended before the post and another goes by its name{since}")
            }
            _ => return None,
        })
    }

    fn of_threads(&self) -> Option<String> {
        let tid = self.tid();
        Some(match self.evidence.id {
            Id::NoThreadServing => "no thread has ever worked for the room".to_owned(),
            Id::ThreadServing => format!("thread {tid} works for it{}", self.at(" since")),
            Id::ThreadGone => format!("thread {tid}, which worked for it, ended{}", self.at(" at")),
            Id::RoomsAhead => {
                let thread = self.evidence.tid.map(|_| format!(" on thread {tid}"));
                let (rooms, thread) = (self.count("room"), thread.unwrap_or_default());
                format!("{rooms} before it{thread}{}", self.at(", the first since"))
            }
            Id::HeadMoves => format!("what is before it moves{}", self.at(", last at")),
            Id::HeadStill => format!("what is before it does not move{}", self.at(" since")),
            Id::ThreadHeld => {
                let since = self.at(", since");
                format!("the room has left the queue and thread {tid} stays with it{since}")
            }
            Id::ThreadEarly => {
                let since = self.at(" since");
                let thread =
                    self.evidence.tid.map_or("a thread".to_owned(), |_| format!("thread {tid}"));
                format!("{thread} works{since} for another room, which had not entered the queue")
            }
            Id::LastThreadGone => {
                format!(
                    "thread {tid}, the last to work for it or its peer, ended{}",
                    self.at(" at")
                )
            }
            _ => return None,
        })
    }

    fn of_engine(&self) -> Option<String> {
        Some(match self.evidence.id {
            Id::BeatFresh => format!("the scheduler polls its queue{}", self.at(", last at")),
            Id::BeatOld => format!("the scheduler has not polled its queue{}", self.at(" since")),
            Id::Parked => "the engine says that the peers have not answered".to_owned(),
            Id::LateStart => format!("the agent came{}, after the append", self.at(" at")),
            Id::DoneHere => "this rank is done, the engine says, and another is not".to_owned(),
            Id::OtherRankWaits => {
                let other = self.about.worker.map_or_else(|| "another rank".to_owned(), worker);
                let still = self.at("; nothing of it has moved there since");
                format!("{other} has it too and is not done{still}")
            }
            Id::FarGaveUp => "the decode engine has failed it or given it up".to_owned(),
            Id::FarWaitsForMemory => "the decode engine has it and waits for memory".to_owned(),
            Id::ListenerGone => {
                let seen = self.at(", seen at");
                format!("the thread by which the engine hears from its peers ended{seen}")
            }
            Id::EngineInflight => {
                format!("the engine counts {} in flight{}", self.count("room"), self.at(" since"))
            }
            _ => return None,
        })
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

/// What is to arrive of a room, for people; nothing where neither the engine nor a post says.
pub fn whole(expected: u64, posted: u64) -> Option<String> {
    match (expected, posted) {
        (0, 0) => None,
        // There may be more to come.
        (0, posted) => Some(format!("{} posted", size(posted))),
        _ => Some(size(expected.max(posted))),
    }
}

#[cfg(test)]
mod tests {
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
