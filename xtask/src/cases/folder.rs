//! Folders of case files, whatever a case is.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::say;
use crate::tree;

/// A case that lies in a file of its own.
pub(crate) trait CaseFile: Sized {
    /// Where the files lie, below the root.
    const FOLDER: &'static str;

    /// Parse the text of the file of that name.
    fn parse(name: &str, text: &str) -> Result<Self>;

    /// What every case has.
    fn head(&self) -> Head<'_>;
}

/// What every case has.
pub(crate) struct Head<'a> {
    /// The order in which the cases are run, then the file's name without its ending.
    pub(crate) place: (u32, &'a str),
    /// What it is, in one sentence.
    pub(crate) what: &'a str,
}

fn name<C: CaseFile>(case: &C) -> &str {
    case.head().place.1
}

/// Load the named cases, or all, in their order.
pub(crate) fn load<C: CaseFile>(names: &[String]) -> Result<Vec<C>> {
    let listing = || format!("listing {}", C::FOLDER);
    let mut cases = Vec::new();
    for entry in fs::read_dir(tree::root().join(C::FOLDER)).with_context(listing)? {
        let path = entry.with_context(listing)?.path();
        if path.extension().is_some_and(|ending| ending == "toml") {
            cases.push(read::<C>(&path)?);
        }
    }
    cases.sort_by(|a, b| a.head().place.cmp(&b.head().place));
    let known: Vec<&str> = cases.iter().map(name).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        let meant = nearest(unknown, &known).map(|name| format!("did you mean {name}? "));
        let meant = meant.unwrap_or_default();
        bail!("no case is called {unknown}\nfix: {meant}choose from {}", known.join(", "));
    }
    cases.retain(|case| names.is_empty() || names.iter().any(|one| one == name(case)));
    Ok(cases)
}

/// The name that was probably meant.
fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    const NEAR: f64 = 0.8;
    let like = |name: &&str| strsim::jaro_winkler(word, name);
    let near = known.iter().copied().filter(|name| like(name) >= NEAR);
    near.max_by(|one, other| like(one).total_cmp(&like(other)))
}

/// Read one case file.
pub(crate) fn read<C: CaseFile>(path: &Path) -> Result<C> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    C::parse(&name, &text).with_context(|| format!("in {}", path.display()))
}

/// Print what each case is.
pub(crate) fn list(cases: &[impl CaseFile]) {
    for case in cases {
        let Head { place: (_, name), what } = case.head();
        say::line(format_args!("{name:<24} {what}"));
    }
}
