//! Reading the target's registers and memory. Every read of memory may fail: pages can be absent,
//! addresses wrong.

use aya_ebpf::helpers::{
    bpf_probe_read_user, bpf_probe_read_user_str_bytes, generated::bpf_probe_read_user as raw_read,
};
use aya_ebpf::programs::ProbeContext;
use inflightd_abi::layout::{Register, STRING_LENGTH, taken};

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

/// The registers of the probed thread, as the kernel's BPF interface has them.
#[inline(always)]
fn registers(ctx: &ProbeContext) -> &aya_ebpf::bindings::pt_regs {
    // SAFETY: the kernel hands a program the registers of the probed thread, and the verifier
    // checks every access.
    unsafe { &*ctx.regs }
}

/// Address of the probed instruction.
#[inline(always)]
pub(crate) fn instruction(ctx: &ProbeContext) -> u64 {
    #[cfg(not(bpf_target_arch = "aarch64"))]
    let address = registers(ctx).rip;
    #[cfg(bpf_target_arch = "aarch64")]
    let address = registers(ctx).pc;
    address
}

/// The frame pointer.
#[inline(always)]
pub(crate) fn frame(ctx: &ProbeContext) -> u64 {
    #[cfg(not(bpf_target_arch = "aarch64"))]
    let pointer = registers(ctx).rbp;
    #[cfg(bpf_target_arch = "aarch64")]
    let pointer = registers(ctx).regs[29];
    pointer
}

/// The registers that keep their values over calls, each read once.
///
/// A read behind the choice of a register would be turned into the choice of an address, which the
/// verifier does not allow in the context; hence the volatile reads before it.
pub(crate) struct Saved {
    #[cfg(not(bpf_target_arch = "aarch64"))]
    values: [(Register, u64); 6],
}

impl Saved {
    /// Reads them.
    #[inline(always)]
    pub(crate) fn read(ctx: &ProbeContext) -> Self {
        #[cfg(not(bpf_target_arch = "aarch64"))]
        {
            let at = registers(ctx);
            // SAFETY: each place is a field of the structure that the reference is to.
            let load = |place: &u64| unsafe { core::ptr::read_volatile(place) };
            Self {
                values: [
                    (Register::Rbx, load(&at.rbx)),
                    (Register::Rbp, load(&at.rbp)),
                    (Register::R12, load(&at.r12)),
                    (Register::R13, load(&at.r13)),
                    (Register::R14, load(&at.r14)),
                    (Register::R15, load(&at.r15)),
                ],
            }
        }
        #[cfg(bpf_target_arch = "aarch64")]
        {
            let _ = ctx;
            Self {}
        }
    }

    /// The value of a register; 0 on another architecture, for which no build is known.
    #[inline(always)]
    pub(crate) fn get(&self, register: Register) -> u64 {
        #[cfg(not(bpf_target_arch = "aarch64"))]
        for (of, value) in self.values {
            if of as u64 == register as u64 {
                return value;
            }
        }
        0
    }
}
