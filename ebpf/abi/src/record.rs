//! Ring records: one small structure per kind, each beginning with a [`Head`].
//!
//! Every field is written by the kernel side (ring memory is not zeroed), no structure has
//! padding (zerocopy's derive refuses it), and texts are NUL-padded.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Longest request id kept in an [`Append`] record, in bytes.
pub const RID_BYTES: usize = 64;
/// Longest peer name and notification kept in a [`XferPost`] record, in bytes.
pub const NAME_BYTES: usize = 128;

/// Slots in a map indexed by [`Kind`]: room for kinds to come.
pub const KIND_SLOTS: u32 = 64;
/// [`Exit::group_dead`] where the kernel does not say.
pub const GROUP_DEAD_UNKNOWN: u32 = 2;

/// What a record is. Numbers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Kind {
    /// `inflight_mark_open`: a worker opened its table; a [`Mark`], `a` = role.
    Open = 1,
    /// `inflight_mark_append`: an [`Append`].
    Append = 2,
    /// `inflight_mark_serve`: a [`Mark`]. `seq` is 0 for a room that is not in the queue yet; `a` is
    /// then the last one that had entered when its work was queued.
    Serve = 3,
    /// `inflight_mark_serve_end`: a [`Mark`].
    ServeEnd = 4,
    /// `inflight_mark_post`: a [`Mark`], `a` = bytes.
    Post = 5,
    /// `inflight_mark_done`: a [`Mark`], `a` = bytes, `b` = 1 when it went well.
    Done = 6,
    /// `inflight_mark_phase`: a [`Mark`], `a` = [`crate::table::Phase`].
    Phase = 7,
    /// `inflight_mark_remove`: a [`Mark`], `a` = [`crate::table::Outcome`].
    Remove = 8,
    /// Entry of `nixlAgent::postXferReq`: an [`XferPost`].
    XferPost = 20,
    /// End of `nixlAgent::postXferReq`: an [`XferRet`].
    XferRet = 21,
    /// Entry of `nixlAgent::releaseXferReq`: an [`XferRet`], `status` as it stood in the handle.
    XferRelease = 22,
    /// A flush is issued by `ucp_ep_flush_nbx`: a [`Flush`].
    Flush = 30,
    /// Entry of `ucp_ep_flush_completion`: a [`FlushDone`].
    FlushDone = 31,
    /// Entry of `nixlUcxEp::err_cb`: an [`EpError`].
    EpError = 32,
    /// A thread of a watched process ended: an [`Exit`].
    Exit = 40,
    /// Entry of `mooncake::TransferEngine::submitTransfer`: a [`Batch`].
    Batch = 50,
    /// Entry of `mooncake::TransferEngine::freeBatchID`: a [`Batch`].
    BatchEnd = 51,
}

impl Kind {
    /// The attach cookies of the marker programs are their kinds; this lists them with their
    /// symbols.
    pub const MARKS: [(&'static str, Self); 8] = [
        ("inflight_mark_open", Self::Open),
        ("inflight_mark_append", Self::Append),
        ("inflight_mark_serve", Self::Serve),
        ("inflight_mark_serve_end", Self::ServeEnd),
        ("inflight_mark_post", Self::Post),
        ("inflight_mark_done", Self::Done),
        ("inflight_mark_phase", Self::Phase),
        ("inflight_mark_remove", Self::Remove),
    ];

    /// How many of a mark's operands `a` and `b` its function has; registers beyond hold nothing.
    pub const fn operands(cookie: u64) -> u32 {
        const DONE: u64 = Kind::Done as u64;
        const SERVE_END: u64 = Kind::ServeEnd as u64;
        match cookie {
            DONE => 2,
            SERVE_END => 0,
            _ => 1,
        }
    }

    /// Whether an attach cookie is a kind that the `mark` program may stamp: a mark that makes a
    /// [`Mark`], so not an append.
    pub const fn is_mark(cookie: u64) -> bool {
        cookie >= Self::Open as u64
            && cookie <= Self::Remove as u64
            && cookie != Self::Append as u64
    }
}

/// The beginning of every record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Head {
    /// `bpf_ktime_get_ns`: `CLOCK_MONOTONIC`, in nanoseconds.
    pub at: u64,
    /// Process id in the host's pid namespace.
    pub tgid: u32,
    /// Thread id in the host's pid namespace.
    pub tid: u32,
    /// A [`Kind`].
    pub kind: u32,
    /// Reserved, 0.
    pub reserved: u32,
}

