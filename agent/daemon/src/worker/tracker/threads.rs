//! What the worker's threads do, by their marks.

use inflightd_abi::table::{self, Table};
use inflightd_core::fact::Tid;
use inflightd_core::{Fact, Nanos};

use super::{Out, Tracker};
use crate::worker::Work;

impl Tracker {
    /// Whether a thread is known to work, or to have worked, for this worker.
    pub fn knows_thread(&self, tid: Tid) -> bool {
        self.serving.contains_key(&tid)
    }

    /// What a thread works for.
    pub fn work_of(&self, tid: Tid) -> Work {
        self.serving.get(&tid).copied().unwrap_or(Work::None)
    }

    /// A thread begins or ends its work for a room.
    pub fn serve_marked(
        &mut self,
        at: Nanos,
        tid: Tid,
        work: Work,
        table: Option<&Table<'_>>,
        out: &mut Out<'_>,
    ) {
        if self.serving.len() < table::THREADS_MAX || self.serving.contains_key(&tid) {
            self.serving.insert(tid, work);
        }
        match work {
            Work::Room(seq, _) => self.room_marked(at, seq, Fact::Serve(tid, seq), table, out),
            Work::Early(after) => self.tell(out, at, Fact::ServeEarly(tid, after)),
            Work::None => self.tell(out, at, Fact::ServeEnd(tid)),
        }
    }

    /// A thread of the worker's process ended. Returns whether it had worked for this worker.
    pub fn thread_ended(&mut self, at: Nanos, tid: Tid, out: &mut Out<'_>) -> bool {
        let served = self.serving.remove(&tid).is_some();
        if served {
            self.tell(out, at, Fact::ThreadExit(tid));
        }
        served
    }
}
