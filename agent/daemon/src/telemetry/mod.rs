//! What leaves the agent over the network: its own thread, so that no collector and no scraper can
//! hold up the loop.
//!
//! The loop hands over what it tells by [`Telemetry::tell`], which never waits: what a bounded
//! queue cannot take is dropped and counted. Only this module and its children know OpenTelemetry.

pub mod metrics;
pub mod otlp;

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use inflightd_core::Output;
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::names::Names;
use crate::sink::Line;
use metrics::{Instruments, Meters};
use otlp::OtlpConfig;

/// How long the end waits for what is still to be exported.
const FLUSH: Duration = Duration::from_millis(1500);
/// How long the end waits for the thread, flush included.
const END: Duration = Duration::from_secs(2);

/// Why telemetry cannot start.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The system refused a thread or its runtime.
    #[error("starting the telemetry thread")]
    Thread(#[source] std::io::Error),
    /// The instruments cannot be made.
    #[error("making the instruments")]
    Instruments(#[source] opentelemetry_sdk::error::OTelSdkError),
}

/// What telemetry is to do.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Export by OTLP; `None`: off.
    pub otlp: Option<OtlpConfig>,
}

/// One thing that the ledger said, as it was told.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    /// What the ledger said.
    pub output: &'a Output,
    /// The line that was made of it.
    pub line: &'a Line,
    /// What the output's numbers stand for.
    pub names: &'a Names,
    /// Monotonic to wall time.
    pub clock: Clock,
}

/// The telemetry thread and what the loop gives it.
#[derive(Debug)]
pub struct Telemetry {
    meters: Meters,
    handle: Handle,
    stop: watch::Sender<bool>,
    /// Closed when the thread has ended.
    ended: Receiver<()>,
}

impl Telemetry {
    /// Starts the thread.
    pub fn start(settings: &Settings) -> Result<Self, TelemetryError> {
        let meters = Meters::new().map_err(TelemetryError::Instruments)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(TelemetryError::Thread)?;
        let handle = runtime.handle().clone();
        let (stop, mut stopped) = watch::channel(false);
        let (end, ended) = channel::<()>();
        thread::Builder::new()
            .name("telemetry".to_owned())
            .spawn(move || {
                let _end = end;
                // A sender that is gone means the same as one that says stop.
                runtime.block_on(async { drop(stopped.wait_for(|stop| *stop).await) });
                runtime.shutdown_timeout(FLUSH);
            })
            .map_err(TelemetryError::Thread)?;
        let _ = &settings.otlp;
        Ok(Self { meters, handle, stop, ended })
    }

    /// Takes what was told. Never waits.
    pub fn tell(&self, told: &Told<'_>) {
        self.meters.instruments.tell(told);
    }

    /// The instruments.
    pub const fn instruments(&self) -> &Instruments {
        &self.meters.instruments
    }

    /// The instruments as a whole, with what reads them.
    pub const fn meters(&self) -> &Meters {
        &self.meters
    }

    /// The telemetry thread's runtime: a task that is spawned here runs there.
    pub const fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Becomes `true` when the agent ends: tasks that serve for ever watch it.
    pub fn stopped(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }
}

impl Drop for Telemetry {
    /// Exports what is waiting, for 2 s at most.
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if self.ended.recv_timeout(END) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("telemetry was still being exported when the agent ended");
        }
    }
}
