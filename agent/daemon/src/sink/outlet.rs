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

use crate::clock::Clock;

/// Most bytes that wait before lines about healthy rooms are dropped.
const HEALTHY_BYTES_MAX: usize = 2 << 20;
/// Most bytes that wait at all. The victim is the newcomer.
const BYTES_MAX: usize = 16 << 20;
/// So long the loop waits for a reader that stands still.
const PATIENCE: Nanos = Nanos::from_millis(250);
/// So long the agent's end waits for a reader that stands still.
const END_PATIENCE: Nanos = Nanos::from_secs(2);

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
        self.text.len() + 64
    }
}

/// What the thread has done: an item without its text, and the bytes that it counted for.
type Done<T> = io::Result<(usize, Item<T>)>;

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

    fn hear(&mut self) -> io::Result<()> {
        while let Ok(done) = self.done.try_recv() {
            self.take(done)?;
        }
        Ok(())
    }

    fn take(&mut self, done: Done<T>) -> io::Result<()> {
        let (bytes, item) = done?;
        self.waiting -= 1;
        self.waiting_bytes -= bytes;
        if let Some(worker) = item.of {
            let own = self.healthy.remove(&worker).unwrap_or(0);
            if own > bytes {
                self.healthy.insert(worker, own - bytes);
            }
        }
        self.moved_at = Clock::now();
        self.back.extend(item.after);
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

fn write_all<T>(mut to: Box<dyn Write + Send>, items: &Receiver<Item<T>>, tell: &Sender<Done<T>>) {
    for mut item in items {
        let bytes = item.bytes();
        let text = std::mem::take(&mut item.text);
        // Whole, in one call, and at once: a stalled room must show while it stalls.
        let written = if text.is_empty() {
            Ok(())
        } else {
            to.write_all(text.as_bytes()).and_then(|()| to.flush())
        };
        let failed = written.is_err();
        // The agent that does not listen any more has ended.
        if tell.send(written.map(|()| (bytes, item))).is_err() || failed {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{SyncSender, sync_channel};
    use std::time::Duration;

    use super::*;

    /// A reader that takes a line each time that it is told to, and keeps nothing.
    struct Slow(Receiver<()>, Sender<Vec<u8>>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.recv().map_err(|_gone| io::ErrorKind::BrokenPipe)?;
            self.1.send(bytes.to_vec()).map_err(|_gone| io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn slow() -> (Outlet<u64>, SyncSender<()>, Receiver<Vec<u8>>) {
        let (go, told) = sync_channel(1 << 20);
        let (written, lines) = channel();
        (Outlet::new(Box::new(Slow(told, written))).unwrap(), go, lines)
    }

    const HEALTHY: Weight = Weight::Healthy(Worker(0));

    /// Bytes of a long line.
    const LONG: usize = 1 << 16;

    fn line(bytes: usize) -> String {
        "x".repeat(bytes - 1) + "\n"
    }

    #[test]
    fn what_is_to_be_done_after_a_line_comes_back_when_it_is_written_in_order() {
        let (mut outlet, go, lines) = slow();
        assert_eq!(outlet.send(line(10), Weight::Heavy, Some(1)).unwrap(), Sent::Goes);
        outlet.then(2);
        assert_eq!(outlet.send(line(20), HEALTHY, Some(3)).unwrap(), Sent::Goes);
        assert_eq!(outlet.done().unwrap(), Vec::<u64>::new());
        go.send(()).unwrap();
        go.send(()).unwrap();
        let (back, left) = outlet.finish().unwrap();
        assert_eq!((back, left), (vec![1, 2, 3], 0));
        assert_eq!(lines.iter().map(|line| line.len()).collect::<Vec<_>>(), [10, 20]);
    }

    #[test]
    fn a_reader_that_stands_still_costs_healthy_lines_first_and_no_time() {
        let (mut outlet, go, lines) = slow();
        let began = Clock::now();
        let fits = |outlet: &mut Outlet<u64>, weight| {
            let goes = |n: &u64| outlet.send(line(LONG), weight, Some(*n)).unwrap() == Sent::Goes;
            (0..1 << 20).take_while(goes).count()
        };
        let healthy = fits(&mut outlet, HEALTHY);
        assert!((10..=HEALTHY_BYTES_MAX / LONG).contains(&healthy), "{healthy}");
        // Half of it is left to others, half of the rest to those after them.
        assert!(healthy <= HEALTHY_BYTES_MAX / LONG / 2, "{healthy}");
        let second = fits(&mut outlet, Weight::Healthy(Worker(1)));
        let third = fits(&mut outlet, Weight::Healthy(Worker(2)));
        assert!(second >= healthy / 3 && third >= healthy / 6, "{healthy} {second} {third}");
        let healthy = healthy + second + third;
        let heavy = fits(&mut outlet, Weight::Heavy);
        assert!((100..=BYTES_MAX / LONG).contains(&(healthy + heavy)), "{heavy}");
        // The patience is spent once, not for each line.
        for _ in 0..1000 {
            let sent = outlet.send(line(LONG), Weight::Heavy, Some(7)).unwrap();
            assert_eq!(sent, Sent::Dropped(Some(7)));
        }
        assert!(Clock::now().since(began) < PATIENCE.plus(Nanos::from_secs(20)));
        // Once it reads again, lines go out again.
        for _ in 0..=healthy + heavy {
            go.send(()).unwrap();
        }
        lines.recv().unwrap();
        assert_eq!(outlet.send(line(LONG), Weight::Heavy, Some(8)).unwrap(), Sent::Goes);
        let (back, left) = outlet.finish().unwrap();
        assert_eq!((back.len(), left), (healthy + heavy + 1, 0));
    }

    #[test]
    fn a_reader_that_never_reads_does_not_keep_the_agent_from_ending() {
        let (mut outlet, _go, _lines) = slow();
        outlet.send(line(10), Weight::Heavy, Some(1)).unwrap();
        assert_eq!(outlet.finish().unwrap(), (Vec::new(), 1));
    }

    #[test]
    fn a_reader_that_has_gone_is_an_error() {
        let (mut outlet, go, lines) = slow();
        drop(lines);
        go.send(()).unwrap();
        outlet.send(line(10), Weight::Heavy, Some(1)).unwrap();
        assert_eq!(outlet.finish().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_line_larger_than_the_bound_goes_out_alone() {
        let (mut outlet, go, lines) = slow();
        go.send(()).unwrap();
        assert_eq!(outlet.send(line(BYTES_MAX + 1), HEALTHY, None).unwrap(), Sent::Goes);
        assert_eq!(outlet.finish().unwrap().1, 0);
        assert_eq!(lines.recv().unwrap().len(), BYTES_MAX + 1);
    }

    #[test]
    fn patience_is_shorter_than_what_the_health_of_the_loop_allows() {
        assert!(PATIENCE.duration() < Duration::from_secs(1));
    }
}
