//! Why a worker could not be opened. The numbers are in `inflight.h` and never reused.

use core::ffi::{CStr, c_char, c_int};

/// Why [`crate::inflight_open`] refused. The hook is then off for this worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum OpenError {
    /// The arguments are missing, shorter than their first release, or name an unknown role.
    Args = 1,
    /// This process is a child of fork of one that had the hook: it stays off for good.
    Forked = 2,
    /// The process has [`crate::WORKERS_MAX`] workers already.
    TooMany = 3,
    /// The kernel makes no memfd (older than 3.17, or forbidden by seccomp).
    Memfd = 4,
    /// No memory for the table.
    Memory = 5,
    /// The memfd cannot be sealed.
    Seal = 6,
    /// The table, or the guard page, cannot be mapped.
    Map = 7,
    /// The kernel knows no `MADV_WIPEONFORK` (older than 4.14) or no `MADV_DONTFORK`.
    ForkGuard = 8,
}

impl OpenError {
    /// Every error, in the order of its number.
    pub const ALL: [Self; 8] = [
        Self::Args,
        Self::Forked,
        Self::TooMany,
        Self::Memfd,
        Self::Memory,
        Self::Seal,
        Self::Map,
        Self::ForkGuard,
    ];

    /// The number in `inflight.h`.
    pub const fn code(self) -> c_int {
        self as c_int
    }

    const fn text(self) -> &'static CStr {
        match self {
            Self::Args => c"the arguments are missing, too short, or of an unknown role",
            Self::Forked => c"this process is a fork of one that had the hook: it stays off",
            Self::TooMany => c"this process has 16 workers already",
            Self::Memfd => {
                c"the kernel makes no memfd (needs Linux 3.17 and no seccomp against it)"
            }
            Self::Memory => c"no memory for the table: it takes 8.1 MiB of shared memory",
            Self::Seal => c"the table's memfd cannot be sealed",
            Self::Map => c"the table cannot be mapped",
            Self::ForkGuard => c"the kernel has no MADV_WIPEONFORK (needs Linux 4.14)",
        }
    }
}

/// What an error code of `inflight_open` means: a text that is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn inflight_errstr(code: c_int) -> *const c_char {
    if code == 0 {
        return c"no error".as_ptr();
    }
    OpenError::ALL
        .into_iter()
        .find(|error| error.code() == code)
        .map_or(c"an error that this release does not know", OpenError::text)
        .as_ptr()
}
