//! The header: geometry, who the worker is, its heartbeat and its counters.

use super::{
    ABI_VERSION, ENTRIES_MAX, Gauge, Geometry, HEADER_WORDS, MAGIC, PEERS_MAX, Peer, Table,
    TableError, Text, wrapped,
};
use crate::sync::AtomicU64;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};

const VERSION: usize = 1;
const ENTRIES: usize = 2;
const THREADS: usize = 3;
const READY: usize = 4;
const PID: usize = 5;
const WORKER: usize = 6;
const OPENED_AT: usize = 7;
const ROLE: usize = 8;
const NNODES: usize = 9;
const RANKS: usize = 10;
const ENGINE: usize = 16;
const ENGINE_VERSION: usize = 24;
const IDENTITIES: usize = 32;

// Written at every poll, and at every append or removal: a cache line each.
const BEAT_AT: usize = 160;
const BEATS: usize = 161;
const APPENDS: usize = 168;
const REMOVALS: usize = 169;
const OVERFLOWS: usize = 170;
const STALE: usize = 171;
pub(super) const THREADS_OVERFLOW: usize = 172;
const HINT: usize = 173;
/// The agent's: a cache line of its own, which the worker reads at every poll.
pub(super) const ASKED: usize = 208;
/// A word each: 0 while the worker has not said it, else one more than its value.
const GAUGES: usize = 176;
const GAUGES_MAX: usize = 32;
const BITMAP: usize = 256;

const _: () = {
    assert!(ENGINE + Text::<56>::WORDS <= ENGINE_VERSION);
    assert!(ENGINE_VERSION + Text::<56>::WORDS <= IDENTITIES);
    assert!(IDENTITIES + 1 + PEERS_MAX * Peer::WORDS <= BEAT_AT);
    assert!(Gauge::ALL.len() < GAUGES_MAX && GAUGES + GAUGES_MAX <= ASKED);
    assert!(ASKED + 8 <= BITMAP);
    assert!(BITMAP + ENTRIES_MAX / 64 <= HEADER_WORDS);
};

/// Which side of the transfer the engine is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Runs prompts and sends their KV cache.
    Prefill,
    /// Receives KV caches and generates.
    Decode,
    /// A value that this release does not know.
    Other(u64),
}

impl Role {
    /// The number in the table and in `inflight.h`.
    pub const fn code(self) -> u64 {
        match self {
            Self::Prefill => 1,
            Self::Decode => 2,
            Self::Other(code) => code,
        }
    }

    /// The role of that number.
    pub const fn from_code(code: u64) -> Self {
        match code {
            1 => Self::Prefill,
            2 => Self::Decode,
            other => Self::Other(other),
        }
    }
}

/// Position and size in each parallel dimension: (index, size); size 0 where not stated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ranks {
    /// Data parallel.
    pub dp: (u32, u32),
    /// Pipeline parallel.
    pub pp: (u32, u32),
    /// Tensor parallel (the attention group where it differs).
    pub tp: (u32, u32),
    /// Context parallel (the attention group where it differs).
    pub cp: (u32, u32),
}

impl Ranks {
    const fn words(self) -> [u64; 4] {
        const fn pack(rank: (u32, u32)) -> u64 {
            ((rank.0 as u64) << 32) | rank.1 as u64
        }
        [pack(self.dp), pack(self.pp), pack(self.tp), pack(self.cp)]
    }

    #[expect(clippy::cast_possible_truncation, reason = "the halves of a word")]
    const fn from_words(words: [u64; 4]) -> Self {
        const fn unpack(word: u64) -> (u32, u32) {
            ((word >> 32) as u32, word as u32)
        }
        let [dp, pp, tp, cp] = words;
        Self { dp: unpack(dp), pp: unpack(pp), tp: unpack(tp), cp: unpack(cp) }
    }
}

