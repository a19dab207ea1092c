//! Mooncake: a batch is submitted, a batch is freed. How far it is stands in its own memory.
//!
//! Member functions of `mooncake::TransferEngine` that return a `Status`: rdi is where that goes, rsi
//! is `this`, rdx the batch.

use aya_ebpf::{macros::uprobe, programs::ProbeContext};
use inflightd_abi::record::{Batch, Kind};

use crate::emit;

/// Entry of `submitTransfer(BatchID, std::vector<TransferRequest> const&)`.
#[uprobe]
pub(crate) fn batch(ctx: ProbeContext) -> u32 {
    tell(&ctx, Kind::Batch)
}

/// Entry of `freeBatchID(BatchID)`.
#[uprobe]
pub(crate) fn batch_end(ctx: ProbeContext) -> u32 {
    tell(&ctx, Kind::BatchEnd)
}

#[inline(always)]
fn tell(ctx: &ProbeContext, kind: Kind) -> u32 {
    let batch = ctx.arg(2).unwrap_or_default();
    emit::submit(kind as u32, Batch { head: emit::head(kind as u32), batch });
    0
}
