//! Structure offsets that the agent hands to the kernel programs, by build-id.
//!
//! A kernel program finds its layout by the index in its attach cookie. Index 0 means "unknown
//! build": the program then reports return codes and addresses only.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Number of layouts that can be in force at once; slot 0 is "unknown build".
pub const LAYOUT_SLOTS: u32 = 16;

/// Processes that can be watched for their exit at once.
pub const WATCHED_SLOTS: u32 = 4096;

/// Processes whose share of the ring is kept, and whose losses are counted, at the same time. The
/// victim is the least recently used: its share begins anew, and its losses are then everybody's.
pub const SHARE_SLOTS: u32 = 1024;

/// Offset of the length in a `std::string` of libstdc++'s new ABI; the pointer comes first.
pub const STRING_LENGTH: u64 = 8;
/// Offset of `status`, one byte, in `uct_completion_t {func, i32 count, ucs_status_t status}`:
/// UCT's public structure, so not a matter of the build.
pub const COMPLETION_STATUS: u64 = 12;

/// How many bytes of a text of `length` go into a field of `room` bytes.
#[inline]
pub const fn taken(length: u64, room: u32) -> u32 {
    if length > room as u64 {
        room
    } else {
        #[expect(clippy::cast_possible_truncation, reason = "not above `room`")]
        let whole = length as u32;
        whole
    }
}

/// Whether a probed instruction is the first of a function, or follows its landing pad (`endbr64`,
/// `bti c`: four bytes).
#[inline]
pub const fn is_entry(function: u64, instruction: u64) -> bool {
    let distance = instruction.wrapping_sub(function);
    distance == 0 || distance == 4
}

/// The request that a completion belongs to, from an attach cookie that holds the distance
/// `completion - request` of this build of UCX as two's complement; 0 where it is unknown (0).
#[inline]
pub const fn request_of(completion: u64, distance: u64) -> u64 {
    if distance == 0 { 0 } else { completion.wrapping_sub(distance) }
}

/// Byte offsets inside NIXL's `nixlXferReqH` and `nixlAgentOptionalArgs`.
///
/// Source: measured on nixl-cu12 1.5.1 (build-id `c60ac851…`), confirmed in its disassembly.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct NixlLayout {
    /// 1 where the slot holds a layout, 0 where it is empty.
    pub known: u32,
    /// `remoteAgent`, a `std::string` of libstdc++'s new ABI: pointer, then length.
    pub remote_agent: u32,
    /// `notifMsg`, likewise.
    pub notif: u32,
    /// `hasNotif`, one byte, 0 or 1.
    pub has_notif: u32,
    /// `backendOp`, `i32`: 0 read, 1 write.
    pub op: u32,
    /// `status`, `i32`: 1 in progress, 0 done, negative on error, -1 not posted.
    pub status: u32,
    /// `telemetry.totalBytes`, `u64`, in bytes.
    pub total_bytes: u32,
    /// `telemetry.descCount`, `u64`.
    pub desc_count: u32,
    /// Where `postXferReq` keeps the `i32` that it is about to return, at the instruction that
    /// the end of a post is probed at: distance from the frame pointer; 0 where it is not known.
    pub end_status: i32,
}

/// Set in the cookie of the entry of `postXferReq` where the end of the call is probed too: only
/// then is the call kept as under way.
pub const END_SEEN: u64 = 1 << 32;

/// The slot in the cookie of a NIXL program.
#[inline]
pub const fn slot_of(cookie: u64) -> u64 {
    cookie & !END_SEEN
}

/// A register of x86-64 that keeps its value over calls; the numbers go into attach cookies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Register {
    /// `rbx`.
    Rbx = 1,
    /// `rbp`.
    Rbp = 2,
    /// `r12`.
    R12 = 3,
    /// `r13`.
    R13 = 4,
    /// `r14`.
    R14 = 5,
    /// `r15`.
    R15 = 6,
}

