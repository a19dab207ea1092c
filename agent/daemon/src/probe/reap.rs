//! Closes links on a thread of its own: the kernel waits about 100 ms for each, and the ring
//! must be drained meanwhile.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, Sender},
    },
    thread::{self, JoinHandle},
};

use aya::programs::uprobe::UProbeLink;

/// The thread that closes links.
pub(crate) struct Reaper {
    links: Option<Sender<Vec<UProbeLink>>>,
    thread: Option<JoinHandle<()>>,
    /// Links that are not closed yet.
    waiting: Arc<AtomicUsize>,
}

impl Reaper {
    /// Starts the thread. Where none can be had, links are closed by the caller.
    pub(crate) fn start() -> Self {
        let (links, queue) = mpsc::channel::<Vec<UProbeLink>>();
        let waiting = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&waiting);
        let close = move || {
            for link in queue.into_iter().flatten() {
                drop(link);
                left.fetch_sub(1, Ordering::Relaxed);
            }
        };
        let thread = thread::Builder::new().name("inflightd-reap".to_owned()).spawn(close).ok();
        Self { links: Some(links), thread, waiting }
    }

    /// Closes links soon.
    pub(crate) fn close(&self, links: Vec<UProbeLink>) {
        if let Some(queue) = &self.links {
            let count = links.len();
            self.waiting.fetch_add(count, Ordering::Relaxed);
            // Without the thread the queue hands the links back, and they are dropped here.
            if queue.send(links).is_err() {
                self.waiting.fetch_sub(count, Ordering::Relaxed);
            }
        }
    }

    /// Links whose closing has not ended.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
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
