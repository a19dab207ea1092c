//! Tells: the journal before and after, the line in between, and the capture beside it.

use std::collections::BTreeSet;
use std::io;

use inflightd_capture::Input;
use inflightd_core::fact::{Seq, Worker};
use inflightd_core::{Nanos, Output};

use super::limit::{Fate, Limit, weight, whose};
use crate::clock::Clock;
use crate::config::{self, Config};
use crate::error::chain;
use crate::identity::Identity;
use crate::journal::{Gone, Journal, Past, Telling};
use crate::names::Names;
use crate::reload::NewExport;
use crate::sink::{Form, Line, Outlet, Sent, Weight, Writer};
use crate::tap::Tap;
use crate::telemetry::metrics::Instruments;
use crate::telemetry::{Telemetry, TelemetryError, Told};

/// Most dropped lines that are left for the next life to tell.
const UNTOLD_MAX: u64 = 10_000;

/// Where lines and inputs go.
#[derive(Debug)]
pub struct Teller {
    form: Form,
    outlet: Outlet<After>,
    limit: Limit,
    journal: Journal,
    tap: Option<Tap>,
    telemetry: Telemetry,
    /// Rooms that an earlier life has told, and this one has not yet. Bounded by the journal.
    known: BTreeSet<(Worker, Seq)>,
    /// Lines that mattered and were dropped since one last went out.
    dropped: u64,
    /// Why lines cannot be written to standard output.
    unwritable: Option<String>,
    /// Lines that were not written and are left for the next life to tell.
    untold: u64,
}

/// What the journal notes once a line is written.
#[derive(Debug)]
pub enum After {
    /// The line that was begun.
    Told(Telling),
    /// A worker has ended.
    End(Worker, Nanos),
}

/// What a teller is made of.
#[derive(Debug)]
pub struct TellerParts {
    /// The form of lines.
    pub form: Form,
    /// Where they go.
    pub outlet: Outlet<After>,
    /// Which of them, and how many.
    pub output: config::Output,
    /// What was told, across lives.
    pub journal: Journal,
    /// The capture, if there is to be one.
    pub tap: Option<Tap>,
    /// Where the rest goes.
    pub telemetry: Telemetry,
}

impl Teller {
    /// A teller of lines, with a capture or without.
    pub fn new(parts: TellerParts) -> Self {
        let TellerParts { form, outlet, output, journal, tap, telemetry } = parts;
        let limit = Limit::new(output);
        Self {
            form,
            outlet,
            limit,
            journal,
            tap,
            telemetry,
            known: BTreeSet::new(),
            dropped: 0,
            unwritable: None,
            untold: 0,
        }
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
        (removal, now): (u64, Nanos),
    ) -> io::Result<()> {
        let telling = match output {
            Output::Dwell(dwell) => self.journal.dwell(dwell.worker, dwell.seq, removal),
            Output::Verdict(verdict) => self.journal.verdict(verdict),
            Output::Clear(clear) => self.journal.clear(clear),
            _ => None,
        };
        let mut line = writer.line(output);
        line.maybe_repeated = telling.as_ref().is_some_and(|telling| telling.maybe_repeated);
        if let Output::Append(append) = output {
            line.maybe_repeated = self.known.remove(&(append.worker, append.seq));
        }
        let Writer { names, clock } = writer;
        self.telemetry.tell(&Told { output, line: &line, names, clock });
        // A later life tells an append again and says so: this need not wait for its line.
        if let Output::Append(append) = output {
            self.journal.appended(append);
        }
        let fate = self.limit.fate(output, now);
        if fate == Fate::Goes {
            return self.send(output, &line, telling, now);
        }
        self.telemetry.instruments().suppressed(u64::from(fate == Fate::Suppressed));
        // Left out is told as well: no later life has to.
        if let Some(telling) = telling {
            self.journal.told(telling);
        }
        Ok(())
    }

    fn send(
        &mut self,
        output: &Output,
        line: &Line,
        telling: Option<Telling>,
        now: Nanos,
    ) -> io::Result<()> {
        let weight = weight(output);
        let text = self.form.render(line)?;
        let Sent::Dropped(after) = self.outlet.send(text, weight, telling.map(After::Told))? else {
            if weight == Weight::Heavy {
                self.dropped = 0;
            }
            return Ok(());
        };
        self.telemetry.instruments().suppressed(1);
        self.limit.leave_out(whose(output), now);
        if weight == Weight::Heavy {
            if self.dropped == 0 {
                tracing::error!(
                    "nobody reads standard output: verdicts are dropped there, and counted; \
                     read it, or set `output.lines = \"none\"`"
                );
            }
            self.dropped += 1;
        }
        // What matters is left for the next life to tell, as far as the journal should grow.
        if let Some(after) = after
            && (weight != Weight::Heavy || self.dropped > UNTOLD_MAX)
        {
            self.note(after);
        }
        Ok(())
    }

