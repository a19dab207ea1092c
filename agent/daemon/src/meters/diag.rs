//! `NETLINK_SOCK_DIAG`: the kernel's own account of TCP connections. Encoding and decoding only.
//!
//! Decoded by hand, not with a crate: `netlink-packet-sock-diag` 0.5 refuses a whole message when
//! the kernel's `tcp_info` is shorter than its own, which is what an older kernel sends.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::netlink::{self, DumpError, attribute, messages, u32_at, u64_at};

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// `1 << (INET_DIAG_INFO - 1)`: ask for `tcp_info`.
const WITH_INFO: u8 = 1 << 1;
/// `INET_DIAG_INFO`.
const ATTR_INFO: u16 = 2;
/// `struct inet_diag_msg`.
const DIAG_MSG: usize = 72;
/// Every state but `TIME_WAIT`, `CLOSE` and half-open requests, which have no socket.
const STATES: u32 = !((1 << 6) | (1 << 7) | (1 << 3) | (1 << 12));
/// `IPPROTO_TCP`.
const TCP: u8 = 6;
/// `TCP_ESTABLISHED`.
const ESTABLISHED: u8 = 1;
/// `TCP_LISTEN`.
const LISTEN: u8 = 10;
/// `idiag_timer`: retransmission.
const TIMER_RETRANSMIT: u8 = 1;
/// `idiag_timer`: zero window probe.
const TIMER_PROBE: u8 = 4;

/// An address family to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// `AF_INET`.
    V4,
    /// `AF_INET6`.
    V6,
}

/// A request for every TCP socket of a family.
pub(super) fn request(family: Family) -> Vec<u8> {
    let family = match family {
        Family::V4 => libc::AF_INET,
        Family::V6 => libc::AF_INET6,
    };
    let mut body = vec![u8::try_from(family).unwrap_or(0), TCP, WITH_INFO, 0];
    body.extend_from_slice(&STATES.to_ne_bytes());
    body.extend_from_slice(&[0; 48]);
    netlink::request(BY_FAMILY, &body)
}

/// One TCP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Socket {
    /// Address and port of this end.
    pub local: SocketAddr,
    /// Address and port of the far end.
    pub remote: SocketAddr,
    /// Inode; 0 while nobody has accepted it, and after its process has closed it.
    pub inode: u32,
    /// The kernel's name for it, never used again.
    pub cookie: u64,
    /// Bytes received that the process has not read. Of a listener: connections not accepted.
    pub unread: u32,
    /// Bytes written that the far end has not acknowledged, sent or not.
    pub unacknowledged: u32,
    /// What the kernel counts of it; `None` where it does not say enough.
    pub info: Option<Info>,
    state: u8,
    timer: u8,
}

/// Fields of `struct tcp_info`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Info {
    /// Bytes acknowledged by the far kernel.
    pub acked: u64,
    /// Bytes received.
    pub received: u64,
    /// Bytes written and not sent.
    pub unsent: u32,
    /// Milliseconds since data was last received.
    pub last_received_ms: u32,
    /// Times that the same data was sent again without an answer.
    pub retransmits: u8,
    /// The far end's window, in bytes; kernels before 5.4 do not say.
    pub window: Option<u32>,
}

impl Socket {
    /// Whether data can flow both ways.
    pub(super) const fn is_established(&self) -> bool {
        self.state == ESTABLISHED
    }

    /// Whether it takes connections.
    pub(super) const fn is_listening(&self) -> bool {
        self.state == LISTEN
    }

    /// Whether data waits because the far process does not read: its window is closed, or too
    /// small to use, and the kernel probes it.
    pub(super) fn window_closed(&self) -> bool {
        let shut = self.info.and_then(|info| info.window) == Some(0);
        self.unacknowledged > 0 && (self.timer == TIMER_PROBE || shut)
    }

    /// Whether data is being sent again without an answer.
    pub(super) fn is_retransmitting(&self) -> bool {
        let again = self.info.is_some_and(|info| info.retransmits >= 2);
        self.timer == TIMER_RETRANSMIT && again
    }
}

