//! `inflightd replay`: a capture through a fresh ledger.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use inflightd_capture::{MAGIC, feed, parse_input};
use inflightd_core::{Ledger, Output, Policy};

use crate::cli;
use crate::clock::Clock;
use crate::error::RunError;
use crate::error::chain;
use crate::names::Names;
use crate::sink::{Form, Sink, Writer};
use crate::tap::{Comment, comment};

/// Prints what the agent printed when the capture was made.
pub fn replay(args: &cli::Replay) -> Result<(), RunError> {
    let form = if args.json { Form::Json } else { Form::Text };
    let mut sink = Sink::new(form, Box::new(io::stdout()));
    match replay_to(&args.file, &mut sink) {
        Err(RunError::Io { source, .. }) if source.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Feeds the capture at `path` to a fresh ledger and writes its lines to `sink`.
pub fn replay_to(path: &Path, sink: &mut Sink) -> Result<(), RunError> {
    let file = File::open(path).map_err(RunError::file("opening the capture", path))?;
    let mut replay = Replay {
        ledger: Ledger::new(Policy::default()),
        names: Names::default(),
        clock: Clock::with_offset(0),
    };
    let mut begun = false;
    for (index, line) in BufReader::new(file).lines().enumerate() {
        let line = line.map_err(RunError::file("reading the capture", path))?;
        if !std::mem::replace(&mut begun, true) && line != MAGIC {
            return Err(no_capture(path));
        }
        replay.take(&line, (path, index + 1), sink)?;
    }
    if !begun {
        return Err(no_capture(path));
    }
    // An agent that was killed may have died between its inputs and the question.
    replay.ask(sink)
}

fn no_capture(path: &Path) -> RunError {
    let said = format!(
        "its first line is not `{MAGIC}`: give a file that `inflightd run --capture` has written"
    );
    RunError::Capture { path: path.to_owned(), said }
}

struct Replay {
    ledger: Ledger,
    names: Names,
    clock: Clock,
}

impl Replay {
    fn take(
        &mut self,
        line: &str,
        (path, number): (&Path, usize),
        sink: &mut Sink,
    ) -> Result<(), RunError> {
        let bad = |error: &dyn std::error::Error| RunError::Capture {
            path: path.to_owned(),
            said: format!("line {number}: {}", chain(error)),
        };
        if line.starts_with('#') {
            match comment(line).map_err(|error| bad(&error))? {
                Comment::Policy(policy) => self.ledger.set_policy(policy),
                Comment::Offset(clock) => self.clock = clock,
                Comment::Name(named) => self.names.restore(named),
                Comment::Round => self.ask(sink)?,
                Comment::Other => {}
            }
        } else if let Some(input) = parse_input(line).map_err(|error| bad(&error))? {
            feed(&mut self.ledger, &input);
        }
        Ok(())
    }

    fn ask(&mut self, sink: &mut Sink) -> Result<(), RunError> {
        let writer = Writer { names: &self.names, clock: self.clock };
        for output in said(&mut self.ledger) {
            sink.write(&writer.line(&output)).map_err(RunError::io("writing a line"))?;
        }
        self.ledger.take_forgotten();
        Ok(())
    }
}

/// What the ledger has to say now. Of several coverages of a worker only the last is news: its
/// sources are attached one by one, and nobody wants to read of each.
pub(crate) fn said(ledger: &mut Ledger) -> Vec<Output> {
    let mut outputs: Vec<Output> = std::iter::from_fn(|| ledger.poll()).collect();
    let mut seen = std::collections::BTreeSet::new();
    outputs.reverse();
    outputs.retain(|output| match output {
        Output::Coverage(_, worker, _) => seen.insert(*worker),
        _ => true,
    });
    outputs.reverse();
    outputs
}

#[cfg(test)]
mod tests {
    use inflightd_core::fact::Worker;
    use inflightd_core::{Event, Fact, Nanos, Sight, Source};

    use super::*;

    #[test]
    fn of_several_coverages_the_last_is_said() {
        let mut ledger = Ledger::new(Policy::default());
        let mut cover = |worker, source, at| {
            let fact = Fact::Cover(source, Sight::Visible);
            ledger.observe(&Event { at: Nanos(at), worker: Worker(worker), fact });
        };
        cover(0, Source::Table, 1);
        cover(1, Source::Table, 2);
        cover(0, Source::Marks, 3);
        let said = said(&mut ledger);
        let whose: Vec<(u64, u32)> = said
            .iter()
            .map(|output| match output {
                Output::Coverage(at, worker, _) => (at.0, worker.0),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(whose, [(2, 1), (3, 0)]);
    }
}