    /// Notes what has been written, and sums up what was left out. Call it often.
    pub(super) fn settle(&mut self, names: &Names, clock: Clock, now: Nanos) -> io::Result<()> {
        for after in self.outlet.done()? {
            self.note(after);
        }
        self.count_lost();
        if self.journal.mend(now) {
            self.telemetry.instruments().journal_lost();
        }
        let sums = self.limit.due(now);
        self.sum_up(&sums, Writer { names, clock }, now)
    }

    /// Counts the lines that could not be written, and says so once.
    fn count_lost(&mut self) {
        let lost = self.outlet.take_lost();
        self.telemetry.instruments().lines_lost(lost.lines);
        if let Some(error) = lost.why
            && self.unwritable.is_none()
        {
            let remedy = "make room there, or send it elsewhere";
            tracing::error!(%error, "standard output cannot be written: lines are lost and counted; {remedy}");
            self.unwritable = Some(format!("lines on standard output: {error}: {remedy}"));
        }
        if self.outlet.writes() && self.unwritable.take().is_some() {
            tracing::info!("standard output takes lines again");
        }
        // What matters is left for the next life to tell, as far as the journal should grow.
        for after in lost.after {
            self.untold += 1;
            if self.untold > UNTOLD_MAX {
                self.note(after);
            }
        }
    }

    /// What the agent does without at this moment, and why.
    pub(super) fn lacks(&self) -> Vec<String> {
        let journal = self.journal.problem().map(|problem| format!("the journal: {problem}"));
        journal.into_iter().chain(self.unwritable.clone()).collect()
    }

    /// Writes a line of the agent's own doing, whatever else is left out.
    pub(super) fn tell_line(&mut self, line: &Line) -> io::Result<()> {
        self.outlet.send(self.form.render(line)?, Weight::Heavy, None)?;
        Ok(())
    }

    fn sum_up(
        &mut self,
        sums: &[(Worker, u64, Nanos)],
        writer: Writer<'_>,
        now: Nanos,
    ) -> io::Result<()> {
        for (worker, lines, since) in sums {
            self.tell_line(&writer.suppressed(*worker, *lines, *since, now))?;
        }
        Ok(())
    }

    fn note(&mut self, after: After) {
        match after {
            After::Told(telling) => self.journal.told(telling),
            After::End(worker, at) => self.journal.end(worker, at),
        }
    }

    /// Ends: everything that waits is written, unless nobody reads.
    pub(super) fn finish(&mut self, names: &Names, clock: Clock, now: Nanos) -> io::Result<()> {
        let sums = self.limit.all();
        self.sum_up(&sums, Writer { names, clock }, now)?;
        let (done, left) = self.outlet.finish()?;
        for after in done {
            self.note(after);
        }
        self.count_lost();
        if left > 0 {
            tracing::warn!(lines = left, "nobody read standard output: the next life tells them");
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
    pub(super) fn reconfigure(&mut self, config: &Config, export: NewExport) {
        self.limit.set(config.output);
        self.on_tap(|tap| tap.policy(&config.policy));
        let taken = export.map_err(TelemetryError::from);
        if let Err(error) = taken.and_then(|export| self.telemetry.reload(&export)) {
            tracing::error!("OTLP export goes on by the old settings: {}", chain(&error));
        }
    }

    fn on_tap(&mut self, act: impl FnOnce(&mut Tap) -> io::Result<()>) {
        let Some(tap) = &mut self.tap else {
            return;
        };
        if let Err(error) = act(tap) {
            let path = tap.path().display();
            tracing::error!(%path, %error, "the capture ends here; the agent goes on");
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
        self.known.extend(past.open.keys().map(|seq| (worker, *seq)));
        self.journal.meet(worker, past);
    }

    /// Rooms removed up to `through` are told, or can never be.
    pub(super) fn give_up(&mut self, worker: Worker, through: u64) {
        self.journal.give_up(worker, through);
    }

    /// A worker has ended.
    pub(super) fn end(&mut self, worker: Worker, writer: Writer<'_>, now: Nanos) -> io::Result<()> {
        self.known.retain(|(of, _)| *of != worker);
        let sum = self.limit.end(worker);
        self.sum_up(sum.as_slice(), writer, now)?;
        self.outlet.then(After::End(worker, now));
        Ok(())
    }

    /// Workers that ended in earlier lives.
    pub(super) fn gone(&self) -> Vec<Gone> {
        self.journal.gone().cloned().collect()
    }
}
