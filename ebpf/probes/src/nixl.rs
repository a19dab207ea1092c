//! NIXL: a handle is posted, the post ends, the handle is released.
//!
//! `nixlAgent::postXferReq(nixlXferReqH*, nixlAgentOptionalArgs const*) const`: rdi is `this`,
//! rsi the handle. Its fields lie where the build's layout says; a layout that does not fit is
//! noticed by the self check, and the record then carries the address alone.

use aya_ebpf::{
    EbpfContext,
    macros::{uprobe, uretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use aya_log_ebpf::debug;
use inflightd_abi::{
    layout::{END_SEEN, LAYOUT_SLOTS, NixlLayout, is_status, slot_of},
    mishap::Mishap,
    record::{Kind, XferPost, XferRet},
};

use crate::{calls, emit, maps, marks::cookie, user};

/// The plain fields of a handle.
struct Fields {
    op: i32,
    status: i32,
    has_notif: u8,
    bytes: u64,
    descs: u64,
}

/// Entry of `postXferReq`.
#[uprobe]
pub(crate) fn xfer_post(ctx: ProbeContext) -> u32 {
    let handle: u64 = ctx.arg(1).unwrap_or_default();
    let cookie = cookie(&ctx);
    if cookie & END_SEEN != 0 {
        calls::enter(Kind::XferPost, handle);
    }
    let Some(mut entry) = emit::reserve::<XferPost>(Kind::XferPost as u32) else {
        return 0;
    };
    // SAFETY: ring memory is writable, 8-aligned and large enough; zero is a value of each field.
    unsafe { entry.as_mut_ptr().write_bytes(0, 1) };
    // SAFETY: every byte was written just now.
    let record = unsafe { entry.assume_init_mut() };
    record.head = emit::head(Kind::XferPost as u32);
    record.handle = handle;
    record.op = -1;
    let slot = slot_of(cookie);
    if let Some(layout) = layout(slot) {
        fill(record, layout, slot as u32);
    }
    debug!(
        &ctx,
        "post handle {:x} bytes {} op {} layout {}", handle, record.bytes, record.op, record.layout
    );
    emit::publish(entry);
    0
}

/// The last common instruction of `postXferReq`, in a known build: the value to be returned lies
/// in the frame. No return probe: that would make an exception that passes through this function
/// fatal, because the unwinder cannot pass the address that the kernel puts in place of the
/// caller's.
#[uprobe]
pub(crate) fn xfer_end(ctx: ProbeContext) -> u32 {
    let Some(call) = calls::leave(Kind::XferPost) else {
        return 0;
    };
    let status = layout(cookie(&ctx)).and_then(|layout| end_status(&ctx, layout));
    ended(&ctx, call.subject, status);
    0
}

/// Return of `postXferReq`, in an unknown build and only where the operator asked for it.
#[uretprobe]
pub(crate) fn xfer_ret(ctx: RetProbeContext) -> u32 {
    if let Some(call) = calls::leave(Kind::XferPost) {
        ended(&ctx, call.subject, Some(ctx.ret()));
    }
    0
}

#[inline(always)]
fn end_status(ctx: &ProbeContext, layout: &NixlLayout) -> Option<i32> {
    let place = user::frame(ctx).wrapping_add_signed(i64::from(layout.end_status));
    let status = user::read(place).filter(|status| is_status(*status));
    if status.is_none() {
        maps::mishap(Mishap::EndImplausible);
    }
    status
}

#[inline(always)]
fn ended<C: EbpfContext>(ctx: &C, handle: u64, status: Option<i32>) {
    let known = u32::from(status.is_some());
    let status = status.unwrap_or_default();
    debug!(ctx, "post of handle {:x} ended with {} known {}", handle, status, known);
    emit::submit(
        Kind::XferRet as u32,
        XferRet { head: emit::head(Kind::XferRet as u32), handle, status, known },
    );
}

/// Entry of `releaseXferReq`.
#[uprobe]
pub(crate) fn xfer_release(ctx: ProbeContext) -> u32 {
    let handle: u64 = ctx.arg(1).unwrap_or_default();
    let fields = layout(cookie(&ctx)).and_then(|layout| checked(layout, handle));
    let status = fields.as_ref().map_or(0, |fields| fields.status);
    debug!(&ctx, "release of handle {:x} status {}", handle, status);
    emit::submit(
        Kind::XferRelease as u32,
        XferRet {
            head: emit::head(Kind::XferRelease as u32),
            handle,
            status,
            known: u32::from(fields.is_some()),
        },
    );
    0
}

/// The layout in a cookie's slot; `None` for an unknown build.
#[inline(always)]
fn layout(slot: u64) -> Option<&'static NixlLayout> {
    if slot >= u64::from(LAYOUT_SLOTS) {
        maps::mishap(Mishap::CookieUnknown);
        return None;
    }
    maps::LAYOUTS.get(slot as u32).filter(|layout| layout.known == 1)
}

#[inline(always)]
fn read_fields(layout: &NixlLayout, handle: u64) -> Option<(Fields, u64)> {
    let at = |offset: u32| handle.wrapping_add(u64::from(offset));
    let fields = Fields {
        op: user::read(at(layout.op))?,
        status: user::read(at(layout.status))?,
        has_notif: user::read(at(layout.has_notif))?,
        bytes: user::read(at(layout.total_bytes))?,
        descs: user::read(at(layout.desc_count))?,
    };
    let peer_length =
        user::read(at(layout.remote_agent).wrapping_add(inflightd_abi::layout::STRING_LENGTH))?;
    Some((fields, peer_length))
}

/// Reads a handle's fields and keeps them only if they look like a handle's.
#[inline(always)]
fn checked(layout: &NixlLayout, handle: u64) -> Option<Fields> {
    let Some((fields, peer_length)) = read_fields(layout, handle) else {
        maps::mishap(Mishap::HandleUnreadable);
        return None;
    };
    if !NixlLayout::plausible(fields.op, fields.status, fields.has_notif, peer_length, fields.bytes)
    {
        maps::mishap(Mishap::HandleImplausible);
        return None;
    }
    Some(fields)
}

/// Fills what the layout gives; leaves the record as it is when the self check fails.
#[inline(always)]
fn fill(record: &mut XferPost, layout: &NixlLayout, slot: u32) {
    let Some(fields) = checked(layout, record.handle) else {
        return;
    };
    let at = |offset: u32| record.handle.wrapping_add(u64::from(offset));
    if user::read_string(&raw mut record.peer, at(layout.remote_agent)).is_none() {
        maps::mishap(Mishap::TextUnreadable);
    }
    if fields.has_notif == 1 {
        match user::read_string(&raw mut record.notif, at(layout.notif)) {
            Some(length) => record.notif_len = length as u32,
            None => maps::mishap(Mishap::TextUnreadable),
        }
    }
    record.bytes = fields.bytes;
    record.descs = fields.descs;
    record.op = fields.op;
    record.status = fields.status;
    record.layout = slot;
}
