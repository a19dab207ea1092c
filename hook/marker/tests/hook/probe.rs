//! Uprobes that only count, through `perf_event_open`: no BPF needed.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use object::read::elf::ElfFile64;
use object::{Object, ObjectSection, ObjectSymbol};

/// Length of `struct perf_event_attr` since Linux 4.1.
const ATTR_BYTES: usize = 112;

/// A uprobe on one function, for one process.
pub(crate) struct Probe {
    counter: File,
}

impl Probe {
    /// Puts a probe on `symbol` of the library at `path`, in the process `pid`.
    pub(crate) fn attach(path: &Path, symbol: &str, pid: u32) -> Self {
        let kind = fs::read_to_string("/sys/bus/event_source/devices/uprobe/type")
            .expect("the kernel has uprobes");
        let name = CString::new(path.as_os_str().as_bytes()).expect("no NUL");
        let mut attr = [0_u8; ATTR_BYTES];
        let mut set = |at: usize, bytes: &[u8]| attr[at..at + bytes.len()].copy_from_slice(bytes);
        set(0, &kind.trim().parse::<u32>().expect("a number").to_ne_bytes());
        set(4, &u32::try_from(ATTR_BYTES).expect("small").to_ne_bytes());
        set(56, &(name.as_ptr() as u64).to_ne_bytes());
        set(64, &file_offset(path, symbol).to_ne_bytes());
        // SAFETY: the attribute is of the length that it states, and the path outlives the call.
        let fd = unsafe {
            libc::syscall(libc::SYS_perf_event_open, attr.as_ptr(), pid, -1_i32, -1_i32, 0_u64)
        };
        let why = std::io::Error::last_os_error();
        assert!(fd >= 0, "probing {symbol} (are we root?): {why}");
        // SAFETY: just opened, and nobody else has it.
        let counter = unsafe { File::from_raw_fd(i32::try_from(fd).expect("a descriptor")) };
        Self { counter }
    }

    /// How often the process has been through the probe.
    pub(crate) fn hits(&self) -> u64 {
        let mut count = [0; 8];
        (&self.counter).read_exact(&mut count).expect("a count");
        u64::from_ne_bytes(count)
    }
}

fn file_offset(path: &Path, name: &str) -> u64 {
    let bytes = fs::read(path).expect("readable");
    let file = ElfFile64::<object::Endianness>::parse(&*bytes).expect("an ELF file");
    let symbol = file.dynamic_symbols().find(|symbol| symbol.name() == Ok(name));
    let symbol = symbol.unwrap_or_else(|| panic!("no {name} in {}", path.display()));
    let section = symbol.section_index().expect("it is defined");
    let section = file.section_by_index(section).expect("it exists");
    let (start, _len) = section.file_range().expect("it is in the file");
    start + symbol.address() - section.address()
}
