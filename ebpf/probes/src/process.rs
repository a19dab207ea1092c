//! The end of threads and processes, for watched processes only.
//!
//! A raw tracepoint, so no tracefs has to be mounted. Its second argument, `group_dead`, came
//! with a later kernel: where it is missing the two-argument program cannot be attached, and the
//! loader takes the plain one.

use aya_ebpf::{EbpfContext as _, macros::raw_tracepoint, programs::RawTracePointContext};
use aya_log_ebpf::debug;
use inflightd_abi::record::{Exit, GROUP_DEAD_UNKNOWN, Kind};

use crate::{emit, maps};

/// `sched_process_exit(task, group_dead)`.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub(crate) fn process_exit(ctx: RawTracePointContext) -> i32 {
    let group_dead: u64 = ctx.arg(1);
    exit(&ctx, u32::from(group_dead & 0xff != 0));
    0
}

/// `sched_process_exit(task)`.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub(crate) fn process_exit_plain(ctx: RawTracePointContext) -> i32 {
    exit(&ctx, GROUP_DEAD_UNKNOWN);
    0
}

#[inline(always)]
fn exit(ctx: &RawTracePointContext, group_dead: u32) {
    if maps::WATCHED.get_ptr(ctx.tgid()).is_none() {
        return;
    }
    let head = emit::head(Kind::Exit as u32);
    debug!(ctx, "thread {} of {} ended, group_dead {}", head.tid, head.tgid, group_dead);
    emit::submit(Kind::Exit as u32, Exit { head, group_dead, reserved: 0 });
}
