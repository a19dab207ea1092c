//! Headers, from a file or from OpenTelemetry's variable.

use std::fmt;
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

/// Names in lower case, with their values, which are secrets: they are never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(pub Vec<(String, String)>);

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

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
            let (name, value) = line
                .split_once(':')
                .and_then(|(name, value)| header(name, value))
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

/// Reads `name=value` pairs between commas, the values percent-encoded. What cannot be sent is left
/// out and told by its place: it may hold a secret.
pub(super) fn read_pairs(text: &str) -> (Headers, Vec<String>) {
    let (mut headers, mut told) = (Vec::new(), Vec::new());
    for (pair, number) in text.split(',').map(str::trim).zip(1..) {
        if pair.is_empty() {
            continue;
        }
        match read_pair(pair) {
            Ok(header) => headers.push(header),
            Err(why) => told.push(format!("pair {number} is left out: {why}")),
        }
    }
    (Headers(headers), told)
}

fn read_pair(pair: &str) -> Result<(String, String), String> {
    let (name, value) =
        pair.split_once('=').ok_or("it has no `=`: write `name=value`, and `,` between pairs")?;
    let value = decoded(value).ok_or("its value is not percent-encoded: write `%25` for a `%`")?;
    let (name, value) = header(name, &value)
        .ok_or("it is no header: write a name of letters, digits and `-`, and a value in ASCII")?;
    if is_of_the_protocol(&name) {
        return Err(format!("`{name}` is set by the protocol itself"));
    }
    Ok((name, value))
}

/// A text with each `%` and its two hexadecimal digits as the byte that they mean.
fn decoded(text: &str) -> Option<String> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'%' => digit(bytes.next()?)? << 4 | digit(bytes.next()?)?,
            _ => byte,
        };
        decoded.push(byte);
    }
    String::from_utf8(decoded).ok()
}

fn header(name: &str, value: &str) -> Option<(String, String)> {
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

    #[test]
    fn pairs_of_the_standard_variable_are_read_and_bad_ones_told_by_their_place() {
        let text = "Authorization=Bearer%20a%3d, novalue,=secret,bad name=secret,b=%zzsecret,,\
                    Host=secret,grpc-timeout=secret,c=s%0ay,d=,e=%2";
        let (headers, told) = read_pairs(text);
        let wanted = [("authorization", "Bearer a="), ("d", "")];
        let wanted = wanted.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(headers.0, wanted);
        let (no_header, encoding) = ("it is no header", "its value is not percent-encoded");
        let wanted = [
            (2, "it has no `=`"),
            (3, no_header),
            (4, no_header),
            (5, encoding),
            (7, "`host` is set by the protocol itself"),
            (8, "`grpc-timeout` is set by the protocol itself"),
            (9, no_header),
            (11, encoding),
        ];
        assert_eq!(told.len(), wanted.len(), "{told:?}");
        for (told, (number, why)) in told.iter().zip(wanted) {
            assert!(told.starts_with(&format!("pair {number} is left out: {why}")), "{told}");
            assert!(!told.contains("secret") && !told.contains("novalue"), "{told}");
        }
        assert!(!format!("{headers:?}").contains("Bearer"));
    }
}
