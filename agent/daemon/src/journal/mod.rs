//! What the agent has told, across its lives.
//!
//! An append-only file of checksummed lines. A line that must be written once is noted before
//! (`will`) and after (`did`). Killed in between, the next life writes it again: under the same
//! id, and marked as maybe repeated. Nothing is flushed to a disk: a process that is killed loses
//! nothing that it has written, and after a crash of the machine no worker is left to speak of.

mod entry;
mod keep;
mod lock;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use inflightd_core::Nanos;
use inflightd_core::fact::{Seq, Worker};
use inflightd_core::verdict::{Appended, Clear, Verdict};

use entry::{Act, Entry, Number};
use lock::Lock;
use state::State;
pub use state::{Gone, OpenRoom, Past};

use crate::clock::Clock;
use crate::identity::Identity;

/// A journal larger than this, and than four times what it says, is written anew.
const LARGE: u64 = 4 << 20;
/// Longest journal that is read; the rest is given up.
const READ_MAX: u64 = 256 << 20;

/// Why the journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Another agent holds the directory.
    #[error("the state directory is in use")]
    Busy(Option<u32>),
    /// The system refused.
    #[error("{doing} {}", path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl JournalError {
    /// Whether there was no room: that passes, and is no reason not to run.
    fn is_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_full(source))
    }
}

/// Whether a file system had no room for something.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The journal of this life, and what earlier ones have left.
#[derive(Debug)]
pub struct Journal {
    dir: PathBuf,
    path: PathBuf,
    /// `None` until it could be made.
    file: Option<File>,
    size: u64,
    compact_size: u64,
    state: State,
    numbers: BTreeMap<Worker, Number>,
    next: Number,
    /// Lines that an earlier life may have written.
    inherited: BTreeSet<Act>,
    /// When writing last failed; until it works again the file lacks what `state` has.
    failed_at: Option<Nanos>,
    /// Why, once that was said.
    problem: Option<String>,
    /// When it was last looked whether the files are still there.
    looked_at: Nanos,
    lock: Option<Lock>,
    holds: Arc<AtomicBool>,
}

impl Journal {
    /// Opens the journal in `dir`, which is made where it does not exist. On a full disk it is kept
    /// in memory, and [`Self::mend`] makes it once there is room.
    pub fn open(dir: &Path, boot: &str) -> Result<Self, JournalError> {
        let lock = match lock_in(dir) {
            Ok(lock) => Some(lock),
            Err(error) if error.is_full() => None,
            Err(error) => return Err(error),
        };
        let path = dir.join("journal");
        let text = read(&path).map_err(|source| failed("reading", &path, source))?;
        let (state, damaged) = State::read(&text, boot);
        if damaged > 0 {
            tracing::warn!(lines = damaged, "skipped damaged lines of the journal");
        }
        let inherited = state.pending.clone();
        let next = state.workers.keys().next_back().map_or(0, |last| last + 1);
        let mut journal = Self {
            dir: dir.to_owned(),
            path,
            file: None,
            size: 0,
            compact_size: 0,
            state,
            numbers: BTreeMap::new(),
            next,
            inherited,
            failed_at: None,
            problem: None,
            looked_at: Nanos::ZERO,
            lock,
            holds: Arc::default(),
        };
        match journal.make() {
            Err(error) if error.is_full() => journal.has_failed(&error, Clock::now()),
            made => made?,
        }
        Ok(journal)
    }

    /// Workers of earlier lives that this one has not met yet.
    pub fn strangers(&self) -> Vec<Past> {
        let met: Vec<Number> = self.numbers.values().copied().collect();
        let unmet = self.state.workers.iter().filter(|(n, _)| !met.contains(n));
        unmet.map(|(_, past)| past.clone()).collect()
    }

    /// What earlier lives have told of this worker.
    pub fn past(&self, identity: &Identity) -> Option<Past> {
        self.find(identity).and_then(|n| self.state.workers.get(&n)).cloned()
    }

    fn find(&self, identity: &Identity) -> Option<Number> {
        self.state.workers.iter().find(|(_, past)| past.identity == *identity).map(|(n, _)| *n)
    }

    /// A worker was met: its lines from now on are about `worker`.
    pub fn meet(&mut self, worker: Worker, past: &Past) {
        let known = self.find(&past.identity);
        let n = known.unwrap_or(self.next);
        self.numbers.insert(worker, n);
        if known.is_none() {
            self.next += 1;
            self.note(&state::worker(n, past));
        }
    }

    /// Removals up to `through` are told, or can never be: their entries were used again.
    pub fn give_up(&mut self, worker: Worker, through: u64) {
        if let Some(n) = self.numbers.get(&worker).copied() {
            self.note(&Entry::Through { n, through });
        }
    }

