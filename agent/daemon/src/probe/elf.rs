//! What a shared object or executable defines, where it lies in the file, and which build it is.
//!
//! A process maps hundreds of files, some of a gigabyte, and any of them may hold the functions
//! that are looked for. So the names are searched for as text in the string table, piece by piece,
//! and symbols are looked at only where there was a hit: memory stays small, and so does the time.

use std::{collections::BTreeMap, fs::File, io, os::unix::fs::FileExt as _};

use memchr::memmem;
use object::{
    Endianness, SectionIndex,
    elf::{
        ELF_NOTE_GNU, ET_EXEC, FileHeader64, NT_GNU_BUILD_ID, PT_INTERP, PT_LOAD, PT_NOTE,
        ProgramHeader64, SHT_DYNSYM, SHT_STRTAB, SHT_SYMTAB, STT_FUNC, SectionHeader64,
    },
    read::{
        ReadCache,
        elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _, SectionTable},
    },
};

/// Largest string table that is searched: the target may map anything.
const STRINGS_BYTES: u64 = 128 << 20;
/// Largest symbol table that is gone through: 4 million symbols.
const SYMBOLS_BYTES: u64 = (SYMBOL as u64) << 22;
/// Largest part that may hold the build-id.
const NOTES_BYTES: u64 = 64 << 10;
/// Bytes read at once.
const PIECE: usize = 256 << 10;
/// Size of a symbol.
const SYMBOL: usize = 24;
/// Most names that are looked at; the victims are the later ones.
const NAMES_MAX: usize = 4096;
/// Longest name that is looked at, in bytes.
const NAME_BYTES: usize = 1024;
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
    /// A symbol or string table is larger than any that is looked for.
    #[error("a symbol table of the library has {0} bytes, more than are read")]
    TooLarge(u64),
    /// The file is no 64-bit ELF object, or a broken one.
    #[error("parsing the library as 64-bit ELF")]
    Malformed(#[from] object::Error),
}

/// A function that an object defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// Offset in the file, in bytes: what a uprobe wants.
    pub(crate) offset: u64,
    /// Its code, as far as it is looked at.
    pub(crate) code: Vec<u8>,
}

/// An object's functions, as far as a search let them through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Exports {
    /// `e_machine`.
    pub(crate) machine: u16,
    pub(crate) build_id: Option<BuildId>,
    pub(crate) functions: BTreeMap<String, Function>,
    /// Bytes of tables that were read.
    pub(crate) bytes: u64,
}

/// Which symbols are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Depth {
    /// Those that an object exports: `.dynsym`.
    Exported,
    /// All that it has kept: `.symtab` too. A program that was linked statically shows its
    /// functions there alone.
    All,
}

/// What is looked for: names that begin with one of `begin`, and that `wanted` lets through.
pub(crate) struct Search<'a> {
    pub(crate) begin: &'a [&'a str],
    pub(crate) wanted: &'a dyn Fn(&str) -> bool,
    pub(crate) depth: Depth,
}

/// Finds the functions that a search asks for.
pub(crate) fn exports(file: &File, search: &Search<'_>) -> Result<Exports, ElfError> {
    let cache = ReadCache::new(file.try_clone()?);
    let header = FileHeader64::<Endianness>::parse(&cache)?;
    let endian = header.endian()?;
    let segments = header.program_headers(endian, &cache)?;
    let mut exports = Exports {
        machine: header.e_machine(endian).0,
        build_id: build_id(segments, endian, &cache),
        ..Exports::default()
    };
    // More sections than fit the field are counted elsewhere, by a number that may be anything.
    if header.e_shnum.get(endian) == 0 {
        return Ok(exports);
    }
    let image = Image { file, size: file.metadata()?.len(), endian, segments };
    let sections = header.sections(endian, &cache)?;
    let is_program = header.e_type(endian) == ET_EXEC
        || segments.iter().any(|segment| segment.p_type(endian) == PT_INTERP);
    for section in sections.iter() {
        let kind = section.sh_type(endian);
        let deep = search.depth == Depth::All || is_program;
        if kind == SHT_DYNSYM || kind == SHT_SYMTAB && deep {
            image.search(section, &sections, search, &mut exports)?;
        }
    }
    Ok(exports)
}

type Sections<'a> = SectionTable<'a, FileHeader64<Endianness>, &'a ReadCache<File>>;

struct Image<'a> {
    file: &'a File,
    size: u64,
    endian: Endianness,
    segments: &'a [ProgramHeader64<Endianness>],
}

