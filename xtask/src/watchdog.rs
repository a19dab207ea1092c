//! A limit on how long a program and everything that it started may run.
//!
//! A test that hangs would otherwise take the whole of CI's time and leave nothing that says which
//! one it was: here the stage ends, its last lines are there, and the other stages still run.

use std::collections::BTreeMap;
use std::fs;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Ends a child and its descendants once their time is over; dropped, it lets them be.
#[derive(Debug)]
pub(crate) struct Watchdog {
    over: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    bitten: Arc<AtomicBool>,
}

impl Watchdog {
    /// Watches a child that nobody has waited for: until then its number is its own.
    pub(crate) fn of(child: &Child, limit: Duration) -> Self {
        let root = child.id();
        let (over, heard) = mpsc::channel();
        let bitten = Arc::new(AtomicBool::new(false));
        let bites = Arc::clone(&bitten);
        let thread = thread::spawn(move || {
            if heard.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                family(root).into_iter().for_each(kill);
                bites.store(true, Ordering::Relaxed);
            }
        });
        Self { over: Some(over), thread: Some(thread), bitten }
    }

    /// Whether the limit was passed by now.
    pub(crate) fn has_bitten(&self) -> bool {
        self.bitten.load(Ordering::Relaxed)
    }

    /// Ends the watch; whether the limit was passed.
    pub(crate) fn bit(mut self) -> bool {
        self.end();
        self.has_bitten()
    }

    fn end(&mut self) {
        self.over.take();
        drop(self.thread.take().map(JoinHandle::join));
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.end();
    }
}

/// A process and all that descend from it, parents first: one that is gone starts no other.
fn family(root: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(pid) = pid else { continue };
        if let Some(parent) =
            fs::read_to_string(entry.path().join("stat")).ok().as_deref().and_then(parent)
        {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = vec![root];
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        found.extend(children.remove(pid).unwrap_or_default());
        next += 1;
    }
    found
}

/// The fourth field of `/proc/PID/stat`; the second, in brackets, may hold anything.
fn parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

fn kill(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // One that has just ended by itself is what is wanted.
        kill_process(pid, Signal::KILL).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn shell(script: &str) -> Child {
        Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap()
    }

    #[test]
    fn what_hangs_is_ended_with_what_it_started() {
        let child = shell("sleep 600 & sleep 601 & echo; wait");
        let watchdog = Watchdog::of(&child, Duration::from_millis(300));
        // Returns when the last that holds the pipe is gone.
        let output = child.wait_with_output().unwrap();
        assert!(!output.status.success());
        assert!(watchdog.bit());
    }

    #[test]
    fn what_ends_in_time_is_let_be() {
        let mut child = shell("exit 0");
        let watchdog = Watchdog::of(&child, Duration::from_mins(10));
        assert!(child.wait().unwrap().success());
        assert!(!watchdog.bit());
    }

    #[test]
    fn a_name_with_brackets_is_no_parent() {
        assert_eq!(parent("12 (a) R 7) S 34 12 12 0"), Some(34));
        assert_eq!(parent("12"), None);
    }
}
