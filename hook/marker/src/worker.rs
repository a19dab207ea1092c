//! The workers of this process: a fixed array, whose places are handed out and never given back.

use core::ptr;
use core::slice;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};

pub use inflightd_abi::table::WORKERS_MAX;
use inflightd_abi::table::{Geometry, Table};

use crate::guard;

/// `inflight_worker`: opaque to engines.
#[derive(Debug)]
pub struct Worker {
    words: AtomicPtr<AtomicU64>,
}

static WORKERS: [Worker; WORKERS_MAX] =
    [const { Worker { words: AtomicPtr::new(ptr::null_mut()) } }; WORKERS_MAX];
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// A worker that can be used: its index, which goes into the marks, and its table.
#[derive(Clone, Copy)]
pub(crate) struct Open {
    pub(crate) index: u64,
    pub(crate) table: Table<'static>,
}

/// Takes the next free place.
pub(crate) fn reserve() -> Option<usize> {
    TAKEN.fetch_update(AcqRel, Relaxed, |taken| (taken < WORKERS_MAX).then_some(taken + 1)).ok()
}

/// Views the words of a table that [`crate::memory::make`] made.
///
/// # Safety
///
/// `words` comes from there and stays mapped.
pub(crate) unsafe fn table(words: *mut AtomicU64) -> Option<Table<'static>> {
    // SAFETY: as long as the standard geometry, zeroed at first, and only ever used as atomics.
    let words = unsafe { slice::from_raw_parts(words, Geometry::STANDARD.words()) };
    Table::create(words, Geometry::STANDARD).ok()
}

/// Shows a finished table to every thread; returns the handle.
pub(crate) fn publish(index: usize, words: *mut AtomicU64) -> *const Worker {
    let Some(worker) = WORKERS.get(index) else {
        return ptr::null();
    };
    worker.words.store(words, Release);
    worker
}

/// The worker behind a handle, or `None` where the hook is off: a child of fork, no handle, one
/// that is closed, or a pointer that was never a handle.
#[inline]
pub(crate) fn open(handle: *const Worker) -> Option<Open> {
    if !guard::live() {
        return None;
    }
    let index = (handle.addr()).checked_sub(WORKERS.as_ptr().addr())? / size_of::<Worker>();
    let words = WORKERS.get(index)?.words.load(Acquire);
    if words.is_null() {
        return None;
    }
    // SAFETY: published by `publish`, and never unmapped.
    let table = unsafe { table(words) }?;
    Some(Open { index: index as u64, table })
}

/// Turns a handle off for good. The table stays mapped: another thread may be inside a call.
pub(crate) fn close(open: Open) {
    let worker = usize::try_from(open.index).ok().and_then(|index| WORKERS.get(index));
    if let Some(worker) = worker {
        worker.words.store(ptr::null_mut(), Release);
    }
}
