//! `/proc/PID/maps`: which files a process has mapped for execution.

use std::{
    ffi::OsString,
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
};

/// One executable mapping of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// The range as it is written, which names the entry in `/proc/PID/map_files`.
    pub(crate) range: String,
    /// Inode number.
    pub(crate) inode: u64,
    /// Path as the process sees it.
    pub(crate) path: PathBuf,
}

const DELETED: &[u8] = b" (deleted)";

impl Mapping {
    /// File name, without the mark of a deleted file.
    pub(crate) fn file_name(&self) -> Option<&str> {
        Path::new(&self.path).file_name()?.to_str()
    }
}

/// The executable mappings of files, in the order of their addresses. Lines that do not look like
/// lines of `maps` are skipped.
pub(crate) fn executable(text: &[u8]) -> impl Iterator<Item = Mapping> + '_ {
    text.split(|byte| *byte == b'\n').filter_map(line)
}

/// `start-end perms offset dev inode path`; `None` unless executable and of a file.
fn line(text: &[u8]) -> Option<Mapping> {
    let mut fields = text.splitn(6, |byte| *byte == b' ');
    let range = std::str::from_utf8(fields.next()?).ok()?;
    let permissions = fields.next()?;
    let (_offset, _device) = (fields.next()?, fields.next()?);
    let inode = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let path = fields.next()?.trim_ascii_start();
    if permissions.get(2) != Some(&b'x') || inode == 0 || path.first() != Some(&b'/') {
        return None;
    }
    let path = path.strip_suffix(DELETED).unwrap_or(path);
    Some(Mapping {
        range: range.to_owned(),
        inode,
        path: PathBuf::from(OsString::from_vec(unescape(path))),
    })
}

/// The kernel writes a newline in a path as `\012`; nothing else is escaped.
fn unescape(path: &[u8]) -> Vec<u8> {
    const ESCAPED: &[u8] = b"\\012";
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, tail)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(ESCAPED) {
            plain.push(b'\n');
            rest = after;
        } else {
            plain.push(*first);
            rest = tail;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"\
55d0c0a00000-55d0c0a01000 r--p 00000000 fe:00 100 /usr/bin/python3.11
55d0c0a01000-55d0c0a02000 r-xp 00001000 fe:00 100 /usr/bin/python3.11
7f0000000000-7f0000001000 r-xp 00047000 fe:00 200                        /opt/a b/libnixl.so
7f0000001000-7f0000002000 r-xp 00048000 fe:00 200                        /opt/a b/libnixl.so
7f0000003000-7f0000004000 r-xp 00000000 fe:00 300                        /x/libucp.so.0 (deleted)
7f0000005000-7f0000006000 r-xp 00000000 fe:00 400                        /x/od\\012d
7ffd00000000-7ffd00001000 r-xp 00000000 00:00 0                          [vdso]
7ffd00002000-7ffd00003000 rwxp 00000000 00:00 0 
garbage
";

    #[test]
    fn executable_files_come_in_order() {
        let found: Vec<_> = executable(TEXT).collect();
        let names: Vec<_> = found.iter().map(|m| m.path.to_str().unwrap()).collect();
        assert_eq!(
            names,
            [
                "/usr/bin/python3.11",
                "/opt/a b/libnixl.so",
                "/opt/a b/libnixl.so",
                "/x/libucp.so.0",
                "/x/od\nd"
            ]
        );
        assert_eq!(found[0].range, "55d0c0a01000-55d0c0a02000");
        assert_eq!(found[1].inode, 200);
        assert_eq!(found[3].file_name(), Some("libucp.so.0"));
    }

    #[test]
    fn no_prefix_of_the_text_is_a_trap() {
        for end in 0..TEXT.len() {
            assert!(executable(&TEXT[..end]).count() <= 5);
        }
    }
}
