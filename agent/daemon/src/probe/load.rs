//! Loading the kernel programs, and telling clearly why not.

use std::{error::Error, io};

use aya::{
    Ebpf, EbpfLoader, Pod,
    maps::{Array, HashMap, MapData},
    programs::{Program, ProgramError, RawTracePoint, UProbe},
};
use inflightd_abi::layout::NixlLayout;

use super::{
    arming::Arming,
    attach::Probes,
    builds::{Builds, BuildsError},
    logs,
    plan::Returns,
    preflight::{self, Machine, Obstacle},
    queues::Queues,
    ring::Ring,
    rules::Rules,
};

/// The kernel programs, built by `build.rs`.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/inflightd-ebpf.o"));

/// Lines of a verifier's complaint that are shown: the last ones say why.
const VERIFIER_LINES: usize = 8;

/// How the probes are loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Size of the ring in bytes: a power of two, at least a page.
    pub ring_bytes: u32,
    /// Whether each hit is also logged at debug level, target `inflightd::kernel`.
    pub debug: bool,
    /// The known builds; `None` for those that this agent ships with.
    pub builds: Option<Builds>,
    /// Whether the return of `postXferReq` is probed in unknown builds too. Off, because it makes
    /// an exception that passes through that function fatal to the engine.
    pub risk_returns: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { ring_bytes: 4 << 20, debug: false, builds: None, risk_returns: false }
    }
}

/// Why the probes could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// This machine, or this process's rights on it, do not allow it.
    #[error(transparent)]
    Obstacle(#[from] Obstacle),
    /// `ring_bytes` does not fit the kernel's rule.
    #[error("ring_bytes is {0}: it must be a power of two of at least 4096")]
    RingBytes(u32),
    /// The table of builds is wrong.
    #[error("reading the known builds")]
    Builds(#[from] BuildsError),
    /// The kernel has no BPF.
    #[error("the kernel has no bpf system call: it needs CONFIG_BPF_SYSCALL")]
    NoBpf,
    /// The kernel refused, although the capabilities are there.
    #[error(
        "the kernel refused {what} although the capabilities are there: a seccomp filter or a \
         security module forbids bpf; run inflightd unconfined"
    )]
    Denied {
        /// What was being done.
        what: String,
    },
    /// No memory, or the limit of locked memory.
    #[error(
        "no memory for {what}: raise the memory limit of inflightd's cgroup, or ring_bytes is too large"
    )]
    Memory {
        /// What was being done.
        what: String,
    },
    /// The verifier refused a program.
    #[error("the kernel's verifier refuses program `{program}`; please report this:\n{tail}")]
    Verifier {
        /// Name of the program.
        program: String,
        /// The last lines of the verifier's log.
        tail: String,
    },
    /// Anything else.
    #[error("{what}")]
    Other {
        /// What was being done.
        what: String,
        /// What the kernel, or aya, said.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
}

/// What tells of the end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitSource {
    /// The tracepoint says which thread was the last.
    WithGroupDead,
    /// It does not (an older kernel): [`inflightd_abi::record::GROUP_DEAD_UNKNOWN`].
    Plain,
}

/// `NixlLayout` as a map value.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Layout(NixlLayout);

// SAFETY: eight `u32` in C order, without padding; any bytes are a value.
unsafe impl Pod for Layout {}

impl Probes {
    /// Loads every program and attaches the one for exits. Needs `CAP_SYS_ADMIN`.
    pub fn load(options: Options) -> Result<Self, LoadError> {
        if !options.ring_bytes.is_power_of_two() || options.ring_bytes < 4096 {
            return Err(LoadError::RingBytes(options.ring_bytes));
        }
        let machine = Machine::read();
        machine.check()?;
        let returns = returns(&machine.release, options.risk_returns);
        let builds = options.builds.map_or_else(Builds::known, Ok)?;
        let mut ebpf = open(options.ring_bytes, options.debug)?;
        fill_layouts(&mut ebpf, &builds)?;
        load_probes(&mut ebpf)?;
        let exit = attach_exit(&mut ebpf)?;
        let watched: HashMap<MapData, u32, u8> = take(&mut ebpf, "WATCHED")?;
        let ring = Ring::take(&mut ebpf, options.debug)?;
        let queues = Queues::take(&mut ebpf)?;
        let arming = Arming::take(&mut ebpf)?;
        let rules = Rules { builds, returns };
        Ok(Self::new(ebpf, (ring, queues, arming), watched, rules, exit))
    }
}

/// Where return probes are allowed on a kernel of this release.
pub(crate) fn returns(release: &str, risk: bool) -> Returns {
    if preflight::seccomp_kills_at_returns(release) {
        Returns::Nowhere(release.trim().to_owned())
    } else if risk {
        Returns::Everywhere
    } else {
        Returns::InC
    }
}

pub(super) fn open(ring_bytes: u32, debug: bool) -> Result<Ebpf, LoadError> {
    let level = logs::level(debug);
    EbpfLoader::new()
        .map_max_entries("RING", ring_bytes)
        .override_global(aya_log::LEVEL, &level, true)
        .load(OBJECT)
        .map_err(|error| explain("creating the maps", error))
}

