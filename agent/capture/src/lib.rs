//! The text form of the ledger's inputs and outputs.
//!
//! A *capture* is every input of a ledger, ticks included, one line each; fed to a fresh ledger it
//! gives the same outputs. A *scene* is a small capture kept as a test, with the outputs it must
//! give. The format is for people to read, cut and mend:
//!
//! ```text
//! # inflightd capture 1
//! 1000000000 w0 append seq=16384 room=7 expected=65536 peers=1 whole=1 late=0
//! 1000100000 w0 serve tid=4711 seq=16384
//! 31000000000 tick
//! ```
//!
//! A line is `TIME wWORKER FACT key=value …` with the time in nanoseconds of `CLOCK_MONOTONIC`,
//! or `TIME tick`. Empty lines and lines that begin with `#` are skipped.

#![forbid(unsafe_code)]

mod output;
mod parse;
mod write;

use inflightd_core::{Event, Ledger, Nanos, Policy};

pub use output::write_output;
pub use parse::{ParseError, parse_input};
pub use write::write_input;

/// First line of every capture.
pub const MAGIC: &str = "# inflightd capture 1";

/// One input of a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A fact.
    Event(Event),
    /// Time passed.
    Tick(Nanos),
}

/// Feeds one input to a ledger.
pub fn feed(ledger: &mut Ledger, input: &Input) {
    match input {
        Input::Event(event) => ledger.observe(event),
        Input::Tick(now) => ledger.tick(*now),
    }
}

/// Feeds a whole capture to a fresh ledger and writes its outputs, one line each.
///
/// # Errors
///
/// [`ParseError`] names the line that could not be read and why.
pub fn replay(capture: &str, policy: Policy) -> Result<String, ParseError> {
    let mut ledger = Ledger::new(policy);
    let mut outputs = String::new();
    for (number, line) in capture.lines().enumerate() {
        let input = parse_input(line).map_err(|error| error.at_line(number + 1))?;
        let Some(input) = input else { continue };
        feed(&mut ledger, &input);
        while let Some(output) = ledger.poll() {
            write_output(&mut outputs, &output);
            outputs.push('\n');
        }
    }
    Ok(outputs)
}
