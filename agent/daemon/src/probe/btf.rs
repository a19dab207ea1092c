//! Offsets of fields in the kernel's structures, from the type information that it gives of itself.
//!
//! Read by hand: aya keeps what it reads of BTF to itself, and the crate that reads split BTF is
//! under the LGPL, which a statically linked agent under another licence had better not carry.
//! Source of the format: the kernel's `Documentation/bpf/btf.rst`.

use std::path::Path;

/// What a file of type information begins with.
const MAGIC: u16 = 0xeb9f;
/// Deepest nesting of structures without a name, and longest chain of names for a type.
const DEPTH_MAX: u32 = 16;

/// Why an offset is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BtfError {
    /// The file cannot be read.
    #[error("{path}: {why}")]
    Unread {
        /// Which.
        path: String,
        /// What the system said.
        why: String,
    },
    /// It is no type information, or is cut.
    #[error("not the kernel's type information (BTF): {0}")]
    Form(&'static str),
    /// No such structure.
    #[error("the kernel has no structure {0}")]
    NoStruct(String),
    /// No such field in it.
    #[error("the kernel's structure {of} has no field {field}")]
    NoField {
        /// The structure.
        of: String,
        /// The field.
        field: String,
    },
}

impl BtfError {
    /// The same, with the file that it is about.
    fn of(self, path: &Path) -> Self {
        match self {
            Self::Form(_) => {
                Self::Unread { path: path.display().to_string(), why: self.to_string() }
            }
            other => other,
        }
    }
}

/// How many types the kernel tells of itself, and that those of its tasks are understood.
pub fn kernel_types() -> Result<usize, String> {
    let kernel = Btf::of_kernel().map_err(|error| error.to_string())?;
    kernel.offset("task_struct", &["tgid"]).map_err(|error| error.to_string())?;
    Ok(kernel.types.len())
}

/// Kinds of types that are told apart here (`BTF_KIND_…`).
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const TYPE_TAG: u32 = 18;

/// The types of the kernel, or of a module over those of the kernel.
#[derive(Debug)]
pub(super) struct Btf<'a> {
    base: Option<&'a Self>,
    types: Vec<usize>,
    bytes: Vec<u8>,
    strings: std::ops::Range<usize>,
}

#[derive(Clone, Copy)]
struct Type<'a> {
    of: &'a Btf<'a>,
    at: usize,
}

impl<'a> Btf<'a> {
    /// Those of the kernel itself.
    pub(super) fn of_kernel() -> Result<Self, BtfError> {
        Self::read(Path::new("/sys/kernel/btf/vmlinux"), None)
    }

    /// Those of a module, over the kernel's.
    pub(super) fn of_module(name: &str, base: &'a Self) -> Result<Self, BtfError> {
        Self::read(&Path::new("/sys/kernel/btf").join(name), Some(base))
    }

    fn read(path: &Path, base: Option<&'a Self>) -> Result<Self, BtfError> {
        let bytes = std::fs::read(path).map_err(|error| BtfError::Unread {
            path: path.display().to_string(),
            why: error.to_string(),
        })?;
        Self::parse(bytes, base).map_err(|error| error.of(path))
    }

    fn parse(bytes: Vec<u8>, base: Option<&'a Self>) -> Result<Self, BtfError> {
        let word = |at| word(&bytes, at).ok_or(BtfError::Form("its header is cut"));
        let magic = word(0)? & 0xffff;
        if magic != u32::from(MAGIC) {
            return Err(BtfError::Form("it begins otherwise"));
        }
        let header = size(word(4)?);
        let section = |offset, length| -> Result<_, BtfError> {
            let from = header + size(word(offset)?);
            let section = from..from + size(word(length)?);
            let whole = section.end <= bytes.len();
            whole.then_some(section).ok_or(BtfError::Form("a section ends behind it"))
        };
        let (types, strings) = (section(8, 12)?, section(16, 20)?);
        let types = index(&bytes, types)?;
        Ok(Self { base, types, bytes, strings })
    }

    /// Bytes from the beginning of a structure to a field, which may be a field of a field.
    pub(super) fn offset(&self, of: &str, path: &[&str]) -> Result<u32, BtfError> {
        let mut at = self.structure(of).ok_or_else(|| BtfError::NoStruct(of.to_owned()))?;
        let mut sum = 0;
        for (depth, field) in path.iter().enumerate() {
            let no_field = || BtfError::NoField { of: of.to_owned(), field: path.join(".") };
            let (bits, id) = self.member(at, field, 0).ok_or_else(no_field)?;
            sum += bits / 8;
            if depth + 1 < path.len() {
                at = self.resolved(id).ok_or_else(no_field)?;
            }
        }
        Ok(sum)
    }

