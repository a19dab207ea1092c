//! The structures of `inflight.h`, and reading what they point at.

use core::ffi::{CStr, c_char};
use core::{ptr, slice};

use inflightd_abi::table::{NewHeader, Ordered, REASON_BYTES, Ranks, Role};

/// Longest text that is looked at, in bytes; the table keeps far less.
const TEXT_MAX: usize = 4096;
/// Most peers of a room that are counted; the table keeps the first few.
pub(crate) const PEERS_COUNTED: usize = 32;

/// `struct inflight_peer`: a far end, or a name of the worker itself.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Peer {
    /// `enum inflight_peer_kind`.
    pub kind: u32,
    /// 0.
    pub reserved: u32,
    /// The value, NUL-terminated, at most 96 bytes are kept.
    pub value: *const c_char,
}

/// `struct inflight_rank`: position in one parallel dimension; size 0 where it is not used.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Rank {
    /// Position, from 0.
    pub index: u32,
    /// Size of the dimension.
    pub size: u32,
}

/// `struct inflight_fail`: why a room is to be failed.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Fail {
    /// How long it had been in the queue, in milliseconds.
    pub dwell_ms: u64,
    /// 1: its far ends may be told; 0: they may still be written to, tell them nothing.
    pub tell_peers: u32,
    /// The finding and its cause, NUL-terminated.
    pub reason: [u8; Self::REASON],
}

impl Fail {
    /// Bytes of the reason, its NUL included.
    pub(crate) const REASON: usize = REASON_BYTES + 4;

    pub(crate) fn of(ordered: &Ordered) -> Self {
        let mut reason = [0; Self::REASON];
        for (to, from) in reason.iter_mut().zip(ordered.reason.bytes()) {
            *to = *from;
        }
        Self { dwell_ms: ordered.dwell_ms, tell_peers: u32::from(ordered.tell_peers), reason }
    }
}

/// `struct inflight_open_args`: what a worker states about itself.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct OpenArgs {
    /// `sizeof(struct inflight_open_args)`, as the caller was compiled with.
    pub size: u64,
    /// `enum inflight_role`.
    pub role: u32,
    /// Nodes that the engine spans.
    pub nnodes: u32,
    /// Engine name, NUL-terminated.
    pub engine: *const c_char,
    /// Engine version, NUL-terminated.
    pub version: *const c_char,
    /// Data parallel.
    pub dp: Rank,
    /// Pipeline parallel.
    pub pp: Rank,
    /// Tensor parallel.
    pub tp: Rank,
    /// Context parallel.
    pub cp: Rank,
    /// The names under which others address this worker.
    pub identities: *const Peer,
    /// How many there are.
    pub identities_len: usize,
}

/// A text that ends with a NUL; nothing for NULL.
///
/// # Safety
///
/// `text` is NULL or ends with a NUL, and stays as it is for as long as the result is used.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return &[];
    }
    let mut len = 0;
    // SAFETY: no byte after the NUL is looked at.
    while len < TEXT_MAX && unsafe { text.add(len).read() } != 0 {
        len += 1;
    }
    // SAFETY: `len` bytes were just read.
    unsafe { slice::from_raw_parts(text.cast(), len) }
}

/// The same text for a marker, which must be given a string.
pub(crate) const fn or_empty(text: *const c_char) -> *const c_char {
    const EMPTY: &CStr = c"";
    if text.is_null() { EMPTY.as_ptr() } else { text }
}

/// The peers in a form that the table takes.
pub(crate) struct Peers<'a> {
    kept: [(u64, &'a [u8]); PEERS_COUNTED],
    len: usize,
}

impl<'a> Peers<'a> {
    /// Reads `len` peers at `first`; none for NULL, the first [`PEERS_COUNTED`] of more.
    ///
    /// # Safety
    ///
    /// `first` is NULL or points at `len` peers, whose values are as [`text`] requires.
    pub(crate) unsafe fn read(first: *const Peer, len: usize) -> Self {
        let len = if first.is_null() { 0 } else { len.min(PEERS_COUNTED) };
        let mut kept: [(u64, &[u8]); PEERS_COUNTED] = [(0, &[]); PEERS_COUNTED];
        for (index, place) in kept.iter_mut().take(len).enumerate() {
            // SAFETY: vouched for by the caller.
            let peer = unsafe { &*first.add(index) };
            // SAFETY: likewise.
            *place = (u64::from(peer.kind), unsafe { text(peer.value) });
        }
        Self { kept, len }
    }

    pub(crate) fn as_slice(&self) -> &[(u64, &'a [u8])] {
        self.kept.get(..self.len).unwrap_or_default()
    }
}

/// Copies the arguments, if they are as long as those of this release and of a known role.
///
/// # Safety
///
/// `args` is NULL or points at as many bytes as its `size` says, at least at that field.
pub(crate) unsafe fn checked(args: *const OpenArgs) -> Option<OpenArgs> {
    if args.is_null() {
        return None;
    }
    // SAFETY: the caller vouches for this field.
    let size = unsafe { ptr::addr_of!((*args).size).read() };
    if size < size_of::<OpenArgs>() as u64 {
        return None;
    }
    // SAFETY: the structure is whole, as its size says. A later release's further fields are
    // not looked at.
    let args = unsafe { args.read() };
    let role = Role::from_code(u64::from(args.role));
    (!matches!(role, Role::Other(_))).then_some(args)
}

/// The header that the arguments ask for.
///
/// # Safety
///
/// The texts are as [`text`] requires.
pub(crate) unsafe fn header<'a>(
    args: &OpenArgs,
    identities: &'a [(u64, &'a [u8])],
    pid: u32,
    worker: u64,
) -> NewHeader<'a> {
    let pair = |rank: Rank| (rank.index, rank.size);
    NewHeader {
        pid,
        worker,
        role: Role::from_code(u64::from(args.role)),
        // SAFETY: vouched for by the caller.
        engine: unsafe { text(args.engine) },
        // SAFETY: likewise.
        version: unsafe { text(args.version) },
        ranks: Ranks { dp: pair(args.dp), pp: pair(args.pp), tp: pair(args.tp), cp: pair(args.cp) },
        nnodes: args.nnodes,
        identities,
    }
}
