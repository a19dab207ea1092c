//! How a record gets its stamp and its place in the ring.

use aya_ebpf::{
    bindings::BPF_RB_NO_WAKEUP,
    helpers::{bpf_get_current_pid_tgid, generated::bpf_ktime_get_ns},
    maps::ring_buf::RingBufEntry,
};
use inflightd_abi::{
    mishap::Mishap,
    record::{Head, Kind},
};

use crate::{maps, share};

/// `CLOCK_MONOTONIC`, in nanoseconds.
#[inline(always)]
pub(crate) fn now() -> u64 {
    // SAFETY: the helper takes nothing and reads a clock.
    unsafe { bpf_ktime_get_ns() }
}

/// Stamps a record of the given kind: now, this thread.
#[inline(always)]
pub(crate) fn head(kind: u32) -> Head {
    let thread = bpf_get_current_pid_tgid();
    Head { at: now(), tgid: (thread >> 32) as u32, tid: thread as u32, kind, reserved: 0 }
}

/// Room for one record, or a counted loss.
#[inline(always)]
pub(crate) fn reserve<T: 'static>(kind: u32) -> Option<RingBufEntry<T>> {
    let tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
    // Ends are few, and others wait for them.
    if kind != Kind::Exit as u32 && !share::may_take(tgid, size_of::<T>()) {
        maps::lost(kind, tgid, Mishap::OverShare);
        return None;
    }
    let entry = maps::RING.reserve::<T>(0);
    if entry.is_none() {
        maps::lost(kind, tgid, Mishap::RingFull);
    }
    entry
}

/// Submits a record that is complete on the stack.
#[inline(always)]
pub(crate) fn submit<T: 'static>(kind: u32, record: T) {
    if let Some(mut entry) = reserve::<T>(kind) {
        entry.write(record);
        publish(entry);
    }
}

/// Submits a filled entry, without waking the agent.
#[inline(always)]
pub(crate) fn publish<T: 'static>(entry: RingBufEntry<T>) {
    entry.submit(u64::from(BPF_RB_NO_WAKEUP));
}
