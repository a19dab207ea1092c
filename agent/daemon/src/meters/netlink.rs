//! Dumps by netlink: asking, and taking the answers apart.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x301;
/// `NLMSG_ERROR`.
pub(super) const ERROR: u16 = 2;
/// `NLMSG_DONE`.
pub(super) const DONE: u16 = 3;
/// `struct nlmsghdr`.
pub(super) const HEADER: usize = 16;
/// Bytes of the two upper bits of an attribute's type, which say how it is to be read.
const KIND_MASK: u16 = 0x3fff;
/// Longest that the kernel may take for a part of a dump.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(1);
/// Bytes that one part of a dump may have.
const PART_BYTES: usize = 256 * 1024;

/// Why a dump failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DumpError {
    /// The kernel refused; its error number.
    #[error("the kernel refuses the dump: {}", std::io::Error::from_raw_os_error(*.0))]
    Refused(i32),
    /// A message is longer than what was received, or shorter than its own header.
    #[error("a netlink message of {said} bytes where {have} are left")]
    Malformed {
        /// Length that the message states.
        said: usize,
        /// Bytes left.
        have: usize,
    },
}

/// A socket to ask with, in the network namespace of this thread.
pub(super) fn open(protocol: Protocol) -> io::Result<OwnedFd> {
    let fd = socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(protocol),
    )?;
    set_socket_timeout(&fd, Timeout::Recv, Some(PATIENCE))?;
    Ok(fd)
}

/// A request for a dump: its type, and what follows the header.
pub(super) fn request(kind: u16, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER + body.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&DUMP.to_ne_bytes());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(body);
    bytes
}

/// Asks, and hands over each part of the answer until `take` says that it was the last. A socket that
/// gave an error has the rest of its dump still to come: it must not be used again.
pub(super) fn ask(
    fd: impl AsFd,
    request: &[u8],
    buffer: &mut Vec<u8>,
    mut take: impl FnMut(&[u8]) -> io::Result<bool>,
) -> io::Result<()> {
    buffer.resize(PART_BYTES, 0);
    send(&fd, request, SendFlags::empty())?;
    loop {
        let (len, _) = recv(&fd, &mut buffer[..], RecvFlags::empty())?;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if take(buffer.get(..len).unwrap_or_default())? {
            return Ok(());
        }
    }
}

/// Hands over what each message of that type has behind its header. `true` when the dump is complete.
pub(super) fn messages(
    mut bytes: &[u8],
    kind: u16,
    mut each: impl FnMut(&[u8]),
) -> Result<bool, DumpError> {
    while !bytes.is_empty() {
        let have = bytes.len();
        let said = u32_at(bytes, 0).unwrap_or(0) as usize;
        let message = bytes.get(..said).filter(|message| message.len() >= HEADER);
        let Some(message) = message else {
            return Err(DumpError::Malformed { said, have });
        };
        match u16_at(message, 4) {
            Some(DONE) => return Ok(true),
            Some(ERROR) => {
                let code = u32_at(message, HEADER).unwrap_or(0);
                return Err(DumpError::Refused(code.cast_signed().wrapping_neg()));
            }
            Some(said) if said == kind => each(message.get(HEADER..).unwrap_or_default()),
            _ => {}
        }
        bytes = bytes.get(said.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// Attributes one after the other: type and payload. What is cut ends them.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)? & KIND_MASK;
        let payload = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, payload))
    })
}

/// The payload of the attribute of that type.
pub(super) fn attribute(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(kind, _)| *kind == wanted).map(|(_, payload)| payload)
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}
