//! The probes: which functions of a process carry one, how they get there, what comes back.
//!
//! In: a process id. Out: an [`AttachReport`] (what is seen of that process, and what is not and
//! why), and a stream of [`inflightd_abi::record::Record`]s with the count of what was lost.
//!
//! * `elf`, `opcode`, `library`, `objects`: the files that a process has mapped, and what is in
//!   them;
//! * `builds`: structure offsets by build-id, as data (`builds.toml`);
//! * `plan`: catalogue × library → points and gaps, a pure function;
//! * `look`: each file once, as far as a visit reaches;
//! * `survey`: what would be probed, for who only asks;
//! * `btf`: where the kernel's own structures have their fields;
//! * `queues`: probes on the kernel's RDMA functions;
//! * `attach`, `load`, `ring`, `logs`, `trial`, `cost`: the kernel side of it. They alone know aya.
//!
//! # What the records mean
//!
//! Measured on the builds in `builds.toml` (NIXL 1.5.1 of the cu12 and the cu13 wheel, UCX 1.23.0
//! over loopback TCP, progress thread on) by `tests/probe_nixl.rs`:
//!
//! * A transfer, read or write, of 1 to 1000 descriptors, makes one `XferPost`, one `Flush`, one
//!   `FlushDone`, one `XferRet`, and one `XferRelease` when its handle is released. Its bytes and
//!   descriptors are right in the first record: descriptors of a request that was initialised from
//!   lists are not merged.
//! * Completion less request is -128 for every flush: 300 and more on each wheel. `Flush`
//!   comes first, always: it is recorded before UCX unlocks its worker. (In an unknown build it is
//!   recorded at the return, and may come second.)
//! * `FlushDone` fires on whichever thread progresses the worker: the posting thread in 40 to 100 %
//!   of the transfers of an application that polls closely, else NIXL's progress thread. Status is
//!   0, or negative on error. It comes also when nobody polls.
//! * A post seldom ends with 0 (done at once): 0 to 80 % of small transfers by load, 0 of 60 with
//!   16 MiB, always for a transfer to oneself. Its flush is pending all the same: `ucp_ep_flush_nbx`
//!   never returned NULL, and `FlushDone` then comes before `XferRet`.
//! * A killed peer: `Exit` of its last thread, then, 15 to 20 ms later and on the progress thread,
//!   `FlushDone` with -25 for each open flush and 10 us after it `EpError` with -25 on the endpoint
//!   that was flushed (`err_cb`: rdi `this`, rsi endpoint, dl status). `XferRelease` then has
//!   status -10. A later post to that peer ends with -10 and makes no `Flush`. A peer that is
//!   killed while nothing is in flight gives an `EpError` as well.
//! * A handle released in flight has status 1 in its `XferRelease`. Handle and request
//!   addresses are reused at once.
//! * Cost: a mark costs its thread 1.0 us with its probe and 3 ns without (CPU time, busy 2-core
//!   machine; 0.24 us of it is the program). The programs of a transfer find their caches cold and
//!   take 1.6 to 2.2 us each. In a known build a transfer has five hits and no return probe.
mod arming;
mod attach;
mod btf;
mod builds;
mod cost;
mod elf;
mod library;
mod load;
mod logs;
mod look;
mod objects;
mod opcode;
mod plan;
mod preflight;
mod queues;
mod reap;
mod report;
mod ring;
mod rules;
mod survey;
mod symbols;
mod trial;

pub use attach::{Holdings, Probes};
pub use btf::kernel_types;
pub use builds::{BatchLayout, Builds, BuildsError};
pub use cost::hit_cost;
pub use elf::{BuildId, ElfError};
pub use library::{Family, ObjectKey, is_telling};
pub use load::{ExitSource, LoadError, Options};
pub use opcode::Refusal;
pub use plan::{Gap, Group, ReturnRisk};
pub use preflight::Obstacle;
pub use queues::QueueSight;
pub use report::{AttachError, AttachReport, LibraryReport, Released, WatchError};
pub use ring::DrainStats;
pub use survey::{
    EMULATED_NS, SINGLE_STEP_NS, Survey, SurveyLibrary, SurveyPoint, bpf_features, obstacle, survey,
};
pub use trial::trial;
