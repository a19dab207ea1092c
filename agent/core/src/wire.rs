//! What is known of one peer: its process, its connections, and how many of the bytes that it
//! has taken belong to transfers that are still open.

use alloc::collections::{BTreeMap, BTreeSet};

use crate::fact::{Handle, Life, Meter, Seq, Tid};
use crate::policy::Policy;
use crate::time::Nanos;

/// How much of the open transfers to a peer has arrived there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// About so many bytes; 0 when nothing beyond connection set-up and framing.
    Bytes(u64),
    /// Something, the amount is not known.
    Some,
    /// Not known: no meter, or no baseline.
    Unknown,
}

impl Moved {
    /// Bytes that certainly moved.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Some | Self::Unknown => 0,
        }
    }

    /// Whether something certainly moved.
    pub const fn any(self) -> bool {
        matches!(self, Self::Some) || self.bytes() > 0
    }
}

/// By which way payload goes to a peer of this node, as seen in what completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carried {
    /// Too little has completed to tell.
    Unknown,
    /// Through the connections that are metered.
    Sockets,
    /// Past them: the connections carried far less than what completed.
    Elsewhere,
}

/// So many completed bytes tell by which way they went, and so many in the connections are
/// payload. What UCX sends beside a payload that goes past them is far less (measured: 1.6 KB for
/// 1.3 MB).
const TELLING: u64 = 65_536;
/// What is taken so long after a process ended was taken by its successor. Sooner no process is
/// started and known again, and the two moments are read from different sources.
const RENEWED: Nanos = Nanos::from_secs(1);
/// A completed room to several peers is charged to each of them: up to so many.
const CHARGED: u64 = 16;

/// Where the count of a peer's open bytes starts: what its meter showed, and what was complete,
/// at a moment when no transfer to it was open.
#[derive(Clone, Copy, Debug)]
struct Base {
    taken: Option<u64>,
    received: Option<u64>,
    completed: u64,
}

/// One peer of one worker.
#[derive(Clone, Debug)]
pub(crate) struct PeerBook {
    pub(crate) life: Life,
    pub(crate) life_at: Nanos,
    /// When it was first seen as it is now.
    pub(crate) life_since: Nanos,
    pub(crate) gone_at: Option<Nanos>,
    /// When it was first seen running after it was stopped, since it last took payload.
    pub(crate) resumed_at: Option<Nanos>,
    /// When its process was last looked for.
    pub(crate) looked_at: Nanos,
    pub(crate) meter: Option<(Nanos, Meter)>,
    metered_since: Option<Nanos>,
    /// When the peer last took payload, by its meter.
    pub(crate) growth_at: Option<Nanos>,
    /// Open rooms that have this peer.
    pub(crate) rooms: BTreeSet<Seq>,
    /// Of these, the ones that were served or posted.
    pub(crate) begun: BTreeSet<Seq>,
    /// The thread that last worked for a room to it.
    pub(crate) served_by: Option<Tid>,
    /// Open transfers to it, by the time of their post, with their bytes.
    pub(crate) open: BTreeMap<(Nanos, Handle), u64>,
    carried: Carried,
    /// What it had taken and what was complete when it was last learnt how payload goes.
    learn: Option<(u64, u64)>,
    base: Option<Base>,
    /// Bytes of transfers to this peer that have completed since the agent came.
    completed: u64,
    completed_at: Nanos,
    /// The peer took payload between two readings after the last completion: payload of transfers
    /// that are still open.
    open_moved: bool,
    /// Highest counts that were held for progress.
    taken_high: u64,
    received_high: u64,
}

impl Default for PeerBook {
    fn default() -> Self {
        Self {
            life: Life::Unseen,
            life_at: Nanos::ZERO,
            life_since: Nanos::ZERO,
            gone_at: None,
            resumed_at: None,
            looked_at: Nanos::ZERO,
            meter: None,
            growth_at: None,
            metered_since: None,
            rooms: BTreeSet::new(),
            begun: BTreeSet::new(),
            served_by: None,
            carried: Carried::Unknown,
            learn: None,
            open: BTreeMap::new(),
            base: None,
            completed: 0,
            completed_at: Nanos::ZERO,
            open_moved: false,
            taken_high: 0,
            received_high: 0,
        }
    }
}

