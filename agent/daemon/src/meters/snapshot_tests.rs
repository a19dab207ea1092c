//! Files as an independent writer makes them, and files that lie.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;

use super::*;

/// A folder in memory, as snapshots lie in one.
fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

fn written(folder: &TempDir, form: &str, ranks: u16, rank: u16, inflight: u64) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = folder.path().join("loads");
    let status = Command::new("python3")
        .arg(root.join("tests/agent_support/sglang.py"))
        .arg(&path)
        .args(["write", form])
        .args([ranks.to_string(), rank.to_string(), inflight.to_string()])
        .status()
        .unwrap();
    assert!(status.success());
    path
}

fn map(path: &Path) -> LoadMap {
    LoadMap { path: path.to_owned(), inode: std::fs::symlink_metadata(path).unwrap().ino() }
}

fn read_at(path: &Path, rank: Option<u16>) -> Result<Stated, SnapshotError> {
    read(std::process::id(), &map(path), rank)
}

#[test]
fn every_form_is_understood() {
    let folder = folder();
    let of = |form| read_at(&written(&folder, form, 1, 0, 300), None).unwrap();
    let prefill = Load { running: 2, bootstrap: 4, inflight: 300, ..Load::default() };
    for form in ["flat", "array"] {
        let stated = of(form);
        assert_eq!((stated.load, stated.role), (Some(prefill), Some("prefill")), "{form}");
        assert!(stated.written_at > 1e9);
    }
    let decode = Load { running: 2, prealloc: 9, transfer: 300, ..Load::default() };
    assert_eq!((of("decode").load, of("decode").role), (Some(decode), Some("decode")));
    assert_eq!((of("mixed").load, of("mixed").role), (None, None));
    let none = read_at(&written(&folder, "flat", 1, 0, 0), None).unwrap();
    assert_eq!(none.load, Some(Load { inflight: 0, ..prefill }), "left out, so it is 0");
}

#[test]
fn each_rank_has_its_slot_and_nobodys_is_guessed() {
    let folder = folder();
    let path = written(&folder, "flat", 4, 2, 7);
    let load = read_at(&path, Some(2)).unwrap().load.unwrap();
    assert_eq!(load.inflight, 7);
    assert!(matches!(read_at(&path, None), Err(SnapshotError::Rank(4))));
    assert!(matches!(read_at(&path, Some(4)), Err(SnapshotError::Rank(4))));
    assert!(matches!(read_at(&path, Some(1)), Err(SnapshotError::Torn)), "not written yet");
}

#[test]
fn what_is_not_understood_is_refused() {
    let folder = folder();
    for form in ["negative", "deep"] {
        let result = read_at(&written(&folder, form, 1, 0, 1), None);
        assert!(matches!(result, Err(SnapshotError::Form(_))), "{form}: {result:?}");
    }
    let path = written(&folder, "flat", 1, 0, 1);
    let good = std::fs::read(&path).unwrap();
    let spoiled = |at: usize, bytes: &[u8]| {
        let mut file = good.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        std::fs::write(&path, file).unwrap();
        read_at(&path, None)
    };
    assert!(matches!(spoiled(0, b"SLNX"), Err(SnapshotError::Magic)));
    for version in [0_u16, 1, 3] {
        let result = spoiled(4, &version.to_le_bytes());
        assert!(matches!(result, Err(SnapshotError::Version(v)) if v == version));
    }
    for ranks in [0_u16, 2, u16::MAX] {
        let result = spoiled(6, &ranks.to_le_bytes());
        assert!(matches!(result, Err(SnapshotError::Sizes { .. })), "{ranks}");
    }
    for slot in [0_u32, 3, 1 << 20, u32::MAX] {
        let result = spoiled(8, &slot.to_le_bytes());
        assert!(matches!(result, Err(SnapshotError::Sizes { .. })), "{slot}");
    }
    for length in [0_u32, 16 * 1024, u32::MAX] {
        let result = spoiled(12, &length.to_le_bytes());
        assert!(matches!(result, Err(SnapshotError::Torn)), "{length}");
    }
    for length in 1..200_usize {
        let result = spoiled(12, &u32::try_from(length).unwrap().to_le_bytes());
        let whole = u32::from_le_bytes([good[12], good[13], good[14], good[15]]) as usize;
        assert_eq!(result.is_ok(), length >= whole, "{length} of {whole} bytes");
    }
    for length in 0..HEADER + 300 {
        std::fs::write(&path, &good[..length]).unwrap();
        assert!(read_at(&path, None).is_err(), "cut to {length} bytes");
    }
}

