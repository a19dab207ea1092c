//! The shared table: a worker's inflight queue, laid out in 64-bit words.
//!
//! The table is the truth about what is open. libinflight writes it, the agent reads it, and what
//! it asks of a room ([`Table::hold`] and what follows) is the agent's only write. It is an array of `u64` words, every one of them
//! atomic, so that neither side can tear a word or be undefined behaviour to the other:
//!
//! ```text
//! header      512 words   geometry, identity, heartbeat, counters, bitmap of taken slots
//! threads     T x 8       what each thread is serving
//! rooms       E           room of each slot, packed, to find an open room quickly
//! entries     E x 128     one room each: who, when, to whom; counters; the command word
//! ```
//!
//! Who may write what:
//! * an entry's description (room, texts, peers, removal) has one writer at a time, the thread
//!   that claimed the slot's bit or won the removal, and is guarded by a sequence lock;
//! * an entry's counters, phase and command word are changed by compare-and-swap only, and carry
//!   the generation of the entry, so that a late call can never touch the slot's next room;
//! * a thread slot has one writer, its thread.
//!
//! A writer or reader may die at any instruction: a description left half-written stays odd and
//! reads as [`Torn`], every other word is whole by itself. Nothing here blocks or waits.

mod command;
mod entry;
mod gate;
mod header;
mod queue;
mod tagged;
mod text;
mod thread;
mod words;

pub use command::{COMMANDS_VERSION, Fail, Ordered, REASON_BYTES};
pub use entry::{EntryView, NewEntry, PEERS_MAX, Torn};
pub use gate::{Command, CommandState, MARGIN_MS, Until};
pub use header::{Counters, Header, NewHeader, Ranks, Role};
pub use queue::Change;
pub use text::Text;
pub use thread::{Serve, Serving, THREAD_PROBES};
pub use words::{Gauge, Outcome, Peer, PeerKind, Phase, State};

use crate::sync::AtomicU64;

/// The name of the memfd, as it shows in `/proc/PID/maps`: `/memfd:inflight (deleted)`.
pub const MEMFD_NAME: &str = "inflight";
/// First word of a table: `INFLIGHT` in ASCII, little endian.
pub const MAGIC: u64 = u64::from_le_bytes(*b"INFLIGHT");
/// Version of this layout. A reader refuses another one.
pub const ABI_VERSION: u64 = 1;
/// Words of the header.
pub const HEADER_WORDS: usize = 512;
/// Words of one thread slot.
pub const THREAD_WORDS: usize = 8;
/// Words of one entry.
pub const ENTRY_WORDS: usize = 128;
/// Most slots that a table may have: the bitmap's size.
pub const ENTRIES_MAX: usize = 8192;
/// Most thread slots that a table may have.
pub const THREADS_MAX: usize = 4096;

/// Most workers, each with a table, that one process can open in its life.
pub const WORKERS_MAX: usize = 16;

/// Append sequence: names one stay of one room in one worker's queue.
///
/// Counts up with every append; the low 14 bits are the slot, so that every call finds its entry
/// at once. [`Seq::UNTABLED`] in the slot's place means that the table was full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl Seq {
    const SLOT_BITS: u32 = 14;
    /// Slot of a room that found the table full: it has marks but no entry.
    pub const UNTABLED: usize = (1 << Self::SLOT_BITS) - 1;

    /// In a mark of a removal: every room that found the table full. The worker ends, and has no
    /// list of them. Counters begin at 1, so no room has it.
    pub const ALL_UNTABLED: Self = Self::new(0, Self::UNTABLED);

    /// The sequence of the `counter`-th append, which sits in `slot`.
    pub const fn new(counter: u64, slot: usize) -> Self {
        Self((counter << Self::SLOT_BITS) | (slot & Self::UNTABLED) as u64)
    }

    /// Which append of the worker it was, from 1.
    pub const fn counter(self) -> u64 {
        self.0 >> Self::SLOT_BITS
    }

    /// The slot of the entry, or `None` when the table was full.
    pub const fn slot(self) -> Option<usize> {
        #[expect(clippy::cast_possible_truncation, reason = "masked to 14 bits")]
        match (self.0 & Self::UNTABLED as u64) as usize {
            Self::UNTABLED => None,
            slot => Some(slot),
        }
    }
}

/// How many slots of each kind a table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Entries, at most [`ENTRIES_MAX`].
    pub entries: usize,
    /// Thread slots, at most [`THREADS_MAX`].
    pub threads: usize,
}

