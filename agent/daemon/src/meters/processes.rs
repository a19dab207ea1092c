//! Whether the peers' processes live.

use std::collections::{BTreeMap, BTreeSet};

use inflightd_core::Nanos;
use inflightd_core::fact::{Life, Peer, Worker};

use crate::proc::Stat;

/// An unchanged state is told again so often.
const AGAIN: Nanos = Nanos::from_secs(5);
/// Most pairs of worker and peer whose state is remembered. Beyond it each reading is told.
const PAIRS_MAX: usize = 64 * 1024;

/// The state of a process that was found with this start time.
pub fn life(pid: u32, start: u64) -> Life {
    Stat::of(pid).map_or(Life::Gone, |stat| life_of(&stat, start))
}

fn life_of(stat: &Stat, began: u64) -> Life {
    if stat.start != began || stat.is_gone() {
        Life::Gone
    } else if stat.is_stopped() {
        Life::Stopped
    } else {
        Life::Running
    }
}

/// What was last told.
#[derive(Debug, Default)]
pub struct Lives {
    told: BTreeMap<(Worker, Peer), (Life, Nanos)>,
}

impl Lives {
    /// Whether a peer's state is to be told now; remembers that it was.
    pub fn is_news(&mut self, worker: Worker, peer: Peer, life: Life, now: Nanos) -> bool {
        let key = (worker, peer);
        let known = self.told.get(&key).copied();
        let is_news = known.is_none_or(|(was, at)| was != life || now.since(at) >= AGAIN);
        if is_news && (known.is_some() || self.told.len() < PAIRS_MAX) {
            self.told.insert(key, (life, now));
        }
        is_news
    }

    /// Whether a peer's process was told of.
    pub fn has_seen(&self, worker: Worker, peer: Peer) -> bool {
        self.told.get(&(worker, peer)).is_some_and(|(life, _)| *life != Life::Unseen)
    }

    /// Forgets the peers that are not in `used`.
    pub fn keep(&mut self, used: &BTreeSet<Peer>) {
        self.told.retain(|(_, peer), _| used.contains(peer));
    }

    /// A worker has ended.
    pub fn forget(&mut self, worker: Worker) {
        self.told.retain(|(of, _), _| *of != worker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_told_on_change_and_now_and_then() {
        let mut lives = Lives::default();
        let mut news = |life, secs| lives.is_news(Worker(0), Peer(1), life, Nanos::from_secs(secs));
        assert!(news(Life::Running, 1));
        assert!(!news(Life::Running, 2));
        assert!(news(Life::Stopped, 3));
        assert!(!news(Life::Stopped, 7));
        assert!(news(Life::Stopped, 8));
    }

    #[test]
    fn a_reused_pid_is_another_process() {
        let stat = Stat { state: b'S', flags: 0, start: 7, vsize: 1, threads: 1 };
        assert_eq!(life_of(&stat, 7), Life::Running);
        assert_eq!(life_of(&stat, 6), Life::Gone);
        assert_eq!(life_of(&Stat { state: b'T', ..stat }, 7), Life::Stopped);
        assert_eq!(life_of(&Stat { state: b'Z', ..stat }, 7), Life::Gone);
        // The first thread has ended, the others live on.
        let leaderless = Stat { state: b'Z', threads: 3, ..stat };
        assert_eq!(life_of(&leaderless, 7), Life::Running);
    }

    #[test]
    fn a_stopped_child_is_seen_and_so_is_its_end() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let start = Stat::of(child.id()).unwrap().start;
        let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
        assert_eq!(life(child.id(), start), Life::Running);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        let becomes = |wanted| {
            (0..500).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(10));
                life(child.id(), start) == wanted
            })
        };
        assert!(becomes(Life::Stopped));
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        assert!(becomes(Life::Gone), "not reaped yet, and gone all the same");
        child.wait().unwrap();
        assert_eq!(life(child.id(), start), Life::Gone);
    }
}
