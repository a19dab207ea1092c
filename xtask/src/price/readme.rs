//! The table, as Markdown, and its place in the README.

use anyhow::{Context as _, Result};

use super::Row;
use crate::tree;

const BEGIN: &str = "<!-- price: written by `cargo xtask bench --readme` -->\n";
const END: &str = "<!-- end of price -->";

/// The rows as a Markdown table.
pub(super) fn table(rows: &[Row]) -> String {
    let mut text = String::from("| what | measured | goal |\n| --- | --- | --- |\n");
    for row in rows {
        let goal = row.goal.as_ref().map_or_else(String::new, |(goal, reached)| {
            if *reached { goal.clone() } else { format!("{goal}: not reached") }
        });
        text.extend(["| ", &row.what, " | ", &row.value, " | ", &goal, " |\n"]);
    }
    text
}

/// Puts the table between its marks in README.md.
pub(super) fn put(table: &str) -> Result<()> {
    let path = tree::root().join("README.md");
    let text = std::fs::read_to_string(&path).context("reading README.md")?;
    let text = replaced(&text, table).context(
        "README.md has no place for the table\nfix: put back the two comments that begin with \
         `<!-- price` and `<!-- end of price`",
    )?;
    std::fs::write(&path, text).context("writing README.md")
}

fn replaced(text: &str, table: &str) -> Option<String> {
    let begin = text.find(BEGIN)? + BEGIN.len();
    let end = begin + text.get(begin..)?.find(END)?;
    Some(format!("{}{table}{}", text.get(..begin)?, text.get(end..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_that_was_missed_says_so() {
        let rows = [
            Row::new("a", "1 s").goal("≤ 2 s", true),
            Row::new("b", "3 s").goal("≤ 2 s", false),
            Row::new("c", "4 s"),
        ];
        let text = table(&rows);
        assert!(text.contains("| a | 1 s | ≤ 2 s |\n"), "{text}");
        assert!(text.contains("| b | 3 s | ≤ 2 s: not reached |\n"), "{text}");
        assert!(text.ends_with("| c | 4 s |  |\n"), "{text}");
    }

    #[test]
    fn the_table_takes_the_place_of_the_last_one() {
        let readme = format!("before\n{BEGIN}old\n{END}\nafter\n");
        let once = replaced(&readme, "new\n").unwrap();
        assert_eq!(once, format!("before\n{BEGIN}new\n{END}\nafter\n"));
        assert_eq!(replaced(&once, "new\n").unwrap(), once);
        assert_eq!(replaced("no place", "new\n"), None);
    }
}
