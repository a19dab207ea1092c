//! Ring records as facts.

use std::collections::BTreeSet;

use inflightd_abi::layout::NIXL_SUCCESS;
use inflightd_abi::record::{self, Kind, Mark, Record, XferPost};
use inflightd_abi::table;
use inflightd_core::fact::{Handle, Seq, Tid, Worker};
use inflightd_core::{Event, Fact, Nanos, Sight, Source};

use super::unhooked::notified;
use super::{Agent, DOUBTED};
use crate::clock::Clock;
use crate::names::PeerName;
use crate::proc;
use crate::worker::{self, Out};

/// So long after a thread's end it is looked whether its process ends: as long as the judge waits
/// before it tells of a dead thread, and more.
const ENDING_LOOKS: Nanos = Nanos::from_secs(2);

impl Agent {
    /// Takes one record from the ring.
    pub(super) fn take(&mut self, record: &Record) {
        let head = record.head();
        let (at, tid) = (Nanos(head.at), Tid(head.tid));
        match record {
            Record::Mark(kind, mark) => self.take_mark(*kind, mark),
            Record::Append(append) => {
                let Some(number) = self.marked(head.tgid, append.worker) else {
                    return;
                };
                self.with(number, |watched, out| {
                    let table = watched.mapped.as_ref().and_then(|m| m.table().ok());
                    watched.tracker.append_marked(append, table.as_ref(), out);
                });
            }
            Record::XferPost(post) => self.take_post(post),
            Record::XferRet(ret) => {
                if ret.status < 0 {
                    self.failed(head.tgid, at);
                }
                let fact = Fact::XferRet(tid, Handle(ret.handle), ret.status);
                self.tell_wire(head.tgid, tid, at, fact);
            }
            Record::XferRelease(ret) => {
                let (handle, status) = (Handle(ret.handle), (ret.known == 1).then_some(ret.status));
                if status.is_some_and(|status| status < 0) {
                    self.failed(head.tgid, at);
                }
                let fact = Fact::XferRelease(handle, status);
                if let Some(worker) = self.tell_wire(head.tgid, tid, at, fact) {
                    self.note_release(worker, handle, status == Some(NIXL_SUCCESS));
                }
            }
            Record::Flush(flush) => {
                let fact = Fact::Flush { tid, ep: flush.ep, request: flush.request };
                self.tell_wire(head.tgid, tid, at, fact);
            }
            Record::FlushDone(done) => {
                let status = (done.known == 1).then_some(done.status);
                if status.is_some_and(|status| status < 0) {
                    self.failed(head.tgid, at);
                }
                self.tell_process(head.tgid, at, &Fact::FlushDone(done.completion, status));
            }
            Record::EpError(error) => {
                self.failed(head.tgid, at);
                self.tell_process(head.tgid, at, &Fact::EpError(error.ep, error.status));
            }
            Record::Exit(exit) => self.take_exit(exit),
            Record::Batch(batch) => self.take_batch(Kind::Batch, batch),
            Record::BatchEnd(batch) => self.take_batch(Kind::BatchEnd, batch),
        }
    }

    fn take_mark(&mut self, kind: Kind, mark: &Mark) {
        let (at, tid, seq) = (Nanos(mark.head.at), Tid(mark.head.tid), Seq(mark.seq));
        if kind == Kind::Open {
            self.census.hint_marked(mark.head.tgid);
            return;
        }
        let Some(number) = self.marked(mark.head.tgid, mark.worker) else {
            return;
        };
        let fact = match kind {
            Kind::Post => Fact::Post(seq, mark.a),
            Kind::Done => Fact::Done(seq, mark.a, mark.b == 1),
            Kind::Phase => Fact::Phase(seq, worker::phase(table::Phase::from_code(mark.a))),
            _ => Fact::Beat,
        };
        if has_failed(kind, mark) {
            self.fresh.want(number, at);
        }
        self.with(number, |watched, out| {
            let table = watched.mapped.as_ref().and_then(|mapped| mapped.table().ok());
            let (table, tracker) = (table.as_ref(), &mut watched.tracker);
            match kind {
                Kind::Serve => {
                    let work = tracker.work_of(tid).marked(mark.seq, mark.a);
                    tracker.serve_marked(at, tid, work, table, out);
                }
                Kind::ServeEnd => {
                    tracker.serve_marked(at, tid, worker::Work::None, table, out);
                }
                Kind::Remove => {
                    let outcome = worker::outcome(table::Outcome::from_code(mark.a));
                    tracker.remove_marked(at, seq, outcome, table, out);
                }
                _ => tracker.room_marked(at, seq, fact, table, out),
            }
        });
    }

