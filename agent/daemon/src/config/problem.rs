//! What is wrong with a configuration: everything at once, each with place, value and remedy.

use std::fmt::{self, Write as _};
use std::path::PathBuf;

use serde::{Serialize, Serializer};

/// Where a value comes from; a later one goes before an earlier one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody gave it.
    Default,
    /// Nobody gave it, and it goes along with this other key, which somebody gave.
    Follows(&'static str),
    /// A line of the file; lines and columns count from 1.
    File {
        /// Which file.
        path: PathBuf,
        /// Line.
        line: usize,
        /// Column, in characters.
        column: usize,
    },
    /// An environment variable.
    Env(&'static str),
    /// A flag.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Follows(key) => write!(f, "follows {key}"),
            Self::File { path, line, column } => {
                write!(f, "{}:{line}:{column}", path.display())
            }
            Self::Env(name) => write!(f, "environment {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

impl Serialize for Origin {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it was given; for a file as a whole, line 0.
    pub origin: Origin,
    /// The key with its full path; empty where the form of the file is wrong.
    pub key: String,
    /// What was given.
    pub value: Option<String>,
    /// What is wrong and what to write instead.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What somebody wrote must not be able to begin a line or to move a cursor.
        let f = &mut Clean(f);
        match &self.origin {
            Origin::File { path, line: 0, .. } => write!(f, "{}: ", path.display())?,
            Origin::Default | Origin::Follows(_) => {}
            origin => write!(f, "{origin}: ")?,
        }
        match (&self.key, &self.value) {
            (key, _) if key.is_empty() => {}
            (key, None) => write!(f, "`{key}`: ")?,
            (key, Some(value)) => write!(f, "`{key}` is {value}: ")?,
        }
        f.write_str(&self.text)
    }
}

/// Most problems that are told.
pub(super) const TOLD_MAX: usize = 50;

/// Everything that is wrong with a configuration, or the first of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", shown(.problems, *.more))]
pub struct ConfigError {
    /// What is told, 50 problems at most.
    pub problems: Vec<Problem>,
    /// How many more there are.
    pub more: usize,
}

impl ConfigError {
    /// The first of these problems, with `more` that are not among them.
    pub(super) fn new(mut problems: Vec<Problem>, more: usize) -> Self {
        let more = more + problems.len().saturating_sub(TOLD_MAX);
        problems.truncate(TOLD_MAX);
        Self { problems, more }
    }

    /// One line for each problem that is told, and one for the rest.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let rest = (self.more > 0).then(|| format!("and {} more", self.more));
        self.problems.iter().map(ToString::to_string).chain(rest)
    }
}

/// Writes control characters as `\n`, `\u{1b}` and so on.
struct Clean<W>(W);

impl<W: fmt::Write> fmt::Write for Clean<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|c| {
            if c.is_control() {
                write!(self.0, "{}", c.escape_default())
            } else {
                self.0.write_char(c)
            }
        })
    }
}

/// A text without control characters: each is written as `\n`, `\u{1b}` and so on.
pub fn clean(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    let _infallible = Clean(&mut cleaned).write_str(text);
    cleaned
}

fn shown(problems: &[Problem], more: usize) -> String {
    let mut text = match problems {
        [one] if more == 0 => return one.to_string(),
        all => format!("{} errors in the configuration:", all.len() + more),
    };
    for problem in problems {
        text.push_str("\n  ");
        text.push_str(&problem.to_string());
    }
    if more > 0 {
        let _infallible = write!(text, "\n  and {more} more");
    }
    text
}