impl Register {
    /// Every register with its name.
    pub const NAMES: [(&'static str, Self); 6] = [
        ("rbx", Self::Rbx),
        ("rbp", Self::Rbp),
        ("r12", Self::R12),
        ("r13", Self::R13),
        ("r14", Self::R14),
        ("r15", Self::R15),
    ];

    /// The register of a number.
    #[inline]
    pub const fn of(number: u64) -> Option<Self> {
        match number {
            1 => Some(Self::Rbx),
            2 => Some(Self::Rbp),
            3 => Some(Self::R12),
            4 => Some(Self::R13),
            5 => Some(Self::R14),
            6 => Some(Self::R15),
            _ => None,
        }
    }
}

/// The cookie of the point inside `ucp_ep_flush_nbx` at which a flush is issued: where the
/// endpoint and the request are.
pub const fn issued_cookie(ep: Register, request: Register) -> u64 {
    ep as u64 | (request as u64) << 8
}

/// The registers in such a cookie: endpoint, request.
#[inline]
pub const fn issued_registers(cookie: u64) -> Option<(Register, Register)> {
    match (Register::of(cookie & 0xff), Register::of(cookie >> 8)) {
        (Some(ep), Some(request)) => Some((ep, request)),
        _ => None,
    }
}

/// Whether a number is a `nixl_status_t`.
#[inline]
pub const fn is_status(number: i32) -> bool {
    number >= NIXL_STATUS_MIN && number <= NIXL_STATUS_MAX
}

/// Lowest value of NIXL's `nixl_status_t` (`NIXL_ERR_NO_TELEMETRY`).
pub const NIXL_STATUS_MIN: i32 = -12;
/// Highest value of NIXL's `nixl_status_t` (`NIXL_IN_PROG`).
pub const NIXL_STATUS_MAX: i32 = 1;
/// `NIXL_IN_PROG`: the transfer is under way.
pub const NIXL_IN_PROG: i32 = 1;
/// `NIXL_SUCCESS`: the transfer is complete.
pub const NIXL_SUCCESS: i32 = 0;
/// `NIXL_ERR_NOT_POSTED`: the handle was made and never posted.
pub const NIXL_NOT_POSTED: i32 = -1;

impl NixlLayout {
    /// Whether fields read with this layout look like those of a handle: the self check that
    /// guards against an unknown build.
    pub const fn plausible(op: i32, status: i32, has_notif: u8, peer_len: u64, bytes: u64) -> bool {
        (op == 0 || op == 1)
            && is_status(status)
            && has_notif <= 1
            && peer_len > 0
            && peer_len < 512
            && bytes > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_of_the_right_build_is_plausible() {
        assert!(NixlLayout::plausible(1, NIXL_NOT_POSTED, 1, 43, 131_072));
    }

    #[test]
    fn registers_survive_their_cookie() {
        for (_, ep) in Register::NAMES {
            assert_eq!(Register::of(ep as u64), Some(ep));
            for (_, request) in Register::NAMES {
                assert_eq!(issued_registers(issued_cookie(ep, request)), Some((ep, request)));
            }
        }
        assert_eq!(issued_registers(0), None);
        assert_eq!(issued_registers(1), None);
        assert_eq!(issued_registers(u64::MAX), None);
    }

    #[test]
    fn the_slot_is_read_with_and_without_the_end_bit() {
        assert_eq!(slot_of(3 | END_SEEN), 3);
        assert_eq!(slot_of(3), 3);
    }

    #[test]
    fn a_text_is_cut_at_the_field() {
        assert_eq!(taken(0, 128), 0);
        assert_eq!(taken(128, 128), 128);
        assert_eq!(taken(129, 128), 128);
        assert_eq!(taken(u64::MAX, 128), 128);
    }

    #[test]
    fn an_entry_is_the_first_instruction_or_the_one_behind_the_landing_pad() {
        assert!(is_entry(0x1000, 0x1000));
        assert!(is_entry(0x1000, 0x1004));
        assert!(!is_entry(0x1000, 0x1001));
        assert!(!is_entry(0x1000, 0x0fff));
        assert!(!is_entry(0, 0x7f00_0000_1000));
    }

    #[test]
    fn a_request_lies_a_signed_distance_from_its_completion() {
        let distance = (-128_i64).cast_unsigned();
        assert_eq!(request_of(0x1000 - 128, distance), 0x1000);
        assert_eq!(request_of(0x1000, 0), 0);
    }

    #[test]
    fn fields_of_another_structure_are_not() {
        assert!(!NixlLayout::plausible(0x55b9, NIXL_NOT_POSTED, 1, 43, 131_072));
        assert!(!NixlLayout::plausible(1, 7, 1, 43, 131_072));
        assert!(!NixlLayout::plausible(1, 0, 0x55, 43, 131_072));
        assert!(!NixlLayout::plausible(1, 0, 0, 94_258_987_374_848, 131_072));
        assert!(!NixlLayout::plausible(1, 0, 0, 0, 131_072));
        assert!(!NixlLayout::plausible(1, 0, 0, 43, 0));
    }
}
