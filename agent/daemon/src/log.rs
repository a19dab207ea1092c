//! The agent's own log on standard error.
//!
//! A thread of its own writes it, so that a reader who does not read holds up nobody. Lines wait
//! in a bounded queue; the victim is the newcomer, which is counted, and said once lines go out
//! again. `tracing-appender` has the same, but prints to standard output when it ends with a full
//! queue, and that stream belongs to the lines.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use tracing::Subscriber;

use crate::config::clean;
use crate::shown::{lossy, plain};

/// Most lines that wait.
const LINES_MAX: usize = 1024;
/// Most bytes of a line; the rest is cut off.
const LINE_BYTES_MAX: usize = 4096;
/// So long the end waits for a reader: steps, and how long each is.
const END: (u32, Duration) = (100, Duration::from_millis(10));

static DROPPED: AtomicU64 = AtomicU64::new(0);

/// How many lines of the log were not written, because nobody read them or nobody could.
pub fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Where lines of the log go. Never waits.
#[derive(Clone, Debug)]
pub struct Log {
    lines: SyncSender<String>,
    /// Lines that were sent and not written yet.
    waiting: Arc<AtomicUsize>,
}

impl Log {
    /// Starts the thread.
    pub fn start(to: impl Write + Send + 'static) -> io::Result<Self> {
        let (lines, taken) = sync_channel(LINES_MAX);
        let waiting = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&waiting);
        thread::Builder::new().name("log".to_owned()).spawn(move || write(to, &taken, &left))?;
        Ok(Self { lines, waiting })
    }

    /// What writes events of this level and above here, one line each.
    pub fn subscriber(&self, level: tracing::Level) -> impl Subscriber + Send + Sync + use<> {
        let to = self.clone();
        tracing_subscriber::fmt()
            .with_writer(move || to.clone())
            .with_max_level(level)
            .with_target(false)
            .with_ansi(false)
            .finish()
    }

    /// Sends a text as it is, with a line feed: the last word before the end.
    pub fn say(&self, text: &str) {
        self.send(format!("{text}\n"));
    }

    /// Waits until everything is written, for about a second at most.
    pub fn end(&self) {
        let (steps, step) = END;
        for _ in 0..steps {
            if self.waiting.load(Ordering::Acquire) == 0 {
                return;
            }
            thread::sleep(step);
        }
    }

    fn send(&self, line: String) {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        if self.lines.try_send(line).is_err() {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Takes one event, whole.
impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Paths and names come from others: they must not be able to begin a line of their own or
        // to move a cursor.
        let short = bytes.get(..LINE_BYTES_MAX).unwrap_or(bytes);
        let text = lossy(short, short.len() < bytes.len());
        let mut line = plain(&clean(text.strip_suffix('\n').unwrap_or(&text)));
        if short.len() < bytes.len() {
            line.push('…');
        }
        line.push('\n');
        self.send(line);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write(mut to: impl Write, lines: &Receiver<String>, waiting: &AtomicUsize) {
    let mut told = 0;
    for line in lines {
        if to.write_all(line.as_bytes()).and_then(|()| to.flush()).is_err() {
            // There is nowhere to say it: it is only counted.
            DROPPED.fetch_add(1, Ordering::Relaxed);
            told += 1;
        }
        let left = waiting.fetch_sub(1, Ordering::AcqRel) - 1;
        let all = dropped();
        // Not while lines still wait: this one would be dropped too.
        if left == 0 && all > told {
            tracing::warn!(lines = all - told, "lines of the log were dropped: nobody read them");
            told = all;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};

    use super::*;

    #[test]
    fn a_line_is_one_line_whatever_is_in_it() {
        let (reader, writer) = io::pipe().unwrap();
        let log = Log::start(writer).unwrap();
        tracing::subscriber::with_default(log.subscriber(tracing::Level::INFO), || {
            let library = "/tmp/odd\nERROR forged\r\u{1b}[2J\u{9b}1m\u{202e}gnol\u{2028}";
            tracing::info!(library = %library, build = library, "probes are on {library}");
            tracing::warn!("{}", "x".repeat(10_000));
        });
        log.say("the last word");
        log.end();
        drop(log);
        let lines: Vec<String> = BufReader::new(reader).lines().map(Result::unwrap).collect();
        assert_eq!(lines.len(), 3, "{lines:#?}");
        assert!(lines.iter().flat_map(|line| line.chars()).all(|c| !c.is_control()), "{lines:#?}");
        assert_eq!(plain(&lines[0]), lines[0]);
        assert!(lines[0].contains("INFO") && lines[0].contains(r"/tmp/odd\nERROR forged\r"));
        assert!(lines[1].len() < LINE_BYTES_MAX + 8 && lines[1].ends_with('…'));
        assert_eq!(lines[2], "the last word");
    }

    #[test]
    fn nobody_waits_for_a_reader_that_does_not_read() {
        let (_reader, writer) = io::pipe().unwrap();
        let log = Log::start(writer).unwrap();
        let before = dropped();
        for _ in 0..4 * LINES_MAX {
            log.say(&"x".repeat(200));
        }
        // The pipe takes 64 KiB, the queue its bound.
        assert!(dropped() - before > 2 * LINES_MAX as u64);
        log.end();
    }
}