/// A queue mark of libinflight: `inflight_mark_X(worker, seq, a, b)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Mark {
    /// Time, thread and kind.
    pub head: Head,
    /// Index of the worker inside its process (usually 0).
    pub worker: u64,
    /// Append sequence; 0 where the mark concerns no room.
    pub seq: u64,
    /// First operand, by kind; 0 where the kind has none.
    pub a: u64,
    /// Second operand, by kind; 0 where the kind has none.
    pub b: u64,
}

/// A room entered the queue: `inflight_mark_append(worker, seq, room, expected, rid)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Append {
    /// Time, thread and kind.
    pub head: Head,
    /// Index of the worker inside its process.
    pub worker: u64,
    /// Append sequence.
    pub seq: u64,
    /// The engine's id of the request's transfer.
    pub room: u64,
    /// Bytes that the engine expects to move; 0 when it does not say.
    pub expected: u64,
    /// Request id, NUL-padded, cut at [`RID_BYTES`].
    pub rid: [u8; RID_BYTES],
}

/// A NIXL handle is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct XferPost {
    /// Time, thread and kind.
    pub head: Head,
    /// Address of the `nixlXferReqH`: the handle.
    pub handle: u64,
    /// Bytes of the whole transfer; 0 when the layout is unknown.
    pub bytes: u64,
    /// Descriptors of the whole transfer; 0 when the layout is unknown.
    pub descs: u64,
    /// 0 read, 1 write; -1 when the layout is unknown.
    pub op: i32,
    /// Status before the post; meaningful only when `layout` is not 0.
    pub status: i32,
    /// Index of the [`crate::layout::NixlLayout`] that the fields were read and checked with;
    /// 0 when the build is unknown or the self check failed.
    pub layout: u32,
    /// Length of the notification, uncut; 0 without one.
    pub notif_len: u32,
    /// Name of the remote agent, NUL-padded, cut at [`NAME_BYTES`].
    pub peer: [u8; NAME_BYTES],
    /// Notification text, NUL-padded, cut at [`NAME_BYTES`].
    pub notif: [u8; NAME_BYTES],
}

/// A post of a handle ended, or a handle is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct XferRet {
    /// Time, thread and kind.
    pub head: Head,
    /// Address of the handle.
    pub handle: u64,
    /// `nixl_status_t`: the returned value, or the handle's status at release.
    pub status: i32,
    /// 1 where `status` is known, else 0 (a release in an unknown build).
    pub known: u32,
}

/// `ucp_ep_flush_nbx` issued a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Flush {
    /// Time, thread and kind.
    pub head: Head,
    /// The `ucp_ep_h`.
    pub ep: u64,
    /// `ucs_status_ptr_t`: 0 done at once, a small negative number an error, else the request.
    pub request: u64,
    /// The NIXL handle whose `postXferReq` was under way on this thread; 0 without one, and where
    /// the end of a post is not probed.
    pub handle: u64,
    /// Time of the call's entry, on the clock of `head.at`, in nanoseconds. It is `head.at` in a
    /// known build, where the record is made before UCX lets another thread go on; in an unknown
    /// one a completion on another thread may be recorded first, and then lies in between.
    pub begun: u64,
}

/// A flush completed inside UCX, whether or not the application looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct FlushDone {
    /// Time, thread and kind.
    pub head: Head,
    /// Address of the `uct_completion_t`: a constant distance from the request, per build.
    pub completion: u64,
    /// The request as [`Flush::request`] gave it, where the distance of this build is known;
    /// else 0.
    pub request: u64,
    /// `ucs_status_t`: 0 well, negative on error.
    pub status: i32,
    /// 1 where `status` could be read, else 0.
    pub known: u32,
}

/// An endpoint failed: `nixlUcxEp::err_cb(ep, status)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct EpError {
    /// Time, thread and kind.
    pub head: Head,
    /// The `ucp_ep_h`.
    pub ep: u64,
    /// `ucs_status_t`, e.g. -25 connection reset.
    pub status: i32,
    /// Reserved, 0.
    pub reserved: u32,
}

