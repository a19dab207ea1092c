//! What the kernel programs keep of each RDMA queue pair, and where they find it.
//!
//! Source: the kernel's `include/rdma/ib_verbs.h` and `drivers/infiniband/sw/rxe`; which function is
//! called when is measured on Debian's 6.1 and 6.12.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Queue pairs that are followed at once. The victim is the newcomer, counted as
/// [`crate::mishap::Mishap::QueuesFull`].
pub const QUEUE_SLOTS: u32 = 16 * 1024;

/// `enum ib_qp_state`: a new queue pair.
pub const STATE_INIT: u32 = 1;
/// It knows its far end.
pub const STATE_RTR: u32 = 2;
/// It sends.
pub const STATE_RTS: u32 = 3;
/// It has failed and never sends again.
pub const STATE_ERR: u32 = 6;

/// Offset of `status` in `struct rxe_send_wqe`, which user space shares
/// (`include/uapi/rdma/rdma_user_rxe.h`).
pub const WQE_STATUS: u64 = 144;
/// Offset of `dma.length` there.
pub const WQE_LENGTH: u64 = 184;

/// What stands for the device of a queue pair that is known by its commands to mlx5's firmware only:
/// which device that is does not show in them.
pub const DEVX_NAME: [u8; 16] = *b"devx\0\0\0\0\0\0\0\0\0\0\0\0";

/// Byte offsets inside the kernel's structures, from its BTF.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct RdmaLayout {
    /// 1 where the offsets of the verbs' structures are known.
    pub verbs: u32,
    /// 1 where those of soft-RoCE are known too.
    pub soft: u32,
    /// `ib_qp.qp_num`, `u32`.
    pub number: u32,
    /// `ib_qp.device`, a pointer.
    pub device: u32,
    /// `ib_device.name`, a text in place.
    pub name: u32,
    /// `ib_qp_attr.qp_state`, `u32`.
    pub state: u32,
    /// `ib_qp_attr.dest_qp_num`, `u32`.
    pub far: u32,
    /// `ib_qp_attr.ah_attr.grh.dgid`, 16 bytes.
    pub gid: u32,
    /// `rxe_qp.ibqp`, an `ib_qp` in place.
    pub soft_queue: u32,
    /// `rxe_qp.retrans_timer`, a `timer_list` in place.
    pub soft_retransmit: u32,
    /// `rxe_qp.rnr_nak_timer`, likewise.
    pub soft_not_ready: u32,
}

/// What is kept of a queue pair, by the address of its `ib_qp`. Times are `CLOCK_MONOTONIC` in
/// nanoseconds, 0 for never.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Queue {
    /// Name of its device, cut at 15 bytes.
    pub device: [u8; 16],
    /// GID of its far end; zeros where it was not seen.
    pub gid: [u8; 16],
    /// Its number.
    pub number: u32,
    /// Number of its far end; 0 where it was not seen.
    pub far: u32,
    /// The process that set it up; 0 where that was not seen.
    pub tgid: u32,
    /// The last state that was asked for, an `enum ib_qp_state`.
    pub state: u32,
    /// Send work requests that went well.
    pub sends: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Send work requests that ended badly.
    pub errors: u64,
    /// When the last one went well.
    pub done_at: u64,
    /// When it failed by itself, or was moved to the error state.
    pub failed_at: u64,
    /// When it was destroyed.
    pub ended_at: u64,
    /// Its retransmission timer ran out so often since something last went well.
    pub retransmits: u32,
    /// Its far end had no receive posted so often since then.
    pub not_ready: u32,
}

const _: () = assert!(size_of::<Queue>() == 104 && size_of::<RdmaLayout>() == 44);
