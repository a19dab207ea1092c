//! UCX: a flush is issued, a flush completes, an endpoint fails.

use aya_ebpf::{
    macros::{uprobe, uretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use aya_log_ebpf::debug;
use inflightd_abi::{
    layout::{COMPLETION_STATUS, is_entry, request_of},
    mishap::Mishap,
    record::{EpError, Flush, FlushDone, Kind},
};

use crate::{calls, emit, maps, marks::cookie, user};

/// Entry of `ucp_ep_flush_nbx(ep, param)`.
#[uprobe]
pub(crate) fn flush(ctx: ProbeContext) -> u32 {
    calls::enter(Kind::Flush, ctx.arg(0).unwrap_or_default());
    0
}

/// Return of `ucp_ep_flush_nbx`: only now is the request known.
#[uretprobe]
pub(crate) fn flush_ret(ctx: RetProbeContext) -> u32 {
    let Some(call) = calls::leave(Kind::Flush) else {
        return 0;
    };
    let record = Flush {
        head: emit::head(Kind::Flush as u32),
        ep: call.subject,
        request: ctx.ret(),
        handle: calls::current(Kind::XferPost).map_or(0, |post| post.subject),
        begun: call.begun,
    };
    debug!(
        &ctx,
        "flush of ep {:x} request {:x} handle {:x}", record.ep, record.request, record.handle
    );
    emit::submit(Kind::Flush as u32, record);
    0
}

/// Entry of `ucp_ep_flush_completion(uct_completion_t *)`.
#[uprobe]
pub(crate) fn flush_done(ctx: ProbeContext) -> u32 {
    let completion: u64 = ctx.arg(0).unwrap_or_default();
    let status = completion_status(&ctx, completion);
    let record = FlushDone {
        head: emit::head(Kind::FlushDone as u32),
        completion,
        request: request_of(completion, cookie(&ctx)),
        status: status.unwrap_or_default(),
        known: u32::from(status.is_some()),
    };
    debug!(
        &ctx,
        "flush done completion {:x} request {:x} status {}",
        completion,
        record.request,
        record.status
    );
    emit::submit(Kind::FlushDone as u32, record);
    0
}

/// The status in a `uct_completion_t`, once the structure has proved to be one: its first word
/// names the function that was called with it, which is the probed one.
#[inline(always)]
fn completion_status(ctx: &ProbeContext, completion: u64) -> Option<i32> {
    let function: Option<u64> = user::read(completion);
    let status: Option<i8> = user::read(completion.wrapping_add(COMPLETION_STATUS));
    let (Some(function), Some(status)) = (function, status) else {
        maps::mishap(Mishap::CompletionUnreadable);
        return None;
    };
    if !is_entry(function, instruction(ctx)) {
        maps::mishap(Mishap::CompletionImplausible);
        return None;
    }
    Some(i32::from(status))
}

/// Address of the probed instruction.
#[inline(always)]
fn instruction(ctx: &ProbeContext) -> u64 {
    // SAFETY: the kernel hands a program the registers of the probed thread.
    let registers = unsafe { &*ctx.regs };
    #[cfg(not(bpf_target_arch = "aarch64"))]
    let address = registers.rip;
    #[cfg(bpf_target_arch = "aarch64")]
    let address = registers.pc;
    address
}

/// Entry of `nixlUcxEp::err_cb(ucp_ep*, ucs_status_t)`, a member function: rdi is `this`.
/// `ucs_status_t` is one byte: the rest of rdx is not written by the caller.
#[uprobe]
pub(crate) fn ep_error(ctx: ProbeContext) -> u32 {
    let status: u64 = ctx.arg(2).unwrap_or_default();
    let record = EpError {
        head: emit::head(Kind::EpError as u32),
        ep: ctx.arg(1).unwrap_or_default(),
        status: i32::from((status as u8).cast_signed()),
        reserved: 0,
    };
    debug!(&ctx, "ep {:x} failed with {}", record.ep, record.status);
    emit::submit(Kind::EpError as u32, record);
    0
}