/// What a worker states about itself when it opens its table.
#[derive(Clone, Copy, Debug)]
pub struct NewHeader<'a> {
    /// Process id as the worker itself sees it.
    pub pid: u32,
    /// Index of the worker inside its process.
    pub worker: u64,
    /// Prefill or decode.
    pub role: Role,
    /// Engine name, at most 56 bytes are kept.
    pub engine: &'a [u8],
    /// Engine version, likewise.
    pub version: &'a [u8],
    /// Position in each parallel dimension.
    pub ranks: Ranks,
    /// Nodes that the engine spans.
    pub nnodes: u32,
    /// The names under which others address this worker, at most [`PEERS_MAX`] are kept.
    pub identities: &'a [(u64, &'a [u8])],
}

/// What a table's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Process id as the worker itself sees it; only ever checked against `NSpid`.
    pub pid: u64,
    /// Index of the worker inside its process.
    pub worker: u64,
    /// `CLOCK_MONOTONIC` of the opening, in nanoseconds.
    pub opened_at: u64,
    /// Prefill or decode.
    pub role: Role,
    /// Nodes that the engine spans.
    pub nnodes: u64,
    /// Position in each parallel dimension.
    pub ranks: Ranks,
    /// Engine name.
    pub engine: Text<56>,
    /// Engine version.
    pub version: Text<56>,
    /// How many identities the worker stated; at most [`PEERS_MAX`] are kept.
    pub identities_stated: u64,
    /// The names under which others address this worker; unused places are empty.
    pub identities: [Peer; PEERS_MAX],
}

/// The header's counters: all of them only ever grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// `CLOCK_MONOTONIC` of the last poll of the queue, in nanoseconds; 0 before the first.
    pub beat_at: u64,
    /// Polls of the queue.
    pub beats: u64,
    /// Rooms appended.
    pub appends: u64,
    /// Rooms removed that had an entry.
    pub removals: u64,
    /// Rooms that found the table full.
    pub overflows: u64,
    /// Calls for a room that was no longer open.
    pub stale: u64,
    /// Calls of threads that found no thread slot.
    pub threads_overflow: u64,
}

fn load(words: &[AtomicU64], at: usize) -> u64 {
    words.get(at).map_or(0, |word| word.load(Acquire))
}

/// Reads the geometry of a table that somebody else made.
pub(super) fn geometry(words: &[AtomicU64]) -> Result<Geometry, TableError> {
    if words.len() < HEADER_WORDS {
        return Err(TableError::Short { have: words.len(), need: HEADER_WORDS });
    }
    if load(words, READY) == 0 && matches!(load(words, 0), 0 | MAGIC) {
        return Err(TableError::NotReady);
    }
    if load(words, 0) != MAGIC {
        return Err(TableError::NotATable(load(words, 0)));
    }
    if load(words, VERSION) != ABI_VERSION {
        return Err(TableError::Version(load(words, VERSION)));
    }
    let (entries, threads) = (load(words, ENTRIES), load(words, THREADS));
    Geometry::checked(entries, threads).ok_or(TableError::Geometry { entries, threads })
}