impl PeerBook {
    /// Rooms that left before the agent came moved so many bytes here: a baseline for a meter
    /// that counts from the connection's beginning.
    pub(crate) fn history(&mut self, bytes: u64) {
        if self.base.is_none() {
            self.base = Some(Base { taken: Some(bytes), received: None, completed: 0 });
        }
    }

    /// A transfer to this peer completed.
    pub(crate) fn complete(&mut self, at: Nanos, bytes: u64) {
        self.completed = self.completed.saturating_add(bytes);
        self.completed_at = self.completed_at.max(at);
        self.open_moved = false;
    }

    /// The connections were read. `quiet`: no transfer to the peer is open.
    /// Returns whether payload moved since the last reading.
    pub(crate) fn sample(&mut self, at: Nanos, meter: Meter, quiet: bool, policy: &Policy) -> bool {
        let last = self.meter.replace((at, meter));
        self.metered_since = self.metered_since.or(Some(at));
        let grown = self.grow(&meter, last.is_none(), policy);
        self.learn(&meter, quiet);
        if quiet {
            let (taken, received) = (meter.taken(), Some(meter.received));
            self.base = Some(Base { taken, received, completed: self.completed });
            self.open_moved = false;
        }
        if grown {
            self.growth_at = Some(at);
            self.open_moved |= !quiet && last.is_some_and(|(at, _)| at >= self.completed_at);
        }
        grown
    }

    /// Whether the counts stand higher than ever; the first reading only says where they stand.
    fn grow(&mut self, meter: &Meter, first: bool, policy: &Policy) -> bool {
        let received = meter.received >= self.received_high.saturating_add(policy.answer_min)
            && meter.received > policy.setup_answer;
        self.received_high = self.received_high.max(meter.received);
        // Where the far end can be seen, what it took is payload itself; its answers may be
        // notifications as well.
        let grown = match meter.taken() {
            Some(taken) => {
                let grown = taken >= self.taken_high.saturating_add(policy.payload_min)
                    && taken > policy.setup_bytes;
                self.taken_high = self.taken_high.max(taken);
                grown
            }
            None => received,
        };
        grown && !first
    }

    /// Takes from a reading by which way payload goes, where the far end can be seen.
    fn learn(&mut self, meter: &Meter, quiet: bool) {
        let Some(taken) = meter.taken() else {
            return;
        };
        let waiting = meter.unsent.saturating_add(meter.unacked) + meter.unread.unwrap_or(0);
        let base = self.base.and_then(|base| Some((base.taken?, base.completed)));
        let beyond = base.map_or(0, |(from, completed)| {
            let completed = self.completed.saturating_sub(completed);
            taken.saturating_sub(from).saturating_sub(completed)
        });
        if waiting.max(beyond) >= TELLING {
            self.carried = Carried::Sockets;
        }
        if !quiet {
            return;
        }
        let (taken_from, completed_from) = *self.learn.get_or_insert((taken, self.completed));
        let completed = self.completed.saturating_sub(completed_from);
        if completed < TELLING {
            return;
        }
        let through = taken.saturating_sub(taken_from) >= completed / CHARGED;
        self.carried = if through { Carried::Sockets } else { Carried::Elsewhere };
        self.learn = Some((taken, self.completed));
    }

    /// Whether the peer's connections do not count its payload, or may not: `hint` says that the
    /// worker has another way to processes of its node.
    pub(crate) fn is_unmetered(&self, hint: bool) -> bool {
        match self.carried {
            Carried::Sockets => false,
            Carried::Elsewhere => true,
            Carried::Unknown => hint && self.life != Life::Unseen,
        }
    }

    /// When the connections last carried payload to it.
    pub(crate) fn payload_at(&self) -> Option<Nanos> {
        self.growth_at.filter(|_| self.carried != Carried::Elsewhere)
    }

