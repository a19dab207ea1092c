//! Lines on their way out: a thread of its own writes them, so that a reader who does not read
//! cannot keep the agent from judging.
//!
//! What waits is bounded by its bytes. Lines about healthy rooms have a small share of it, and no
//! worker's may take more of that than is left: a flood of one leaves half to the others. One that
//! finds no room is dropped. Any other line may wait up to a much larger bound, and when that
//! is full too, the loop waits for the reader, [`PATIENCE`] at most for each time that the reader
//! stands still; then the newcomer is dropped as well.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;

use inflightd_core::Nanos;
use inflightd_core::fact::Worker;

use super::pen::Pen;
use crate::clock::Clock;

/// Most bytes that wait before lines about healthy rooms are dropped.
const HEALTHY_BYTES_MAX: usize = 2 << 20;
/// Most bytes that wait at all. The victim is the newcomer.
const BYTES_MAX: usize = 16 << 20;
/// So long the loop waits for a reader that stands still.
const PATIENCE: Nanos = Nanos::from_millis(250);
/// So long the agent's end waits for a reader that stands still.
const END_PATIENCE: Nanos = Nanos::from_secs(2);

/// What an item counts for besides its text.
const EMPTY_BYTES: usize = 64;

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// About a room of this worker that never stalled.
    Healthy(Worker),
    /// Anything else.
    Heavy,
}

/// What became of a line.
#[derive(Debug, PartialEq, Eq)]
pub enum Sent<T> {
    /// It is on its way.
    Goes,
    /// There was no room for it; what was to be done after it.
    Dropped(Option<T>),
}

/// A line that waits, or only what is to be done after those before it.
struct Item<T> {
    text: String,
    /// The worker whose share it takes.
    of: Option<Worker>,
    after: Option<T>,
}

impl<T> Item<T> {
    /// What it counts for, roughly: those without a line take memory too.
    const fn bytes(&self) -> usize {
        self.text.len() + EMPTY_BYTES
    }
}

/// What the thread has done: an item without its text, the bytes that it counted for, and why its
/// line could not be written. An error means that nobody reads any more.
type Done<T> = io::Result<(usize, Item<T>, io::Result<()>)>;

/// Lines that could not be written.
#[derive(Debug)]
pub struct Lost<T> {
    /// How many.
    pub lines: u64,
    /// What was to be done after those that mattered.
    pub after: Vec<T>,
    /// Why, for the last of them.
    pub why: Option<io::Error>,
}

impl<T> Default for Lost<T> {
    fn default() -> Self {
        Self { lines: 0, after: Vec::new(), why: None }
    }
}

/// Writes lines in a thread of its own. `T` comes back once its line is written.
#[derive(Debug)]
pub struct Outlet<T> {
    items: Option<Sender<Item<T>>>,
    done: Receiver<Done<T>>,
    /// Items whose end was not heard of yet, and their bytes.
    waiting: usize,
    waiting_bytes: usize,
    /// Of them those of healthy rooms, by worker. The bound on the bytes bounds it too.
    healthy: BTreeMap<Worker, usize>,
    /// When the reader last took something, or nothing waited.
    moved_at: Nanos,
    /// Came back and was not asked for yet.
    back: Vec<T>,
    /// Could not be written and was not asked for yet.
    lost: Lost<T>,
    /// Whether the last line could be written.
    writes: bool,
}

