//! Probes on the kernel's own RDMA functions, and what their programs keep of each queue pair.

use std::path::Path;

use aya::{
    Ebpf, Pod,
    maps::{Array, HashMap, MapData},
    programs::{KProbe, ProgramError},
};
use inflightd_abi::rdma::{Queue, RdmaLayout};

use super::{
    btf::{Btf, BtfError},
    load::{LoadError, take},
};
use crate::error::chain;

/// Programs, and the functions on which each may sit: the first that is there. With the module's
/// name where another module may have a function of that name.
type Point = (&'static str, &'static [&'static str]);

/// Set-up and end of verbs queue pairs, whoever drives them.
const CONTROL: [Point; 2] =
    [("queue_asked", &["ib_modify_qp_with_udata"]), ("queue_ended", &["ib_destroy_qp_user"])];
/// What soft-RoCE sends.
const SENDS: [Point; 4] = [
    ("queue_done", &["do_complete", "rdma_rxe:do_complete"]),
    ("queue_failed", &["rxe_qp_error"]),
    ("queue_again", &["retransmit_timer", "rdma_rxe:retransmit_timer"]),
    ("queue_not_ready", &["rnr_nak_timer", "rdma_rxe:rnr_nak_timer"]),
];
/// Set-up and end of queue pairs that UCX makes on mlx5 by DEVX.
const DEVX: [Point; 1] = [("devx_asked", &["mlx5_cmd_do", "mlx5_cmd_exec"])];
/// soft-RoCE's module, and mlx5's.
const SOFT: &str = "rdma_rxe";
const MLX5: &str = "mlx5_core";

/// How well the kernel's RDMA functions are seen; each with why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSight {
    /// Set-up and end of queue pairs.
    pub control: Result<(), String>,
    /// What soft-RoCE sends; `None` where its module is not loaded.
    pub sends: Option<Result<(), String>>,
    /// Queue pairs made by DEVX, experimental; `None` where mlx5's module is not loaded.
    pub devx: Option<Result<(), String>>,
}

impl QueueSight {
    fn log(&self) {
        let seen = [
            ("queue pairs", Some(&self.control)),
            ("soft-RoCE", self.sends.as_ref()),
            ("queue pairs made by DEVX (experimental)", self.devx.as_ref()),
        ];
        for (what, sight) in seen {
            match sight {
                Some(Ok(())) => tracing::info!("the kernel shows {what}"),
                Some(Err(why)) => tracing::warn!(why, "the kernel does not show {what}"),
                None => {}
            }
        }
    }
}

/// `RdmaLayout` as a map value.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Layout(RdmaLayout);

// SAFETY: eleven `u32` in C order, without padding; any bytes are a value.
unsafe impl Pod for Layout {}

/// `Queue` as a map value.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Kept(Queue);

// SAFETY: integers and bytes in C order, without padding; any bytes are a value.
unsafe impl Pod for Kept {}

/// The maps of these programs, and what has been attached.
pub(super) struct Queues {
    layout: Array<MapData, Layout>,
    kept: HashMap<MapData, u64, Kept>,
    sight: Option<QueueSight>,
}

impl Queues {
    pub(super) fn take(ebpf: &mut Ebpf) -> Result<Self, LoadError> {
        Ok(Self { layout: take(ebpf, "RDMA")?, kept: take(ebpf, "QUEUES")?, sight: None })
    }

    /// Puts the probes on, once, and soft-RoCE's when its module is there.
    pub(super) fn attach(&mut self, ebpf: &mut Ebpf) -> &QueueSight {
        let has = |module: &str| Path::new("/sys/module").join(module).exists();
        let (has_soft, has_mlx5) = (has(SOFT), has(MLX5));
        let is_done = self.sight.as_ref().is_some_and(|sight| {
            (sight.sends.is_some() || !has_soft) && (sight.devx.is_some() || !has_mlx5)
        });
        let sight = match self.sight.take() {
            Some(sight) if is_done => sight,
            before => {
                let sight = self.attach_missing(ebpf, before, has_soft, has_mlx5);
                sight.log();
                sight
            }
        };
        self.sight.insert(sight)
    }

    fn attach_missing(
        &mut self,
        ebpf: &mut Ebpf,
        before: Option<QueueSight>,
        has_soft: bool,
        has_mlx5: bool,
    ) -> QueueSight {
        let found = layout(has_soft);
        let stored = found.and_then(|(layout, soft)| {
            let stored = self.layout.set(0, Layout(layout), 0);
            stored.map(|()| soft).map_err(|error| chain(&error))
        });
        let (control, sends, devx) = match before {
            Some(before) => (Some(before.control), before.sends, before.devx),
            None => (None, None, None),
        };
        let control = control.unwrap_or_else(|| {
            stored.as_ref().map_err(Clone::clone).and_then(|_| put(ebpf, &CONTROL))
        });
        let sends = sends.or_else(|| {
            has_soft.then(|| stored.and_then(|soft| soft).and_then(|()| put(ebpf, &SENDS)))
        });
        let devx = devx.or_else(|| has_mlx5.then(|| put(ebpf, &DEVX)));
        QueueSight { control, sends, devx }
    }

    /// Every queue pair that is known. Those that have ended are told once more, then forgotten.
    pub(super) fn read(&mut self) -> Vec<Queue> {
        let all: Vec<(u64, Queue)> = self
            .kept
            .iter()
            .filter_map(|entry| entry.ok().map(|(at, kept)| (at, kept.0)))
            .collect();
        for (at, queue) in &all {
            if queue.ended_at > 0 {
                drop(self.kept.remove(at));
            }
        }
        all.into_iter().map(|(_, queue)| queue).collect()
    }
}

/// Where this kernel's fields are, and why those of soft-RoCE are not known.
fn layout(has_soft: bool) -> Result<(RdmaLayout, Result<(), String>), String> {
    let btf = Btf::of_kernel().map_err(|error| error.to_string())?;
    let mut layout = verbs(&btf).map_err(|error| error.to_string())?;
    if !has_soft {
        return Ok((layout, Ok(())));
    }
    let found = Btf::of_module(SOFT, &btf).and_then(|module| soft(&module, &mut layout));
    Ok((layout, found.map_err(|error| error.to_string())))
}

fn verbs(btf: &Btf<'_>) -> Result<RdmaLayout, BtfError> {
    Ok(RdmaLayout {
        verbs: 1,
        number: btf.offset("ib_qp", &["qp_num"])?,
        device: btf.offset("ib_qp", &["device"])?,
        name: btf.offset("ib_device", &["name"])?,
        state: btf.offset("ib_qp_attr", &["qp_state"])?,
        far: btf.offset("ib_qp_attr", &["dest_qp_num"])?,
        gid: btf.offset("ib_qp_attr", &["ah_attr", "grh", "dgid"])?,
        ..RdmaLayout::default()
    })
}

fn soft(btf: &Btf<'_>, layout: &mut RdmaLayout) -> Result<(), BtfError> {
    layout.soft_queue = btf.offset("rxe_qp", &["ibqp"])?;
    layout.soft_retransmit = btf.offset("rxe_qp", &["retrans_timer"])?;
    layout.soft_not_ready = btf.offset("rxe_qp", &["rnr_nak_timer"])?;
    layout.soft = 1;
    Ok(())
}

fn put(ebpf: &mut Ebpf, points: &[Point]) -> Result<(), String> {
    for (program, functions) in points {
        let mut last = Err(format!("program `{program}` is missing"));
        for function in *functions {
            last = put_one(ebpf, program, function)
                .map_err(|error| format!("{function}: {}", chain(&error)));
            if last.is_ok() {
                break;
            }
        }
        last?;
    }
    Ok(())
}

fn put_one(ebpf: &mut Ebpf, program: &str, function: &str) -> Result<(), ProgramError> {
    let program: &mut KProbe =
        ebpf.program_mut(program).ok_or(ProgramError::NotLoaded)?.try_into()?;
    program.attach(function, 0).map(drop)
}
