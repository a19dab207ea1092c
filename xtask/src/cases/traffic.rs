//! The healthy rooms beside the victims: a steady trickle to the other decode.

use std::time::Duration;

use serde_json::{Value, json};

use super::file::Beside;
use super::record::Stay;
use super::step::Who;
use crate::clock::Moment;

/// Rooms that may be open at once: more would measure the machine, not the agent.
const OPEN: usize = 6;
/// Shards from 1 on serve the healthy rooms.
const SHARDS: u64 = 3;

/// Which healthy room comes next, and when.
pub(super) struct Traffic {
    beside: Beside,
    sent: u64,
    next: Option<Moment>,
    stopped: bool,
}

impl Traffic {
    /// Nothing sent yet.
    pub(super) fn new(beside: &Beside) -> Self {
        Self { beside: beside.clone(), sent: 0, next: None, stopped: true }
    }

    /// Let rooms come from now on.
    pub(super) const fn begin(&mut self) {
        self.stopped = false;
    }

    /// Let no more rooms come.
    pub(super) const fn stop(&mut self) {
        self.stopped = true;
    }

    /// Whether no more rooms will come.
    pub(super) const fn is_over(&self) -> bool {
        let all = self.beside.at_most;
        self.stopped || (all > 0 && self.sent >= all)
    }

    /// How many rooms the prefill was told to append.
    pub(super) const fn sent(&self) -> u64 {
        self.sent
    }

    /// The command that appends the next room, when one is due. `forgotten` further stays are over.
    pub(super) fn due(&mut self, now: Moment, stays: &[Stay], forgotten: u64) -> Option<Value> {
        let told = stays.len() as u64 + forgotten;
        let open = stays.iter().filter(|stay| stay.removed.is_none()).count();
        let early = self.next.is_some_and(|next| now < next);
        if self.is_over() || early || open >= OPEN || told + OPEN as u64 <= self.sent {
            return None;
        }
        self.next = Some(now.plus(Duration::from_millis(self.beside.every_ms)));
        let turn = usize::try_from(self.sent).unwrap_or(0) % self.beside.bytes.len().max(1);
        let bytes = self.beside.bytes.get(turn).copied().unwrap_or(1);
        let shard = 1 + self.sent % SHARDS;
        Some(self.one(Who::Well, bytes, shard).1)
    }

    /// The id of one more healthy room and the command that appends it.
    ///
    /// Ids count from 0 unless the case says otherwise: 0 is a real room like any other.
    pub(super) fn one(&mut self, to: Who, bytes: u64, shard: u64) -> (u64, Value) {
        let room = self.beside.first + self.sent;
        self.sent += 1;
        let command = json!({
            "do": "append", "room": room, "to": to.agent(), "bytes": bytes,
            "chunk": self.beside.chunk, "shard": shard,
        });
        (room, command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::file::tests::sample;

    #[test]
    fn rooms_come_in_turn_and_not_before_their_time() {
        let mut traffic = Traffic::new(&sample().beside);
        let start = Moment(1_000_000_000);
        assert!(traffic.due(start, &[], 0).is_none(), "not begun");
        traffic.begin();
        assert_eq!(traffic.due(start, &[], 0).unwrap()["room"], 0);
        assert!(traffic.due(start, &[], 0).is_none(), "too soon");
        assert_eq!(traffic.due(start.plus(Duration::from_millis(50)), &[], 0).unwrap()["room"], 1);
        traffic.stop();
        assert!(traffic.due(start.plus(Duration::from_secs(9)), &[], 0).is_none(), "stopped");
    }

    #[test]
    fn a_pair_that_does_not_keep_up_is_not_flooded() {
        let mut traffic = Traffic::new(&sample().beside);
        traffic.begin();
        let sent = (0..100).filter(|turn| {
            let now = Moment(1).plus(Duration::from_secs(*turn));
            traffic.due(now, &[], 0).is_some()
        });
        assert_eq!(sent.count(), OPEN);
    }

    #[test]
    fn a_limit_on_their_number_is_kept() {
        let mut case = sample();
        case.beside.at_most = 1;
        let mut traffic = Traffic::new(&case.beside);
        traffic.begin();
        assert!(traffic.due(Moment(1), &[], 0).is_some());
        assert!(traffic.is_over());
    }
}