    fn take_post(&mut self, post: &XferPost) {
        let known = post.layout != 0;
        let name = record::text(&post.peer);
        // A name that fills its field was cut: it names nobody.
        let whole = known && !name.is_empty() && name.len() < record::NAME_BYTES;
        let peer = whole.then(|| self.names.peer(PeerName::nixl(name))).flatten();
        let (at, tid) = (Nanos(post.head.at), Tid(post.head.tid));
        let notification = record::text(&post.notif);
        // One that was cut could end otherwise than it seems to.
        let is_whole = notification.len() == usize::try_from(post.notif_len).unwrap_or(0);
        let room = std::str::from_utf8(notification).ok().filter(|_| known && is_whole);
        let handle = Handle(post.handle);
        let fact = Fact::XferPost {
            tid,
            handle,
            peer,
            bytes: known.then_some(post.bytes),
            descs: known.then_some(post.descs),
            room: room.and_then(notified),
        };
        if self.workers_of(post.head.tgid).is_empty() {
            self.adopt(post.head.tgid, at);
        }
        let worker = self.tell_wire(post.head.tgid, tid, at, fact);
        if let (Some(worker), Some(peer)) = (worker, peer) {
            self.note_post(worker, handle, (peer, post.bytes), at);
        }
        if let (Some(worker), false) = (worker, known) {
            self.doubt(worker, at);
        }
    }

    /// A handle could not be read with the layout of its build: nor can the others.
    fn doubt(&mut self, number: Worker, at: Nanos) {
        let Some(watched) = self.workers.get_mut(&number) else {
            return;
        };
        watched.implausible = true;
        if watched.sights.get(&Source::Transfers) == Some(&Sight::Visible) {
            self.cover(number, Source::Transfers, DOUBTED, at);
        }
    }

    /// The worker of a mark. One that is not known yet is looked for at once.
    fn marked(&mut self, pid: u32, index: u64) -> Option<Worker> {
        let found = self
            .workers
            .values()
            .find(|watched| watched.pid == pid && watched.index == index)
            .map(|watched| watched.number);
        if found.is_none() {
            self.census.hint_marked(pid);
            self.unplaced += 1;
        }
        found
    }

    /// Tells what a thread did on the wire to the worker that it works for. In a process with
    /// several workers that is the one whose rooms it has served, else the first.
    pub(super) fn tell_wire(
        &mut self,
        pid: u32,
        tid: Tid,
        at: Nanos,
        fact: Fact,
    ) -> Option<Worker> {
        let mut of_process = self.workers.values().filter(|watched| watched.pid == pid);
        let first = of_process.clone().next();
        let worker = of_process
            .find(|watched| watched.tracker.knows_thread(tid))
            .or(first)
            .map(|watched| watched.number)?;
        self.events.push(Event { at, worker, fact });
        Some(worker)
    }

    /// Tells what happened to a process to all its workers.
    pub(super) fn tell_process(&mut self, pid: u32, at: Nanos, fact: &Fact) {
        let workers = self.workers.values().filter(|watched| watched.pid == pid);
        self.events.extend(workers.map(|watched| Event {
            at,
            worker: watched.number,
            fact: fact.clone(),
        }));
    }

    fn take_exit(&mut self, exit: &record::Exit) {
        let (at, pid, tid) = (Nanos(exit.head.at), exit.head.tgid, Tid(exit.head.tid));
        for number in self.workers_of(pid) {
            self.with(number, |watched, out| {
                if watched.tracker.thread_ended(at, tid, out) {
                    watched.lost_thread_at = Some(at);
                }
            });
        }
        if exit.group_dead == 1 {
            self.process_gone(pid, at);
        }
    }

    /// A thread that ends with its process is no dead worker thread. The last one comes late where
    /// there is much to clear away, and older kernels do not say which one it is: so whose thread has
    /// just ended is looked at. Not once only: a thread that takes its kill shows neither that nor its
    /// end for a moment.
    pub(super) fn bury_ending(&mut self, now: Nanos) {
        let bereaved = self.workers.values().filter(|watched| {
            watched.lost_thread_at.is_some_and(|at| now.since(at) < ENDING_LOOKS)
        });
        let pids: BTreeSet<u32> = bereaved.map(|watched| watched.pid).collect();
        for pid in pids.into_iter().filter(|pid| proc::is_ending(*pid)) {
            self.process_gone(pid, now);
        }
    }

    /// Runs `act` on a worker with the place where its facts go.
    pub(super) fn with(
        &mut self,
        number: Worker,
        act: impl FnOnce(&mut worker::Watched, &mut Out<'_>),
    ) {
        if let Some(watched) = self.workers.get_mut(&number) {
            let (names, events) = (&mut self.names, &mut self.events);
            let mut out = Out { names, events, clock: Clock::now };
            act(watched, &mut out);
        }
    }
}

/// Whether a mark says that a transfer or its room failed.
fn has_failed(kind: Kind, mark: &Mark) -> bool {
    match kind {
        Kind::Done => mark.b != 1,
        Kind::Phase => table::Phase::from_code(mark.a) == table::Phase::Failed,
        Kind::Remove => table::Outcome::from_code(mark.a) == table::Outcome::Failed,
        _ => false,
    }
}
