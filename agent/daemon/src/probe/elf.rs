//! What a shared object exports, where it lies in the file, and which build it is.

use std::{collections::BTreeMap, fs::File, io};

use object::{
    Endianness, Object as _, ObjectSegment as _, ObjectSymbol as _, SymbolKind,
    read::{
        ReadCache, ReadRef as _,
        elf::{ElfFile64, FileHeader as _},
    },
};

/// A file larger than this is not read: the target may map anything under a library's name.
const LARGEST: u64 = 512 << 20;
/// Bytes of a function that are kept: its beginning, and points inside it.
const CODE_BYTES: u64 = 8192;

/// A GNU build-id: the identity of a build, not of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BuildId(Vec<u8>);

impl BuildId {
    /// A build-id from its bytes.
    pub const fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl std::fmt::Display for BuildId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Why a file could not be read as a shared object.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// The file could not be read.
    #[error("reading the library")]
    Io(#[from] io::Error),
    /// The file is larger than any library that is looked for.
    #[error("the library has {0} bytes, more than the {LARGEST} that are read")]
    TooLarge(u64),
    /// The file is no 64-bit ELF object, or a broken one.
    #[error("parsing the library as 64-bit ELF")]
    Malformed(#[from] object::Error),
}

/// A function that an object exports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// Offset in the file, in bytes: what a uprobe wants.
    pub(crate) offset: u64,
    /// Its code, as far as it is looked at.
    pub(crate) code: Vec<u8>,
}

/// An object's exports, as far as a filter let them through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Exports {
    /// `e_machine`.
    pub(crate) machine: u16,
    pub(crate) build_id: Option<BuildId>,
    pub(crate) functions: BTreeMap<String, Function>,
}

/// Reads the functions in `.dynsym` whose names pass the filter.
pub(crate) fn exports(file: File, wanted: &dyn Fn(&str) -> bool) -> Result<Exports, ElfError> {
    let size = file.metadata()?.len();
    if size > LARGEST {
        return Err(ElfError::TooLarge(size));
    }
    let cache = ReadCache::new(file);
    let elf = ElfFile64::<Endianness, _>::parse(&cache)?;
    let mut exports = Exports {
        machine: elf.elf_header().e_machine(elf.endian()).0,
        build_id: elf.build_id()?.map(|id| BuildId::new(id.to_vec())),
        functions: BTreeMap::new(),
    };
    for symbol in elf.dynamic_symbols() {
        let defined = symbol.is_definition() && symbol.kind() == SymbolKind::Text;
        let Some(name) = symbol.name().ok().filter(|name| defined && wanted(name)) else {
            continue;
        };
        let Some(offset) = file_offset(&elf, symbol.address()) else {
            continue;
        };
        let take = symbol.size().min(CODE_BYTES).min(size.saturating_sub(offset));
        let code = (&cache).read_bytes_at(offset, take).unwrap_or_default();
        let code = code.to_vec();
        exports.functions.insert(name.to_owned(), Function { offset, code });
    }
    Ok(exports)
}

/// `st_value - p_vaddr + p_offset` of the LOAD segment that holds the address.
fn file_offset<'data, R>(elf: &ElfFile64<'data, Endianness, R>, address: u64) -> Option<u64>
where
    R: object::ReadRef<'data>,
{
    elf.segments().find_map(|segment| {
        let (offset, size) = segment.file_range();
        let inside = address.checked_sub(segment.address())?;
        (inside < size).then(|| offset.checked_add(inside))?
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn scratch(bytes: &[u8]) -> File {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        File::open(file.path()).unwrap()
    }

    /// The test binary's libc: a real library, whatever the machine.
    fn libc_path() -> std::path::PathBuf {
        let maps = std::fs::read("/proc/self/maps").unwrap();
        crate::probe::maps::executable(&maps)
            .find(|mapping| mapping.file_name().is_some_and(|name| name.starts_with("libc.so")))
            .expect("the test binary maps a libc")
            .path
    }

    #[test]
    fn a_real_library_gives_its_functions_and_their_code() {
        let path = libc_path();
        let exports = exports(File::open(&path).unwrap(), &|name| name == "getpid").unwrap();
        let getpid = exports.functions.get("getpid").expect("libc exports getpid");
        let bytes = std::fs::read(&path).unwrap();
        let start = usize::try_from(getpid.offset).unwrap();
        assert_eq!(getpid.code, bytes[start..start + getpid.code.len()]);
        assert!(exports.build_id.is_some());
        assert_eq!(exports.functions.len(), 1);
    }

    #[test]
    fn neither_text_nor_a_cut_library_is_a_library() {
        assert!(matches!(
            exports(scratch(b"not an object"), &|_| true),
            Err(ElfError::Malformed(_))
        ));
        let whole = std::fs::read(libc_path()).unwrap();
        for len in [0, 4, 63, 64, 200, 4096, whole.len() / 2] {
            if let Ok(exports) = exports(scratch(&whole[..len]), &|name| name == "getpid") {
                assert!(exports.functions.values().all(|f| f.offset > 0), "{len} bytes");
            }
        }
    }
}
