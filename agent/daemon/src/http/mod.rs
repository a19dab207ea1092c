//! Metrics and health over HTTP, on the telemetry thread.
//!
//! A TCP address for scrapers, probes and routers; a Unix socket in the state directory, for root
//! alone, which has the rooms and the agent besides. Everything is read only. A connection carries
//! one request, may take `serve::CONNECTION` in all and there are at most
//! `serve::CONNECTIONS_MAX` of them on each listener, of which those without a request make
//! room for others: whoever opens and does not ask or read harms nobody else.

pub mod client;
mod keep;
mod listen;
mod routes;
mod serve;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub use listen::{HttpError, SOCKET};
pub(crate) use listen::{SOCKET_PATH_MAX, fresh};
pub use routes::TEXT_FORMAT;

use crate::config;
use crate::desk::Asker;
use crate::telemetry::Telemetry;
use crate::telemetry::metrics::Scrape;
use crate::views::HttpView;

/// What the routes rest on.
#[derive(Clone, Debug)]
pub struct Front {
    /// The instruments.
    pub scrape: Scrape,
    /// The loop.
    pub asker: Asker,
}

/// Listens and serves until the agent ends. Returns where. `holds` says at any time whether the
/// state directory is this agent's.
///
/// An address that nobody asked for may be taken: that is said, and the agent goes on.
pub fn start(
    front: &Front,
    asked: config::Http,
    (state_dir, holds): (&Path, Arc<AtomicBool>),
    telemetry: &Telemetry,
) -> Result<HttpView, HttpError> {
    let _entered = telemetry.handle().enter();
    let keeper = keep::Keeper {
        state_dir: state_dir.to_owned(),
        holds,
        routes: routes::for_root(front),
        instruments: telemetry.instruments().clone(),
        stopped: telemetry.stopped(),
    };
    let socket = keeper.first()?;
    telemetry.handle().spawn(keeper.keep(socket));
    let Some(address) = asked.listen else {
        return Ok(HttpView::default());
    };
    match listen::tcp(address) {
        Ok((listener, bound)) => {
            let (all, stopped) = (routes::for_all(front), telemetry.stopped());
            let serve = async move { serve::serve(&listener, all, stopped).await };
            telemetry.handle().spawn(serve);
            tracing::info!(address = %bound, "metrics and health");
            Ok(HttpView { listen: Some(bound.to_string()), problem: None })
        }
        Err(error) if asked.asked => Err(error),
        Err(error) => Ok(without_address(address, &error)),
    }
}

fn without_address(address: SocketAddr, error: &HttpError) -> HttpView {
    let problem = crate::error::chain(error);
    tracing::warn!(%address, problem, "no metrics and health over TCP");
    HttpView { listen: None, problem: Some(problem) }
}
