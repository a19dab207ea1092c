//! Another process's table in this process's memory. The only module that maps memory.
//!
//! A table is hostile input: it is mapped only when its seals forbid that it shrinks (reading a
//! shrunken mapping would kill the agent), it is mapped read-only unless a room is to be failed, and
//! its geometry is read once.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use inflightd_abi::table::{Geometry, Table, TableError};
use inflightd_core::Reason;
use rustix::fs::{MemfdFlags, OFlags, SealFlags, fcntl_get_seals, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::proc::TableMap;

/// Largest file that is mapped: the largest geometry that a table may have.
const BYTES_MAX: usize = match Geometry::checked(8192, 4096) {
    Some(geometry) => geometry.bytes(),
    None => 0,
};

/// Why a table cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system refused.
    #[error("{doing} the table")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Without the seal its owner could cut the file short under the agent.
    #[error("the table is not sealed against shrinking")]
    Unsealed,
    /// Larger than any table.
    #[error("the table's file has {0} bytes, more than any table")]
    TooLarge(u64),
    /// The words are not a table.
    #[error("reading the table's header")]
    Table(#[source] TableError),
    /// Another process took the pid meanwhile.
    #[error("the process ended while its table was being opened")]
    ProcessChanged,
    /// The process is on its way out: its end is near, and nothing of it is of use any more.
    #[error("the process ends")]
    Ending,
    /// The header names another process.
    #[error("the table's header names process {stated}, and this one is {}", ids(found))]
    WrongProcess {
        /// The pid in the header.
        stated: u64,
        /// The pids that the process really has, by namespace.
        found: Vec<u32>,
    },
}

fn ids(of_process: &[u32]) -> String {
    let ids: Vec<String> = of_process.iter().map(u32::to_string).collect();
    if ids.is_empty() { "gone".to_owned() } else { ids.join(", by namespace ") }
}

impl OpenError {
    /// As a reason in a worker's coverage.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Reason::NotPermitted
            }
            Self::Table(TableError::Version(_)) => Reason::AbiMismatch,
            _ => Reason::ReadFailed,
        }
    }

    /// Whether it may be otherwise in a moment.
    pub fn is_passing(&self) -> bool {
        match self {
            // The process has ended, or has just mapped something else there.
            Self::Io { source, .. } => source.kind() == io::ErrorKind::NotFound,
            Self::Table(TableError::NotReady) | Self::ProcessChanged => true,
            _ => false,
        }
    }
}

/// A mapped table.
#[derive(Debug)]
pub struct Mapped {
    start: NonNull<AtomicU64>,
    words: usize,
    geometry: Geometry,
}

// SAFETY: the mapping belongs to this value alone, is only ever used through atomics, and is
// unmapped only when the value is dropped.
unsafe impl Send for Mapped {}

impl Mapped {
    /// Opens and maps the table that `pid` maps at `map`, to be read.
    pub fn open(pid: u32, map: &TableMap) -> Result<Self, OpenError> {
        Self::open_for(pid, map, false)
    }

    /// The same, for what the agent asks of a room: [`Table::hold`] and what follows.
    pub fn open_writable(pid: u32, map: &TableMap) -> Result<Self, OpenError> {
        Self::open_for(pid, map, true)
    }

    fn open_for(pid: u32, map: &TableMap, write: bool) -> Result<Self, OpenError> {
        let file = OpenOptions::new()
            .read(true)
            .write(write)
            .custom_flags(
                (OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY).bits().cast_signed(),
            )
            .open(format!("/proc/{pid}/map_files/{}", map.range))
            .map_err(|source| OpenError::Io { doing: "opening", source })?;
        Self::map_for(&file, write)
    }

    /// Maps an open file once it is proven to be safe to read.
    pub fn map(file: &File) -> Result<Self, OpenError> {
        Self::map_for(file, false)
    }

    fn map_for(file: &File, write: bool) -> Result<Self, OpenError> {
        let io = |doing| move |source| OpenError::Io { doing, source };
        let seals =
            fcntl_get_seals(file).map_err(io::Error::from).map_err(io("reading the seals of"))?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(OpenError::Unsealed);
        }
        let size = file.metadata().map_err(io("measuring"))?.size();
        let bytes = usize::try_from(size)
            .ok()
            .filter(|bytes| *bytes <= BYTES_MAX)
            .ok_or(OpenError::TooLarge(size))?;
        if bytes < 8 {
            return Err(OpenError::Table(TableError::Short { have: 0, need: 1 }));
        }
        let flags = MapFlags::SHARED;
        let protection = if write { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address that the kernel chooses; nothing else knows it. The
        // file cannot shrink (sealed), so every page of it stays readable.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, protection, flags, file, 0) }
            .map_err(io::Error::from)
            .map_err(io("mapping"))?;
        let Some(start) = NonNull::new(start.cast::<AtomicU64>()) else {
            return Err(OpenError::TooLarge(size));
        };
        let mut mapped = Self { start, words: bytes / 8, geometry: Geometry::STANDARD };
        mapped.geometry = Table::open(mapped.words()).map_err(OpenError::Table)?.geometry();
        Ok(mapped)
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is `words` words long, page-aligned, and lives as long as `self`.
        // Every access to it, here and in its owner, is atomic.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }

    /// The table, with the geometry that it had when it was opened.
    pub fn table(&self) -> Result<Table<'_>, TableError> {
        Table::create(self.words(), self.geometry)
    }

