//! Every map, with its bound and what gives way when it is full.

use aya_ebpf::{
    macros::map,
    maps::{Array, HashMap, LruHashMap, LruPerCpuHashMap, PerCpuArray, RingBuf},
};
use inflightd_abi::{
    layout::{LAYOUT_SLOTS, NixlLayout, SHARE_SLOTS},
    mishap::{MISHAP_SLOTS, Mishap},
    operations::{Endpoint, OPERATION_SLOTS, Operations},
    rdma::{QUEUE_SLOTS, Queue, RdmaLayout},
    record::KIND_SLOTS,
};

use crate::calls::{Call, Site};
use crate::share::Taken;

/// The records. The loader sets the size; when it is full the newest record is lost and counted.
#[map]
pub(crate) static RING: RingBuf = RingBuf::with_byte_size(4 << 20, 0);

/// Failures by [`Mishap`].
#[map]
static MISHAPS: PerCpuArray<u64> = PerCpuArray::with_max_entries(MISHAP_SLOTS, 0);

/// Records lost because the ring was full, by [`inflightd_abi::record::Kind`].
#[map]
static LOST: PerCpuArray<u64> = PerCpuArray::with_max_entries(KIND_SLOTS, 0);

/// NIXL layouts by attach cookie; slot 0 stays empty: "unknown build".
#[map]
pub(crate) static LAYOUTS: Array<NixlLayout> = Array::with_max_entries(LAYOUT_SLOTS, 0);

/// Calls between entry and return, by thread and function. When it is full the least recently
/// used gives way: a thread that died, or threw, inside its call.
#[map]
pub(crate) static CALLS: LruHashMap<Site, Call> = LruHashMap::with_max_entries(8192, 0);

/// Processes whose exits are reported; the agent refuses to add more than fit.
#[map]
pub(crate) static WATCHED: HashMap<u32, u8> =
    HashMap::with_max_entries(inflightd_abi::layout::WATCHED_SLOTS, 0);

/// What each process took of a ring that was half full, by its id.
#[map]
pub(crate) static SHARES: LruHashMap<u32, Taken> = LruHashMap::with_max_entries(SHARE_SLOTS, 0);

/// Records lost by the process that they were of.
#[map]
static LOST_OF: LruPerCpuHashMap<u32, u64> = LruPerCpuHashMap::with_max_entries(SHARE_SLOTS, 0);

/// Where the fields of the kernel's RDMA structures are; one slot.
#[map]
pub(crate) static RDMA: Array<RdmaLayout> = Array::with_max_entries(1, 0);

/// RDMA queue pairs by the address of their `ib_qp`; the agent takes out those that have ended.
/// When it is full the newcomer is not followed, and counted.
#[map]
pub(crate) static QUEUES: HashMap<u64, Queue> = HashMap::with_max_entries(QUEUE_SLOTS, 0);

/// Operations that completed, by endpoint; the agent takes out those of a process that it counts no
/// more. When it is full the newcomer is not counted, and that is.
#[map]
pub(crate) static OPERATIONS: HashMap<Endpoint, Operations> =
    HashMap::with_max_entries(OPERATION_SLOTS, 0);

fn count(counters: &PerCpuArray<u64>, slot: u32) {
    if let Some(counter) = counters.get_ptr_mut(slot) {
        // SAFETY: the pointer is this CPU's slot of a per-CPU map. A program that preempts this
        // one between load and store can hide one count of a failure; nothing else is at stake.
        unsafe { *counter += 1 };
    }
}

/// Counts a failure.
#[inline(always)]
pub(crate) fn mishap(mishap: Mishap) {
    count(&MISHAPS, mishap as u32);
}

/// Counts a lost record of a process, and why it is lost.
#[inline(always)]
pub(crate) fn lost(kind: u32, tgid: u32, why: Mishap) {
    mishap(why);
    count(&LOST, kind);
    if let Some(counter) = LOST_OF.get_ptr_mut(tgid) {
        // SAFETY: as in `count`.
        unsafe { *counter += 1 };
    } else {
        // Where there is no place it counts for nobody, that is for everybody.
        let _nobody = LOST_OF.insert(tgid, 1, 0);
    }
}
