//! Who may still write into a ring that fills: a process in a tight loop must not take the room
//! that others need.
//!
//! Nothing is kept while the ring is less than half full. Beyond that a process may have taken
//! [`ALPHA`] times what is free now: one alone gets five sixths of the ring, and however many crowd
//! in, something is left for who comes with a few records.

use aya_ebpf::bindings::{BPF_RB_AVAIL_DATA, BPF_RB_CONS_POS, BPF_RB_PROD_POS, BPF_RB_RING_SIZE};

use crate::maps;

/// So many times what is free a process may have taken.
const ALPHA: u64 = 2;
/// What the kernel puts before each record.
const HEADER_BYTES: u64 = 8;

/// What a process took since a place in the ring that has not been read yet.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Taken {
    since: u64,
    bytes: u64,
}

/// Whether the process may have a record of so many bytes, which is then counted as taken.
///
/// Threads of one process that take at the same moment may count as one: the share is so much
/// larger, never smaller.
#[inline(always)]
pub(crate) fn may_take(tgid: u32, bytes: usize) -> bool {
    let size = maps::RING.query(u64::from(BPF_RB_RING_SIZE));
    let used = maps::RING.query(u64::from(BPF_RB_AVAIL_DATA));
    if used < size / 2 {
        return true;
    }
    let bytes = bytes as u64 + HEADER_BYTES;
    let Some(taken) = maps::SHARES.get_ptr_mut(tgid) else {
        let since = maps::RING.query(u64::from(BPF_RB_PROD_POS));
        let _full = maps::SHARES.insert(tgid, Taken { since, bytes }, 0);
        return true;
    };
    // SAFETY: the map gave the place, and its values are never freed while a program runs.
    let taken = unsafe { &mut *taken };
    // All that was counted has been read.
    if taken.since < maps::RING.query(u64::from(BPF_RB_CONS_POS)) {
        taken.since = maps::RING.query(u64::from(BPF_RB_PROD_POS));
        taken.bytes = 0;
    }
    if taken.bytes + bytes > ALPHA * size.saturating_sub(used) {
        return false;
    }
    taken.bytes += bytes;
    true
}
