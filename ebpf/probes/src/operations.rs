//! UCX: an operation completes, one of the many of a transfer. Counted in a map, for a record each
//! would be too many: a transfer has thousands.

use aya_ebpf::{helpers::bpf_get_current_pid_tgid, macros::uprobe, programs::ProbeContext};
use inflightd_abi::{
    mishap::Mishap,
    operations::{Endpoint, Operations, operation_places},
};

use crate::{emit, maps, marks::cookie, ucx::completion_status, user};

/// Entry of `ucp_proto_request_zcopy_completion(uct_completion_t *)`.
#[uprobe]
pub(crate) fn operation_done(ctx: ProbeContext) -> u32 {
    let Some((ep_at, bytes_at)) = operation_places(cookie(&ctx)) else {
        maps::mishap(Mishap::CookieUnknown);
        return 0;
    };
    let completion: u64 = ctx.arg(0).unwrap_or_default();
    let Some(status) = completion_status(&ctx, completion) else {
        return 0;
    };
    let ep: Option<u64> = user::read(completion.wrapping_add_signed(ep_at));
    let bytes: Option<u64> = user::read(completion.wrapping_add_signed(bytes_at));
    let (Some(ep), Some(bytes)) = (ep, bytes) else {
        maps::mishap(Mishap::OperationUnreadable);
        return 0;
    };
    let tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
    count(&Endpoint { ep, tgid, reserved: 0 }, status, bytes);
    0
}

#[inline(always)]
fn count(endpoint: &Endpoint, status: i32, bytes: u64) {
    if let Some(counted) = maps::OPERATIONS.get_ptr_mut(endpoint) {
        // SAFETY: the map gave the place, and its values are never freed while a program runs. UCX
        // completes what goes by one endpoint under the lock of its worker: one thread at a time.
        add(unsafe { &mut *counted }, status, bytes);
        return;
    }
    let mut first = Operations { count: 0, bytes: 0, errors: 0, last_at: 0 };
    add(&mut first, status, bytes);
    if maps::OPERATIONS.insert(endpoint, first, 0).is_err() {
        maps::mishap(Mishap::OperationsFull);
    }
}

#[inline(always)]
fn add(counted: &mut Operations, status: i32, bytes: u64) {
    if status < 0 {
        counted.errors += 1;
        return;
    }
    counted.count += 1;
    counted.bytes = counted.bytes.wrapping_add(bytes);
    counted.last_at = emit::now();
}
