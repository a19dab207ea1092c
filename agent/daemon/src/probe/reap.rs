//! Closes links on a thread of its own: the kernel waits about 100 ms for each, and the ring
//! must be drained meanwhile.

use std::{
    sync::mpsc::{self, Sender},
    thread::{self, JoinHandle},
};

use aya::programs::uprobe::UProbeLink;

/// The thread that closes links.
pub(crate) struct Reaper {
    links: Option<Sender<Vec<UProbeLink>>>,
    thread: Option<JoinHandle<()>>,
}

impl Reaper {
    /// Starts the thread. Where none can be had, links are closed by the caller.
    pub(crate) fn start() -> Self {
        let (links, queue) = mpsc::channel::<Vec<UProbeLink>>();
        let thread = thread::Builder::new()
            .name("inflightd-reap".to_owned())
            .spawn(move || queue.into_iter().for_each(drop))
            .ok();
        Self { links: Some(links), thread }
    }

    /// Closes links soon.
    pub(crate) fn close(&self, links: Vec<UProbeLink>) {
        if let Some(queue) = &self.links {
            // Without the thread the queue hands the links back, and they are dropped here.
            drop(queue.send(links));
        }
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        drop(self.links.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
