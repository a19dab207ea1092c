//! Small files that somebody names in the configuration, and the configuration itself.

use std::fs::{File, Metadata, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use inflightd_core::Nanos;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::clock::Clock;

/// How long a pipe may take to give all that it has.
const PATIENCE_S: u64 = 5;
const PATIENCE: Nanos = Nanos::from_secs(PATIENCE_S);

/// Reads a file of at most `max` bytes. The error says what it is instead and what would help; it
/// goes behind the file's name.
///
/// Only a regular file is read, through whatever links lead to it: a pipe, a device or a socket
/// may never answer, or never end.
pub fn read_small(path: &Path, max: usize) -> Result<Vec<u8>, String> {
    // Looked at before it is opened: to open a device can have an effect of its own.
    regular(&std::fs::metadata(path).map_err(|error| closed(&error))?)?;
    let file = open(path).map_err(|error| closed(&error))?;
    // It may have been replaced in between.
    regular(&file.metadata().map_err(|error| closed(&error))?)?;
    read(file, max)
}

/// The same for a file that is read once, which may also be a pipe that somebody writes to at once.
pub(super) fn read_once(path: &Path, max: usize) -> Result<Vec<u8>, String> {
    let is_pipe = |found: &Metadata| found.file_type().is_fifo();
    if !std::fs::metadata(path).is_ok_and(|found| is_pipe(&found)) {
        return read_small(path, max);
    }
    let pipe = open(path).map_err(|error| closed(&error))?;
    if !is_pipe(&pipe.metadata().map_err(|error| closed(&error))?) {
        return Err("was replaced while it was opened: try again".to_owned());
    }
    read(Patient { pipe, has_begun: false, until: Clock::now().plus(PATIENCE) }, max)
}

/// A pipe that is waited for, but not for ever.
struct Patient {
    pipe: File,
    /// Something has come: when it has no writer any more, that is its end.
    has_begun: bool,
    until: Nanos,
}

impl Read for Patient {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            match self.pipe.read(buffer) {
                // Nobody writes to it: not any more, or not yet.
                Ok(0) if !self.has_begun => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                done => {
                    self.has_begun = true;
                    return done;
                }
            }
            if self.wait()? {
                return Ok(0);
            }
        }
    }
}

impl Patient {
    /// Waits for a writer or for what it writes; gives whether there was one, and is none any more.
    fn wait(&self) -> std::io::Result<bool> {
        let left = self.until.since(Clock::now()).duration();
        let left = Timespec::try_from(left).unwrap_or_default();
        let mut wanted = [PollFd::new(&self.pipe, PollFlags::IN)];
        if poll(&mut wanted, Some(&left))? == 0 {
            let text = format!("nobody has written it to its end within {PATIENCE_S} s");
            return Err(std::io::Error::other(text));
        }
        Ok(wanted.iter().all(|pipe| !pipe.revents().contains(PollFlags::IN)))
    }
}

fn closed(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            "cannot be opened: there is no such file; name one that is there".to_owned()
        }
        _ => format!("cannot be opened: {error}; make it readable"),
    }
}

fn read(from: impl Read, max: usize) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let bound = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
    from.take(bound)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("cannot be read: {error}; make it readable"))?;
    if bytes.len() > max {
        return Err(format!("has more than {max} bytes: is it the right file?"));
    }
    Ok(bytes)
}

/// Never waits for the other end of a pipe.
fn open(path: &Path) -> std::io::Result<File> {
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

fn regular(found: &Metadata) -> Result<(), String> {
    let kind = found.file_type();
    let what = if kind.is_file() {
        return Ok(());
    } else if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    };
    Err(format!("is {what}: name a regular file"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_regular_file_is_read_through_links_up_to_its_bound() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&file, "text").unwrap();
        symlink(&file, &link).unwrap();
        assert_eq!(read_small(&link, 4).unwrap(), b"text");
        assert!(read_small(&link, 3).unwrap_err().contains("more than 3 bytes"));
        let none = read_small(&dir.path().join("none"), 3).unwrap_err();
        assert!(none.contains("there is no such file"), "{none}");
    }

    #[test]
    fn what_may_never_answer_or_never_end_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let (pipe, socket) = (dir.path().join("pipe"), dir.path().join("socket"));
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        let link = dir.path().join("link");
        symlink(&pipe, &link).unwrap();
        for (path, what) in [
            (pipe.as_path(), "a pipe"),
            (link.as_path(), "a pipe"),
            (socket.as_path(), "a socket"),
            (dir.path(), "a directory"),
            (Path::new("/dev/zero"), "a device"),
        ] {
            let error = read_small(path, 10).unwrap_err();
            assert_eq!(error, format!("is {what}: name a regular file"));
        }
    }

    #[test]
    fn a_pipe_is_read_once_to_its_end_and_bound_whether_its_writer_is_still_there_or_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let writer = std::thread::spawn({
            let path = path.clone();
            move || {
                let mut pipe = OpenOptions::new().write(true).open(path).unwrap();
                for part in ["te", "xt"] {
                    std::io::Write::write_all(&mut pipe, part.as_bytes()).unwrap();
                    std::thread::sleep(std::time::Duration::from_millis(50));
                }
            }
        });
        assert_eq!(read_once(&path, 4).unwrap(), b"text");
        writer.join().unwrap();
        // As in a shell's pipeline, whose first part may have ended.
        let (reader, mut writer) = std::io::pipe().unwrap();
        std::io::Write::write_all(&mut writer, b"text").unwrap();
        drop(writer);
        let number = std::os::fd::AsRawFd::as_raw_fd(&reader);
        let path = format!("/proc/self/fd/{number}");
        assert!(read_once(path.as_ref(), 3).unwrap_err().contains("more than 3 bytes"));
        assert!(read_once("/dev/zero".as_ref(), 3).unwrap_err().contains("is a device"));
    }

    #[test]
    fn a_pipe_that_nobody_writes_to_is_not_waited_for_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let error = read_once(&path, 10).unwrap_err();
        assert!(error.contains("nobody has written it to its end within 5 s"), "{error}");
    }
}
