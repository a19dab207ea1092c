//! RDMA queue pairs, as far as they pass the kernel: their set-up and end with every driver that has
//! verbs queue pairs, each send with soft-RoCE.
//!
//! Nothing is sent to the ring: what is counted lies in a map that the agent reads when it reads the
//! sockets. Only fields that the mask names are read of the attributes: the rest is what lay on the
//! caller's stack.

use aya_ebpf::{
    EbpfContext as _,
    helpers::{bpf_probe_read_kernel, bpf_probe_read_kernel_str_bytes},
    macros::kprobe,
    programs::ProbeContext,
};
use inflightd_abi::{
    mishap::Mishap,
    rdma::{Queue, RdmaLayout, STATE_ERR, STATE_INIT, WQE_LENGTH, WQE_STATUS},
};

use crate::{emit, maps};

/// `IB_QP_STATE`, `IB_QP_AV`, `IB_QP_DEST_QPN` of `enum ib_qp_attr_mask`.
const MASK_STATE: u64 = 1;
const MASK_ADDRESS: u64 = 1 << 7;
const MASK_FAR: u64 = 1 << 20;

/// Reads one value of the kernel's memory.
#[inline(always)]
pub(crate) fn read<T: Copy>(address: u64) -> Option<T> {
    // SAFETY: the helper checks the address and copies into its own zeroed value; `T` is one of
    // the plain integers used here, or bytes, of which any are a value.
    let value = unsafe { bpf_probe_read_kernel(address as *const T) }.ok();
    if value.is_none() {
        maps::mishap(Mishap::QueueUnreadable);
    }
    value
}

#[inline(always)]
fn layout() -> Option<&'static RdmaLayout> {
    maps::RDMA.get(0).filter(|layout| layout.verbs != 0)
}

#[inline(always)]
fn soft() -> Option<&'static RdmaLayout> {
    layout().filter(|layout| layout.soft != 0)
}

/// What is kept of a queue pair. One that was set up before the agent came is met here.
#[inline(always)]
fn kept(at: u64, layout: &RdmaLayout) -> Option<&'static mut Queue> {
    if maps::QUEUES.get_ptr_mut(at).is_none() {
        let fresh = meet(at, layout)?;
        if maps::QUEUES.insert(at, fresh, 0).is_err() {
            maps::mishap(Mishap::QueuesFull);
            return None;
        }
    }
    // SAFETY: the map gave the place, and its values are not freed while a program runs. Those that
    // write to one queue pair at a time follow each other, but for its timers: one count may hide
    // another.
    maps::QUEUES.get_ptr_mut(at).map(|queue| unsafe { &mut *queue })
}

#[inline(always)]
fn meet(at: u64, layout: &RdmaLayout) -> Option<Queue> {
    let mut queue = Queue { number: read(at + u64::from(layout.number))?, ..Queue::default() };
    let device: u64 = read(at + u64::from(layout.device))?;
    let name = (device + u64::from(layout.name)) as *const u8;
    // SAFETY: the helper checks the address and writes no more than the field takes.
    if unsafe { bpf_probe_read_kernel_str_bytes(name, &mut queue.device) }.is_err() {
        maps::mishap(Mishap::QueueUnreadable);
    }
    Some(queue)
}

/// `ib_modify_qp_with_udata(qp, attr, mask, udata)`, on a thread of the owner.
#[kprobe]
pub(crate) fn queue_asked(ctx: ProbeContext) -> u32 {
    asked(&ctx).unwrap_or(0)
}

#[inline(always)]
fn asked(ctx: &ProbeContext) -> Option<u32> {
    let layout = layout()?;
    let at: u64 = ctx.arg(0)?;
    let attributes: u64 = ctx.arg(1)?;
    let mask: u64 = ctx.arg(2)?;
    let state = if mask & MASK_STATE == 0 {
        None
    } else {
        read::<u32>(attributes + u64::from(layout.state))
    };
    if state == Some(STATE_INIT) {
        // Another one may have had this address.
        let _was_not_there = maps::QUEUES.remove(at);
    }
    let queue = kept(at, layout)?;
    queue.tgid = ctx.tgid();
    if let Some(state) = state {
        queue.state = state;
        if state == STATE_ERR && queue.failed_at == 0 {
            queue.failed_at = emit::now();
        }
    }
    if mask & MASK_FAR != 0 {
        queue.far = read(attributes + u64::from(layout.far))?;
    }
    if mask & MASK_ADDRESS != 0 {
        queue.gid = read(attributes + u64::from(layout.gid))?;
    }
    None
}

/// `ib_destroy_qp_user(qp, udata)`, also for a process that was killed.
#[kprobe]
pub(crate) fn queue_ended(ctx: ProbeContext) -> u32 {
    if let Some(queue) = ctx.arg::<u64>(0).and_then(|at| maps::QUEUES.get_ptr_mut(at)) {
        // SAFETY: as in `kept`.
        unsafe { (*queue).ended_at = emit::now() };
    }
    0
}

/// `do_complete(qp, wqe)`: a send work request of a queue pair is over.
#[kprobe]
pub(crate) fn queue_done(ctx: ProbeContext) -> u32 {
    done(&ctx).unwrap_or(0)
}

#[inline(always)]
fn done(ctx: &ProbeContext) -> Option<u32> {
    let layout = soft()?;
    let at = ctx.arg::<u64>(0)? + u64::from(layout.soft_queue);
    let request: u64 = ctx.arg(1)?;
    let status: u32 = read(request + WQE_STATUS)?;
    let bytes: u32 = read(request + WQE_LENGTH)?;
    let queue = kept(at, layout)?;
    if status == 0 {
        queue.sends += 1;
        queue.bytes += u64::from(bytes);
        queue.done_at = emit::now();
        queue.retransmits = 0;
        queue.not_ready = 0;
    } else {
        queue.errors += 1;
    }
    None
}

/// `rxe_qp_error(qp)`: it gives up.
#[kprobe]
pub(crate) fn queue_failed(ctx: ProbeContext) -> u32 {
    if let Some(queue) = around(&ctx, |_| 0)
        && queue.failed_at == 0
    {
        queue.failed_at = emit::now();
    }
    0
}

/// `retransmit_timer(timer)`: something has not been acknowledged for as long as a packet may take.
#[kprobe]
pub(crate) fn queue_again(ctx: ProbeContext) -> u32 {
    if let Some(queue) = around(&ctx, |layout| layout.soft_retransmit) {
        queue.retransmits += 1;
    }
    0
}

/// `rnr_nak_timer(timer)`: the far end had no receive posted, and is asked again.
#[kprobe]
pub(crate) fn queue_not_ready(ctx: ProbeContext) -> u32 {
    if let Some(queue) = around(&ctx, |layout| layout.soft_not_ready) {
        queue.not_ready += 1;
    }
    0
}

/// The queue pair in whose `rxe_qp` the first argument lies at an offset.
#[inline(always)]
fn around(ctx: &ProbeContext, offset: fn(&RdmaLayout) -> u32) -> Option<&'static mut Queue> {
    let layout = soft()?;
    let soft = ctx.arg::<u64>(0)?.wrapping_sub(u64::from(offset(layout)));
    kept(soft.wrapping_add(u64::from(layout.soft_queue)), layout)
}
