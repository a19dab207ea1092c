//! System calls by hand: a library without `DT_NEEDED` has no libc to ask.

use core::arch::asm;

#[cfg(target_arch = "x86_64")]
mod number {
    pub(super) const CLOSE: usize = 3;
    pub(super) const MMAP: usize = 9;
    pub(super) const MUNMAP: usize = 11;
    pub(super) const MADVISE: usize = 28;
    pub(super) const GETPID: usize = 39;
    pub(super) const FCNTL: usize = 72;
    pub(super) const FTRUNCATE: usize = 77;
    pub(super) const GETTID: usize = 186;
    pub(super) const TGKILL: usize = 234;
    pub(super) const FALLOCATE: usize = 285;
    pub(super) const MEMFD_CREATE: usize = 319;
}

#[cfg(target_arch = "aarch64")]
mod number {
    pub(super) const FCNTL: usize = 25;
    pub(super) const FTRUNCATE: usize = 46;
    pub(super) const FALLOCATE: usize = 47;
    pub(super) const CLOSE: usize = 57;
    pub(super) const TGKILL: usize = 131;
    pub(super) const GETPID: usize = 172;
    pub(super) const GETTID: usize = 178;
    pub(super) const MUNMAP: usize = 215;
    pub(super) const MMAP: usize = 222;
    pub(super) const MADVISE: usize = 233;
    pub(super) const MEMFD_CREATE: usize = 279;
}

const PROT_READ_WRITE: usize = 3;
const MAP_SHARED: usize = 1;
const MAP_PRIVATE_ANONYMOUS: usize = 0x22;
const MADV_DONTFORK: usize = 10;
const MADV_WIPEONFORK: usize = 18;
const MFD_CLOEXEC: usize = 1;
const MFD_ALLOW_SEALING: usize = 2;
const MFD_NOEXEC_SEAL: usize = 8;
const F_ADD_SEALS: usize = 1033;
const F_SEAL_SEAL_SHRINK_GROW: usize = 1 | 2 | 4;
const CLOCK_MONOTONIC: i32 = 1;
const EINVAL: i32 = 22;
const ESRCH: i32 = 3;

/// An error number of the kernel, positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

/// # Safety
///
/// As the system call of that number requires.
#[cfg(target_arch = "x86_64")]
unsafe fn raw(number: usize, args: [usize; 6]) -> isize {
    let [first, second, third, fourth, fifth, sixth] = args;
    let result: isize;
    // SAFETY: the kernel's calling convention; it changes rcx, r11 and what the caller vouches for.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number.cast_signed() => result,
            in("rdi") first, in("rsi") second, in("rdx") third,
            in("r10") fourth, in("r8") fifth, in("r9") sixth,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// # Safety
///
/// As the system call of that number requires.
#[cfg(target_arch = "aarch64")]
unsafe fn raw(number: usize, args: [usize; 6]) -> isize {
    let [first, second, third, fourth, fifth, sixth] = args;
    let result: isize;
    // SAFETY: the kernel's calling convention; it changes x0 and what the caller vouches for.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") first => result,
            in("x1") second, in("x2") third, in("x3") fourth, in("x4") fifth, in("x5") sixth,
            options(nostack),
        );
    }
    result
}

/// # Safety
///
/// As the system call of that number requires.
unsafe fn call(number: usize, args: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: vouched for by the caller.
    let result = unsafe { raw(number, args) };
    #[expect(clippy::cast_possible_truncation, reason = "the kernel returns errors as -4095 to -1")]
    usize::try_from(result).map_err(|_negative| Errno(-result as i32))
}

/// A memfd that can be sealed, closed on exec and never executable where the kernel knows that.
pub(crate) fn memfd(name: &core::ffi::CStr) -> Result<usize, Errno> {
    let create = |flags: usize| {
        // SAFETY: the name ends with a NUL, and the kernel only reads it.
        unsafe { call(number::MEMFD_CREATE, [name.as_ptr() as usize, flags, 0, 0, 0, 0]) }
    };
    let flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    // Kernels before 6.3 do not know NOEXEC_SEAL; later ones can be told to insist on it.
    match create(flags | MFD_NOEXEC_SEAL) {
        Err(Errno(EINVAL)) => create(flags),
        made => made,
    }
}

