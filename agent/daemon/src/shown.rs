//! What people are shown. Names come from other processes: none may start a line of its own, move
//! a cursor, turn the text around it or be there unseen.

use std::io::{self, Write as _};

use crate::error::RunError;

/// Characters without a glyph of their own, by Unicode's categories Cf and the like: marks of
/// direction, joiners, fillers, tags, variation selectors. (The standard library knows the controls
/// and what is white space, not these.)
const UNSEEN: [(char, char); 24] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{202a}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fffb}'),
    ('\u{110bd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e0fff}'),
];

/// Whether a character acts on what is around it, or does not show.
fn is_odd(c: char) -> bool {
    let is_blank = c.is_whitespace() && c != ' ';
    c.is_control() || is_blank || UNSEEN.iter().any(|(first, last)| (*first..=*last).contains(&c))
}

/// A text of one line that shows as what it is: each odd character is a `?`.
pub fn plain(text: &str) -> String {
    text.replace(is_odd, "?")
}

/// The text that bytes are; one that was cut may end in half a character, which is left out.
pub fn lossy(bytes: &[u8], is_cut: bool) -> String {
    let end = bytes.utf8_chunks().last().map_or(&[][..], |chunk| chunk.invalid());
    // An error without a length: more bytes could have made it a character.
    let is_half = std::str::from_utf8(end).is_err_and(|error| error.error_len().is_none());
    let whole = if is_cut && is_half { bytes.strip_suffix(end) } else { None };
    String::from_utf8_lossy(whole.unwrap_or(bytes)).into_owned()
}

/// Prints an answer on standard output. Who reads no further has read what it wanted.
pub fn print(text: &[u8], doing: &'static str) -> Result<(), RunError> {
    match io::stdout().write_all(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(RunError::io(doing)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_on_the_text_around_it_or_is_not_seen_is_replaced() {
        let odd = "\0\n\t\r\u{1b}\u{7f}\u{85}\u{9b}\u{a0}\u{ad}\u{61c}\u{180e}\u{2003}\u{200b}\
                   \u{200d}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\
                   \u{2060}\u{2066}\u{2067}\u{2068}\u{2069}\u{3000}\u{3164}\u{fe0f}\u{feff}\u{fffb}\
                   \u{e0001}\u{e0041}";
        assert_eq!(plain(odd), "?".repeat(odd.chars().count()));
        let even = "a-Z 0~ é ß 漢字 עברית العربية 🚀 … \u{fffd}";
        assert_eq!(plain(even), even);
        assert!(UNSEEN.is_sorted() && UNSEEN.iter().all(|(first, last)| first <= last));
    }

    #[test]
    fn a_text_is_cut_between_characters_and_what_is_no_text_shows_as_such() {
        assert_eq!(lossy("rid-é".as_bytes(), true), "rid-é");
        assert_eq!(lossy(b"rid-\xc3", true), "rid-");
        assert_eq!(lossy(b"rid-\xf0\x9f\x9a", true), "rid-");
        assert_eq!(lossy(b"rid-\xc3", false), "rid-\u{fffd}", "that is all of it");
        assert_eq!(lossy(b"\xff rid-\xc3", true), "\u{fffd} rid-");
        assert_eq!(lossy(b"rid\xff", true), "rid\u{fffd}");
    }
}