#[test]
fn only_the_mapped_file_itself_is_opened() {
    let folder = folder();
    let good = written(&folder, "flat", 1, 0, 1);
    let fifo = folder.path().join("fifo");
    let (kind, mode) = (rustix::fs::FileType::Fifo, Mode::RUSR);
    rustix::fs::mknodat(CWD, &fifo, kind, mode, 0).unwrap();
    let link = folder.path().join("link");
    symlink(&good, &link).unwrap();
    let within = folder.path().join("folder");
    symlink(folder.path(), &within).unwrap();
    let inode = map(&good).inode;
    let refused = |path: PathBuf, inode| {
        let result = read(std::process::id(), &LoadMap { path, inode }, None);
        assert!(matches!(result, Err(SnapshotError::Io(_))), "{result:?}");
    };
    refused(fifo.clone(), map(&fifo).inode);
    refused(link, inode);
    refused(within.join("loads"), inode);
    refused(folder.path().to_owned(), map(folder.path()).inode);
    refused(good.clone(), inode + 1);
    refused(folder.path().join("none"), inode);
    let stat = PathBuf::from("/proc/self/stat");
    refused(stat.clone(), std::fs::metadata(&stat).unwrap().ino());
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    refused(own.clone(), map(&own).inode);
    assert!(read_at(&good, None).is_ok());
}

/// Ends a writer also where its reader panics: a scope waits for its threads.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writes both files in turn over one, each time with its own time as an engine does, in steps so
/// that a reader can come in between.
fn write_in_turn(path: &Path, mut images: [Vec<u8>; 2], stop: &AtomicBool) {
    const TIME: &[u8] = b"timestamp\xcb";
    let found = |image: &Vec<u8>| image.windows(TIME.len()).position(|bytes| bytes == TIME);
    let places = images.each_ref().map(|image| found(image).unwrap() + TIME.len());
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    let mut now = 1.7e9_f64;
    while !stop.load(Ordering::Relaxed) {
        for (image, place) in images.iter_mut().zip(places) {
            now += 0.05;
            image[place..place + 8].copy_from_slice(&now.to_be_bytes());
            file.write_all_at(&[0; 4], 12).unwrap();
            file.write_all_at(&image[16..60], 16).unwrap();
            file.write_all_at(&image[60..600], 60).unwrap();
            file.write_all_at(&image[12..16], 12).unwrap();
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_slot_that_is_written_all_the_time_is_read_whole_or_not_at_all() {
    let folder = folder();
    let path = written(&folder, "flat", 1, 0, 300);
    let one = std::fs::read(&path).unwrap();
    let other = std::fs::read(written(&folder, "array", 1, 0, 70_000)).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| write_in_turn(&path, [one, other], &stop));
        let _stop = Stop(&stop);
        let mut whole = 0;
        for _ in 0..2000 {
            match read_at(&path, None) {
                Ok(stated) => {
                    let inflight = stated.load.unwrap().inflight;
                    assert!([300, 70_000].contains(&inflight), "{inflight}");
                    whole += 1;
                }
                Err(error) => assert!(matches!(error, SnapshotError::Torn), "{error:?}"),
            }
        }
        assert!(whole > 0);
    });
}
