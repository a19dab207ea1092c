//! The calls of `inflight.h`. Every one of them: guard, then table, then marker.

use core::ffi::{c_char, c_int};
use core::ptr;

use inflightd_abi::table::{
    Change, CommandState, Gauge, NewEntry, Outcome, Phase, Seq, Serve, Table,
};

use crate::args::{self, Fail, OpenArgs, Peer, Peers};
use crate::error::OpenError;
use crate::sys::Errno;
use crate::worker::{self, Open, Worker};
use crate::{guard, mark, memory, sys};

/// What `inflight_serve` answers.
const GO: c_int = 1;
const HELD: c_int = 0;

/// Opens a worker's table. 0 and a handle in `*worker`, or an error code and NULL; `*os_error`
/// then has the kernel's error number, or 0.
///
/// # Safety
///
/// As `inflight.h` says: the pointers are NULL or valid, texts end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inflight_open(
    args: *const OpenArgs,
    worker: *mut *const Worker,
    os_error: *mut c_int,
) -> c_int {
    // SAFETY: vouched for by the caller.
    let (handle, code, errno) = match unsafe { open(args) } {
        Ok(handle) => (handle, 0, 0),
        Err((why, Errno(errno))) => (ptr::null(), why.code(), errno),
    };
    if !worker.is_null() {
        // SAFETY: vouched for by the caller.
        unsafe { worker.write(handle) };
    }
    if !os_error.is_null() {
        // SAFETY: vouched for by the caller.
        unsafe { os_error.write(errno) };
    }
    code
}

/// # Safety
///
/// `args` is as [`args::checked`] and [`args::text`] require.
unsafe fn open(args: *const OpenArgs) -> Result<*const Worker, (OpenError, Errno)> {
    // SAFETY: vouched for by the caller.
    let args = unsafe { args::checked(args) }.ok_or((OpenError::Args, Errno(0)))?;
    guard::arm()?;
    let words = memory::make()?;
    // SAFETY: just made.
    let (Some(index), Some(table)) = (worker::reserve(), unsafe { worker::table(words) }) else {
        // SAFETY: nobody has seen it.
        unsafe { memory::discard(words) };
        return Err((OpenError::TooMany, Errno(0)));
    };
    // SAFETY: vouched for by the caller.
    let identities = unsafe { Peers::read(args.identities, args.identities_len) };
    // SAFETY: likewise.
    let header =
        unsafe { args::header(&args, identities.as_slice(), sys::process_id(), index as u64) };
    table.write_header(sys::now(), &header);
    let handle = worker::publish(index, words);
    mark::inflight_mark_open(index as u64, 0, u64::from(args.role));
    Ok(handle)
}

/// The worker ends: rooms that are still open leave as aborted, and the handle is off for good.
#[unsafe(no_mangle)]
pub extern "C" fn inflight_close(worker: *const Worker) {
    let Some(open) = worker::open(worker) else {
        return;
    };
    let outcome = Outcome::Aborted;
    open.table.remove_all(sys::now(), outcome, |seq| {
        mark::inflight_mark_remove(open.index, seq.0, outcome as u64);
    });
    if open.table.counters().overflows > 0 {
        mark::inflight_mark_remove(open.index, Seq::ALL_UNTABLED.0, outcome as u64);
    }
    worker::close(open);
}

/// A room enters the queue. Returns its sequence, or 0 when the hook is off.
///
/// # Safety
///
/// As `inflight.h` says: `rid` and `traceparent` are NULL or end with a NUL, `peers` is NULL or
/// points at `peers_len` of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inflight_append(
    worker: *const Worker,
    room: u64,
    rid: *const c_char,
    peers: *const Peer,
    peers_len: usize,
    expected_bytes: u64,
    traceparent: *const c_char,
) -> u64 {
    let Some(Open { index, table }) = worker::open(worker) else {
        return 0;
    };
    // SAFETY: vouched for by the caller.
    let peers = unsafe { Peers::read(peers, peers_len) };
    let new = NewEntry {
        room,
        expected: expected_bytes,
        // SAFETY: vouched for by the caller.
        rid: unsafe { args::text(rid) },
        // SAFETY: likewise.
        traceparent: unsafe { args::text(traceparent) },
        peers: peers.as_slice(),
    };
    let tell = |change| match change {
        Change::Entered(seq) => {
            let rid = args::or_empty(rid);
            mark::inflight_mark_append(index, seq.0, room, expected_bytes, rid);
        }
        Change::Superseded(seq) => {
            mark::inflight_mark_remove(index, seq.0, Outcome::Superseded as u64);
        }
    };
    table.append_telling(sys::now(), &new, tell).0
}

/// This thread begins to work for a room. 1: go. 0: the room is held, do not begin.
#[unsafe(no_mangle)]
pub extern "C" fn inflight_serve(worker: *const Worker, seq: u64) -> c_int {
    let Some((Open { index, table }, seq)) = of_room(worker, seq) else {
        return GO;
    };
    match table.serve(sys::now(), sys::thread_id(), seq, sys::thread_alive) {
        Serve::Begun => mark::inflight_mark_serve(index, seq.0, 0),
        Serve::HeldAtWork => return HELD,
        Serve::Held => {
            // The room that the thread served before was left all the same.
            mark::inflight_mark_serve_end(index, 0);
            return HELD;
        }
    }
    GO
}

/// This thread begins to work for a room that is not in the queue yet. `after` is the last room
/// that had entered when the work was queued, 0 for none. [`inflight_serve`] says later which.
#[unsafe(no_mangle)]
pub extern "C" fn inflight_serve_early(worker: *const Worker, after: u64) {
    if let Some(Open { index, table }) = worker::open(worker)
        && table.serve_early(sys::now(), sys::thread_id(), Seq(after), sys::thread_alive)
    {
        mark::inflight_mark_serve(index, 0, after);
    }
}

