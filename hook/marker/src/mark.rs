//! The markers: empty functions that the agent's uprobes sit on.
//!
//! Each begins with a one-byte push, which the kernel emulates (0.45 µs a hit). Not with a 5-byte
//! nop, which newer kernels turn into a call: a child forked after that crashes at its next hit.
//! Each is naked, so its arguments are still in their registers, and stands at a multiple of 16
//! in a section of its own.

use core::arch::naked_asm;
use core::ffi::c_char;

macro_rules! markers {
    ($($(#[doc = $doc:literal])+ $name:ident($($arg:ident: $type:ty),*);)+) => {
        $(
            $(#[doc = $doc])+
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            #[unsafe(link_section = ".text.inflight_marks")]
            pub extern "C" fn $name($($arg: $type),*) {
                #[cfg(target_arch = "x86_64")]
                naked_asm!(".byte 0x55", "pop rbp", "ret", ".p2align 4");
                #[cfg(target_arch = "aarch64")]
                naked_asm!("nop", "ret", ".p2align 4");
            }
        )+
    };
}

markers! {
    /// A worker opened its table. `seq` is 0.
    inflight_mark_open(worker: u64, seq: u64, role: u64);
    /// A room entered the queue. `rid` ends with a NUL.
    inflight_mark_append(worker: u64, seq: u64, room: u64, expected: u64, rid: *const c_char);
    /// This thread begins to work for a room; `seq` is 0 for one that is not in the queue yet, and
    /// `after` the last one that had entered when its work was queued.
    inflight_mark_serve(worker: u64, seq: u64, after: u64);
    /// This thread ends its work for a room; `seq` is 0 when the next room turned out held.
    inflight_mark_serve_end(worker: u64, seq: u64);
    /// A transfer call begins.
    inflight_mark_post(worker: u64, seq: u64, bytes: u64);
    /// A transfer call ended; `ok` is 1 when it went well.
    inflight_mark_done(worker: u64, seq: u64, bytes: u64, ok: u64);
    /// The engine says where the room is.
    inflight_mark_phase(worker: u64, seq: u64, phase: u64);
    /// A room left the queue.
    inflight_mark_remove(worker: u64, seq: u64, outcome: u64);
}
