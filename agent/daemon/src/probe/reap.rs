//! Closes links away from the loop: the kernel waits 100 ms and more for each, and the ring must
//! be drained meanwhile. Many are closed at once, which takes half the time (96 links on a busy
//! machine: 18.5 s one by one, 15.3 s by 16, 8.8 s all together): they share a part of what the
//! kernel waits for; the rest it does under one lock.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    thread::{self, JoinHandle},
};

use aya::programs::uprobe::UProbeLink;

/// Most links that are closed at the same time; the others wait.
const AT_ONCE: usize = 128;
/// A thread that only closes needs little.
const STACK_BYTES: usize = 64 << 10;

/// The thread that closes links, with helpers while there are many.
pub(crate) struct Reaper<L = UProbeLink> {
    links: Option<Sender<Vec<L>>>,
    thread: Option<JoinHandle<()>>,
    /// Links that are not closed yet.
    waiting: Arc<AtomicUsize>,
}

impl<L: Send + 'static> Reaper<L> {
    /// Starts the thread. Where none can be had, links are closed by the caller.
    pub(crate) fn start() -> Self {
        let (links, queue) = mpsc::channel::<Vec<L>>();
        let waiting = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&waiting);
        let close = move || reap(&queue, &left);
        let thread = thread::Builder::new().name("inflightd-reap".to_owned()).spawn(close).ok();
        Self { links: Some(links), thread, waiting }
    }

    /// Closes links soon.
    pub(crate) fn close(&self, links: Vec<L>) {
        if let Some(queue) = &self.links {
            let count = links.len();
            self.waiting.fetch_add(count, Ordering::Relaxed);
            // Without the thread the queue hands the links back, and they are dropped here.
            if queue.send(links).is_err() {
                self.waiting.fetch_sub(count, Ordering::Relaxed);
            }
        }
    }
}

impl<L> Reaper<L> {
    /// Links whose closing has not ended.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

impl<L> Drop for Reaper<L> {
    fn drop(&mut self) {
        drop(self.links.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Closes what comes, until nothing can come any more.
fn reap<L: Send>(queue: &Receiver<Vec<L>>, left: &AtomicUsize) {
    while let Ok(mut links) = queue.recv() {
        // Several libraries given up together are closed together.
        links.extend(queue.try_iter().flatten());
        while !links.is_empty() {
            let rest = links.split_off(links.len().min(AT_ONCE));
            side_by_side(links, left);
            links = rest;
        }
    }
}

fn side_by_side<L: Send>(links: Vec<L>, left: &AtomicUsize) {
    let close = |link: L| {
        drop(link);
        left.fetch_sub(1, Ordering::Relaxed);
    };
    thread::scope(|scope| {
        for link in links {
            // Where no thread can be had the link is dropped by this one, with the closure.
            let spawned = thread::Builder::new()
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, move || close(link));
            if spawned.is_err() {
                left.fetch_sub(1, Ordering::Relaxed);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};
    use std::time::Duration;

    use super::*;

    /// Its end needs others to be ending at the same time.
    struct Link(Arc<(Mutex<usize>, Condvar)>, usize);

    impl Drop for Link {
        fn drop(&mut self) {
            let (ending, changed) = &*self.0;
            *ending.lock().unwrap() += 1;
            changed.notify_all();
            let all = |ending: &mut usize| *ending < self.1;
            let ending = ending.lock().unwrap();
            let (_ending, waited) =
                changed.wait_timeout_while(ending, Duration::from_mins(1), all).unwrap();
            assert!(!waited.timed_out(), "closed one after the other");
        }
    }

    #[test]
    fn links_of_one_or_more_libraries_are_closed_side_by_side() {
        let reaper = Reaper::start();
        let shared = Arc::default();
        reaper.close((0..AT_ONCE).map(|_| Link(Arc::clone(&shared), AT_ONCE)).collect());
        reaper.close(vec![Link(Arc::clone(&shared), 0)]);
        let waiting = Arc::clone(&reaper.waiting);
        drop(reaper);
        assert_eq!((waiting.load(Ordering::Relaxed), *shared.0.lock().unwrap()), (0, AT_ONCE + 1));
    }
}