impl Table<'_> {
    /// Writes the header of a new table; the last store makes the table readable.
    pub fn write_header(&self, now: u64, new: &NewHeader<'_>) {
        let geometry = self.geometry();
        let set = |at: usize, value: u64| self.word(at).store(value, Relaxed);
        set(VERSION, ABI_VERSION);
        set(ENTRIES, geometry.entries as u64);
        set(THREADS, geometry.threads as u64);
        set(PID, u64::from(new.pid));
        set(WORKER, new.worker);
        set(OPENED_AT, now);
        set(ROLE, new.role.code());
        set(NNODES, u64::from(new.nnodes));
        for (index, word) in new.ranks.words().into_iter().enumerate() {
            set(RANKS + index, word);
        }
        self.write_text::<56>(ENGINE, new.engine);
        self.write_text::<56>(ENGINE_VERSION, new.version);
        set(IDENTITIES, new.identities.len() as u64);
        self.write_peers(IDENTITIES + 1, new.identities);
        set(0, MAGIC);
        self.word(READY).store(1, Release);
    }

    /// What the header says about the worker.
    pub fn header(&self) -> Header {
        let get = |at: usize| self.word(at).load(Relaxed);
        let identities_stated = get(IDENTITIES);
        Header {
            pid: get(PID),
            worker: get(WORKER),
            opened_at: get(OPENED_AT),
            role: Role::from_code(get(ROLE)),
            nnodes: get(NNODES),
            ranks: Ranks::from_words([get(RANKS), get(RANKS + 1), get(RANKS + 2), get(RANKS + 3)]),
            engine: self.read_text(ENGINE),
            version: self.read_text(ENGINE_VERSION),
            identities_stated,
            identities: self.read_peers(IDENTITIES + 1, identities_stated),
        }
    }

    /// The worker polls its queue.
    pub fn beat(&self, now: u64) {
        self.word(BEAT_AT).store(now, Relaxed);
        self.bump(BEATS);
    }

    /// The worker says how it is.
    pub fn set_gauge(&self, gauge: Gauge, value: u64) {
        self.word(GAUGES + gauge as usize).store(value.saturating_add(1), Relaxed);
    }

    /// What the worker last said; `None` where it has not, as no worker of an older hook has.
    pub fn gauge(&self, gauge: Gauge) -> Option<u64> {
        self.word(GAUGES + gauge as usize).load(Relaxed).checked_sub(1)
    }

    /// The header's counters, as they stand.
    pub fn counters(&self) -> Counters {
        let get = |at: usize| self.word(at).load(Acquire);
        Counters {
            beat_at: get(BEAT_AT),
            beats: get(BEATS),
            appends: get(APPENDS),
            removals: get(REMOVALS),
            overflows: get(OVERFLOWS),
            stale: get(STALE),
            threads_overflow: get(THREADS_OVERFLOW),
        }
    }

    pub(super) fn bump(&self, at: usize) -> u64 {
        self.word(at).fetch_add(1, AcqRel) + 1
    }

    pub(super) fn next_append(&self) -> u64 {
        self.bump(APPENDS)
    }

    pub(super) fn next_removal(&self) -> u64 {
        self.bump(REMOVALS)
    }

    pub(super) fn count_stale(&self) -> bool {
        self.bump(STALE);
        false
    }

    /// Takes a free slot, the next after the last one taken, so that a slot's last room stays
    /// readable as long as possible. `None` and a count when all are taken.
    pub(super) fn claim_slot(&self) -> Option<usize> {
        let entries = self.geometry().entries;
        let hint = self.word(HINT);
        let start = wrapped(usize::try_from(hint.load(Relaxed)).unwrap_or(0), entries);
        // Whole words first from the hint on, then around; the first word is seen twice, since
        // the hint may point into its middle.
        let words = entries.div_ceil(64);
        for step in 0..=words {
            let word = wrapped(start / 64 + step, words);
            let from = if step == 0 { start % 64 } else { 0 };
            if let Some(slot) = self.claim_in(word, from) {
                hint.store(slot as u64 + 1, Relaxed);
                return Some(slot);
            }
        }
        self.bump(OVERFLOWS);
        None
    }

    fn claim_in(&self, word: usize, from: usize) -> Option<usize> {
        let bitmap = self.word(BITMAP + word);
        let mut seen = bitmap.load(Relaxed);
        loop {
            let taken = seen | ((1_u64 << from) - 1);
            let bit = (!taken).trailing_zeros() as usize;
            let slot = word * 64 + bit;
            if bit == 64 || slot >= self.geometry().entries {
                return None;
            }
            match bitmap.compare_exchange_weak(seen, seen | (1 << bit), AcqRel, Relaxed) {
                Ok(_) => return Some(slot),
                Err(now) => seen = now,
            }
        }
    }

    pub(super) fn free_slot(&self, slot: usize) {
        self.word(BITMAP + slot / 64).fetch_and(!(1 << (slot % 64)), AcqRel);
    }

    /// The slots that are taken, lowest first: rooms that are open, or just being written.
    pub fn taken_slots(&self) -> impl Iterator<Item = usize> + '_ {
        let entries = self.geometry().entries.min(ENTRIES_MAX);
        (0..entries.div_ceil(64))
            .flat_map(move |word| {
                let mut bits = self.word(BITMAP + word).load(Acquire);
                // A table is mostly empty, and every append looks through it.
                core::iter::from_fn(move || {
                    let bit = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
                    bits &= bits - 1;
                    Some(word * 64 + bit)
                })
            })
            .filter(move |slot| *slot < entries)
    }
}