#[cfg(test)]
impl Socket {
    /// An established connection that has carried nothing.
    pub(crate) fn fake(cookie: u64, inode: u32, local: SocketAddr, remote: SocketAddr) -> Self {
        Self {
            local,
            remote,
            inode,
            cookie,
            unread: 0,
            unacknowledged: 0,
            info: Some(Info::default()),
            state: ESTABLISHED,
            timer: 0,
        }
    }

    /// A listener.
    pub(crate) fn fake_listener(cookie: u64, inode: u32, local: SocketAddr) -> Self {
        let anywhere = SocketAddr::new(local.ip(), 0);
        Self { state: LISTEN, info: None, ..Self::fake(cookie, inode, local, anywhere) }
    }
}

/// Decodes a part of a dump, into `sockets`. `true` when the dump is complete.
pub(super) fn parse(bytes: &[u8], sockets: &mut Vec<Socket>) -> Result<bool, DumpError> {
    messages(bytes, BY_FAMILY, |message| sockets.extend(socket(message)))
}

/// `struct inet_diag_msg` and its attributes.
fn socket(bytes: &[u8]) -> Option<Socket> {
    let address = |at: usize| -> Option<IpAddr> {
        let raw: [u8; 16] = bytes.get(at..at + 16)?.try_into().ok()?;
        let [a, b, c, d, ..] = raw;
        match i32::from(*bytes.first()?) {
            libc::AF_INET => Some(Ipv4Addr::new(a, b, c, d).into()),
            // A mapped address is the IPv4 one: the far end may see it as such.
            libc::AF_INET6 => Some(Ipv6Addr::from(raw).to_canonical()),
            _ => None,
        }
    };
    let port = |at: usize| -> Option<u16> {
        Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
    };
    let (low, high) = (u32_at(bytes, 44)?, u32_at(bytes, 48)?);
    Some(Socket {
        local: SocketAddr::new(address(8)?, port(4)?),
        remote: SocketAddr::new(address(24)?, port(6)?),
        inode: u32_at(bytes, 68)?,
        cookie: u64::from(high) << 32 | u64::from(low),
        unread: u32_at(bytes, 56)?,
        unacknowledged: u32_at(bytes, 60)?,
        info: attribute(bytes.get(DIAG_MSG..)?, ATTR_INFO).and_then(info),
        state: *bytes.get(1)?,
        timer: *bytes.get(2)?,
    })
}

