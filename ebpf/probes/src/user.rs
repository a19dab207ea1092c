//! Reading the target's memory. Every read may fail: pages can be absent, addresses wrong.

use aya_ebpf::helpers::{
    bpf_probe_read_user, bpf_probe_read_user_str_bytes, generated::bpf_probe_read_user as raw_read,
};
use inflightd_abi::layout::{STRING_LENGTH, taken};

/// Reads one value at an address of the target.
#[inline(always)]
pub(crate) fn read<T: Copy>(address: u64) -> Option<T> {
    // SAFETY: the helper checks the address and copies into its own zeroed value; `T` is one of
    // the plain integers used here, of which any bytes are a value.
    unsafe { bpf_probe_read_user(address as *const T) }.ok()
}

/// Reads a NUL-terminated text into a zeroed field, cut at its size.
#[inline(always)]
pub(crate) fn read_c_text(field: &mut [u8], address: u64) -> Option<()> {
    // SAFETY: the helper checks the address and writes no more than the field takes.
    unsafe { bpf_probe_read_user_str_bytes(address as *const u8, field) }.ok().map(drop)
}

/// Reads a libstdc++ `std::string` at `address` into a zeroed field of `N` bytes, cut at its
/// size; gives the uncut length.
#[inline(always)]
pub(crate) fn read_string<const N: usize>(field: *mut [u8; N], address: u64) -> Option<u64> {
    let text: u64 = read(address)?;
    let length: u64 = read(address.wrapping_add(STRING_LENGTH))?;
    let take = taken(length, N as u32);
    if take == 0 {
        return Some(length);
    }
    // SAFETY: `field` is `N` bytes of a ring entry and `take` is at most `N`, which the verifier
    // checks too; the helper checks `text`.
    let result = unsafe { raw_read(field.cast(), take, text as *const _) };
    (result == 0).then_some(length)
}
