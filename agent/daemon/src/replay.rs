//! `inflightd replay`: a capture through a fresh ledger.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _, Split};
use std::path::Path;

use inflightd_capture::{Input, MAGIC, feed, parse_input};
use inflightd_core::{Ledger, Nanos, Output, Policy};

use crate::cli;
use crate::clock::Clock;
use crate::error::{RunError, chain};
use crate::names::Names;
use crate::shown::plain;
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
    let mut replay = Replay {
        ledger: Ledger::new(Policy::default()),
        names: Names::default(),
        clock: Clock::with_offset(0),
        ticked: Nanos::ZERO,
    };
    for (index, line) in lines(path)?.enumerate() {
        let number = index + 2;
        let line = line.map_err(RunError::file("reading the capture", path))?;
        let line = String::from_utf8(line).map_err(|_bytes| {
            bad(path, number, "it is no text: the file is damaged behind the line before")
        })?;
        replay.take(line.trim_end_matches('\r'), (path, number), sink)?;
    }
    // An agent that was killed may have died between its inputs and the question.
    replay.ask(sink)
}

/// The lines of a capture behind its first one, which says that it is one.
fn lines(path: &Path) -> Result<Split<BufReader<File>>, RunError> {
    let file = File::open(path).map_err(RunError::file("opening the capture", path))?;
    if file.metadata().is_ok_and(|about| about.is_dir()) {
        return Err(no_capture(path, "it is a directory"));
    }
    let mut file = BufReader::new(file);
    let mut first = Vec::new();
    // What is no capture may have no lines at all, nor an end.
    let most = MAGIC.len() as u64 + 2;
    let read = file.by_ref().take(most).read_until(b'\n', &mut first);
    read.map_err(RunError::file("reading the capture", path))?;
    let line = first.strip_suffix(b"\n").unwrap_or(&first);
    if line.strip_suffix(b"\r").unwrap_or(line) != MAGIC.as_bytes() {
        return Err(no_capture(path, &format!("its first line is not `{MAGIC}`")));
    }
    Ok(file.split(b'\n'))
}

fn no_capture(path: &Path, why: &str) -> RunError {
    let said = format!("{why}: give a file that `inflightd run --capture` has written");
    RunError::Capture { path: path.to_owned(), said }
}

fn bad(path: &Path, number: usize, what: &str) -> RunError {
    let said = format!("line {number}: {}", plain(what));
    RunError::Capture { path: path.to_owned(), said }
}

struct Replay {
    ledger: Ledger,
    names: Names,
    clock: Clock,
    /// The last tick. Facts may be older than it, since they are read after they happened.
    ticked: Nanos,
}

impl Replay {
    fn take(
        &mut self,
        line: &str,
        (path, number): (&Path, usize),
        sink: &mut Sink,
    ) -> Result<(), RunError> {
        let bad = |what: &str| bad(path, number, what);
        if line == MAGIC {
            return Err(bad("another capture begins here: give each its own file"));
        }
        if line.starts_with('#') {
            match comment(line).map_err(|error| bad(&chain(&error)))? {
                Comment::Policy(policy) => self.ledger.set_policy(policy),
                Comment::Offset(clock) => self.clock = clock,
                Comment::Name(named) => self.names.restore(named),
                Comment::Round => self.ask(sink)?,
                Comment::Other => {}
            }
        } else if let Some(input) = parse_input(line).map_err(|error| bad(&chain(&error)))? {
            self.pass(&input).map_err(|what| bad(&what))?;
            feed(&mut self.ledger, &input);
        }
        Ok(())
    }

    /// Follows the ticks: those of an agent never go back.
    fn pass(&mut self, input: &Input) -> Result<(), String> {
        let Input::Tick(now) = *input else { return Ok(()) };
        let before = std::mem::replace(&mut self.ticked, now);
        if now >= before {
            return Ok(());
        }
        let (now, before) = (now.0, before.0);
        Err(format!(
            "time goes back here, from {before} to {now}: its lines are not in the order in which \
             the agent wrote them"
        ))
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
    use std::process::ExitCode;

    use inflightd_core::fact::Worker;
    use inflightd_core::{Event, Fact, Sight, Source};

    use super::*;

    /// What a capture of these bytes comes to.
    fn told(bytes: &[u8]) -> Result<(), String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("capture");
        std::fs::write(&path, bytes).unwrap();
        replay_to(&path, &mut Sink::new(Form::Json, Box::new(io::sink()))).map_err(|error| {
            assert_eq!(format!("{:?}", error.exit_code()), format!("{:?}", ExitCode::from(2)));
            chain(&error)
        })
    }

    #[test]
    fn what_is_no_capture_is_told_with_the_remedy_whatever_it_is() {
        let cut = &MAGIC.as_bytes()[..MAGIC.len() - 1];
        let longer = format!("{MAGIC}  0\n");
        for bytes in [b"".as_slice(), b"hello\n", b"\x7fELF\xff\0\0", b"\n", cut, longer.as_bytes()]
        {
            let error = told(bytes).unwrap_err();
            assert!(error.contains("its first line is not"), "{error}");
            assert!(error.ends_with("give a file that `inflightd run --capture` has written"));
        }
        let dir = tempfile::tempdir().unwrap();
        let mut sink = Sink::new(Form::Json, Box::new(io::sink()));
        let error = replay_to(dir.path(), &mut sink).unwrap_err();
        assert!(matches!(error, RunError::Capture { .. }), "{error}");
        assert!(error.to_string().contains("it is a directory: give a file that"), "{error}");
        for end in ["", "\n", "\r\n7 tick\r\n# round\r\n"] {
            assert_eq!(told(format!("{MAGIC}{end}").as_bytes()), Ok(()), "{end:?}");
        }
    }

    #[test]
    fn a_capture_that_no_agent_wrote_like_this_is_told_by_its_line() {
        let capture = format!("{MAGIC}\n5 tick\n# round\n");
        let twice = told(format!("{capture}{capture}").as_bytes()).unwrap_err();
        assert!(twice.contains("line 4: another capture begins here"), "{twice}");
        let back = told(format!("{capture}5 tick\n3 w0 found\n4 tick\n").as_bytes()).unwrap_err();
        assert!(back.contains("line 6: time goes back here, from 5 to 4"), "{back}");
        let mut damaged = capture.into_bytes();
        damaged.extend(b"7 \xff\xfe\n");
        assert!(told(&damaged).unwrap_err().contains("line 4: it is no text"));
        let odd = told(format!("{MAGIC}\n7 w0 \u{1b}[2J\n").as_bytes()).unwrap_err();
        assert!(odd.ends_with("line 2: unknown fact `?[2J`"), "{odd}");
    }

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