    /// When a process of its name ended, where none has taken anything since.
    pub(crate) fn ended_untaken(&self) -> Option<Nanos> {
        self.gone_at.filter(|gone_at| self.took_at().is_none_or(|at| at <= gone_at.plus(RENEWED)))
    }

    /// When it last took payload, by any way that can be seen.
    pub(crate) fn took_at(&self) -> Option<Nanos> {
        let completed_at = Some(self.completed_at).filter(|at| *at > Nanos::ZERO);
        self.payload_at().max(completed_at)
    }

    /// How much of the open transfers has arrived, the first of which was posted at `first_post`.
    pub(crate) fn moved(&self, first_post: Nanos, policy: &Policy) -> Moved {
        let Some((_, meter)) = self.meter else {
            return Moved::Unknown;
        };
        let watched = self.metered_since.is_some_and(|since| since < first_post);
        if watched && self.growth_at.is_none_or(|at| at <= first_post) {
            // Nothing has been taken since: what the counts leave over is of earlier transfers.
            return Moved::Bytes(0);
        }
        if let Some((taken, base)) = meter.taken().zip(self.base)
            && let Some(from) = base.taken
        {
            let taken = taken.saturating_sub(from);
            let completed = self.completed.saturating_sub(base.completed);
            // Framing costs up to 1 % (measured 0.74 % at 4 KiB pages); twice that is no payload.
            let tolerance = policy.setup_bytes + completed / 50;
            let open = taken.saturating_sub(completed);
            return Moved::Bytes(if open > tolerance { open } else { 0 });
        }
        if self.open_moved && self.growth_at.is_some_and(|at| at > first_post) {
            return Moved::Some;
        }
        self.answered(&meter, first_post, policy)
    }

    /// Of `moved` bytes, what is left when the transfers posted before `first_post` have theirs: a
    /// connection delivers in order.
    pub(crate) fn left_for(&self, moved: u64, first_post: Nanos) -> u64 {
        let mut left = moved;
        for ((posted_at, _), bytes) in &self.open {
            if left == 0 || *posted_at >= first_post {
                break;
            }
            left = left.saturating_sub(*bytes);
        }
        left
    }