impl Image<'_> {
    /// Searches one symbol table.
    fn search(
        &self,
        table: &SectionHeader64<Endianness>,
        sections: &Sections<'_>,
        search: &Search<'_>,
        exports: &mut Exports,
    ) -> Result<(), ElfError> {
        let link = usize::try_from(table.sh_link(self.endian)).unwrap_or(usize::MAX);
        let strings = sections.section(SectionIndex(link))?;
        let strings = if strings.sh_type(self.endian) == SHT_STRTAB {
            within(self.endian, strings, STRINGS_BYTES)?
        } else {
            return Ok(());
        };
        let symbols = within(self.endian, table, SYMBOLS_BYTES)?;
        exports.bytes += strings.1;
        let names = self.names(strings, search)?;
        if names.is_empty() {
            return Ok(());
        }
        exports.bytes += symbols.1;
        self.pieces(symbols, 0, &mut |_, piece| {
            for symbol in piece.chunks_exact(SYMBOL) {
                if let Some((name, function)) = self.function(symbol, &names) {
                    exports.functions.entry(name).or_insert(function);
                }
            }
        })
    }

    /// The wanted names by their places in the string table.
    fn names(
        &self,
        strings: (u64, u64),
        search: &Search<'_>,
    ) -> Result<BTreeMap<u64, String>, ElfError> {
        let longest = search.begin.iter().map(|begin| begin.len()).max().unwrap_or(1);
        let mut places = Vec::new();
        self.pieces(strings, longest.saturating_sub(1), &mut |at, piece| {
            for begin in search.begin {
                let left = NAMES_MAX.saturating_sub(places.len());
                let hits = memmem::find_iter(piece, begin.as_bytes()).take(left);
                places.extend(hits.map(|hit| at + hit as u64));
            }
        })?;
        let mut names = BTreeMap::new();
        for place in places {
            let mut text = [0; NAME_BYTES];
            let left = strings.1.saturating_sub(place).min(NAME_BYTES as u64);
            let text = text.get_mut(..usize::try_from(left).unwrap_or(0)).unwrap_or_default();
            self.file.read_exact_at(text, strings.0.saturating_add(place))?;
            let name = text.split(|byte| *byte == 0).next().unwrap_or_default();
            // `.symtab` may append a version.
            let name = name.split(|byte| *byte == b'@').next().unwrap_or_default();
            if let Ok(name) = std::str::from_utf8(name)
                && (search.wanted)(name)
            {
                names.insert(place, name.to_owned());
            }
        }
        Ok(names)
    }

    /// Hands a range of the file over in pieces, each with its distance from the range's start.
    /// Each piece begins `overlap` bytes before the end of the last.
    fn pieces(
        &self,
        (offset, size): (u64, u64),
        overlap: usize,
        each: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<(), ElfError> {
        // A whole number of symbols.
        let mut buffer = vec![0; PIECE - PIECE % SYMBOL];
        let mut at = 0;
        while at < size {
            let take = usize::try_from(size - at).unwrap_or(usize::MAX).min(buffer.len());
            let piece = buffer.get_mut(..take).unwrap_or_default();
            self.file.read_exact_at(piece, offset.saturating_add(at))?;
            each(at, piece);
            if at + take as u64 == size {
                break;
            }
            at += (take - overlap) as u64;
        }
        Ok(())
    }

    /// A symbol (`Elf64_Sym`) that is a function defined here and has one of the names.
    fn function(&self, symbol: &[u8], names: &BTreeMap<u64, String>) -> Option<(String, Function)> {
        let name = names.get(&u64::from(u32::from_le_bytes(field(symbol, 0)?)))?;
        let [info, _other, section @ ..]: [u8; 4] = field(symbol, 4)?;
        if info & 0xf != STT_FUNC.0 || u16::from_le_bytes(section) == 0 {
            return None;
        }
        let offset = self.file_offset(u64::from_le_bytes(field(symbol, 8)?))?;
        let size = u64::from_le_bytes(field(symbol, 16)?);
        let take = size.min(CODE_BYTES).min(self.size.saturating_sub(offset));
        let mut code = vec![0; usize::try_from(take).ok()?];
        self.file.read_exact_at(&mut code, offset).ok()?;
        Some((name.clone(), Function { offset, code }))
    }

    /// `st_value - p_vaddr + p_offset` of the LOAD segment that holds the address.
    fn file_offset(&self, address: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let is_load = segment.p_type(self.endian) == PT_LOAD;
            let (offset, size) = segment.file_range(self.endian);
            let inside = address.checked_sub(segment.p_vaddr(self.endian))?;
            (is_load && inside < size).then(|| offset.checked_add(inside))?
        })
    }
}

