//! What the library is made of: read from the file, as the dynamic loader and the agent do.

use std::collections::BTreeSet;
use std::fs;

use inflightd_abi::record::Kind;
use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn, ElfFile64, FileHeader};
use object::{Object, ObjectSection, ObjectSymbol};

use crate::setup::library;

const CALLS: [&str; 17] = [
    "inflight_append",
    "inflight_asked",
    "inflight_beat",
    "inflight_carry_out",
    "inflight_close",
    "inflight_command",
    "inflight_done",
    "inflight_errstr",
    "inflight_gauge",
    "inflight_open",
    "inflight_phase",
    "inflight_polled",
    "inflight_post",
    "inflight_remove",
    "inflight_serve",
    "inflight_serve_early",
    "inflight_serve_end",
];

#[test]
fn it_needs_no_other_library() {
    let bytes = fs::read(library()).expect("built");
    let header = FileHeader64::<object::Endianness>::parse(&*bytes).expect("an ELF file");
    let endian = header.endian().expect("an endianness");
    let segments = header.program_headers(endian, &*bytes).expect("segments");
    let entries = segments
        .iter()
        .find_map(|segment| {
            use object::read::elf::ProgramHeader;
            segment.dynamic(endian, &*bytes).expect("readable")
        })
        .expect("a dynamic section");
    let tags: BTreeSet<_> = entries.iter().map(|entry| entry.d_tag(endian)).collect();
    assert!(tags.contains(&elf::DT_SONAME), "the tags were read: {tags:?}");
    for absent in [elf::DT_NEEDED, elf::DT_VERNEED, elf::DT_TEXTREL, elf::DT_RUNPATH] {
        assert!(!tags.contains(&absent), "{absent:#x} in {tags:?}");
    }
}

#[test]
fn it_asks_only_for_what_every_libc_has() {
    let bytes = fs::read(library()).expect("built");
    let file = ElfFile64::<object::Endianness>::parse(&*bytes).expect("an ELF file");
    let wanted: BTreeSet<_> = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_undefined() && !symbol.is_weak())
        .map(|symbol| symbol.name().expect("a name"))
        .filter(|name| !name.is_empty())
        .collect();
    let allowed = BTreeSet::from(["clock_gettime", "memcpy", "memset", "memmove", "bcmp"]);
    assert!(wanted.contains("clock_gettime"), "{wanted:?}");
    assert!(wanted.is_subset(&allowed), "{wanted:?}");
}

#[test]
fn it_exports_the_calls_and_the_markers_and_nothing_else() {
    let bytes = fs::read(library()).expect("built");
    let file = ElfFile64::<object::Endianness>::parse(&*bytes).expect("an ELF file");
    let exported: BTreeSet<_> = file
        .dynamic_symbols()
        .filter(ObjectSymbol::is_definition)
        .map(|symbol| symbol.name().expect("a name"))
        .collect();
    let promised: BTreeSet<_> =
        CALLS.into_iter().chain(Kind::MARKS.map(|(symbol, _kind)| symbol)).collect();
    assert_eq!(exported, promised);
}

#[test]
fn its_header_declares_every_call() {
    let header = include_str!("../../include/inflight.h");
    for call in CALLS {
        assert!(header.contains(&format!("{call}(")), "{call}");
    }
}

/// The kernel emulates a one-byte push (x86-64) and a nop (aarch64); anything else would be
/// single-stepped, or turned into a call that a forked child cannot survive.
#[test]
fn every_marker_begins_with_an_instruction_that_the_kernel_emulates() {
    let bytes = fs::read(library()).expect("built");
    let file = ElfFile64::<object::Endianness>::parse(&*bytes).expect("an ELF file");
    let body: &[u8] = match file.architecture() {
        object::Architecture::X86_64 => &[0x55, 0x5d, 0xc3],
        _ => &[0x1f, 0x20, 0x03, 0xd5, 0xc0, 0x03, 0x5f, 0xd6],
    };
    let section = file.section_by_name(".text.inflight_marks");
    let text = section.or_else(|| file.section_by_name(".text")).expect("the code");
    for (name, _kind) in Kind::MARKS {
        let symbol = file.dynamic_symbols().find(|symbol| symbol.name() == Ok(name));
        let address = symbol.expect("exported").address();
        assert_eq!(address % 16, 0, "{name} at {address:#x}");
        let code = text.data_range(address, body.len() as u64).expect("readable");
        assert_eq!(code, Some(body), "{name}");
    }
}
