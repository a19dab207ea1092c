//! Whether a process is on its way out.

use std::io;

use super::{Stat, small};

/// The kernel's `PF_EXITING` (include/linux/sched.h): the thread ends.
const EXITING: u64 = 0x4;
/// SIGKILL in a mask of signals.
const SIGKILL: u64 = 1 << (9 - 1);

/// Whether a process ends: each thread that it still has ends, or has a SIGKILL that it has not taken
/// yet. `exit_group` and whatever kills a process give each of its threads one, and they go one after
/// the other, for seconds where there is much to clear away. A process that is gone has ended; one
/// that may not be looked at is not said to.
///
/// Of a process that lives this reads two files: its first thread says so.
pub fn is_ending(pid: u32) -> bool {
    let tasks = match std::fs::read_dir(format!("/proc/{pid}/task")) {
        Ok(tasks) => tasks,
        Err(error) => return is_gone(&error),
    };
    let mut tids = tasks.filter_map(|entry| Some(entry.ok()?.file_name()));
    tids.all(|tid| thread_ends(&format!("/proc/{pid}/task/{}", tid.to_string_lossy())))
}

fn thread_ends(thread: &str) -> bool {
    match Stat::at(&format!("{thread}/stat")) {
        Ok(Some(stat)) if stat.flags & EXITING != 0 => true,
        Ok(Some(stat)) if matches!(stat.state, b'Z' | b'X' | b'x') => true,
        Ok(_) => match small(&format!("{thread}/status")) {
            Ok(status) => is_killed(&String::from_utf8_lossy(&status)),
            Err(error) => is_gone(&error),
        },
        Err(error) => is_gone(&error),
    }
}

/// Whether a file of `/proc` could not be read because its process or thread has ended.
pub fn is_gone(error: &io::Error) -> bool {
    // One that ends between the opening of its file and the reading gives ESRCH.
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// Whether a thread's own pending signals have SIGKILL.
fn is_killed(status: &str) -> bool {
    let pending = status.lines().find_map(|line| line.strip_prefix("SigPnd:"));
    let pending = pending.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    pending.is_some_and(|mask| mask & SIGKILL != 0)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn what_lives_does_not_end_and_what_was_killed_does() {
        assert!(!is_ending(std::process::id()));
        let mut child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        let pid = child.id();
        assert!(!is_ending(pid));
        child.kill().unwrap();
        // It stays a zombie until it is waited for. In the moment in which it takes its kill it shows
        // neither that nor its end.
        let ends = (0..500).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            is_ending(pid)
        });
        assert!(ends);
        child.wait().unwrap();
        assert!(is_ending(pid), "it is gone");
    }

    #[test]
    fn a_kill_that_was_not_taken_yet_is_pending() {
        assert!(is_killed("Name:\tx\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n"));
        assert!(!is_killed("SigPnd:\t0000000000000200\nShdPnd:\t0000000000000100\n"));
        assert!(!is_killed(""));
    }
}