impl<T: Send + 'static> Outlet<T> {
    /// An outlet to a stream.
    pub fn new(to: Box<dyn Write + Send>) -> io::Result<Self> {
        let (items, taken) = channel();
        let (tell, done) = channel();
        thread::Builder::new()
            .name("lines".to_owned())
            .spawn(move || write_all(to, &taken, &tell))?;
        Ok(Self {
            items: Some(items),
            done,
            waiting: 0,
            waiting_bytes: 0,
            healthy: BTreeMap::new(),
            moved_at: Clock::now(),
            back: Vec::new(),
            lost: Lost::default(),
            writes: true,
        })
    }

    /// Sends a line, which ends in a line feed.
    pub fn send(&mut self, text: String, weight: Weight, after: Option<T>) -> io::Result<Sent<T>> {
        self.hear()?;
        let full = |outlet: &Self| outlet.waiting > 0 && !outlet.has_room(text.len(), weight);
        let of = match weight {
            Weight::Healthy(worker) => Some(worker),
            Weight::Heavy => {
                self.wait_while(full, PATIENCE)?;
                None
            }
        };
        if full(self) {
            return Ok(Sent::Dropped(after));
        }
        self.push(Item { text, of, after });
        Ok(Sent::Goes)
    }

    fn has_room(&self, bytes: usize, weight: Weight) -> bool {
        match weight {
            Weight::Heavy => self.waiting_bytes + bytes <= BYTES_MAX,
            Weight::Healthy(worker) => {
                let own = self.healthy.get(&worker).copied().unwrap_or(0);
                own + bytes <= HEALTHY_BYTES_MAX.saturating_sub(self.waiting_bytes)
            }
        }
    }

    /// Gives `after` back once everything that was sent before it is written, or at once where
    /// there is no room to wait.
    pub fn then(&mut self, after: T) {
        if self.waiting == 0 || self.waiting_bytes >= BYTES_MAX {
            self.back.push(after);
        } else {
            self.push(Item { text: String::new(), of: None, after: Some(after) });
        }
    }

    fn push(&mut self, item: Item<T>) {
        if self.waiting == 0 {
            self.moved_at = Clock::now();
        }
        let (bytes, of) = (item.bytes(), item.of);
        // A thread that has ended has told why, which `hear` finds.
        if self.items.as_ref().is_some_and(|items| items.send(item).is_ok()) {
            self.waiting += 1;
            self.waiting_bytes += bytes;
            if let Some(worker) = of {
                *self.healthy.entry(worker).or_default() += bytes;
            }
        }
    }

    /// What can be done now, in the order in which it was sent. An error ends the outlet.
    pub fn done(&mut self) -> io::Result<Vec<T>> {
        self.hear()?;
        Ok(std::mem::take(&mut self.back))
    }

    /// What could not be written since this was last asked.
    pub fn take_lost(&mut self) -> Lost<T> {
        std::mem::take(&mut self.lost)
    }

    /// Whether the last line could be written.
    pub const fn writes(&self) -> bool {
        self.writes
    }

    fn hear(&mut self) -> io::Result<()> {
        while let Ok(done) = self.done.try_recv() {
            self.take(done)?;
        }
        Ok(())
    }

    fn take(&mut self, done: Done<T>) -> io::Result<()> {
        let (bytes, item, written) = done?;
        let has_line = bytes > EMPTY_BYTES;
        self.waiting -= 1;
        self.waiting_bytes -= bytes;
        if let Some(worker) = item.of {
            let own = self.healthy.remove(&worker).unwrap_or(0);
            if own > bytes {
                self.healthy.insert(worker, own - bytes);
            }
        }
        self.moved_at = Clock::now();
        if has_line {
            self.writes = written.is_ok();
        }
        match written {
            Err(error) => {
                self.lost.lines += 1;
                self.lost.why = Some(error);
                // That a healthy room's line is missing is for no later life to mend.
                let after = if item.of.is_some() { &mut self.back } else { &mut self.lost.after };
                after.extend(item.after);
            }
            Ok(()) => self.back.extend(item.after),
        }
        Ok(())
    }

    /// Waits while `so`, until the reader has stood still for `patience`.
    fn wait_while(&mut self, so: impl Fn(&Self) -> bool, patience: Nanos) -> io::Result<()> {
        while so(self) {
            let left = self.moved_at.plus(patience).since(Clock::now());
            if left == Nanos::ZERO {
                return Ok(());
            }
            match self.done.recv_timeout(left.duration()) {
                Ok(done) => self.take(done)?,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
        Ok(())
    }

    /// Waits until everything is written, or the reader has stood still for 2 s. Gives what came
    /// back, and how many lines were not written.
    pub fn finish(&mut self) -> io::Result<(Vec<T>, usize)> {
        self.items = None;
        self.moved_at = self.moved_at.max(Clock::now());
        self.wait_while(|outlet| outlet.waiting > 0, END_PATIENCE)?;
        Ok((std::mem::take(&mut self.back), self.waiting))
    }
}

fn write_all<T>(to: Box<dyn Write + Send>, items: &Receiver<Item<T>>, tell: &Sender<Done<T>>) {
    let mut pen = Pen::new(to);
    for mut item in items {
        let bytes = item.bytes();
        let text = std::mem::take(&mut item.text);
        let written = if text.is_empty() { Ok(()) } else { pen.write(&text) };
        let done = match written {
            // Nobody reads any more: that is how a pipeline ends. Anything else may pass.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(error),
            written => Ok((bytes, item, written)),
        };
        let is_over = done.is_err();
        // The agent that does not listen any more has ended.
        if tell.send(done).is_err() || is_over {
            return;
        }
    }
}

#[cfg(test)]
#[path = "outlet_tests.rs"]
mod tests;
