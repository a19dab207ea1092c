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

/// Rows in columns, each as wide as its widest cell.
pub(crate) fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}