    fn count(&self) -> usize {
        self.base.map_or(1, Self::count) + self.types.len()
    }

    /// A type by its number; 0 is void.
    fn by_id(&'a self, id: u32) -> Option<Type<'a>> {
        let first = self.base.map_or(1, Self::count);
        match size(id).checked_sub(first) {
            Some(own) => Some(Type { of: self, at: *self.types.get(own)? }),
            None => self.base?.by_id(id),
        }
    }

    fn structure(&'a self, name: &str) -> Option<Type<'a>> {
        let own = self.types.iter().map(|at| Type { of: self, at: *at });
        let mut own = own.filter(|found| found.kind() == STRUCT);
        let found = own.find(|found| self.text(found.name()) == Some(name.as_bytes()));
        found.or_else(|| self.base?.structure(name))
    }

    /// The structure that a type is by whatever names.
    fn resolved(&'a self, mut id: u32) -> Option<Type<'a>> {
        for _ in 0..DEPTH_MAX {
            let found = self.by_id(id)?;
            match found.kind() {
                STRUCT | UNION => return Some(found),
                TYPEDEF | VOLATILE | CONST | TYPE_TAG => id = found.word(8)?,
                _ => return None,
            }
        }
        None
    }

    /// Where a field lies, in bits, and its type; also one of a nameless structure inside.
    fn member(&'a self, of: Type<'a>, field: &str, depth: u32) -> Option<(u32, u32)> {
        for number in 0..of.members() {
            let at = 12 + number * 12;
            let (name, id, offset) = (of.word(at)?, of.word(at + 4)?, of.word(at + 8)?);
            // With bit fields the upper byte is their size.
            let bits = if of.has_bit_fields() { offset & 0x00ff_ffff } else { offset };
            if name == 0 && depth < DEPTH_MAX {
                let inside = self.resolved(id).and_then(|of| self.member(of, field, depth + 1));
                if let Some((inner, id)) = inside {
                    return Some((bits + inner, id));
                }
            } else if self.text(name) == Some(field.as_bytes()) {
                return Some((bits, id));
            }
        }
        None
    }

    /// The text at a place in the strings; those of a module begin where the kernel's end.
    fn text(&self, at: u32) -> Option<&[u8]> {
        let first = self.base.map_or(0, |base| base.strings.len());
        let Some(own) = size(at).checked_sub(first) else {
            return self.base?.text(at);
        };
        let text = self.bytes.get(self.strings.clone())?.get(own..)?;
        text.split(|byte| *byte == 0).next()
    }
}

impl Type<'_> {
    fn word(&self, offset: usize) -> Option<u32> {
        word(&self.of.bytes, self.at + offset)
    }

    fn info(&self) -> u32 {
        self.word(4).unwrap_or(0)
    }

    fn name(&self) -> u32 {
        self.word(0).unwrap_or(0)
    }

    fn kind(&self) -> u32 {
        kind(self.info())
    }

    fn members(&self) -> usize {
        size(self.info() & 0xffff)
    }

    fn has_bit_fields(&self) -> bool {
        self.info() >> 31 == 1
    }
}

const fn kind(info: u32) -> u32 {
    info >> 24 & 0x1f
}

/// Where each type begins, in the order of their numbers.
fn index(bytes: &[u8], section: std::ops::Range<usize>) -> Result<Vec<usize>, BtfError> {
    let (mut at, mut types) = (section.start, Vec::new());
    while at < section.end {
        let info = word(bytes, at + 4).ok_or(BtfError::Form("a type is cut"))?;
        types.push(at);
        let of_each = size(info & 0xffff);
        let behind = match kind(info) {
            // An integer, a variable, a tag on a declaration.
            1 | 14 | 17 => 4,
            // An array.
            3 => 12,
            // Structures, sections and enumerations of 64 bits.
            STRUCT | UNION | 15 | 19 => 12 * of_each,
            // Enumerations and parameters.
            6 | 13 => 8 * of_each,
            2 | 7..=12 | 16 | TYPE_TAG => 0,
            _ => return Err(BtfError::Form("it has a kind of types that is not known")),
        };
        at += 12 + behind;
    }
    Ok(types)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    word.try_into().ok().map(u32::from_ne_bytes)
}

const fn size(word: u32) -> usize {
    word as usize
}

#[cfg(test)]
#[path = "btf_tests.rs"]
mod tests;
