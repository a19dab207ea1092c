//! Counts of tests, read from the closing lines of the runners.

use std::fmt;
use std::ops::AddAssign;

/// How many tests passed, failed and were skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Tally {
    /// The sum of all closing lines of cargo test, pytest and unittest, and of our own.
    pub(crate) fn read(lines: &[String]) -> Self {
        let mut sum = Self::default();
        for (index, line) in lines.iter().enumerate() {
            if let Some(ran) = unittest(line) {
                sum += closing(ran, lines.get(index + 1..).unwrap_or_default());
            } else if line.starts_with("test result:") || line.contains(" passed") {
                sum += Self {
                    passed: before(line, "passed"),
                    failed: before(line, "failed"),
                    skipped: before(line, "ignored") + before(line, "skipped"),
                };
            }
        }
        sum
    }

    /// Whether anything ran and nothing failed.
    pub(crate) const fn is_good(self) -> bool {
        self.passed > 0 && self.failed == 0
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(out, ", {} skipped", self.skipped)?;
        }
        Ok(())
    }
}

/// The number that stands before a word: `12 passed; 0 failed` → 12 for `passed`.
fn before(line: &str, word: &str) -> u64 {
    let mut last = "";
    for token in line.split_whitespace() {
        if token.trim_end_matches([';', ',', '.']) == word {
            return last.parse().unwrap_or(0);
        }
        last = token;
    }
    0
}

/// unittest's `Ran 7 tests in 0.1s`.
fn unittest(line: &str) -> Option<u64> {
    let rest = line.strip_prefix("Ran ")?;
    rest.contains(" test").then(|| rest.split(' ').next()?.parse().ok())?
}

/// unittest's last line: `OK (skipped=1)` or `FAILED (failures=1, errors=2)`.
fn closing(ran: u64, after: &[String]) -> Tally {
    let line = after.iter().find(|line| line.starts_with("OK") || line.starts_with("FAILED"));
    let count = |key: &str| -> u64 {
        let Some((_, rest)) = line.and_then(|line| line.split_once(&format!("{key}="))) else {
            return 0;
        };
        rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0)
    };
    let failed = match line {
        Some(_) => count("failures") + count("errors"),
        None => 1,
    };
    let skipped = count("skipped");
    Tally { passed: ran.saturating_sub(failed + skipped), failed, skipped }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Tally {
        Tally::read(&text.lines().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn closing_lines_of_every_runner_add_up() {
        let text = "running 3 tests\n\
            test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n\
            test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured\n\
            ===== 5 passed, 1 skipped in 0.10s =====\n\
            Ran 7 tests in 0.1s\n\nFAILED (failures=1, errors=1, skipped=2)\n\
            Ran 1 test in 0.1s\n\nOK\n";
        assert_eq!(
            read(text),
            Tally { passed: 3 + 4 + 5 + 3 + 1, failed: 2 + 2, skipped: 1 + 1 + 2 }
        );
    }

    #[test]
    fn a_unittest_run_that_broke_off_is_a_failure() {
        assert_eq!(read("Ran 2 tests in 0.1s\n"), Tally { passed: 1, failed: 1, skipped: 0 });
    }

    #[test]
    fn nothing_ran_is_not_good() {
        assert!(!read("no tests here").is_good());
        assert_eq!(
            Tally { passed: 2, failed: 0, skipped: 1 }.to_string(),
            "2 passed, 0 failed, 1 skipped"
        );
    }
}
