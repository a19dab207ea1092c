//! Serves connections, a bounded number for a bounded time each.
//!
//! Whoever connects and asks for nothing must not keep a health check from its answer: such
//! connections are closed soon, and at once where their places are needed.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Notify, oneshot, watch};

/// Most connections on one listener. The victim is the oldest that has not asked for anything
/// yet; where all have asked, further ones wait.
pub(super) const CONNECTIONS_MAX: usize = 256;
/// How long one connection may take, from its first byte to its last.
pub(super) const CONNECTION: Duration = Duration::from_secs(10);
/// How long a request's head may take.
const HEAD: Duration = Duration::from_secs(1);
/// Longest head of a request.
const HEAD_BYTES: usize = 16 * 1024;
/// Most headers of a request.
const HEADERS_MAX: usize = 64;
/// After a failure to accept, such as no free descriptor, the next try waits.
const RETRY: Duration = Duration::from_millis(200);

/// Something that connections come from.
pub(super) trait Listener: Sync {
    /// One connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next one.
    fn next(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Listener for TcpListener {
    type Stream = tokio::net::TcpStream;

    async fn next(&self) -> io::Result<Self::Stream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

impl Listener for UnixListener {
    type Stream = tokio::net::UnixStream;

    async fn next(&self) -> io::Result<Self::Stream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

/// Serves until the agent ends.
pub(super) async fn serve<L: Listener>(
    listener: &L,
    routes: Router,
    mut stopped: watch::Receiver<bool>,
) {
    let places = Arc::new(Places::default());
    let accept = async {
        let mut number = 0;
        loop {
            match listener.next().await {
                Ok(stream) => {
                    places.one_free().await;
                    number += 1;
                    let (asked, gone) = places.take(number);
                    let routes = routes.clone();
                    tokio::spawn(async move {
                        tokio::select! {
                            () = one(stream, routes, &asked) => {}
                            // Its place was needed.
                            _ = gone => {}
                        }
                        drop(asked);
                    });
                }
                Err(error) => {
                    tracing::debug!(%error, "accepting a connection");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    };
    tokio::select! {
        () = accept => {}
        // A sender that is gone means the same as one that says stop.
        _ = stopped.wait_for(|stop| *stop) => {}
    }
}

/// The connections that are open, by number: the oldest first.
#[derive(Debug, Default)]
struct Places {
    open: Mutex<BTreeMap<u64, Open>>,
    freed: Notify,
}

/// A connection.
#[derive(Debug)]
struct Open {
    asked: bool,
    /// Dropped to end it.
    _end: oneshot::Sender<()>,
}

impl Places {
    /// Waits until there is a free place, and makes one where somebody only sits.
    async fn one_free(&self) {
        while !self.make_room() {
            self.freed.notified().await;
        }
    }

    fn make_room(&self) -> bool {
        let mut open = self.open();
        if open.len() < CONNECTIONS_MAX {
            return true;
        }
        let idle = open.iter().find(|(_, open)| !open.asked).map(|(number, _)| *number);
        idle.is_some_and(|number| open.remove(&number).is_some())
    }

    fn take(self: &Arc<Self>, number: u64) -> (Place, oneshot::Receiver<()>) {
        let (end, gone) = oneshot::channel();
        self.open().insert(number, Open { asked: false, _end: end });
        (Place { of: Arc::clone(self), number }, gone)
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<u64, Open>> {
        // What is counted is right at any moment, whoever held it.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection's place, free again once this is dropped.
#[derive(Debug)]
struct Place {
    of: Arc<Places>,
    number: u64,
}

impl Place {
    /// It has sent the head of a request.
    fn has_asked(&self) {
        if let Some(open) = self.of.open().get_mut(&self.number) {
            open.asked = true;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.of.open().remove(&self.number);
        self.of.freed.notify_one();
    }
}

/// One connection with one request. Whoever is too slow for it has no right to an answer.
async fn one<S>(stream: S, routes: Router, place: &Place)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let routes = TowerToHyperService::new(routes);
    let service = service_fn(|request| {
        place.has_asked();
        routes.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEADERS_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(CONNECTION, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection"),
        Err(_) => tracing::debug!("a connection took too long and was closed"),
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;

    #[tokio::test]
    async fn the_oldest_that_has_not_asked_makes_room() {
        let places = Arc::new(Places::default());
        let mut taken: Vec<_> = (0..CONNECTIONS_MAX as u64).map(|n| places.take(n)).collect();
        taken[0].0.has_asked();
        places.one_free().await;
        assert!((&mut taken[1].1).await.is_err(), "the second has to go");
        assert!(taken[0].1.try_recv().is_err_and(|error| error == TryRecvError::Empty));
        assert!(taken[2].1.try_recv().is_err_and(|error| error == TryRecvError::Empty));
        let newcomer = places.take(9999);
        for (place, _) in &taken {
            place.has_asked();
        }
        newcomer.0.has_asked();
        assert!(!places.make_room(), "whoever has asked is answered");
        let waits = tokio::spawn({
            let places = Arc::clone(&places);
            async move { places.one_free().await }
        });
        drop(newcomer);
        waits.await.unwrap();
    }
}
