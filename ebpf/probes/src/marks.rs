//! libinflight's marks: plain integers in registers, and one text.

use aya_ebpf::{
    EbpfContext, helpers::generated::bpf_get_attach_cookie, macros::uprobe, programs::ProbeContext,
};
use aya_log_ebpf::debug;
use inflightd_abi::{
    mishap::Mishap,
    record::{Append, Kind, Mark},
};

use crate::{emit, maps, user};

/// The cookie that this point was attached with.
#[inline(always)]
pub(crate) fn cookie<C: EbpfContext>(ctx: &C) -> u64 {
    // SAFETY: the context is the one that the kernel gave this program.
    unsafe { bpf_get_attach_cookie(ctx.as_ptr()) }
}

/// `inflight_mark_X(worker, seq, a, b)`.
#[uprobe]
pub(crate) fn mark(ctx: ProbeContext) -> u32 {
    let cookie = cookie(&ctx);
    if !Kind::is_mark(cookie) {
        maps::mishap(Mishap::CookieUnknown);
        return 0;
    }
    let kind = cookie as u32;
    let operands = Kind::operands(cookie);
    let operand = |index: u32| {
        if index < operands { ctx.arg(2 + index as usize).unwrap_or_default() } else { 0 }
    };
    let record = Mark {
        head: emit::head(kind),
        worker: ctx.arg(0).unwrap_or_default(),
        seq: ctx.arg(1).unwrap_or_default(),
        a: operand(0),
        b: operand(1),
    };
    debug!(
        &ctx,
        "mark {} worker {} seq {} a {} b {}", kind, record.worker, record.seq, record.a, record.b
    );
    emit::submit(kind, record);
    0
}

/// `inflight_mark_append(worker, seq, room, expected, rid)`.
#[uprobe]
pub(crate) fn append(ctx: ProbeContext) -> u32 {
    let kind = Kind::Append as u32;
    let Some(mut entry) = emit::reserve::<Append>(kind) else {
        return 0;
    };
    // SAFETY: ring memory is writable, 8-aligned and large enough; zero is a value of each field.
    unsafe { entry.as_mut_ptr().write_bytes(0, 1) };
    // SAFETY: every byte was written just now.
    let record = unsafe { entry.assume_init_mut() };
    record.head = emit::head(kind);
    record.worker = ctx.arg(0).unwrap_or_default();
    record.seq = ctx.arg(1).unwrap_or_default();
    record.room = ctx.arg(2).unwrap_or_default();
    record.expected = ctx.arg(3).unwrap_or_default();
    let rid: u64 = ctx.arg(4).unwrap_or_default();
    if rid != 0 && user::read_c_text(&mut record.rid, rid).is_none() {
        maps::mishap(Mishap::TextUnreadable);
    }
    debug!(&ctx, "append worker {} seq {} room {}", record.worker, record.seq, record.room);
    emit::publish(entry);
    0
}
