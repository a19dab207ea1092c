//! The kernel side of inflightd: it reads arguments, stamps them and submits records.
//!
//! | program | sits on | record |
//! |---|---|---|
//! | `mark` | `inflight_mark_*` but append; cookie = kind | `Mark` |
//! | `append` | `inflight_mark_append` | `Append` |
//! | `xfer_post` | `nixlAgent::postXferReq`; cookie = layout, and whether its end is seen | `XferPost` |
//! | `xfer_end` | known build: the end of `postXferReq`; cookie = layout | `XferRet` |
//! | `xfer_ret` | unknown build, on request: the return of `postXferReq` | `XferRet` |
//! | `xfer_release` | `nixlAgent::releaseXferReq`; cookie = layout | `XferRet` |
//! | `flush_issued` | known build: inside `ucp_ep_flush_nbx`; cookie = registers | `Flush` |
//! | `flush`, `flush_ret` | unknown build: `ucp_ep_flush_nbx` | `Flush`, at its return |
//! | `flush_done` | `ucp_ep_flush_completion`; cookie = distance | `FlushDone` |
//! | `operation_done` | `ucp_proto_request_zcopy_completion`, only in a process with a suspect; cookie = distances | none: it counts in a map |
//! | `ep_error` | `nixlUcxEp::err_cb` | `EpError` |
//! | `batch`, `batch_end` | `mooncake::TransferEngine::submitTransfer`, `freeBatchID` | `Batch` |
//! | `process_exit`, `process_exit_plain` | raw tracepoint `sched_process_exit` | `Exit` |
//! | `queue_asked` | `ib_modify_qp_with_udata` | none: it keeps the queue pair's state in a map |
//! | `devx_asked` | `mlx5_cmd_do`, `mlx5_cmd_exec` | likewise, of those made by DEVX |
//! | `queue_ended` | `ib_destroy_qp_user` | likewise |
//! | `queue_done` | soft-RoCE's `do_complete` | likewise: a send, and its bytes |
//! | `queue_failed` | soft-RoCE's `rxe_qp_error` | likewise |
//! | `queue_again`, `queue_not_ready` | its `retransmit_timer`, `rnr_nak_timer` | likewise |
//!
//! No program decides anything, none loops, and each failure has a counter of its own
//! ([`inflightd_abi::mishap`]). Records are submitted without a wake-up: the probed thread would
//! pay for it (2-5 us); the agent polls.
#![no_std]
#![no_main]
#![expect(
    clippy::inline_always,
    reason = "kernels before 5.17 pass no pointer to the stack into another BPF function"
)]
#![expect(
    clippy::cast_possible_truncation,
    reason = "the halves of the kernel's pid_tgid, and arguments narrower than their registers"
)]
#![expect(
    clippy::needless_pass_by_value,
    reason = "the macros of aya hand a program its context by value"
)]

mod calls;
mod devx;
mod emit;
mod maps;
mod marks;
mod mooncake;
mod nixl;
mod operations;
mod process;
mod rdma;
mod share;
mod ucx;
mod user;

/// Tells the kernel that GPL-only helpers may be used (`bpf_probe_read_user`).
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

/// Never reached: the verifier refuses a program that could panic.
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
