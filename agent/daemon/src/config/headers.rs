//! A file of headers.

use std::path::Path;

use super::small::read_small;

/// Most bytes of a file of headers.
const BYTES_MAX: usize = 64 * 1024;

/// Reads headers, one `name: value` a line; empty lines and lines that begin with `#` are skipped.
/// The error names the line and the remedy, and no value: those are secrets.
pub fn read_headers(path: &Path) -> Result<Vec<(String, String)>, String> {
    let bytes = read_small(path, BYTES_MAX).map_err(|text| format!("it {text}"))?;
    let text = String::from_utf8(bytes)
        .map_err(|error| format!("it is no text: {error}; write one `name: value` a line"))?;
    let lines = text.lines().map(str::trim).zip(1..);
    lines
        .filter(|(line, _)| !line.is_empty() && !line.starts_with('#'))
        .map(|(line, number)| {
            header(line).ok_or_else(|| format!("line {number} is no header: write `name: value`"))
        })
        .collect()
}

fn header(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once(':')?;
    let (name, value) = (name.trim(), value.trim());
    let named = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.!#$%&'*+^`|~".contains(&byte);
    let printable = |byte: u8| (b' '..=b'~').contains(&byte) || byte == b'\t';
    let fine = !name.is_empty() && name.bytes().all(named) && value.bytes().all(printable);
    // gRPC takes lower-case names only, HTTP any.
    fine.then(|| (name.to_ascii_lowercase(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(String, String)>, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        read_headers(file.path())
    }

    #[test]
    fn names_and_values_are_read() {
        let headers = read("# token\nAuthorization:  Bearer a:b \n\nx-scope: 7\n").unwrap();
        let wanted = [("authorization", "Bearer a:b"), ("x-scope", "7")];
        assert_eq!(headers, wanted.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn a_bad_line_is_named_and_its_value_is_not() {
        for bad in ["secret", "na me: secret", ": secret", "x: sec\u{1}ret"] {
            let error = read(&format!("a: b\n{bad}\n")).unwrap_err();
            assert!(error.contains("line 2") && !error.contains("sec"), "{error}");
        }
        let error = read_headers(Path::new("/nonexistent")).unwrap_err();
        assert!(error.contains("No such file"), "{error}");
    }
}