/// Takes a map out of the object, as the type that it is. Only once every program that uses it
/// is loaded: a map that is dropped before is missing to them.
pub(crate) fn take<M>(ebpf: &mut Ebpf, name: &str) -> Result<M, LoadError>
where
    M: TryFrom<aya::maps::Map>,
    M::Error: Error + Send + Sync + 'static,
{
    let what = format!("opening map `{name}`");
    let map = ebpf.take_map(name).ok_or_else(|| LoadError::Other {
        what: what.clone(),
        source: "the object has no such map".into(),
    })?;
    M::try_from(map).map_err(|error| explain(&what, error))
}

fn fill_layouts(ebpf: &mut Ebpf, builds: &Builds) -> Result<(), LoadError> {
    let what = "opening map `LAYOUTS`";
    let map = ebpf.map_mut("LAYOUTS").ok_or_else(|| explain(what, ProgramError::NotLoaded))?;
    let mut layouts: Array<&mut MapData, Layout> =
        Array::try_from(map).map_err(|error| explain(what, error))?;
    for (slot, layout) in builds.layouts() {
        layouts
            .set(slot, Layout(layout), 0)
            .map_err(|error| explain("storing a NIXL layout", error))?;
    }
    Ok(())
}

/// Loads the programs for user space and for the kernel's functions.
pub(super) fn load_probes(ebpf: &mut Ebpf) -> Result<(), LoadError> {
    for (name, program) in ebpf.programs_mut() {
        let loaded = match program {
            Program::UProbe(program) => program.load(),
            Program::KProbe(program) => program.load(),
            _ => Ok(()),
        };
        loaded.map_err(|error| refused(name, error))?;
    }
    Ok(())
}

/// Attaches the exit program that this kernel's tracepoint has the arguments for.
fn attach_exit(ebpf: &mut Ebpf) -> Result<ExitSource, LoadError> {
    match attach_raw(ebpf, "process_exit") {
        Ok(()) => Ok(ExitSource::WithGroupDead),
        Err(LoadError::Other { source, .. }) if is_invalid(source.as_ref()) => {
            attach_raw(ebpf, "process_exit_plain").map(|()| ExitSource::Plain)
        }
        Err(error) => Err(error),
    }
}

fn attach_raw(ebpf: &mut Ebpf, name: &str) -> Result<(), LoadError> {
    let what = format!("attaching `{name}` to the tracepoint sched_process_exit");
    let program: &mut RawTracePoint = ebpf
        .program_mut(name)
        .ok_or_else(|| explain(&what, ProgramError::NotLoaded))?
        .try_into()
        .map_err(|error: ProgramError| explain(&what, error))?;
    program.load().map_err(|error| refused(name, error))?;
    program.attach("sched_process_exit").map(drop).map_err(|error| explain(&what, error))
}

/// Gives access to an uprobe program by its name.
pub(crate) fn uprobe<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut UProbe, ProgramError> {
    ebpf.program_mut(name).ok_or(ProgramError::NotLoaded)?.try_into()
}

/// The system call's error at the bottom of a chain of errors.
pub(crate) fn errno(error: &(dyn Error + 'static)) -> Option<i32> {
    let mut current = Some(error);
    while let Some(error) = current {
        if let Some(code) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return Some(code);
        }
        current = error.source();
    }
    None
}

fn is_invalid(error: &(dyn Error + 'static)) -> bool {
    errno(error) == Some(libc::EINVAL)
}

pub(super) fn explain(what: &str, error: impl Error + Send + Sync + 'static) -> LoadError {
    let what = what.to_owned();
    match errno(&error) {
        Some(libc::ENOSYS) => LoadError::NoBpf,
        Some(libc::EPERM | libc::EACCES) => LoadError::Denied { what },
        Some(libc::ENOMEM) => LoadError::Memory { what },
        _ => LoadError::Other { what, source: Box::new(error) },
    }
}

fn refused(program: &str, error: ProgramError) -> LoadError {
    match error {
        ProgramError::LoadError { io_error, verifier_log }
            if io_error.raw_os_error() != Some(libc::EPERM) =>
        {
            LoadError::Verifier {
                program: program.to_owned(),
                tail: last_lines(&format!("{io_error}\n{verifier_log}")),
            }
        }
        error => explain(&format!("loading program `{program}`"), error),
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let from = lines.len().saturating_sub(VERIFIER_LINES);
    lines.get(from..).unwrap_or_default().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_that_the_kernel_would_refuse_is_named() {
        for ring_bytes in [0, 1024, 5000, 4097] {
            let options = Options { ring_bytes, ..Options::default() };
            assert!(
                matches!(Probes::load(options), Err(LoadError::RingBytes(n)) if n == ring_bytes)
            );
        }
    }

    #[test]
    fn system_errors_are_explained_with_a_remedy() {
        let error = |code| explain("creating the maps", io::Error::from_raw_os_error(code));
        assert!(matches!(error(libc::ENOSYS), LoadError::NoBpf));
        assert!(error(libc::EPERM).to_string().contains("run inflightd unconfined"));
        assert!(error(libc::ENOMEM).to_string().contains("memory limit"));
        assert_eq!(error(libc::EBUSY).to_string(), "creating the maps");
    }

    #[test]
    fn the_verifier_is_quoted_by_its_last_lines() {
        let lines: Vec<_> = (0..100).map(|n| format!("line {n}\n")).collect();
        let log = lines.join("\n");
        let tail = last_lines(&log);
        assert!(tail.starts_with("line 92") && tail.ends_with("line 99"), "{tail}");
    }
}
