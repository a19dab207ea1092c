//! Writes whole lines to a stream that may fail for a while, such as a file on a full disk.

use std::io::{self, Write};
use std::thread;
use std::time::Duration;

/// A stream that does not wait is asked again so often.
const AGAIN: Duration = Duration::from_millis(20);

/// The stream, and whether its last line was cut.
pub(super) struct Pen {
    to: Box<dyn Write + Send>,
    is_cut: bool,
}

impl Pen {
    pub(super) fn new(to: Box<dyn Write + Send>) -> Self {
        Self { to, is_cut: false }
    }

    /// Writes a line, whole, in one call where the stream lets it, and at once: a stalled room must
    /// show while it stalls. A line that was cut before is ended first, so that it spoils no other.
    pub(super) fn write(&mut self, line: &str) -> io::Result<()> {
        if self.is_cut {
            self.write_bytes(b"\n")?;
        }
        self.write_bytes(line.as_bytes())?;
        self.to.flush()
    }

    fn write_bytes(&mut self, mut rest: &[u8]) -> io::Result<()> {
        while !rest.is_empty() {
            match self.to.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    let (written, left) = rest.split_at(count.min(rest.len()));
                    self.is_cut = written.last() != Some(&b'\n');
                    rest = left;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(AGAIN),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
