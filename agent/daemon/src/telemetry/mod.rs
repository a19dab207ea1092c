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
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::clock::Clock;
use crate::config::Config;
use crate::names::Names;
use crate::sink::Line;
use metrics::{Instruments, Meters};
use otlp::{Ground, Ingredients, Otlp, OtlpError};

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
    /// A setting of the export.
    #[error(transparent)]
    Otlp(#[from] OtlpError),
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

/// What an export needs, its files of headers and certificates read; nothing where it is off.
#[derive(Debug)]
pub struct Export(Option<Ingredients>);

impl Export {
    /// Reads the files. Not on the loop: their file systems may be slow.
    pub fn read(config: &Config) -> Result<Self, OtlpError> {
        config.otlp.as_ref().map(Ingredients::read).transpose().map(Self)
    }
}

/// The telemetry thread and what the loop gives it.
#[derive(Debug)]
pub struct Telemetry {
    meters: Meters,
    otlp: Option<Otlp>,
    /// `None` only while it ends.
    ground: Option<Ground>,
    handle: Handle,
    stop: watch::Sender<bool>,
    /// Closed when the thread has ended.
    ended: Receiver<()>,
}

impl Telemetry {
    /// Starts the thread, and the export where the configuration wants it.
    pub fn start(config: &Config) -> Result<Self, TelemetryError> {
        let meters = Meters::new().map_err(TelemetryError::Instruments)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(TelemetryError::Thread)?;
        let handle = runtime.handle().clone();
        let (stop, mut stopped) = watch::channel(false);
        let (busy, mut idle) = mpsc::channel(1);
        let (end, ended) = channel::<()>();
        thread::Builder::new()
            .name("telemetry".to_owned())
            .spawn(move || {
                let _end = end;
                runtime.block_on(async {
                    // A sender that is gone means the same as one that says stop.
                    drop(stopped.wait_for(|stop| *stop).await);
                    if timeout(FLUSH, idle.recv()).await.is_err() {
                        tracing::warn!("OTLP export: the end came before the collector's answer");
                    }
                });
                runtime.shutdown_background();
            })
            .map_err(TelemetryError::Thread)?;
        let (instruments, exported) = (meters.instruments.clone(), meters.exported());
        let ground = Ground { handle: handle.clone(), instruments, exported, busy };
        let mut telemetry = Self { meters, otlp: None, ground: Some(ground), handle, stop, ended };
        telemetry.reload(&Export::read(config)?)?;
        Ok(telemetry)
    }

    /// Exports otherwise from now on; no file is read. What waits for the old exporter is still
    /// tried once. On an error the old one stays.
    pub fn reload(&mut self, export: &Export) -> Result<(), TelemetryError> {
        if let (Some(ingredients), Some(ground)) = (&export.0, &self.ground) {
            self.otlp = Some(Otlp::start(ingredients, ground)?);
        } else {
            self.otlp = None;
        }
        Ok(())
    }

    /// Takes what was told. Never waits.
    pub fn tell(&mut self, told: &Told<'_>) {
        self.meters.instruments.tell(told);
        if let Some(otlp) = &mut self.otlp {
            otlp.tell(told);
        }
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
        self.otlp = None;
        self.ground = None;
        self.stop.send_replace(true);
        if self.ended.recv_timeout(END) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("telemetry was still being exported when the agent ended");
        }
    }
}
