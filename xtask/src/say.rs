//! The one place that prints: what people read goes to stdout, a line at a time.

use std::fmt::Display;
use std::io::Write as _;

/// Print one line and flush it, so that a line is seen when it is true and not when a buffer fills.
///
/// A closed stdout (`cargo xtask test | head`) is no reason to fail the task.
pub(crate) fn line(text: impl Display) {
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{text}").is_ok() {
        drop(out.flush());
    }
}
