//! UCX: a flush is issued, a flush completes, an endpoint fails.

use aya_ebpf::{
    EbpfContext,
    macros::{uprobe, uretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use aya_log_ebpf::debug;
use inflightd_abi::{
    layout::{COMPLETION_STATUS, is_entry, issued_registers, request_of},
    mishap::Mishap,
    record::{EpError, Flush, FlushDone, Kind},
};

use crate::{calls, emit, maps, marks::cookie, user};

/// The point inside `ucp_ep_flush_nbx` that every call passes when the request is made, in a known
/// build: before UCX unlocks its worker, so always before the completion.
#[uprobe]
pub(crate) fn flush_issued(ctx: ProbeContext) -> u32 {
    let Some((ep, request)) = issued_registers(cookie(&ctx)) else {
        maps::mishap(Mishap::CookieUnknown);
        return 0;
    };
    let head = emit::head(Kind::Flush as u32);
    let saved = user::Saved::read(&ctx);
    let (ep, request) = (saved.get(ep), saved.get(request));
    issued(&ctx, Flush { head, ep, request, handle: posting(), begun: head.at });
    0
}

/// Entry of `ucp_ep_flush_nbx(ep, param)`, in an unknown build.
#[uprobe]
pub(crate) fn flush(ctx: ProbeContext) -> u32 {
    calls::enter(Kind::Flush, ctx.arg(0).unwrap_or_default());
    0
}

/// Return of `ucp_ep_flush_nbx`, in an unknown build. It is a C function and calls nothing that
/// throws, so a return probe is safe here.
#[uretprobe]
pub(crate) fn flush_ret(ctx: RetProbeContext) -> u32 {
    if let Some(call) = calls::leave(Kind::Flush) {
        let head = emit::head(Kind::Flush as u32);
        let (ep, request, begun) = (call.subject, ctx.ret(), call.begun);
        issued(&ctx, Flush { head, ep, request, handle: posting(), begun });
    }
    0
}

/// The handle that this thread is posting, if it is.
#[inline(always)]
fn posting() -> u64 {
    calls::current(Kind::XferPost).map_or(0, |post| post.subject)
}

#[inline(always)]
fn issued<C: EbpfContext>(ctx: &C, record: Flush) {
    debug!(
        ctx,
        "flush of ep {:x} request {:x} handle {:x}", record.ep, record.request, record.handle
    );
    emit::submit(Kind::Flush as u32, record);
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
pub(crate) fn completion_status(ctx: &ProbeContext, completion: u64) -> Option<i32> {
    let function: Option<u64> = user::read(completion);
    let status: Option<i8> = user::read(completion.wrapping_add(COMPLETION_STATUS));
    let (Some(function), Some(status)) = (function, status) else {
        maps::mishap(Mishap::CompletionUnreadable);
        return None;
    };
    if !is_entry(function, user::instruction(ctx)) {
        maps::mishap(Mishap::CompletionImplausible);
        return None;
    }
    Some(i32::from(status))
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
