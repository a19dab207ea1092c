//! What earlier lives of the agent have left: rooms they told of, verdicts that stand.

use std::collections::BTreeMap;

use inflightd_core::fact::{Seq, Worker};
use inflightd_core::{Fact, Nanos, Reason, Sight, Source};

use super::Agent;
use crate::discover::Read;
use crate::identity::Identity;
use crate::journal::Past;
use crate::names::{About, PeerName, RoomName, WorkerName};
use crate::proc::lives;
use crate::worker::{Removals, Tracker, Watched};

impl Agent {
    pub(super) fn identity(&self, read: &Read, about: &About) -> Identity {
        Identity { boot: self.boot.clone(), pid: read.pid, start: read.start, index: about.index }
    }

    /// What is known of a worker that was just found; `before` are the removals that need no
    /// telling if no earlier life knew it.
    pub(super) fn past(&self, read: &Read, about: &About, before: Removals) -> Past {
        let identity = self.identity(read, about);
        self.teller.past(&identity).unwrap_or_else(|| Past {
            identity,
            role: about.role.clone(),
            engine: about.engine.clone(),
            version: about.version.clone(),
            names: about.identities.iter().map(|name| name.clone().into()).collect(),
            told: before,
            open: BTreeMap::new(),
            standing: BTreeMap::new(),
        })
    }

    /// Takes over the rooms and verdicts of earlier lives. The table has been read.
    pub(super) fn resume(&mut self, number: Worker, past: &Past, now: Nanos) {
        self.with(number, |watched, out| {
            for (seq, open) in &past.open {
                watched.tracker.restore((*seq, *open), RoomName::default(), now, out);
            }
        });
        for (seq, (finding, cause)) in &past.standing {
            self.tell(number, now, Fact::Told(*seq, *finding, *cause));
        }
    }

    /// Names the workers that ended in earlier lives: rooms may wait for them still.
    pub(super) fn remember_gone(&mut self) {
        for gone in self.teller.gone() {
            let number = self.number();
            let identities = gone.names.into_iter().map(PeerName::from).collect();
            let about = About { identities, ..About::unread() };
            self.names.add_worker(number, WorkerName { identity: gone.identity, about });
            self.names.end_worker(number, Nanos(gone.at));
        }
    }

    /// The number that the table gave to a room's removal; 0 where it has none.
    pub(super) fn removal_of(&mut self, worker: Worker, seq: Seq) -> u64 {
        self.workers
            .get_mut(&worker)
            .or_else(|| self.ended.iter_mut().find(|watched| watched.number == worker))
            .map_or(0, |watched| watched.tracker.take_number(seq))
    }

    /// A worker number that was never used.
    pub(super) fn number(&mut self) -> Worker {
        let number = Worker(self.next_worker);
        self.next_worker += 1;
        number
    }

    /// Tells the end of rooms whose worker went while no agent was there.
    pub(super) fn bury_strangers(&mut self, now: Nanos) {
        for past in self.teller.strangers() {
            let (pid, start) = (past.identity.pid, past.identity.start);
            if !lives(pid, start) {
                self.bury_stranger(&past, now);
            }
        }
    }

    fn bury_stranger(&mut self, past: &Past, now: Nanos) {
        let number = self.number();
        let about = About {
            index: past.identity.index,
            role: past.role.clone(),
            engine: past.engine.clone(),
            version: past.version.clone(),
            identities: past.names.iter().cloned().map(PeerName::from).collect(),
            ..About::unread()
        };
        let name = WorkerName { identity: past.identity.clone(), about };
        self.introduce(number, name, now);
        self.teller.meet(number, past);
        let tracker = Tracker::new(number, now, past.told.clone());
        let process = (past.identity.pid, past.identity.start);
        self.workers.insert(number, Watched::new(number, process, None, tracker));
        self.tell(number, now, Fact::Found);
        self.cover(number, Source::Table, Sight::Blind(Reason::ReadFailed), now);
        self.resume(number, past, now);
        self.end(number, now);
    }
}
