//! One line of the journal, with its checksum.

use inflightd_core::fact::Seq;
use inflightd_core::{Cause, Finding};
use serde::{Deserialize, Serialize};

use crate::identity::fnv1a;

/// A worker as the journal numbers it.
pub(super) type Number = u32;

/// What the journal remembers, one line each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Entry {
    /// A worker was found. `through` and `above` are the removals that need no telling.
    Worker {
        n: Number,
        boot: String,
        pid: u32,
        start: u64,
        index: u64,
        role: String,
        engine: String,
        version: String,
        names: Vec<(String, String)>,
        through: u64,
        above: Vec<u64>,
    },
    /// A worker that has ended, by the names under which others still speak of it.
    Gone { boot: String, pid: u32, start: u64, at: u64, names: Vec<(String, String)> },
    /// A room entered the queue, and that was told.
    Append { n: Number, seq: u64, room: u64, at: u64, expected: u64 },
    /// A line is about to be written.
    Will(Act),
    /// It has been written.
    Did(Act),
    /// Removals up to this one are told, or can never be.
    Through { n: Number, through: u64 },
    /// A worker has ended, and all its rooms were told.
    End { n: Number, at: u64 },
}

/// A line that must be written once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Act {
    /// A room left the queue; `removal` is 0 where the table gave it no number.
    Dwell { n: Number, seq: u64, removal: u64 },
    /// A verdict was reached.
    Verdict { n: Number, seq: u64, finding: String, cause: String },
    /// A verdict ended.
    Clear { n: Number, seq: u64, finding: String, cause: String },
}

impl Act {
    pub(super) fn verdict(n: Number, seq: Seq, finding: Finding, cause: Cause) -> Self {
        let (finding, cause) = (finding.name().to_owned(), cause.name().to_owned());
        Self::Verdict { n, seq: seq.0, finding, cause }
    }

    pub(super) fn clear(n: Number, seq: Seq, finding: Finding, cause: Cause) -> Self {
        let (finding, cause) = (finding.name().to_owned(), cause.name().to_owned());
        Self::Clear { n, seq: seq.0, finding, cause }
    }
}

/// The line of an entry, its line feed included.
pub(super) fn write(entry: &Entry) -> Result<String, serde_json::Error> {
    let text = serde_json::to_string(entry)?;
    Ok(format!("{:032x} {text}\n", fnv1a(text.as_bytes())))
}

/// The entry in a line without its line feed; `None` for a torn or damaged one.
pub(super) fn read(line: &str) -> Option<Entry> {
    let (sum, text) = line.split_once(' ')?;
    let sum = u128::from_str_radix(sum, 16).ok()?;
    (sum == fnv1a(text.as_bytes())).then(|| serde_json::from_str(text).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_reads_back_and_no_part_of_it_does() {
        let entry = Entry::Will(Act::verdict(3, Seq(77), Finding::StoppedMidway, Cause::PeerDead));
        let line = write(&entry).unwrap();
        assert_eq!(read(line.trim_end()), Some(entry));
        for len in 0..line.len() - 1 {
            assert_eq!(read(&line[..len]), None, "{len} bytes");
        }
        assert_eq!(read(&line.trim_end().replace("77", "78")), None);
    }
}
