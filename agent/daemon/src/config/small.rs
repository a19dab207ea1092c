//! Small files that somebody names in the configuration, and the configuration itself.

use std::fs::{File, Metadata, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Reads a file of at most `max` bytes. The error says what it is instead and what would help; it
/// goes behind the file's name.
///
/// Only a regular file is read, through whatever links lead to it: a pipe, a device or a socket
/// may never answer, or never end.
pub fn read_small(path: &Path, max: usize) -> Result<Vec<u8>, String> {
    let closed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            "cannot be opened: there is no such file; name one that is there".to_owned()
        }
        _ => format!("cannot be opened: {error}; make it readable"),
    };
    // Looked at before it is opened: to open a device can have an effect of its own.
    regular(&std::fs::metadata(path).map_err(closed)?)?;
    let file = open(path).map_err(closed)?;
    // It may have been replaced in between.
    regular(&file.metadata().map_err(closed)?)?;
    let mut bytes = Vec::new();
    let bound = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
    file.take(bound)
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
}