/// `struct tcp_info`, as far as this kernel fills it. Without the byte counts (before 4.6) it
/// says too little.
fn info(bytes: &[u8]) -> Option<Info> {
    Some(Info {
        acked: u64_at(bytes, 120)?,
        received: u64_at(bytes, 128)?,
        unsent: u32_at(bytes, 144)?,
        last_received_ms: u32_at(bytes, 52)?,
        retransmits: *bytes.get(2)?,
        window: u32_at(bytes, 228),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message as the kernel sends it, with `info` bytes of `tcp_info`.
    fn message(info: usize) -> Vec<u8> {
        let mut body = vec![0; DIAG_MSG];
        body[..4].copy_from_slice(&[2, 1, 4, 0]);
        body[4..6].copy_from_slice(&5000_u16.to_be_bytes());
        body[6..8].copy_from_slice(&6000_u16.to_be_bytes());
        body[8..12].copy_from_slice(&[127, 0, 0, 1]);
        body[24..28].copy_from_slice(&[127, 0, 0, 2]);
        body[44..48].copy_from_slice(&7_u32.to_ne_bytes());
        body[56..60].copy_from_slice(&11_u32.to_ne_bytes());
        body[60..64].copy_from_slice(&13_u32.to_ne_bytes());
        body[68..72].copy_from_slice(&99_u32.to_ne_bytes());
        let mut counts = vec![0; 232];
        counts[2] = 3;
        counts[52..56].copy_from_slice(&250_u32.to_ne_bytes());
        counts[120..128].copy_from_slice(&1_000_000_u64.to_ne_bytes());
        counts[128..136].copy_from_slice(&2_000_u64.to_ne_bytes());
        counts[144..148].copy_from_slice(&12_u32.to_ne_bytes());
        counts[228..232].copy_from_slice(&65_536_u32.to_ne_bytes());
        // An unknown attribute of odd length comes first.
        body.extend_from_slice(&[5, 0, 9, 0, 1, 0, 0, 0]);
        body.extend_from_slice(&u16::try_from(4 + info).unwrap().to_ne_bytes());
        body.extend_from_slice(&ATTR_INFO.to_ne_bytes());
        body.extend_from_slice(&counts[..info]);
        let mut bytes = u32::try_from(netlink::HEADER + body.len()).unwrap().to_ne_bytes().to_vec();
        bytes.extend_from_slice(&BY_FAMILY.to_ne_bytes());
        bytes.resize(netlink::HEADER, 0);
        bytes.extend_from_slice(&body);
        bytes
    }

    fn one(bytes: &[u8]) -> Socket {
        let mut sockets = Vec::new();
        assert_eq!(parse(bytes, &mut sockets), Ok(false));
        assert_eq!(sockets.len(), 1);
        sockets[0]
    }

    #[test]
    fn a_socket_is_read() {
        let socket = one(&message(232));
        assert_eq!(socket.local, "127.0.0.1:5000".parse().unwrap());
        assert_eq!(socket.remote, "127.0.0.2:6000".parse().unwrap());
        assert_eq!((socket.inode, socket.cookie), (99, 7));
        assert_eq!((socket.unread, socket.unacknowledged), (11, 13));
        let info = socket.info.unwrap();
        assert_eq!((info.acked, info.received), (1_000_000, 2_000));
        assert_eq!((info.unsent, info.last_received_ms, info.window), (12, 250, Some(65_536)));
        assert!(socket.is_established() && socket.window_closed());
        assert!(!socket.is_retransmitting(), "the timer is that of a window probe");
    }

    #[test]
    fn an_older_kernels_counts_are_read_as_far_as_they_go() {
        // 4.9 to 5.3 end before the window, 4.6 after the unsent bytes, 3.10 before the counts.
        assert_eq!(one(&message(192)).info.unwrap().window, None);
        assert_eq!(one(&message(148)).info.unwrap().unsent, 12);
        assert_eq!(one(&message(104)).info, None);
        assert_eq!(one(&message(0)).info, None);
    }

    #[test]
    fn every_truncation_is_refused() {
        let bytes = message(232);
        for len in 1..bytes.len() {
            let mut sockets = Vec::new();
            let result = parse(&bytes[..len], &mut sockets);
            assert!(matches!(result, Err(DumpError::Malformed { .. })), "{len}: {result:?}");
            assert!(sockets.is_empty());
        }
    }

    #[test]
    fn done_and_error_end_a_dump() {
        let mut done = 16_u32.to_ne_bytes().to_vec();
        done.extend_from_slice(&netlink::DONE.to_ne_bytes());
        done.resize(16, 0);
        assert_eq!(parse(&done, &mut Vec::new()), Ok(true));
        let mut error = 20_u32.to_ne_bytes().to_vec();
        error.extend_from_slice(&netlink::ERROR.to_ne_bytes());
        error.resize(16, 0);
        error.extend_from_slice(&(-2_i32).to_ne_bytes());
        assert_eq!(parse(&error, &mut Vec::new()), Err(DumpError::Refused(2)));
    }

    #[test]
    fn arbitrary_attributes_are_walked_in_bounds() {
        for len in 0..8_u16 {
            let mut bytes = message(0);
            bytes.truncate(netlink::HEADER + DIAG_MSG);
            bytes.extend_from_slice(&len.to_ne_bytes());
            bytes.extend_from_slice(&[1, 0]);
            let total = u32::try_from(bytes.len()).unwrap();
            bytes[..4].copy_from_slice(&total.to_ne_bytes());
            assert_eq!(one(&bytes).info, None);
        }
    }
}
