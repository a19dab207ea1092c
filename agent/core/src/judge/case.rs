//! What follows from a case, one question each.

use super::{Case, PeerCase};
use crate::coverage::Source;
use crate::fact::{Life, Meter, Phase};
use crate::policy::Policy;
use crate::time::Nanos;

/// Least bytes that a peer has answered once a connection to it is set up: 78 with UCX over TCP.
/// One that was stopped before that had answered none or 9 (measured).
const SET_UP_ANSWER_MIN: u64 = 64;

impl PeerCase {
    /// Whether what it takes shows by its connections.
    pub(crate) fn is_metered(&self) -> bool {
        !self.unmetered && self.meter.is_some_and(|(_, meter)| meter.connections > 0)
    }
}

/// Payload that is taken so long after a process has ended is taken by another: the last of its own may be
/// noticed late.
const MOVES_ON: Nanos = Nanos::from_secs(1);

impl Case<'_> {
    /// Bytes that have arrived, by completed transfers or by what the peers took, whichever is
    /// more; never more than were posted where that is known.
    pub fn arrived(&self) -> u64 {
        if self.posts == 0 {
            // What its peers took was others'.
            return self.bytes.completed;
        }
        let taken = self.peers.iter().map(|peer| peer.moved.bytes()).sum::<u64>();
        let arrived = self.bytes.completed.saturating_add(taken);
        if self.bytes.posted == 0 { arrived } else { arrived.min(self.bytes.posted) }
    }

    /// Whether payload of this room is known to have moved, or may have where nothing counts it.
    pub(super) fn has_moved(&self) -> bool {
        self.posts > 0 && (self.anything_moved() || self.unseen_bytes_to().is_some())
    }

    pub(super) fn anything_moved(&self) -> bool {
        let counted = self.operations.is_some_and(|(_, bytes)| bytes > 0);
        self.bytes.completed > 0 || counted || self.peers.iter().any(|peer| peer.moved.any())
    }

    /// Nothing was seen posted, which says nothing here.
    pub(super) const fn posts_do_not_show(&self) -> bool {
        self.posts == 0 && !self.posts_would_show
    }

    /// Every transfer was posted and has completed: only the scheduler's act is missing.
    pub(super) fn is_complete(&self) -> bool {
        self.phase == Phase::DoneHere || self.all_arrived()
    }

    fn all_arrived(&self) -> bool {
        self.posts > 0
            && self.open_transfers == 0
            && self.failure.is_none()
            && (self.bytes.completed > 0 || self.calls_ended)
            && self.bytes.completed >= self.bytes.posted.max(self.bytes.expected)
    }

    /// It stays because of others before it, whose own verdict tells why they stay.
    pub(super) fn is_queued(&self) -> bool {
        self.ahead.is_some() && self.phase != Phase::Parked
    }

    /// Bytes of open transfers that nothing counts may have gone to a peer: one that the worker
    /// has talked to, and writes to past its connections, or any that has no connection which is
    /// metered and whose operations are counted only now.
    pub(super) fn unseen_bytes_to(&self) -> Option<&PeerCase> {
        let counted_late = self.counted_since.is_some();
        let reached = |peer: &&PeerCase| {
            let answered = peer.meter.is_some_and(|(_, meter)| meter.received >= SET_UP_ANSWER_MIN);
            let unmetered = peer.unmetered && (answered || peer.reached);
            unmetered || (counted_late && !peer.is_metered())
        };
        self.peers.iter().find(reached).filter(|_| self.open_transfers > 0)
    }

    /// When something that does not pass by itself has to be told, where anything has happened: the
    /// engine gets the grace to end the room. Of a peer's end its library has to hear first, which
    /// takes UCX up to 0.7 s (measured on a loaded machine).
    pub(super) fn hard_due(&self, policy: &Policy) -> Option<Nanos> {
        if self.inflight.is_some() {
            // One of its peers may end while its rooms are others'.
            return None;
        }
        let grace = policy.hard_grace;
        // What waits behind others has not met its peer yet, nor its failure.
        let gone = self.ended_under_it().filter(|_| !self.is_queued());
        let gone = gone.map(|at| at.plus(grace).plus(grace));
        let thread = self.thread_gone.map(|(_, at)| at.plus(grace)).filter(|_| self.hooked);
        let failure = self.failed_at().map(|at| at.plus(grace));
        [failure.or(gone), thread].into_iter().flatten().min()
    }

    /// When a transfer or an endpoint first failed since payload last moved.
    fn failed_at(&self) -> Option<Nanos> {
        // A failed try that was followed by progress was mended.
        let failures = [self.failure, self.endpoint_failure].into_iter().flatten();
        // The engine's bare word is no hard evidence: it knows, and may well try again.
        let failures = failures.filter(|failure| failure.code != 0);
        let broken = self.peers.iter().filter_map(|peer| peer.meter?.1.broken);
        let failure = failures.map(|failure| failure.at).chain(broken).min();
        failure.filter(|at| *at >= self.last_progress)
    }

    /// When the process that was the peer as this room entered ended, if it did.
    pub(super) fn gone_at(&self, peer: &PeerCase) -> Option<Nanos> {
        let gone_at = peer.gone_at.filter(|at| *at >= self.appended_at);
        let gone_at = gone_at.or_else(|| (peer.life.0 == Life::Gone).then_some(peer.life.1));
        // Whoever has taken payload since is another than who ended, by whatever name.
        let is_only = self.peers.len() == 1;
        let moved = (self.last_progress > self.appended_at).then_some(self.last_progress);
        gone_at.filter(|at| !is_only || moved.is_none_or(|moved| moved <= at.plus(MOVES_ON)))
    }

    /// When the process of a peer first ended while the room was in the queue.
    pub(super) fn ended_under_it(&self) -> Option<Nanos> {
        let ends = self.peers.iter().filter_map(|peer| self.gone_at(peer));
        ends.filter(|at| *at >= self.appended_at).min()
    }

    /// The room came after its peer's end, and nobody has looked since for a successor: the one
    /// who let the room in may be it.
    pub(super) fn may_be_renewed(&self) -> bool {
        self.peers.iter().any(|peer| {
            let ended_before = peer.life.0 == Life::Gone && peer.life.1 < self.appended_at;
            ended_before && peer.looked_at < self.appended_at
        })
    }

    /// When the process ended to which the room's transfers are addressed, where another goes by
    /// its name now that has taken nothing yet: posts to it go nowhere.
    pub(super) fn stale_at(&self, peer: &PeerCase) -> Option<Nanos> {
        let lives = matches!(peer.life.0, Life::Running | Life::Stopped);
        peer.stale_at.filter(|at| lives && self.first_post.is_some_and(|post| post > *at))
    }

    /// Events were lost after the table last showed the room: its state is not known until it is
    /// read again, or for ever where there is no table. What the ring alone tells, posts that the
    /// engine does not mark and their completions, no table brings back; of a parked room there
    /// is none.
    pub(super) fn is_unread_since_loss(&self) -> bool {
        let lost_at = |source| {
            let lost_at = self.coverage.lost_at(source);
            lost_at.filter(|at| *at >= self.appended_at)
        };
        let unread = |at: Nanos| at > self.read_at;
        let from_ring = !self.table_tells_posts && self.phase != Phase::Parked;
        let wire = lost_at(Source::Transfers).max(lost_at(Source::Completions));
        lost_at(Source::Marks).is_some_and(unread) || wire.is_some_and(|at| unread(at) || from_ring)
    }

    /// The engine polls its queue and has done so since `at`: it had its chance to act. An engine
    /// that never beats is not waited for.
    pub(super) fn engine_looked_since(&self, at: Nanos) -> bool {
        self.beat == Nanos::ZERO || self.beat >= at
    }

    /// When the last of its peers that had been stopped ran again.
    pub(crate) fn resumed_at(&self) -> Option<Nanos> {
        self.peers.iter().filter_map(|peer| peer.resumed_at).max()
    }

    /// When payload last moved at one of the ranks that a room waits for whose own part is done.
    pub(crate) fn others_progress(&self) -> Option<Nanos> {
        self.others.iter().map(|other| other.progress).max()
    }

    /// When the lack of progress becomes a stall. Of a room that was open before the agent came
    /// nothing is known from before: it is watched first, for the whole deadline unless the peers
    /// are stopped or the connections themselves remember that nothing came for so long.
    pub(super) fn stall_at(&self, policy: &Policy, now: Nanos) -> Nanos {
        // A room that was posted late, or could not be posted before, has had no time to move.
        let begun = self.first_post.max(self.unparked_at);
        let begun = begun.map_or(Nanos::ZERO, |at| at.plus(policy.suspect));
        // Nor has one that waited behind others until just now, or for a peer that was stopped.
        let excuse = self.waited_until.max(self.resumed_at()).max(self.others_progress());
        let idle_since = self.last_progress.max(excuse.unwrap_or(Nanos::ZERO));
        let stall_at = idle_since.plus(policy.stall).max(begun).max(self.counted_long_at(policy));
        let Some(late_at) = self.late_at.filter(|_| !self.is_complete()) else {
            return stall_at;
        };
        if self.posts == 0 {
            // Others may have been before it until just now; an idle thread takes it soon.
            return stall_at.max(late_at.plus(policy.suspect));
        }
        let silent = |peer: &PeerCase| {
            peer.life.0 == Life::Stopped
                || peer.meter.is_some_and(|(_, meter)| {
                    meter.last_received.is_none_or(|at| at.plus(policy.stall) <= now)
                })
        };
        let remembered = !self.peers.is_empty() && self.peers.iter().all(silent);
        let watch = if remembered { policy.suspect } else { policy.stall };
        stall_at.max(late_at.plus(watch))
    }

    /// Whether nothing can get through to a peer: all its ports are down, or its queue pairs have
    /// failed. Then nothing else has to show that it does not move.
    pub(super) fn is_cut_off(&self) -> bool {
        let cut = |(_, meter): (Nanos, Meter)| meter.link_down || meter.broken.is_some();
        self.open_transfers > 0 && self.peers.iter().any(|peer| peer.meter.is_some_and(cut))
    }

    /// Whether a source would have shown payload moving, so that its silence means something.
    pub(super) fn progress_is_visible(&self) -> bool {
        if self.posts == 0 {
            let seen = self.coverage.sees(Source::Table) || self.coverage.sees(Source::Transfers);
            return seen && self.posts_would_show;
        }
        if self.open_transfers == 0 && self.posts_would_show && self.table_tells_posts {
            // Nothing is under way, and what comes next would be a post.
            return self.coverage.sees(Source::Table);
        }
        self.is_metered() || self.counted_since.is_some()
    }

    /// Whether payload that moves shows by the connections to its peers.
    pub(crate) fn is_metered(&self) -> bool {
        let read = !self.peers.is_empty() && self.peers_whole;
        read && self.peers.iter().all(PeerCase::is_metered)
            && self.coverage.sees(Source::Connections)
    }

    /// From when on the silence of a room says something of which only a count tells that began when
    /// it had become a suspect. What is stopped or cut off needs no count to be still.
    fn counted_long_at(&self, policy: &Policy) -> Nanos {
        let stopped = self.peers.iter().any(|peer| peer.life.0 == Life::Stopped);
        let rests = !self.is_metered() && !stopped && !self.is_cut_off();
        let since = self.counted_since.filter(|_| rests);
        since.map_or(Nanos::ZERO, |at| {
            at.plus(Nanos(policy.stall.0.saturating_sub(policy.suspect.0)))
        })
    }

    pub(super) fn beat_is_fresh(&self, policy: &Policy, now: Nanos) -> bool {
        self.beat.plus(policy.beat_fresh) >= now
    }

    /// The next act is the scheduler's, which is busy elsewhere: one long forward pass is normal.
    pub(super) fn waits_for_busy_scheduler(&self, policy: &Policy, now: Nanos) -> bool {
        let wedged = self.beat.plus(policy.scheduler_wedged) <= now;
        let rests_on_it = self.is_complete() || (self.posts == 0 && !self.served);
        // A deadline shorter than `beat_fresh` must not take an older poll for its chance to act, nor
        // one so soon after the last byte that the thread had not told the scheduler of it yet.
        let chance = self.last_progress.plus(policy.hard_grace);
        let polled = self.beat_is_fresh(policy, now) && self.beat >= chance;
        rests_on_it && self.beat != Nanos::ZERO && !wedged && !polled
    }

    /// A first transfer whose connection is just being set up has longer.
    pub(super) fn is_being_set_up(&self, policy: &Policy, now: Nanos) -> bool {
        let Some(first_post) = self.first_post else {
            return false;
        };
        let recent = |peer: &PeerCase| {
            peer.life.0 != Life::Stopped
                && peer.meter.is_some_and(|(_, meter)| {
                    meter.received <= policy.setup_answer
                        && meter.last_received.is_some_and(|at| at.plus(policy.setup_recent) >= now)
                })
        };
        !self.anything_moved()
            && now < first_post.plus(policy.setup_grace)
            && self.peers.iter().any(recent)
    }
}
