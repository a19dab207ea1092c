//! What the kernel programs count of UCX's operations, while somebody suspects.
//!
//! Source: `ucp_request_t` and `uct_completion_t` of UCX; the distances are those of a build.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Endpoints that are counted at once. The victim is the newcomer, counted as
/// [`crate::mishap::Mishap::OperationsFull`].
pub const OPERATION_SLOTS: u32 = 4096;

/// Whose operations.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Endpoint {
    /// The `ucp_ep_h`.
    pub ep: u64,
    /// Process id in the host's pid namespace.
    pub tgid: u32,
    /// Reserved, 0.
    pub reserved: u32,
}

/// Operations that have completed on an endpoint since they are counted.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Operations {
    /// How many went well.
    pub count: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// How many ended badly.
    pub errors: u64,
    /// When the last one went well: `CLOCK_MONOTONIC`, in nanoseconds.
    pub last_at: u64,
}

const _: () = assert!(size_of::<Endpoint>() == 16 && size_of::<Operations>() == 32);

/// The cookie of the point at which operations complete: where the endpoint and the bytes of a
/// request lie, each a distance in bytes from its completion, which is in the request too.
pub const fn operation_cookie(ep: i16, bytes: i16) -> u64 {
    let [ep_low, ep_high] = ep.to_le_bytes();
    let [bytes_low, bytes_high] = bytes.to_le_bytes();
    u64::from_le_bytes([ep_low, ep_high, bytes_low, bytes_high, 0, 0, 0, 1])
}

/// The distances in such a cookie: endpoint, bytes.
#[inline]
pub const fn operation_places(cookie: u64) -> Option<(i64, i64)> {
    match cookie.to_le_bytes() {
        [ep_low, ep_high, bytes_low, bytes_high, 0, 0, 0, 1] => {
            let ep = i16::from_le_bytes([ep_low, ep_high]);
            let bytes = i16::from_le_bytes([bytes_low, bytes_high]);
            Some((ep as i64, bytes as i64))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_survive_their_cookie() {
        for (ep, bytes) in [(-120, -48), (0, 0), (i16::MIN, i16::MAX), (24, 96)] {
            let read = operation_places(operation_cookie(ep, bytes));
            assert_eq!(read, Some((i64::from(ep), i64::from(bytes))));
        }
        assert_eq!(operation_places(0), None, "no cookie was given");
        assert_eq!(operation_places(u64::MAX), None);
    }
}
