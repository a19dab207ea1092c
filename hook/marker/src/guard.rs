//! The fork guard: a page that reads 1 in the process that opened the hook and 0 in every child.
//!
//! A child has neither its parent's table (`MADV_DONTFORK`) nor a right to speak for its queue,
//! and on some kernels a probed marker crashes in it. So a child is off for good, even if it
//! opens again: every call tests this page before it touches table or marker.

use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicPtr, AtomicU64};

use crate::error::OpenError;
use crate::sys::{self, Errno};

const PAGE: usize = 4096;
const LIVE: u64 = 1;

static GUARD: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());

/// Whether this process opened the hook itself.
#[inline]
pub(crate) fn live() -> bool {
    let page = GUARD.load(Acquire);
    // SAFETY: once set, the page stays mapped, here and in every child.
    !page.is_null() && unsafe { &*page }.load(Relaxed) == LIVE
}

/// Sets the guard up, once for the process.
pub(crate) fn arm() -> Result<(), (OpenError, Errno)> {
    if !GUARD.load(Acquire).is_null() {
        return if live() { Ok(()) } else { Err((OpenError::Forked, Errno(0))) };
    }
    let address = sys::map_private(PAGE).map_err(|why| (OpenError::Map, why))?;
    let page: *mut AtomicU64 = ptr::with_exposed_provenance_mut(address);
    // Live only after the page is sure to be wiped.
    if let Err(why) = sys::wipe_in_children(address, PAGE) {
        // SAFETY: nobody else has seen the page.
        unsafe { sys::unmap(address, PAGE) };
        return Err((OpenError::ForkGuard, why));
    }
    // SAFETY: a fresh mapping of a whole page, aligned for any word.
    unsafe { &*page }.store(LIVE, Relaxed);
    if GUARD.compare_exchange(ptr::null_mut(), page, AcqRel, Acquire).is_err() {
        // Another thread was first, and its page serves as well.
        // SAFETY: nobody else has seen this one.
        unsafe { sys::unmap(address, PAGE) };
    }
    Ok(())
}
