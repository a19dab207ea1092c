//! A file of headers.

use std::path::Path;

use super::small::read_small;

/// Most bytes of a file of headers.
const BYTES_MAX: usize = 64 * 1024;

/// What gRPC and HTTP say themselves: a second one breaks each request, or names another host.
const OF_THE_PROTOCOL: [&str; 13] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];

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
            let (name, value) = header(line)
                .ok_or_else(|| format!("line {number} is no header: write `name: value`"))?;
            if is_of_the_protocol(&name) {
                return Err(format!(
                    "line {number}: `{name}` is set by the protocol itself: leave it out"
                ));
            }
            Ok((name, value))
        })
        .collect()
}

fn is_of_the_protocol(name: &str) -> bool {
    OF_THE_PROTOCOL.contains(&name) || name.starts_with("grpc-")
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
        assert!(error.contains("no such file"), "{error}");
    }

    #[test]
    fn what_the_protocol_sets_itself_is_refused_by_name() {
        for name in ["Host", "te", "Content-Length", "connection", "content-type", "grpc-timeout"] {
            let error = read(&format!("a: b\n\n{name}: secret\n")).unwrap_err();
            let lower = name.to_ascii_lowercase();
            let wanted = format!("line 3: `{lower}` is set by the protocol itself: leave it out");
            assert_eq!(error, wanted);
        }
    }
}