impl Geometry {
    /// What libinflight makes: 8192 rooms, 256 threads, 8.1 MiB.
    pub const STANDARD: Self = Self { entries: ENTRIES_MAX, threads: 256 };

    const fn rooms_at(self) -> usize {
        HEADER_WORDS + self.threads * THREAD_WORDS
    }

    const fn entries_at(self) -> usize {
        self.rooms_at() + self.entries
    }

    /// Words of the whole table.
    pub const fn words(self) -> usize {
        self.entries_at() + self.entries * ENTRY_WORDS
    }

    /// Bytes of the whole table, in whole pages of 4096.
    pub const fn bytes(self) -> usize {
        (self.words() * 8).next_multiple_of(4096)
    }

    /// The geometry of a table of `entries` and `threads` slots, if both are in bounds.
    pub const fn checked(entries: u64, threads: u64) -> Option<Self> {
        if entries == 0 || entries > ENTRIES_MAX as u64 {
            return None;
        }
        if threads == 0 || threads > THREADS_MAX as u64 {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "both were bounded just above")]
        let geometry = Self { entries: entries as usize, threads: threads as usize };
        Some(geometry)
    }
}

/// Why words are not a table that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableError {
    /// Fewer words than the header or the geometry in it needs.
    Short {
        /// Words given.
        have: usize,
        /// Words needed.
        need: usize,
    },
    /// The first word is not [`MAGIC`].
    NotATable(u64),
    /// Made by a libinflight of another layout version.
    Version(u64),
    /// The geometry in the header is out of bounds.
    Geometry {
        /// Entries, as the header says.
        entries: u64,
        /// Thread slots, as the header says.
        threads: u64,
    },
    /// The worker is still filling the header: try again.
    NotReady,
}

impl core::fmt::Display for TableError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Short { have, need } => {
                write!(f, "table of {have} words where {need} are needed")
            }
            Self::NotATable(word) => write!(f, "first word {word:#018x} is not a table's"),
            Self::Version(version) => write!(
                f,
                "table of layout version {version} where {ABI_VERSION} is known: \
                 install an agent and a hook of the same release"
            ),
            Self::Geometry { entries, threads } => {
                write!(f, "table of {entries} entries and {threads} threads is out of bounds")
            }
            Self::NotReady => f.write_str("the worker is still filling the table's header"),
        }
    }
}

impl core::error::Error for TableError {}

/// A view of a table in shared memory, for writer and reader alike.
#[derive(Clone, Copy, Debug)]
pub struct Table<'m> {
    words: &'m [AtomicU64],
    /// The last word, which belongs to no field (see the assertion beside `entry::PEERS`).
    spare: &'m AtomicU64,
    geometry: Geometry,
}

impl<'m> Table<'m> {
    /// Views zeroed words as a new table; the header is still to be written.
    ///
    /// # Errors
    ///
    /// [`TableError::Geometry`] when the geometry is out of bounds, [`TableError::Short`] when
    /// the words do not hold it.
    pub const fn create(words: &'m [AtomicU64], geometry: Geometry) -> Result<Self, TableError> {
        let (entries, threads) = (geometry.entries as u64, geometry.threads as u64);
        if Geometry::checked(entries, threads).is_none() {
            return Err(TableError::Geometry { entries, threads });
        }
        let short = TableError::Short { have: words.len(), need: geometry.words() };
        match words.last() {
            Some(spare) if words.len() >= geometry.words() => Ok(Self { words, spare, geometry }),
            _ => Err(short),
        }
    }

    /// Views the words that another process wrote. Everything in them is hostile input.
    ///
    /// # Errors
    ///
    /// Any [`TableError`]; [`TableError::NotReady`] is worth another try.
    pub fn open(words: &'m [AtomicU64]) -> Result<Self, TableError> {
        let geometry = header::geometry(words)?;
        Self::create(words, geometry)
    }

    /// How many slots of each kind there are.
    pub const fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn word(&self, at: usize) -> &'m AtomicU64 {
        // Every caller passes an offset inside the geometry, which `create` checked against the
        // length. Should one ever not, the spare word stands in, so that nothing can panic and
        // no room is harmed.
        self.words.get(at).unwrap_or(self.spare)
    }

    fn room_word(&self, slot: usize) -> &'m AtomicU64 {
        self.word(self.geometry.rooms_at() + slot)
    }
}

/// `value` modulo `size`, and 0 for a size of 0: libinflight must have no way to panic.
const fn wrapped(value: usize, size: usize) -> usize {
    match value.checked_rem(size) {
        Some(rest) => rest,
        None => 0,
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