    /// What the far application's answers say where its end cannot be seen.
    fn answered(&self, meter: &Meter, first_post: Nanos, policy: &Policy) -> Moved {
        let base = self.base.filter(|base| base.completed == self.completed);
        if let Some(from) = base.and_then(|base| base.received) {
            let answers = meter.received.saturating_sub(from);
            return if answers >= policy.answer_min { Moved::Some } else { Moved::Bytes(0) };
        }
        // Without a baseline, an answer after the post and after every completion still shows it.
        let after = first_post.max(self.completed_at);
        match meter.last_received {
            Some(at) if at > after && self.completed_at == Nanos::ZERO => Moved::Some,
            Some(at) if at <= first_post => Moved::Bytes(0),
            _ => Moved::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: Policy = Policy::DEFAULT;

    fn meter(acked: u64, unread: u64) -> Meter {
        Meter { connections: 1, acked, unread: Some(unread), ..Meter::default() }
    }

    fn afar(received: u64) -> Meter {
        Meter { connections: 1, acked: 128_025, received, ..Meter::default() }
    }

    #[test]
    fn bytes_in_the_stopped_peers_buffer_have_not_moved() {
        let mut peer = PeerBook::default();
        peer.sample(Nanos(1), meter(1_000_000, 0), true, &POLICY);
        assert!(!peer.sample(Nanos(2), meter(4_400_000, 3_400_000), false, &POLICY));
        assert_eq!(peer.moved(Nanos(2), &POLICY), Moved::Bytes(0));
    }

    #[test]
    fn completed_transfers_are_not_counted_for_the_open_one() {
        let mut peer = PeerBook::default();
        peer.sample(Nanos(1), meter(100, 0), true, &POLICY);
        peer.complete(Nanos(2), 1_000_000);
        assert!(peer.sample(Nanos(2), meter(1_007_500, 0), false, &POLICY));
        assert_eq!(peer.moved(Nanos(2), &POLICY), Moved::Bytes(0), "framing is not payload");
        peer.sample(Nanos(3), meter(3_000_000, 0), false, &POLICY);
        assert_eq!(peer.moved(Nanos(2), &POLICY), Moved::Bytes(1_999_900));
    }

    #[test]
    fn setting_up_a_connection_is_not_progress() {
        let mut peer = PeerBook::default();
        peer.sample(Nanos(1), Meter::default(), true, &POLICY);
        assert!(!peer.sample(Nanos(2), meter(1_200, 0), false, &POLICY));
        assert_eq!(peer.moved(Nanos(1), &POLICY), Moved::Bytes(0));
    }

    #[test]
    fn a_late_agent_uses_what_the_table_remembers() {
        let mut peer = PeerBook::default();
        peer.history(10_000_000);
        peer.sample(Nanos(9), meter(12_000_000, 0), false, &POLICY);
        assert_eq!(peer.moved(Nanos(1), &POLICY), Moved::Bytes(2_000_000));
    }

    #[test]
    fn a_late_agent_without_history_goes_by_the_answers() {
        let mut peer = PeerBook::default();
        let answered = |at| Meter { last_received: Some(Nanos(at)), ..afar(50_000) };
        peer.sample(Nanos(9), answered(4), false, &POLICY);
        assert_eq!(peer.moved(Nanos(5), &POLICY), Moved::Bytes(0), "silent since the post");
        peer.sample(Nanos(10), answered(6), false, &POLICY);
        assert_eq!(peer.moved(Nanos(5), &POLICY), Moved::Some);
    }

    #[test]
    fn from_afar_an_acknowledged_byte_is_not_progress_and_an_answer_is() {
        let mut peer = PeerBook::default();
        peer.sample(Nanos(1), Meter { acked: 126, ..afar(78) }, true, &POLICY);
        assert!(!peer.sample(Nanos(3), afar(78), false, &POLICY), "the kernel's buffer filled");
        assert_eq!(peer.moved(Nanos(2), &POLICY), Moved::Bytes(0));
        assert!(peer.sample(Nanos(4), afar(141), false, &POLICY), "one put was taken");
        assert_eq!(peer.moved(Nanos(2), &POLICY), Moved::Some);
    }

    #[test]
    fn from_afar_the_answers_of_completed_transfers_are_not_the_open_ones() {
        let mut peer = PeerBook::default();
        peer.sample(Nanos(1), afar(78), true, &POLICY);
        peer.complete(Nanos(5), 65_536);
        assert!(peer.sample(Nanos(6), afar(150), false, &POLICY));
        assert!(!peer.moved(Nanos(4), &POLICY).any(), "the growth may be the completed one's");
        assert!(peer.sample(Nanos(7), afar(159), false, &POLICY));
        assert_eq!(peer.moved(Nanos(4), &POLICY), Moved::Some);
    }

    #[test]
    fn what_was_left_over_before_the_post_is_not_the_open_transfers() {
        let mut peer = PeerBook::default();
        peer.sample(Nanos(1), meter(100, 0), true, &POLICY);
        peer.sample(Nanos(2), meter(600_000, 0), false, &POLICY);
        assert_eq!(peer.moved(Nanos(5), &POLICY), Moved::Bytes(0), "nothing was taken since");
        peer.sample(Nanos(6), meter(700_000, 0), false, &POLICY);
        assert!(peer.moved(Nanos(5), &POLICY).any());
    }

    #[test]
    fn a_completion_read_just_after_the_end_is_the_old_processs() {
        let mut peer = PeerBook::default();
        let gone_at = Nanos::from_secs(5);
        peer.gone_at = Some(gone_at);
        peer.complete(gone_at.plus(Nanos::from_millis(100)), 10);
        assert_eq!(peer.ended_untaken(), Some(gone_at));
        peer.complete(gone_at.plus(Nanos::from_millis(1500)), 10);
        assert_eq!(peer.ended_untaken(), None, "its successor took that");
    }
}
