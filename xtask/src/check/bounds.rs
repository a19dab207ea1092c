//! Lengths: files that one can read in one sitting, functions that fit on a screen.

use std::path::Path;

use anyhow::{Result, bail};

use crate::say;
use crate::tree;

/// Longest file, in lines.
const FILE: usize = 400;
/// Longest function, in lines, its signature and braces included.
const FUNCTION: usize = 75;
/// Nine of ten functions are no longer than this.
const MOST: usize = 30;
/// Endings of the files that are bounded.
const SOURCES: [&str; 4] = ["rs", "py", "c", "h"];

/// A function and its length.
struct Function {
    place: String,
    lines: usize,
}

/// Fail with every file and function that is too long.
pub(super) fn check() -> Result<()> {
    let mut bad = Vec::new();
    let mut functions = Vec::new();
    for file in tree::files()? {
        let ending = file.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if !SOURCES.contains(&ending) {
            continue;
        }
        let text = tree::text(&file)?.unwrap_or_default();
        let lines = text.lines().count();
        if lines > FILE {
            bad.push(format!("    {}: {lines} lines, at most {FILE}", file.display()));
        }
        if ending == "rs" {
            functions.extend(functions_of(&file, &text));
        }
    }
    for function in functions.iter().filter(|function| function.lines > FUNCTION) {
        bad.push(format!("    {}: {} lines, at most {FUNCTION}", function.place, function.lines));
    }
    let most = ninth_of_ten(&mut functions);
    say::line(format_args!("  {} functions, nine of ten within {most} lines", functions.len()));
    if most > MOST {
        bad.push(format!("    nine of ten functions take up to {most} lines, at most {MOST}"));
    }
    if !bad.is_empty() {
        bail!("too long:\n{}\nfix: split it", bad.join("\n"));
    }
    Ok(())
}

/// The functions of a formatted Rust file: from a line with `fn NAME` to the brace at its indent.
fn functions_of(file: &Path, text: &str) -> Vec<Function> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = name_of(line) else { continue };
        let indent = line.len() - line.trim_start().len();
        let end = format!("{}}}", " ".repeat(indent));
        let last = |line: &&str| *line == end || (is_declaration_end(line, indent));
        let Some(length) = lines.iter().skip(start).position(last) else { continue };
        let is_bodiless = lines.get(start + length).is_some_and(|line| line.ends_with(';'));
        if !is_bodiless && !line.ends_with('}') {
            let place = format!("{}:{} {name}", file.display(), start + 1);
            found.push(Function { place, lines: length + 1 });
        }
    }
    found
}

/// Whether a line at this indent ends a declaration without a body.
fn is_declaration_end(line: &str, indent: usize) -> bool {
    let at_indent = line.len() - line.trim_start().len() == indent;
    at_indent && line.ends_with(';')
}

/// The name that a line defines a function by.
fn name_of(line: &str) -> Option<&str> {
    let words = line.trim_start();
    if words.starts_with("//") {
        return None;
    }
    let (before, after) = words.split_once("fn ")?;
    let plain =
        ["", "pub", "const", "unsafe", "async", "extern", "\"C\"", "pub(crate)", "pub(super)"];
    let is_item = before.split_whitespace().all(|word| plain.contains(&word));
    is_item.then(|| after.split(['(', '<']).next().unwrap_or(after))
}

fn ninth_of_ten(functions: &mut [Function]) -> usize {
    functions.sort_by_key(|function| function.lines);
    let index = functions.len().saturating_sub(1) * 9 / 10;
    functions.get(index).map_or(0, |function| function.lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_measured_from_signature_to_brace() {
        let text = "/// fn in prose\npub(crate) fn one(\n    a: u8,\n) {\n    if a > 0 {\n    }\n}\n\
                    impl X {\n    const fn two() -> u8 {\n        1\n    }\n}\n";
        let found = functions_of(Path::new("x.rs"), text);
        let lengths: Vec<(&str, usize)> =
            found.iter().map(|function| (function.place.as_str(), function.lines)).collect();
        assert_eq!(lengths, [("x.rs:2 one", 6), ("x.rs:9 two", 3)]);
    }

    #[test]
    fn nine_of_ten_is_a_length_that_occurs() {
        let mut functions: Vec<Function> =
            (1..=10).map(|lines| Function { place: String::new(), lines }).collect();
        assert_eq!(ninth_of_ten(&mut functions), 9);
        assert_eq!(ninth_of_ten(&mut []), 0);
    }
}