    /// Gives the pages that were read back: they count as this process's memory too, 8 MiB for a
    /// full table, although they are the worker's. They come again when they are read again.
    pub fn release(&self) {
        let (start, bytes) = (self.start.as_ptr().cast(), self.words * 8);
        // SAFETY: the mapping is this value's and of this length. It is shared and read-only, so
        // what is dropped is the way to the pages, not what is in them: a reader finds them again.
        let released = unsafe { madvise(start, bytes, Advice::LinuxDontNeed) };
        debug_assert!(released.is_ok(), "a mapping that we made can be given back");
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this very length; no reference outlives `self`.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.words * 8) };
        debug_assert!(unmapped.is_ok(), "a mapping that we made can be unmapped");
    }
}

/// Device (major, minor) of memfds on this kernel, as `/proc/PID/maps` shows it.
pub fn memfd_device() -> io::Result<(u32, u32)> {
    let fd: OwnedFd = memfd_create("inflightd-device", MemfdFlags::CLOEXEC)?;
    let device = rustix::fs::fstat(&fd)?.st_dev;
    Ok((rustix::fs::major(device), rustix::fs::minor(device)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use inflightd_abi::table::{NewHeader, Ranks, Role};
    use rustix::fs::{fcntl_add_seals, ftruncate};

    use super::*;

    fn memfd(bytes: u64, seals: SealFlags) -> File {
        let fd = memfd_create("inflight", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&fd, bytes).unwrap();
        fcntl_add_seals(&fd, seals).unwrap();
        File::from(fd)
    }

    const SMALL: Geometry = Geometry { entries: 4, threads: 2 };

    fn table_file() -> File {
        let file = memfd(SMALL.bytes() as u64, SealFlags::SHRINK | SealFlags::GROW);
        let words: Vec<AtomicU64> = (0..SMALL.words()).map(|_| AtomicU64::new(0)).collect();
        let table = Table::create(&words, SMALL).unwrap();
        table.write_header(
            5,
            &NewHeader {
                pid: 42,
                worker: 0,
                role: Role::Prefill,
                engine: b"test",
                version: b"1",
                ranks: Ranks::default(),
                nnodes: 1,
                identities: &[],
            },
        );
        for (at, word) in words.into_iter().enumerate() {
            file.write_all_at(&word.into_inner().to_ne_bytes(), at as u64 * 8).unwrap();
        }
        file
    }

    #[test]
    fn a_sealed_table_is_mapped() {
        let mapped = Mapped::map(&table_file()).unwrap();
        let table = mapped.table().unwrap();
        assert_eq!(table.geometry(), SMALL);
        assert_eq!(table.header().pid, 42);
    }

    /// Resident KiB of the mapping that begins at an address.
    fn resident(mapped: &Mapped) -> u64 {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let begin = format!("{:x}-", mapped.start.as_ptr().addr());
        let of = smaps.lines().skip_while(|line| !line.starts_with(&begin));
        let rss = of.skip(1).find_map(|line| line.strip_prefix("Rss:")).unwrap();
        rss.trim().trim_end_matches(" kB").parse().unwrap()
    }

    #[test]
    fn a_table_that_was_read_is_given_back_and_can_be_read_again() {
        let mapped = Mapped::map(&table_file()).unwrap();
        assert!(resident(&mapped) > 0, "opening it reads it");
        mapped.release();
        assert_eq!(resident(&mapped), 0);
        assert_eq!(mapped.table().unwrap().header().pid, 42);
        assert!(resident(&mapped) > 0);
    }

    #[test]
    fn an_unsealed_file_is_never_mapped() {
        let file = memfd(4096, SealFlags::GROW);
        assert!(matches!(Mapped::map(&file), Err(OpenError::Unsealed)));
        let plain = tempfile::tempfile().unwrap();
        let error = Mapped::map(&plain).unwrap_err();
        assert!(matches!(error, OpenError::Io { .. } | OpenError::Unsealed), "{error}");
    }

    #[test]
    fn a_file_of_the_wrong_size_is_refused() {
        let map = |bytes| Mapped::map(&memfd(bytes, SealFlags::SHRINK)).unwrap_err();
        assert!(matches!(map(0), OpenError::Table(TableError::Short { .. })));
        assert!(matches!(map(4096 - 8), OpenError::Table(TableError::Short { .. })));
        assert!(matches!(map(1 << 40), OpenError::TooLarge(_)));
    }

    #[test]
    fn a_geometry_beyond_the_file_is_refused() {
        let file = table_file();
        file.write_all_at(&8192_u64.to_ne_bytes(), 2 * 8).unwrap();
        let error = Mapped::map(&file).unwrap_err();
        assert!(matches!(error, OpenError::Table(TableError::Short { .. })), "{error}");
    }

    #[test]
    fn random_words_are_refused() {
        let file = memfd(SMALL.bytes() as u64, SealFlags::SHRINK);
        let mut word = 0x9e37_79b9_7f4a_7c15_u64;
        for at in 0..SMALL.words() as u64 {
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            file.write_all_at(&word.to_ne_bytes(), at * 8).unwrap();
        }
        let error = Mapped::map(&file).unwrap_err();
        assert!(matches!(error, OpenError::Table(TableError::NotATable(_))), "{error}");
        assert_eq!(error.reason(), Reason::ReadFailed);
    }

    #[test]
    fn the_device_of_memfds_is_known() {
        assert_eq!(memfd_device().unwrap(), memfd_device().unwrap());
    }
}
