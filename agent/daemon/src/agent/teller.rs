//! Tells: the journal before and after, the line in between, and the capture beside it.

use std::io;

use inflightd_capture::Input;
use inflightd_core::fact::Worker;
use inflightd_core::{Nanos, Output};

use super::chain;
use crate::clock::Clock;
use crate::config::Config;
use crate::identity::Identity;
use crate::journal::{Gone, Journal, Past};
use crate::names::Names;
use crate::sink::{Sink, Writer};
use crate::tap::Tap;
use crate::telemetry::metrics::Instruments;
use crate::telemetry::{Telemetry, Told};

/// Where lines and inputs go.
#[derive(Debug)]
pub struct Teller {
    sink: Sink,
    journal: Journal,
    tap: Option<Tap>,
    telemetry: Telemetry,
}

impl Teller {
    /// A teller of lines, with a capture or without.
    pub const fn new(sink: Sink, journal: Journal, tap: Option<Tap>, telemetry: Telemetry) -> Self {
        Self { sink, journal, tap, telemetry }
    }

    /// What is counted and measured.
    pub(super) const fn instruments(&self) -> &Instruments {
        self.telemetry.instruments()
    }

    /// Writes the line of an output, once over all lives of the agent.
    pub(super) fn write(
        &mut self,
        output: &Output,
        writer: Writer<'_>,
        removal: u64,
    ) -> io::Result<()> {
        let telling = match output {
            Output::Dwell(dwell) => self.journal.dwell(dwell.worker, dwell.seq, removal),
            Output::Verdict(verdict) => self.journal.verdict(verdict),
            Output::Clear(clear) => self.journal.clear(clear),
            _ => None,
        };
        let mut line = writer.line(output);
        line.maybe_repeated = telling.as_ref().is_some_and(|telling| telling.maybe_repeated);
        let Writer { names, clock } = writer;
        self.telemetry.tell(&Told { output, line: &line, names, clock });
        self.sink.write(&line)?;
        if let Some(telling) = telling {
            self.journal.told(telling);
        }
        if let Output::Append(append) = output {
            self.journal.appended(append);
        }
        Ok(())
    }

    /// Records what the ledger was given. A capture that cannot be written ends there: the agent
    /// goes on.
    pub(super) fn record(&mut self, names: &mut Names, inputs: &[Input]) {
        let news = names.take_news();
        self.on_tap(|tap| {
            news.iter().try_for_each(|named| tap.name(named))?;
            inputs.iter().try_for_each(|input| tap.input(input))?;
            tap.round()
        });
    }

    /// Wall time was set anew.
    pub(super) fn offset(&mut self, clock: Clock) {
        self.on_tap(|tap| tap.offset(clock));
    }

    /// Another configuration is in force.
    pub(super) fn reconfigure(&mut self, config: &Config) {
        self.on_tap(|tap| tap.policy(&config.policy));
        if let Err(error) = self.telemetry.reload(config) {
            tracing::error!("OTLP export goes on by the old settings: {}", chain(&error));
        }
    }

    fn on_tap(&mut self, act: impl FnOnce(&mut Tap) -> io::Result<()>) {
        if let Some(Err(error)) = self.tap.as_mut().map(act) {
            tracing::error!(%error, "writing the capture; it ends here");
            self.tap = None;
        }
    }

    /// What earlier lives have told of a worker.
    pub(super) fn past(&self, identity: &Identity) -> Option<Past> {
        self.journal.past(identity)
    }

    /// Workers of earlier lives that this one has not met.
    pub(super) fn strangers(&self) -> Vec<Past> {
        self.journal.strangers()
    }

    /// A worker was met.
    pub(super) fn meet(&mut self, worker: Worker, past: &Past) {
        self.journal.meet(worker, past);
    }

    /// Rooms removed up to `through` are told, or can never be.
    pub(super) fn give_up(&mut self, worker: Worker, through: u64) {
        self.journal.give_up(worker, through);
    }

    /// A worker has ended.
    pub(super) fn end(&mut self, worker: Worker, at: Nanos) {
        self.journal.end(worker, at);
    }

    /// Workers that ended in earlier lives.
    pub(super) fn gone(&self) -> Vec<Gone> {
        self.journal.gone().cloned().collect()
    }
}
