//! The table's memory: a sealed memfd, fully allocated and kept from children.

use core::ffi::CStr;
use core::ptr;
use core::sync::atomic::AtomicU64;

use inflightd_abi::table::{Geometry, MEMFD_NAME};

use crate::error::OpenError;
use crate::sys::{self, Errno};

const NAME: &CStr = c"inflight";
const _: () = {
    let (mine, abi) = (NAME.to_bytes(), MEMFD_NAME.as_bytes());
    assert!(mine.len() == abi.len());
    let mut at = 0;
    while at < abi.len() {
        #[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, in bounds")]
        {
            assert!(mine[at] == abi[at]);
        }
        at += 1;
    }
};

/// Maps a new zeroed table of the standard geometry, for the life of the process.
pub(crate) fn make() -> Result<*mut AtomicU64, (OpenError, Errno)> {
    let bytes = Geometry::STANDARD.bytes();
    let fd = sys::memfd(NAME).map_err(|why| (OpenError::Memfd, why))?;
    let made = fill(fd, bytes);
    // The mapping keeps the file; a descriptor left open could be inherited or closed by others.
    sys::close(fd);
    let address = made?;
    if let Err(why) = sys::keep_from_children(address, bytes) {
        // SAFETY: nobody else has seen the mapping.
        unsafe { sys::unmap(address, bytes) };
        return Err((OpenError::ForkGuard, why));
    }
    Ok(ptr::with_exposed_provenance_mut(address))
}

fn fill(fd: usize, bytes: usize) -> Result<usize, (OpenError, Errno)> {
    sys::allocate(fd, bytes).map_err(|why| (OpenError::Memory, why))?;
    sys::seal(fd).map_err(|why| (OpenError::Seal, why))?;
    sys::map_shared(fd, bytes).map_err(|why| (OpenError::Map, why))
}

/// Gives back a table that was never shown to anybody.
///
/// # Safety
///
/// `words` comes from [`make`] and is not used any more.
pub(crate) unsafe fn discard(words: *mut AtomicU64) {
    // SAFETY: vouched for by the caller.
    unsafe { sys::unmap(words.expose_provenance(), Geometry::STANDARD.bytes()) };
}
