//! Deadlines and tolerances.

use crate::time::Nanos;

/// When the judge speaks. Every clock starts at the append and is set back by payload bytes only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// No progress for so long: a suspect; meters are read more often.
    pub suspect: Nanos,
    /// No progress for so long: a stall.
    pub stall: Nanos,
    /// The same for rooms whose far ends end a silent transfer themselves, but later: Mooncake
    /// sessions do after 30 s.
    pub stall_mooncake: Nanos,
    /// In the queue for so long although bytes move: said, not alarmed.
    pub max_dwell: Nanos,
    /// How long the engine has to end a room by itself after hard evidence (peer gone, endpoint
    /// failed) before the verdict. SGLang 0.5.23 needs 10 ms to 0.5 s.
    pub hard_grace: Nanos,
    /// A beat younger than this shows a scheduler that polls its queue.
    pub beat_fresh: Nanos,
    /// No beat for so long while rooms are open: the scheduler is wedged.
    pub scheduler_wedged: Nanos,
    /// A first transfer to a peer may take this long while its connection is being set up.
    pub setup_grace: Nanos,
    /// A connection is "being set up" so long after a byte of it was last seen.
    pub setup_recent: Nanos,
    /// Least growth of the bytes that a peer has taken that counts as payload.
    pub payload_min: u64,
    /// Least growth of the bytes received from a peer that counts as its answer: one
    /// acknowledgement of UCX over TCP (measured: 9 bytes).
    pub answer_min: u64,
    /// Bytes that the peer may take while a connection is set up, no payload (measured: 125).
    pub setup_bytes: u64,
    /// Bytes that a peer may answer while a connection is set up (measured: 78).
    pub setup_answer: u64,
}

impl Policy {
    /// The design's deadlines, for a fleet.
    pub const DEFAULT: Self = Self {
        suspect: Nanos::from_secs(5),
        stall: Nanos::from_secs(30),
        stall_mooncake: Nanos::from_secs(35),
        max_dwell: Nanos::from_secs(600),
        hard_grace: Nanos::from_millis(600),
        beat_fresh: Nanos::from_secs(5),
        scheduler_wedged: Nanos::from_secs(300),
        setup_grace: Nanos::from_secs(60),
        setup_recent: Nanos::from_secs(10),
        payload_min: 256,
        answer_min: 9,
        setup_bytes: 4096,
        setup_answer: 128,
    };

    /// The policy for one room: `patient` ones have the longer stall.
    #[must_use]
    pub const fn of_room(mut self, patient: bool) -> Self {
        if patient {
            self.stall = self.stall_mooncake;
        }
        self
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::DEFAULT
    }
}
