//! Serves connections, a bounded number for a bounded time each.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, watch};

/// Most connections on one listener; further ones wait in the kernel's queue.
pub(super) const CONNECTIONS_MAX: usize = 64;
/// How long one connection may take, from its first byte to its last.
pub(super) const CONNECTION: Duration = Duration::from_secs(10);
/// How long a request's head may take.
const HEAD: Duration = Duration::from_secs(5);
/// Longest head of a request.
const HEAD_BYTES: usize = 16 * 1024;
/// Most headers of a request.
const HEADERS_MAX: usize = 64;
/// After a failure to accept, such as no free descriptor, the next try waits.
const RETRY: Duration = Duration::from_millis(200);

/// Something that connections come from.
pub(super) trait Listener: Send + 'static {
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
    listener: L,
    routes: Router,
    mut stopped: watch::Receiver<bool>,
) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let accept = async {
        loop {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
                return;
            };
            match listener.next().await {
                Ok(stream) => {
                    let routes = routes.clone();
                    tokio::spawn(async move {
                        let _slot = slot;
                        one(stream, routes).await;
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

/// One connection with one request. Whoever is too slow for it has no right to an answer.
async fn one<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S, routes: Router) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEADERS_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    match tokio::time::timeout(CONNECTION, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection"),
        Err(_) => tracing::debug!("a connection took too long and was closed"),
    }
}