/// A thread ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Exit {
    /// Time, thread and kind.
    pub head: Head,
    /// 1 when it was the last thread of its process, 0 when not, 2 when the kernel does not say.
    pub group_dead: u32,
    /// Reserved, 0.
    pub reserved: u32,
}

/// A batch of Mooncake is submitted, or freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Batch {
    /// Time, thread and kind.
    pub head: Head,
    /// The batch's id: the address of its `BatchDesc`.
    pub batch: u64,
}

/// Any record, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A queue mark other than an append.
    Mark(Kind, Mark),
    /// A room entered the queue.
    Append(Append),
    /// A NIXL handle is posted.
    XferPost(XferPost),
    /// A post returned.
    XferRet(XferRet),
    /// A handle is released.
    XferRelease(XferRet),
    /// A flush was issued.
    Flush(Flush),
    /// A flush completed.
    FlushDone(FlushDone),
    /// An endpoint failed.
    EpError(EpError),
    /// A thread ended.
    Exit(Exit),
    /// A batch of Mooncake is submitted.
    Batch(Batch),
    /// A batch of Mooncake is freed.
    BatchEnd(Batch),
}

/// Why bytes from the ring are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// The bytes are shorter than the structure: `have` bytes where `need` are needed.
    Short {
        /// Bytes given.
        have: usize,
        /// Bytes that the structure takes.
        need: usize,
    },
    /// No record of this kind exists.
    UnknownKind(u32),
}

impl core::fmt::Display for RecordError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Short { have, need } => {
                write!(f, "record of {have} bytes where {need} are needed")
            }
            Self::UnknownKind(kind) => write!(f, "record of unknown kind {kind}"),
        }
    }
}

impl core::error::Error for RecordError {}

fn read<T: FromBytes>(bytes: &[u8]) -> Result<T, RecordError> {
    T::read_from_prefix(bytes)
        .map(|(value, _)| value)
        .map_err(|_size| RecordError::Short { have: bytes.len(), need: size_of::<T>() })
}

impl Record {
    /// Decodes one ring record.
    ///
    /// # Errors
    ///
    /// [`RecordError::Short`] for a truncated record, [`RecordError::UnknownKind`] for one of a
    /// kind that this build does not know.
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        let head: Head = read(bytes)?;
        if let Some((_, kind)) = Kind::MARKS.iter().find(|(_, kind)| *kind as u32 == head.kind) {
            return match kind {
                Kind::Append => read(bytes).map(Self::Append),
                mark => read(bytes).map(|record| Self::Mark(*mark, record)),
            };
        }
        match head.kind {
            kind if kind == Kind::XferPost as u32 => read(bytes).map(Self::XferPost),
            kind if kind == Kind::XferRet as u32 => read(bytes).map(Self::XferRet),
            kind if kind == Kind::XferRelease as u32 => read(bytes).map(Self::XferRelease),
            kind if kind == Kind::Flush as u32 => read(bytes).map(Self::Flush),
            kind if kind == Kind::FlushDone as u32 => read(bytes).map(Self::FlushDone),
            kind if kind == Kind::EpError as u32 => read(bytes).map(Self::EpError),
            kind if kind == Kind::Exit as u32 => read(bytes).map(Self::Exit),
            kind if kind == Kind::Batch as u32 => read(bytes).map(Self::Batch),
            kind if kind == Kind::BatchEnd as u32 => read(bytes).map(Self::BatchEnd),
            kind => Err(RecordError::UnknownKind(kind)),
        }
    }

    /// Time, thread and kind of the record.
    pub const fn head(&self) -> &Head {
        match self {
            Self::Mark(_, record) => &record.head,
            Self::Append(record) => &record.head,
            Self::XferPost(record) => &record.head,
            Self::XferRet(record) | Self::XferRelease(record) => &record.head,
            Self::Flush(record) => &record.head,
            Self::FlushDone(record) => &record.head,
            Self::EpError(record) => &record.head,
            Self::Exit(record) => &record.head,
            Self::Batch(record) | Self::BatchEnd(record) => &record.head,
        }
    }
}

/// The text in a NUL-padded field: what stands before the first NUL.
pub fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
