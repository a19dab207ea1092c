//! What is wrong with a configuration: everything at once, each with place, value and remedy.

use std::fmt;
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

/// Everything that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", shown(.0))]
pub struct ConfigError(pub Vec<Problem>);

fn shown(problems: &[Problem]) -> String {
    let mut text = match problems {
        [one] => return one.to_string(),
        all => format!("{} errors in the configuration:", all.len()),
    };
    for problem in problems {
        text.push_str("\n  ");
        text.push_str(&problem.to_string());
    }
    text
}