fn field<const N: usize>(symbol: &[u8], at: usize) -> Option<[u8; N]> {
    symbol.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Offset and size of a section that is not larger than `most`.
fn within(
    endian: Endianness,
    section: &SectionHeader64<Endianness>,
    most: u64,
) -> Result<(u64, u64), ElfError> {
    let size = section.sh_size(endian);
    if size > most {
        return Err(ElfError::TooLarge(size));
    }
    Ok((section.sh_offset(endian), size))
}

fn build_id(
    segments: &[ProgramHeader64<Endianness>],
    endian: Endianness,
    cache: &ReadCache<File>,
) -> Option<BuildId> {
    for segment in segments {
        let is_small = segment.p_filesz(endian) <= NOTES_BYTES;
        if segment.p_type(endian) != PT_NOTE || !is_small {
            continue;
        }
        let mut notes = segment.notes(endian, cache).ok()??;
        while let Ok(Some(note)) = notes.next() {
            if note.name() == ELF_NOTE_GNU && note.n_type(endian) == NT_GNU_BUILD_ID {
                return Some(BuildId::new(note.desc().to_vec()));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::proc::Maps;

    fn scratch(bytes: &[u8]) -> File {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        File::open(file.path()).unwrap()
    }

    /// The test binary's libc: a real library, whatever the machine.
    fn libc_path() -> std::path::PathBuf {
        Maps::of(std::process::id(), (0, 0))
            .unwrap()
            .objects
            .into_iter()
            .find(|mapping| mapping.file_name().is_some_and(|name| name.starts_with("libc.so")))
            .expect("the test binary maps a libc")
            .path
    }

    fn find(file: &File, begin: &str, wanted: &dyn Fn(&str) -> bool) -> Result<Exports, ElfError> {
        exports(file, &Search { begin: &[begin], wanted, depth: Depth::Exported })
    }

    #[test]
    fn a_real_library_gives_its_functions_and_their_code() {
        let path = libc_path();
        let file = File::open(&path).unwrap();
        let exports = find(&file, "getpi", &|name| name == "getpid").unwrap();
        let getpid = exports.functions.get("getpid").expect("libc exports getpid");
        let bytes = std::fs::read(&path).unwrap();
        let start = usize::try_from(getpid.offset).unwrap();
        assert!(!getpid.code.is_empty());
        assert_eq!(getpid.code, bytes[start..start + getpid.code.len()]);
        assert!(exports.build_id.is_some() && exports.bytes > 1000);
        assert_eq!(exports.functions.len(), 1);
        let none = find(&file, "inflight_mark_", &|_| true).unwrap();
        assert!(none.functions.is_empty());
    }

    #[test]
    fn the_tables_are_read_as_another_reader_reads_them() {
        use object::{Object as _, ObjectSymbol};
        let bytes = std::fs::read(libc_path()).unwrap();
        let whole = object::read::elf::ElfFile64::<Endianness>::parse(&*bytes).unwrap();
        let begins = |name: &str| name.starts_with("str");
        let theirs: std::collections::BTreeSet<&str> = whole
            .dynamic_symbols()
            .filter(ObjectSymbol::is_definition)
            .filter(|symbol| symbol.kind() == object::SymbolKind::Text)
            .filter_map(|symbol| symbol.name().ok())
            .filter(|name| begins(name))
            .collect();
        let ours = find(&File::open(libc_path()).unwrap(), "str", &begins).unwrap();
        for name in ours.functions.keys() {
            assert!(theirs.contains(name.as_str()), "{name}");
        }
        // Indirect functions (`strlen`, …) are no functions to probe; the others are all there.
        assert!(ours.functions.contains_key("strsignal"), "{:?}", ours.functions.keys());
        assert_eq!(ours.build_id.map(|id| id.0), whole.build_id().unwrap().map(<[u8]>::to_vec));
    }

    #[test]
    fn a_program_without_exports_shows_its_own_functions() {
        let own = File::open("/proc/self/exe").unwrap();
        // Not all that begins with `_ZN`: a test program has more names than are looked at.
        let found = find(&own, "_ZN9inflightd5probe3elf5tests", &|_| true).unwrap();
        assert!(!found.functions.is_empty(), "this program has kept its symbols");
    }

    #[test]
    fn neither_text_nor_a_cut_library_is_a_library() {
        let any = |file: &File| find(file, "getpid", &|_| true);
        assert!(matches!(any(&scratch(b"not an object")), Err(ElfError::Malformed(_))));
        let whole = std::fs::read(libc_path()).unwrap();
        for len in [0, 4, 63, 64, 200, 4096, whole.len() / 2] {
            if let Ok(exports) = any(&scratch(&whole[..len])) {
                assert!(exports.functions.values().all(|f| f.offset > 0), "{len} bytes");
            }
        }
    }
}
