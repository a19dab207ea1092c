//! SGLang's load snapshot: how many requests a scheduler has in each of its queues.
//!
//! A file in `/dev/shm` that each scheduler maps and writes: a header, then one slot for each DP
//! rank with a length and a map in `MessagePack`. The agent reads it without the lock that writers
//! and readers of SGLang take: an agent that held it would hold up the engine. A slot that is being
//! written shows by a length of 0, or by two readings that differ.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use inflightd_core::fact::Load;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::proc::LoadMap;

const MAGIC: &[u8] = b"SLNS";
/// The version of the form that is understood: SGLang 0.5.15 to 0.5.23.
const VERSION: u16 = 2;
/// Magic, version and ranks (16 bits each), bytes of a slot (32 bits); little endian.
const HEADER: usize = 12;
/// Length of the map in a slot; little endian.
const LENGTH: u32 = 4;
/// Largest slot that is read: it is 16 KiB in SGLang.
const SLOT_MAX: u32 = 64 * 1024;
/// Readings of a slot until two are equal.
const TRIES: u32 = 4;
/// Deepest nesting of the map; SGLang's has two levels.
const DEPTH_MAX: usize = 8;
/// The file system of `/dev/shm`: a read of any other could hang.
const TMPFS: i64 = 0x0102_1994;

/// Why a snapshot cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The system refused, or something else lies there.
    #[error("opening or reading it")]
    Io(#[from] io::Error),
    /// Not a snapshot.
    #[error("it does not begin as a load snapshot does")]
    Magic,
    /// Another form.
    #[error("it has version {0}; this inflightd knows version {VERSION}")]
    Version(u16),
    /// Sizes that do not fit each other or the bounds.
    #[error("its header says {ranks} ranks of {slot} bytes, which does not fit the file")]
    Sizes {
        /// DP ranks.
        ranks: u16,
        /// Bytes of a slot.
        slot: u32,
    },
    /// Several ranks, and the process does not say which is its own.
    #[error("it holds {0} ranks and the process's name does not say which is its own")]
    Rank(u16),
    /// Not the map that was expected.
    #[error("its slot cannot be understood")]
    Form(#[from] rmp_serde::decode::Error),
    /// Being written at every try.
    #[error("it was being written at every try")]
    Torn,
}

impl SnapshotError {
    /// Whether the next reading may find it otherwise.
    pub const fn is_passing(&self) -> bool {
        matches!(self, Self::Torn)
    }
}

/// What a snapshot states.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stated {
    /// The queues; `None` for an engine without separate prefill and decode.
    pub load: Option<Load>,
    /// `prefill` or `decode`, where it says so.
    pub role: Option<&'static str>,
    /// When it was written, by the engine's clock: the same as long as nobody writes. 0 in one
    /// that was never written.
    pub written_at: f64,
}

/// The map in a slot. Fields that have their default are left out by SGLang.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Slot {
    timestamp: f64,
    num_running_reqs: u64,
    has_disaggregation: u64,
    disagg_mode: Kind,
    prefill_bootstrap_queue_reqs: u64,
    prefill_inflight_queue_reqs: u64,
    decode_prealloc_queue_reqs: u64,
    decode_transfer_queue_reqs: u64,
    /// The same as a part of its own, in some releases.
    disaggregation: Option<Part>,
}

/// The part about disaggregation: a map, or an array in this order.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Part {
    mode: Kind,
    prefill_bootstrap_queue_reqs: u64,
    prefill_inflight_queue_reqs: u64,
    decode_prealloc_queue_reqs: u64,
    decode_transfer_queue_reqs: u64,
    #[serde(rename = "decode_retracted_queue_reqs")]
    _retracted: IgnoredAny,
    #[serde(rename = "kv_transfer_speed_gb_s")]
    _speed: IgnoredAny,
    #[serde(rename = "kv_transfer_latency_ms")]
    _latency: IgnoredAny,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Kind {
    Number(u64),
    Name(String),
}

impl Default for Kind {
    fn default() -> Self {
        Self::Number(0)
    }
}

impl Kind {
    fn role(&self) -> Option<&'static str> {
        match self {
            Self::Number(1) => Some("prefill"),
            Self::Number(2) => Some("decode"),
            Self::Name(name) => ["prefill", "decode"].into_iter().find(|role| role == name),
            Self::Number(_) => None,
        }
    }
}

