//! Calls under way: what an entry probe saw, kept for the return probe of the same thread.

use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use inflightd_abi::{mishap::Mishap, record::Kind};

use crate::{emit, maps};

/// Which thread is in which function. Both are `u64` so that the key has no padding.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Site {
    thread: u64,
    function: u64,
}

/// What was seen at the entry.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Call {
    /// The argument that the return probe needs: a handle or an endpoint.
    pub(crate) subject: u64,
    /// Time of the entry, in nanoseconds.
    pub(crate) begun: u64,
}

#[inline(always)]
fn site(function: Kind) -> Site {
    Site { thread: bpf_get_current_pid_tgid(), function: u64::from(function as u32) }
}

/// Notes that this thread enters a function.
#[inline(always)]
pub(crate) fn enter(function: Kind, subject: u64) {
    let call = Call { subject, begun: emit::now() };
    if maps::CALLS.insert(site(function), call, 0).is_err() {
        maps::mishap(Mishap::CallsFull);
    }
}

/// The call that this thread is in, if it is in that function.
#[inline(always)]
pub(crate) fn current(function: Kind) -> Option<Call> {
    // SAFETY: the entry belongs to the running thread; it may give way to another thread's and
    // be overwritten while it is copied, which costs one wrong handle in a full map.
    unsafe { maps::CALLS.get(site(function)) }.copied()
}

/// Ends the call that this thread is in; a return without an entry is counted.
#[inline(always)]
pub(crate) fn leave(function: Kind) -> Option<Call> {
    let call = current(function);
    if call.is_some() {
        // Absent is as good as removed: it can only have given way in between.
        maps::CALLS.remove(site(function)).unwrap_or(());
    } else {
        maps::mishap(Mishap::ReturnWithoutEntry);
    }
    call
}