    /// A worker has ended and all its lines are written.
    pub fn end(&mut self, worker: Worker, at: Nanos) {
        if let Some(n) = self.numbers.remove(&worker) {
            self.note(&Entry::End { n, at: at.0 });
        }
    }

    /// Workers that ended in earlier lives, the last one last.
    pub fn gone(&self) -> impl Iterator<Item = &Gone> {
        self.state.gone.iter()
    }

    /// A room entered the queue, and that was told.
    pub fn appended(&mut self, append: &Appended) {
        if let Some(n) = self.numbers.get(&append.worker).copied() {
            self.note(&Entry::Append {
                n,
                seq: append.seq.0,
                room: append.room.0,
                at: append.at.0,
                expected: append.expected,
            });
        }
    }

    /// Begins a dwell line; `removal` is its number in the table, or 0.
    pub fn dwell(&mut self, worker: Worker, seq: Seq, removal: u64) -> Option<Telling> {
        let n = *self.numbers.get(&worker)?;
        Some(self.begin(Act::Dwell { n, seq: seq.0, removal }))
    }

    /// Begins a verdict line.
    pub fn verdict(&mut self, verdict: &Verdict) -> Option<Telling> {
        let n = *self.numbers.get(&verdict.worker)?;
        Some(self.begin(Act::verdict(n, verdict.seq, verdict.finding, verdict.cause)))
    }

    /// Begins a clear line.
    pub fn clear(&mut self, clear: &Clear) -> Option<Telling> {
        let n = *self.numbers.get(&clear.worker)?;
        Some(self.begin(Act::clear(n, clear.seq, clear.finding, clear.cause)))
    }

    fn begin(&mut self, act: Act) -> Telling {
        let maybe_repeated = self.inherited.remove(&act);
        if !self.state.pending.contains(&act) {
            self.note(&Entry::Will(act.clone()));
        }
        Telling { act, maybe_repeated }
    }

    /// The line was written.
    pub fn told(&mut self, telling: Telling) {
        self.note(&Entry::Did(telling.act));
    }

    /// Adds an entry. Should that fail, the agent goes on, and [`Self::mend`] writes later what
    /// is missing; killed before, it may tell a line twice.
    fn note(&mut self, entry: &Entry) {
        self.state.apply(entry);
        if self.failed_at.is_none()
            && let Err(error) = self.append(entry)
        {
            // Half a line would spoil the next one.
            drop(self.file.as_ref().map(|file| file.set_len(self.size)));
            self.has_failed(&failed("writing", &self.path, error), Clock::now());
        }
    }

    fn append(&mut self, entry: &Entry) -> io::Result<()> {
        let line = entry::write(entry)?;
        let file = self.file.as_mut().ok_or(io::ErrorKind::NotFound)?;
        file.write_all(line.as_bytes())?;
        self.size += line.len() as u64;
        if self.size > LARGE && self.size > 4 * self.compact_size {
            self.write_anew()?;
        }
        Ok(())
    }

    fn write_anew(&mut self) -> io::Result<()> {
        let (file, size) = write_anew(&self.path, &self.state)?;
        (self.file, self.size, self.compact_size) = (Some(file), size, size);
        Ok(())
    }
}

fn failed(doing: &'static str, path: &Path, source: io::Error) -> JournalError {
    JournalError::Io { doing, path: path.to_owned(), source }
}

/// Takes the lock of a directory, which is made where it does not exist.
fn lock_in(dir: &Path) -> Result<Lock, JournalError> {
    fs::create_dir_all(dir).map_err(|source| failed("making", dir, source))?;
    Lock::take(dir)
}

/// A line that is being written.
#[derive(Debug)]
pub struct Telling {
    act: Act,
    /// An earlier life may have written it.
    pub maybe_repeated: bool,
}

fn read(path: &Path) -> io::Result<String> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(file, READ_MAX), &mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Writes the state to a new file that takes the old one's place in one step.
fn write_anew(path: &Path, state: &State) -> io::Result<(File, u64)> {
    let mut text = String::new();
    for entry in state.entries() {
        text.push_str(&entry::write(&entry)?);
    }
    let new = path.with_extension("new");
    let written = fs::write(&new, &text).and_then(|()| fs::rename(&new, path));
    if let Err(error) = written {
        // On a full disk half a file helps nobody.
        drop(fs::remove_file(&new));
        return Err(error);
    }
    let file = OpenOptions::new().append(true).open(path)?;
    Ok((file, text.len() as u64))
}

#[cfg(test)]
mod tests;
