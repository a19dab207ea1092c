//! Queue pairs that UCX makes on mlx5 by DEVX: commands to the firmware, which the kernel passes on and
//! lists nowhere. Experimental: no such hardware was there, the program was attached and never hit.
//!
//! Sources: the kernel's `include/linux/mlx5/mlx5_ifc.h` (opcodes, `qpc`, `ads`) and UCX's
//! `src/uct/ib/mlx5/ib_mlx5_devx.c` (which commands it gives). All numbers are big-endian.

use aya_ebpf::{EbpfContext as _, macros::kprobe, programs::ProbeContext};
use inflightd_abi::{
    mishap::Mishap,
    rdma::{DEVX_NAME, Queue, STATE_ERR, STATE_INIT, STATE_RTR, STATE_RTS},
};

use crate::{emit, maps, rdma::read};

const DESTROY: u16 = 0x501;
const RST_TO_INIT: u16 = 0x502;
const INIT_TO_RTR: u16 = 0x503;
const RTR_TO_RTS: u16 = 0x504;
const TO_ERR: u16 = 0x507;
/// Where the number of the queue pair stands in each of these commands, in its low 24 bits.
const NUMBER: u64 = 8;
/// Where the far end's number and address stand in `INIT2RTR_QP`: `qpc` at 24, `remote_qpn` at 20 of
/// it, the address vector at 24, `rgid_rip` at 16 of that.
const FAR: u64 = 24 + 20;
const GID: u64 = 24 + 24 + 16;
const LOW_24: u32 = 0x00ff_ffff;

/// `mlx5_cmd_do(device, command, …)`, on a thread of the owner.
#[kprobe]
pub(crate) fn devx_asked(ctx: ProbeContext) -> u32 {
    asked(&ctx).unwrap_or(0)
}

#[inline(always)]
fn asked(ctx: &ProbeContext) -> Option<u32> {
    let (device, command) = (ctx.arg::<u64>(0)?, ctx.arg::<u64>(1)?);
    let opcode = u16::from_be(read(command)?);
    let state = match opcode {
        RST_TO_INIT => STATE_INIT,
        INIT_TO_RTR => STATE_RTR,
        RTR_TO_RTS => STATE_RTS,
        TO_ERR | DESTROY => STATE_ERR,
        _ => return None,
    };
    let number = u32::from_be(read(command + NUMBER)?) & LOW_24;
    // No address of the kernel: those have their upper bits set.
    let key = (device << 20 ^ u64::from(number)) & (u64::MAX >> 16);
    if opcode == RST_TO_INIT {
        let fresh = Queue { device: DEVX_NAME, number, tgid: ctx.tgid(), ..Queue::default() };
        if maps::QUEUES.insert(key, fresh, 0).is_err() {
            maps::mishap(Mishap::QueuesFull);
        }
    }
    // One that was set up before the agent came is not met later: its far end would not be known.
    // SAFETY: the map gave the place, and its values are not freed while a program runs. The commands
    // of one queue pair follow each other.
    let queue = unsafe { &mut *maps::QUEUES.get_ptr_mut(key)? };
    queue.state = state;
    match opcode {
        INIT_TO_RTR => {
            queue.far = u32::from_be(read(command + FAR)?) & LOW_24;
            queue.gid = read(command + GID)?;
        }
        TO_ERR => queue.failed_at = emit::now(),
        DESTROY => queue.ended_at = emit::now(),
        _ => {}
    }
    None
}
