//! One agent per state directory.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use inflightd_core::Nanos;

use super::JournalError;
use crate::clock::Clock;
use crate::proc;

/// So long an agent that is ending is waited for.
const PATIENCE: Nanos = Nanos::from_secs(15);
/// How often.
const LOOK: std::time::Duration = std::time::Duration::from_millis(50);

/// The lock: held as long as the value lives, and gone with the process however that ends.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
}

impl Lock {
    pub(super) fn take(dir: &Path) -> Result<Self, JournalError> {
        let path = dir.join("lock");
        let failed = |doing, source| JournalError::Io { doing, path: path.clone(), source };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|source| failed("opening", source))?;
        let begun = Clock::now();
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) => {}
                Err(errno) => return Err(failed("locking", errno.into())),
            }
            // The kernel takes a killed agent's probes off first, which is a second or more.
            let holder = holder(&mut file);
            let is_ending = holder.is_some_and(proc::is_ending);
            if !is_ending || Clock::now().since(begun) > PATIENCE {
                return Err(JournalError::Busy(holder));
            }
            std::thread::sleep(LOOK);
        }
        // For people and for the message above; the lock itself does not rest on it, and a full
        // disk does not take it.
        let written = file
            .set_len(0)
            .and_then(|()| file.seek(SeekFrom::Start(0)).map(drop))
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        drop(written);
        Ok(Self { file })
    }

    /// Whether it is still what others find in `dir`.
    pub(super) fn is_in_place(&self, dir: &Path) -> bool {
        is_at(&self.file, &dir.join("lock"))
    }
}

/// Whether an open file is the one that lies at `path`.
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(there)) = (file.metadata(), fs::metadata(path)) else {
        return false;
    };
    (open.dev(), open.ino()) == (there.dev(), there.ino())
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).ok()?;
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
