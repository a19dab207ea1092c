//! What a hit costs on this machine, measured on code of this process's own.

use std::ffi::c_void;
use std::fs::File;
use std::ptr;

use aya::Ebpf;
use aya::maps::{MapData, PerCpuArray};
use aya::programs::uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeScope};
use inflightd_abi::mishap::Mishap;
use inflightd_core::Nanos;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::load::{self, LoadError, explain, uprobe};
use super::preflight::Machine;
use super::ring::sum;
use super::trial::{PAGE, RING_BYTES, page};
use crate::clock::Clock;

/// What it begins with on x86-64: `push %rax; pop %rax; ret`. The first is what most probes of this
/// agent sit on, and the kernel emulates it.
const CODE: [u8; 3] = [0x50, 0x58, RET];
const RET: u8 = 0xc3;
/// The program that is put there: with a cookie that it does not know it counts that, and no more.
const PROGRAM: &str = "mark";
/// No kind of mark.
const COOKIE: u64 = 0;
/// Rounds of a measurement, of which the median counts, and calls in each: about 20 ms in all.
const ROUNDS: usize = 21;
const CALLS: u32 = 400;

/// What a hit on an emulated instruction costs the thread that it interrupts, with a program that
/// only counts: measured by calling code that only this process has, with a probe on it that is gone
/// at the return. `None` where code in memory may not be executed, and on other machines than x86-64.
pub fn hit_cost() -> Result<Option<Nanos>, LoadError> {
    Machine::read().check()?;
    let what = "putting a probe on a file that nobody else has";
    // `ret`, wherever else one would land.
    let (file, path) = page(&CODE, RET).map_err(|error| explain(what, error))?;
    let Some(code) = Code::map(&file) else {
        return Ok(None);
    };
    let mut ebpf = load::open(RING_BYTES, false)?;
    let program = uprobe(&mut ebpf, PROGRAM).map_err(|error| explain(what, error))?;
    program.load().map_err(|error| explain(what, error))?;
    let bare = code.cost();
    let location = UProbeAttachLocation::AbsoluteOffset(0);
    let at = UProbeAttachPoint { location, cookie: Some(COOKIE) };
    let link = program.attach(at, path, UProbeScope::AllProcesses);
    let link = link.map_err(|error| explain(what, error))?;
    let probed = code.cost();
    program.detach(link).map_err(|error| explain("taking the probe off", error))?;
    // Calls that hit nothing have no such cost.
    let all_hit = hits(&mut ebpf)? == ROUNDS as u64 * u64::from(CALLS);
    Ok(all_hit.then(|| probed.since(bare)))
}

/// How often the program has run.
fn hits(ebpf: &mut Ebpf) -> Result<u64, LoadError> {
    let counts: PerCpuArray<MapData, u64> = load::take(ebpf, "MISHAPS")?;
    Ok(sum(&counts, Mishap::CookieUnknown as u32))
}

/// The file's page, executable.
struct Code(*mut c_void);

impl Code {
    /// Maps it; `None` where that is not allowed, and on other machines than x86-64.
    fn map(file: &File) -> Option<Self> {
        if !cfg!(target_arch = "x86_64") {
            return None;
        }
        let access = ProtFlags::READ | ProtFlags::EXEC;
        // SAFETY: a new mapping at an address that the kernel chooses; nothing else knows it. Nobody
        // else has the file, and this process does not change it any more.
        let page = unsafe { mmap(ptr::null_mut(), PAGE, access, MapFlags::PRIVATE, file, 0) };
        page.ok().filter(|page| !page.is_null()).map(Self)
    }

    /// CPU time of one call.
    fn cost(&self) -> Nanos {
        // SAFETY: at this address lies a whole function that takes and gives nothing and keeps every
        // register: `CODE`, for as long as `self` lives.
        let call = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn()>(self.0) };
        let mut rounds = [Nanos::ZERO; ROUNDS];
        for round in &mut rounds {
            let begun = Clock::busy();
            for _ in 0..CALLS {
                call();
            }
            *round = Nanos(Clock::busy().since(begun).0 / u64::from(CALLS));
        }
        rounds.sort_unstable();
        rounds.get(ROUNDS / 2).copied().unwrap_or_default()
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; nothing refers to it.
        let unmapped = unsafe { munmap(self.0, PAGE) };
        debug_assert!(unmapped.is_ok(), "a mapping that we made can be given back");
    }
}