impl Slot {
    fn stated(self) -> Stated {
        let running = self.num_running_reqs;
        let flat = Part {
            mode: self.disagg_mode,
            prefill_bootstrap_queue_reqs: self.prefill_bootstrap_queue_reqs,
            prefill_inflight_queue_reqs: self.prefill_inflight_queue_reqs,
            decode_prealloc_queue_reqs: self.decode_prealloc_queue_reqs,
            decode_transfer_queue_reqs: self.decode_transfer_queue_reqs,
            ..Part::default()
        };
        let part = self.disaggregation.or_else(|| (self.has_disaggregation != 0).then_some(flat));
        let load = part.as_ref().map(|part| Load {
            running,
            bootstrap: part.prefill_bootstrap_queue_reqs,
            inflight: part.prefill_inflight_queue_reqs,
            prealloc: part.decode_prealloc_queue_reqs,
            transfer: part.decode_transfer_queue_reqs,
        });
        let role = part.and_then(|part| part.mode.role());
        Stated { load, role, written_at: self.timestamp }
    }
}

/// Reads what a process that maps a snapshot says in it; `rank` is its DP rank, where it is known.
pub fn read(pid: u32, map: &LoadMap, rank: Option<u16>) -> Result<Stated, SnapshotError> {
    let file = open(Path::new(&format!("/proc/{pid}/root")), map)?;
    read_from(&file, rank)
}

/// Opens the file at a mapping's path as the process sees it. The name may lead to anything by
/// now: it is opened for reading only when it is the very file, a regular one in memory.
fn open(root: &Path, map: &LoadMap) -> io::Result<File> {
    let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(CWD, root, folder, Mode::empty())?;
    let relative = map.path.strip_prefix("/").unwrap_or(&map.path);
    let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let place = openat2(&root, relative, flags, Mode::empty(), within)?;
    let is_tmpfs = rustix::fs::fstatfs(&place)?.f_type == TMPFS;
    let place = File::from(place);
    let meta = place.metadata()?;
    if !meta.is_file() || meta.ino() != map.inode || !is_tmpfs {
        return Err(io::Error::other("another file lies at the path of the mapped one"));
    }
    // The same file, now for reading.
    let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&place));
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(File::from(openat(CWD, link, flags, Mode::empty())?))
}

fn read_from(file: &File, rank: Option<u16>) -> Result<Stated, SnapshotError> {
    let mut header = [0; HEADER];
    file.read_exact_at(&mut header, 0)?;
    let [m0, m1, m2, m3, v0, v1, r0, r1, slot @ ..] = header;
    if [m0, m1, m2, m3] != MAGIC {
        return Err(SnapshotError::Magic);
    }
    let (version, ranks) = (u16::from_le_bytes([v0, v1]), u16::from_le_bytes([r0, r1]));
    if version != VERSION {
        return Err(SnapshotError::Version(version));
    }
    let slot = u32::from_le_bytes(slot);
    let whole = HEADER as u64 + u64::from(ranks) * u64::from(slot);
    let fits = (LENGTH..=SLOT_MAX).contains(&slot) && file.metadata()?.size() >= whole;
    if ranks == 0 || !fits {
        return Err(SnapshotError::Sizes { ranks, slot });
    }
    let rank = rank.or_else(|| (ranks == 1).then_some(0)).filter(|rank| *rank < ranks);
    let rank = rank.ok_or(SnapshotError::Rank(ranks))?;
    let map = settled(file, HEADER as u64 + u64::from(rank) * u64::from(slot), slot)?;
    let mut decoder = rmp_serde::Deserializer::from_read_ref(&map);
    decoder.set_max_depth(DEPTH_MAX);
    Ok(Slot::deserialize(&mut decoder)?.stated())
}

/// The map in a slot, read until two readings are equal. Each writing carries its own time, so
/// both are of one, and the length between them stands only before a whole one.
fn settled(file: &File, at: u64, slot: u32) -> Result<Vec<u8>, SnapshotError> {
    let mut last = None;
    for _ in 0..TRIES {
        let mut length = [0; 4];
        file.read_exact_at(&mut length, at)?;
        let length = u32::from_le_bytes(length);
        if length == 0 || length > slot.saturating_sub(LENGTH) {
            last = None;
            continue;
        }
        let mut map = vec![0; usize::try_from(length).unwrap_or(0)];
        file.read_exact_at(&mut map, at + u64::from(LENGTH))?;
        if last.as_ref() == Some(&map) {
            return Ok(map);
        }
        last = Some(map);
    }
    Err(SnapshotError::Torn)
}

#[cfg(test)]
#[path = "snapshot_tests.rs"]
mod tests;
