//! Keeps the agent's socket where it belongs: made again where somebody has removed it or the
//! state directory, or where there was no room for it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use tokio::sync::watch;
use tokio::time::sleep;

use super::listen::{self, HttpError, Socket};
use super::serve;
use crate::telemetry::metrics::Instruments;

/// How often it is looked whether the socket is still there, and tried to make it again.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// So many tries fail in silence: the directory is made by the loop, which may come second.
const QUIET: u32 = 3;

/// What the socket needs to be made again.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) state_dir: PathBuf,
    /// Whether this agent holds the directory: else the socket there is another agent's.
    pub(super) holds: Arc<AtomicBool>,
    pub(super) routes: Router,
    pub(super) instruments: Instruments,
    pub(super) stopped: watch::Receiver<bool>,
}

impl Keeper {
    /// The socket as the agent starts; `None` where there is no room for it yet.
    pub(super) fn first(&self) -> Result<Option<Socket>, HttpError> {
        if !self.holds.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match listen::unix(&self.state_dir) {
            Ok(socket) => Ok(Some(socket)),
            Err(error) if error.is_full() => {
                say(&error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Serves until the agent ends, on `first` and those that follow it.
    pub(super) async fn keep(self, first: Option<Socket>) {
        let mut stopped = self.stopped.clone();
        tokio::select! {
            () = self.serve(first) => {}
            // A sender that is gone means the same as one that says stop.
            _ = stopped.wait_for(|stop| *stop) => {}
        }
    }

    async fn serve(&self, mut next: Option<Socket>) {
        loop {
            let socket = match next.take() {
                Some(socket) => socket,
                None => self.again().await,
            };
            let gone = until_gone(&socket);
            tokio::select! {
                () = gone => {}
                () = serve::serve(&socket.listener, self.routes.clone(), self.stopped.clone()) => return,
            }
            tracing::error!(
                state_dir = %self.state_dir.display(),
                "the agent's socket was removed or replaced: it is made again; leave the state \
                 directory alone while the agent runs"
            );
            self.instruments.socket_lost();
        }
    }

    async fn again(&self) -> Socket {
        let mut tries = 0_u32;
        loop {
            if self.holds.load(Ordering::Relaxed) {
                match listen::unix(&self.state_dir) {
                    Ok(socket) => {
                        tracing::info!("the agent's socket is there again");
                        return socket;
                    }
                    Err(error) if tries == QUIET => say(&error),
                    Err(_) => {}
                }
                tries = tries.saturating_add(1);
            }
            sleep(LOOK_EVERY).await;
        }
    }
}

async fn until_gone(socket: &Socket) {
    while socket.is_in_place() {
        sleep(LOOK_EVERY).await;
    }
}

fn say(error: &HttpError) {
    let problem = crate::error::chain(error);
    tracing::error!(
        "`inflightd rooms` and `doctor` cannot ask this agent yet, it tries again: {problem}"
    );
}