/// This thread ends its work for the room that it was serving, if any.
#[unsafe(no_mangle)]
pub extern "C" fn inflight_serve_end(worker: *const Worker) {
    if let Some(Open { index, table }) = worker::open(worker)
        && let Some(seq) = table.serve_end(sys::thread_id())
    {
        mark::inflight_mark_serve_end(index, seq.0);
    }
}

/// A transfer call of `bytes` begins.
#[unsafe(no_mangle)]
pub extern "C" fn inflight_post(worker: *const Worker, seq: u64, bytes: u64) {
    on_room(worker, seq, |index, table, seq| {
        if table.post(sys::now(), seq, bytes) || untabled(seq) {
            mark::inflight_mark_post(index, seq.0, bytes);
        }
    });
}

/// A transfer call of `bytes` ended, well when `ok` is not 0.
#[unsafe(no_mangle)]
pub extern "C" fn inflight_done(worker: *const Worker, seq: u64, bytes: u64, ok: c_int) {
    on_room(worker, seq, |index, table, seq| {
        if table.done(sys::now(), seq, bytes, ok != 0) || untabled(seq) {
            mark::inflight_mark_done(index, seq.0, bytes, u64::from(ok != 0));
        }
    });
}

/// The engine says where the room is: `enum inflight_phase`.
#[unsafe(no_mangle)]
pub extern "C" fn inflight_phase(worker: *const Worker, seq: u64, phase: c_int) {
    let phase = Phase::from_code(u64::try_from(phase).unwrap_or(0));
    on_room(worker, seq, |index, table, seq| {
        if table.phase(seq, phase) || untabled(seq) {
            mark::inflight_mark_phase(index, seq.0, phase as u64);
        }
    });
}

/// A room leaves the queue: `enum inflight_outcome`.
#[unsafe(no_mangle)]
pub extern "C" fn inflight_remove(worker: *const Worker, seq: u64, outcome: c_int) {
    let outcome = Outcome::from_code(u64::try_from(outcome).unwrap_or(0));
    on_room(worker, seq, |index, table, seq| {
        if table.remove(sys::now(), seq, outcome) || untabled(seq) {
            mark::inflight_mark_remove(index, seq.0, outcome as u64);
        }
    });
}

/// The worker has polled its queue, and said what left. No marker: poll loops are never probed, the
/// table's heartbeat says it.
#[unsafe(no_mangle)]
pub extern "C" fn inflight_beat(worker: *const Worker) {
    if let Some(Open { table, .. }) = worker::open(worker) {
        table.beat(sys::now());
    }
}

/// The worker says how it is: `enum inflight_gauge_id`. No marker: the table says it.
#[unsafe(no_mangle)]
pub extern "C" fn inflight_gauge(worker: *const Worker, gauge: c_int, value: u64) {
    let gauge = Gauge::from_code(u64::try_from(gauge).unwrap_or(0));
    if let (Some(Open { table, .. }), Some(gauge)) = (worker::open(worker), gauge) {
        table.set_gauge(gauge, value);
    }
}

/// How often rooms of this worker have been held by the agent; 0 where the hook is off.
#[unsafe(no_mangle)]
pub extern "C" fn inflight_asked(worker: *const Worker) -> u64 {
    worker::open(worker).map_or(0, |open| open.table.asked())
}

/// What the agent asks of a room: `enum inflight_command`. 0 for one that is not in the queue.
#[unsafe(no_mangle)]
pub extern "C" fn inflight_command(worker: *const Worker, seq: u64) -> c_int {
    let command = of_room(worker, seq).and_then(|(open, seq)| open.table.command(seq));
    command.map_or(CommandState::Open, |command| command.state) as c_int
}

/// As a poll begins, on the thread that polls. 1: fail the room now, before this rank says how it
/// is; why is in `*fail`. Says so once.
///
/// # Safety
///
/// `fail` is NULL or points at a `struct inflight_fail`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inflight_carry_out(
    worker: *const Worker,
    seq: u64,
    fail: *mut Fail,
) -> c_int {
    let now = sys::now();
    let ordered = of_room(worker, seq).and_then(|(open, seq)| open.table.carry_out(seq, now));
    let Some(ordered) = ordered else {
        return 0;
    };
    if !fail.is_null() {
        // SAFETY: vouched for by the caller.
        unsafe { fail.write(Fail::of(&ordered)) };
    }
    1
}

/// After a poll that was reduced over all ranks, that this rank began at `begun` and that left the
/// room in the queue. 1: a hold on it ended by that.
#[unsafe(no_mangle)]
pub extern "C" fn inflight_polled(worker: *const Worker, seq: u64, begun: u64) -> c_int {
    let ended = of_room(worker, seq).is_some_and(|(open, seq)| open.table.polled(seq, begun));
    c_int::from(ended)
}

/// The worker and the room, unless the hook is off or was when the room was appended.
fn of_room(worker: *const Worker, seq: u64) -> Option<(Open, Seq)> {
    (seq != 0).then(|| worker::open(worker)).flatten().map(|open| (open, Seq(seq)))
}

fn on_room(worker: *const Worker, seq: u64, act: impl FnOnce(u64, Table<'_>, Seq)) {
    if let Some((Open { index, table }, seq)) = of_room(worker, seq) {
        act(index, table, seq);
    }
}

/// A room that found the table full has marks only. A late call for a room that is gone has
/// none: the table has counted it.
const fn untabled(seq: Seq) -> bool {
    seq.slot().is_none()
}