/// Gives the file its length, with every page allocated: no SIGBUS later when memory is short.
pub(crate) fn allocate(fd: usize, bytes: usize) -> Result<(), Errno> {
    // SAFETY: touches no memory of this process.
    unsafe {
        call(number::FTRUNCATE, [fd, bytes, 0, 0, 0, 0])?;
        call(number::FALLOCATE, [fd, 0, 0, bytes, 0, 0])?;
    }
    Ok(())
}

/// Seals the file's length, and the seals.
pub(crate) fn seal(fd: usize) -> Result<(), Errno> {
    let args = [fd, F_ADD_SEALS, F_SEAL_SEAL_SHRINK_GROW, 0, 0, 0];
    // SAFETY: touches no memory of this process.
    unsafe { call(number::FCNTL, args) }.map(|_zero| ())
}

/// Closes a file descriptor. What close says about a memfd is of no use to anybody.
pub(crate) fn close(fd: usize) {
    // SAFETY: the caller owns the descriptor; no memory is touched.
    unsafe { raw(number::CLOSE, [fd, 0, 0, 0, 0, 0]) };
}

fn map(flags: usize, fd: usize, bytes: usize) -> Result<usize, Errno> {
    // SAFETY: a new mapping at an address that the kernel chooses.
    unsafe { call(number::MMAP, [0, bytes, PROT_READ_WRITE, flags, fd, 0]) }
}

/// Maps the whole file, shared, readable and writable.
pub(crate) fn map_shared(fd: usize, bytes: usize) -> Result<usize, Errno> {
    map(MAP_SHARED, fd, bytes)
}

/// Maps zeroed private memory.
pub(crate) fn map_private(bytes: usize) -> Result<usize, Errno> {
    map(MAP_PRIVATE_ANONYMOUS, usize::MAX, bytes)
}

/// Unmaps memory.
///
/// # Safety
///
/// Nobody may use the memory any more.
pub(crate) unsafe fn unmap(address: usize, bytes: usize) {
    // SAFETY: vouched for by the caller.
    unsafe { raw(number::MUNMAP, [address, bytes, 0, 0, 0, 0]) };
}

/// A child of fork does not get this memory at all.
pub(crate) fn keep_from_children(address: usize, bytes: usize) -> Result<(), Errno> {
    // SAFETY: the contents are left alone.
    unsafe { call(number::MADVISE, [address, bytes, MADV_DONTFORK, 0, 0, 0]) }.map(|_zero| ())
}

/// A child of fork finds this memory zeroed.
pub(crate) fn wipe_in_children(address: usize, bytes: usize) -> Result<(), Errno> {
    // SAFETY: the contents are left alone.
    unsafe { call(number::MADVISE, [address, bytes, MADV_WIPEONFORK, 0, 0, 0]) }.map(|_zero| ())
}

fn id(number: usize) -> u32 {
    // SAFETY: getpid and getttid touch nothing and cannot fail.
    let id = unsafe { raw(number, [0; 6]) };
    u32::try_from(id).unwrap_or(0)
}

/// This process, as its own pid namespace numbers it.
pub(crate) fn process_id() -> u32 {
    id(number::GETPID)
}

/// This thread, as its own pid namespace numbers it.
pub(crate) fn thread_id() -> u32 {
    id(number::GETTID)
}

/// Whether a thread of this process exists. What cannot be asked counts as alive.
pub(crate) fn thread_alive(tid: u32) -> bool {
    let args = [process_id() as usize, tid as usize, 0, 0, 0, 0];
    // SAFETY: signal 0 is only a question.
    let answer = unsafe { call(number::TGKILL, args) };
    answer != Err(Errno(ESRCH))
}

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

unsafe extern "C" {
    // Not a system call by hand: the libc of the host program answers without entering the kernel.
    fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;
}

/// `CLOCK_MONOTONIC`, in nanoseconds.
pub(crate) fn now() -> u64 {
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: the structure is that of every 64-bit Linux, and outlives the call.
    unsafe { clock_gettime(CLOCK_MONOTONIC, &raw mut time) };
    u64::try_from(time.seconds * 1_000_000_000 + time.nanoseconds).unwrap_or(0)
}

/// Ends the process by an illegal instruction.
#[cfg(panic = "abort")]
pub(crate) fn trap() -> ! {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: does not return.
    unsafe {
        asm!("ud2", options(noreturn, nostack))
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: does not return.
    unsafe {
        asm!("brk 1", options(noreturn, nostack))
    }
}
