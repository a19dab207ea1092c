//! Whether this machine would take the probes, tried on a file that nobody maps.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

use aya::programs::{
    Program,
    uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeScope},
};
use rustix::fs::{MemfdFlags, memfd_create};

use super::load::{self, LoadError, explain, uprobe};
use super::preflight::Machine;

/// Bytes of the file: an instruction anywhere in its first page.
pub(super) const PAGE: usize = 4096;
/// `nop` of x86-64.
const NOP: u8 = 0x90;
/// The smallest ring that the kernel takes: nothing is ever put into it.
pub(super) const RING_BYTES: u32 = 4096;

/// Loads every program that is a probe, so that this kernel's verifier has seen each, and puts one on
/// a file in memory that no process maps: nobody can hit it. All of it is gone at the return, which
/// takes some 0.1 s. Gives how many programs were loaded.
///
/// The first that fails is the error, with its remedy.
pub fn trial() -> Result<usize, LoadError> {
    Machine::read().check()?;
    let mut ebpf = load::open(RING_BYTES, false)?;
    load::load_probes(&mut ebpf)?;
    let is_probe = |program: &Program| matches!(program, Program::UProbe(_) | Program::KProbe(_));
    let loaded = ebpf.programs().filter(|(_, program)| is_probe(program)).count();
    let mut programs = ebpf.programs();
    let name = programs.find(|(_, program)| matches!(program, Program::UProbe(_)));
    let name = name.map(|(name, _)| name.to_owned()).unwrap_or_default();
    drop(programs);
    let what = "putting a probe on a file that nobody maps";
    let (_file, path) = page(&[], NOP).map_err(|error| explain(what, error))?;
    let program = uprobe(&mut ebpf, &name).map_err(|error| explain(what, error))?;
    let at =
        UProbeAttachPoint { location: UProbeAttachLocation::AbsoluteOffset(0), cookie: Some(1) };
    let link = program.attach(at, path, UProbeScope::AllProcesses);
    let link = link.map_err(|error| explain(what, error))?;
    program.detach(link).map_err(|error| explain("taking the probe off", error))?;
    Ok(loaded)
}

/// A file in memory of a page, open only here, and its path: it begins as said, and goes on with one
/// byte.
pub(super) fn page(begin: &[u8], rest: u8) -> io::Result<(File, PathBuf)> {
    let mut file = File::from(memfd_create("inflightd-trial", MemfdFlags::CLOEXEC)?);
    file.write_all(begin)?;
    file.write_all(&vec![rest; PAGE.saturating_sub(begin.len())])?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    Ok((file, path))
}
