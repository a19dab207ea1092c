//! The worker's side: this test binary, started again, with a table of its own making.

use std::fs::File;
use std::io::{BufRead as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use inflightd_abi::table::{
    Geometry, NewEntry, NewHeader, Outcome, Ranks, Role, Seq, Table, WORKERS_MAX,
};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use rustix::time::{ClockId, clock_gettime};

/// Names what the started binary is to be.
pub(crate) const KIND: &str = "INFLIGHTD_TEST_WORKER";

const SMALL: Geometry = Geometry { entries: 64, threads: 8 };

fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    (time.tv_sec * 1_000_000_000 + time.tv_nsec).cast_unsigned()
}

fn memfd(bytes: usize, seals: SealFlags) -> &'static [AtomicU64] {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(memfd_create("inflight", flags).unwrap());
    ftruncate(&file, bytes as u64).unwrap();
    fcntl_add_seals(&file, seals).unwrap();
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping of a file of this very size, never unmapped.
    unsafe {
        let start =
            mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, &file, 0).unwrap();
        std::slice::from_raw_parts(start.cast(), bytes / 8)
    }
}

fn sealed() -> &'static [AtomicU64] {
    memfd(SMALL.bytes(), SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
}

fn write_header(table: &Table<'_>, pid: u32) {
    write_header_as(table, pid, Role::Prefill, b"test-prefill");
}

fn write_header_as(table: &Table<'_>, pid: u32, role: Role, name: &[u8]) {
    write_header_of(0, table, (pid, role), name);
}

fn write_header_of(worker: u64, table: &Table<'_>, (pid, role): (u32, Role), name: &[u8]) {
    table.write_header(
        now(),
        &NewHeader {
            pid,
            worker,
            role,
            engine: b"test",
            version: b"1",
            ranks: Ranks::default(),
            nnodes: 1,
            identities: &[(1, name)],
        },
    );
}

/// Is the worker that the environment names; returns at once where it names none.
pub(crate) fn main() {
    let Ok(kind) = std::env::var(KIND) else {
        return;
    };
    match kind.as_str() {
        "churn" => churn(),
        "bursts" => bursts(),
        "stay" => stay(3),
        "crowd" => stay(60),
        "many" => {
            // Four more than the hook makes.
            for index in 0..WORKERS_MAX as u64 + 4 {
                let table = Table::create(sealed(), SMALL).unwrap();
                write_header_of(index, &table, (std::process::id(), Role::Prefill), b"many");
            }
            say("ready");
        }
        "peer" => {
            let table = Table::create(sealed(), SMALL).unwrap();
            write_header_as(&table, std::process::id(), Role::Decode, b"nobody");
            say("ready");
        }
        "unsealed" => lie(memfd(SMALL.bytes(), SealFlags::GROW), std::process::id()),
        "other_pid" => lie(sealed(), 1),
        "geometry" => {
            let words = sealed();
            words[2].store(8192, Ordering::Release);
            claim(words);
        }
        "version" => {
            let words = sealed();
            words[1].store(77, Ordering::Release);
            claim(words);
        }
        "random" => {
            let words = sealed();
            scribble(words, 0);
            say("ready");
        }
        "scribble" => scribbler(),
        kind => panic!("unknown kind {kind}"),
    }
    listen(|_| ());
}

/// A table whose header is right but for what the caller did to it.
fn claim(words: &'static [AtomicU64]) {
    let (version, entries) = (words[1].load(Ordering::Acquire), words[2].load(Ordering::Acquire));
    write_header(&Table::create(words, SMALL).unwrap(), std::process::id());
    if version != 0 {
        words[1].store(version, Ordering::Release);
    }
    if entries != 0 {
        words[2].store(entries, Ordering::Release);
    }
    say("ready");
}

fn lie(words: &'static [AtomicU64], pid: u32) {
    write_header(&Table::create(words, SMALL).unwrap(), pid);
    say("ready");
}

/// Fills the words from `from` on with what looks like anything.
fn scribble(words: &[AtomicU64], from: usize) {
    let mut word = now() | 1;
    for place in &words[from..] {
        word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        place.store(word, Ordering::Relaxed);
    }
}

/// A good header, and counters and entries that never stop changing at random.
fn scribbler() {
    let words = sealed();
    write_header(&Table::create(words, SMALL).unwrap(), std::process::id());
    say("ready");
    thread::spawn(move || {
        loop {
            scribble(words, 160);
            thread::sleep(Duration::from_millis(1));
        }
    });
}

/// What the engine of room 0 hands on.
pub(crate) const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn new(room: u64) -> NewEntry<'static> {
    let traceparent = if room == 0 { TRACEPARENT.as_bytes() } else { b"" };
    NewEntry { room, expected: 100, rid: b"rid", traceparent, peers: &[(1, b"nobody")] }
}

/// So many rooms that stay.
fn stay(rooms: u64) {
    let table = Table::create(sealed(), SMALL).unwrap();
    write_header(&table, std::process::id());
    let seqs: Vec<Seq> = (0..rooms).map(|room| table.append(now(), &new(room))).collect();
    // A worker that never marks a post shows nothing by not marking one.
    table.post(now(), seqs[0], 1);
    say("ready");
    say_seqs(&seqs);
}

/// Rooms of one burst: nearly as many as a table has places.
const BURST: u64 = 8000;

/// A table of the hook's own size. Opens a burst of rooms, and closes them, each time it is told to.
fn bursts() {
    let geometry = Geometry::STANDARD;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let table = Table::create(memfd(geometry.bytes(), seals), geometry).unwrap();
    write_header(&table, std::process::id());
    say("ready");
    let mut open: Vec<Seq> = Vec::new();
    listen(|told| {
        if told == "open" {
            open.extend((1..=BURST).map(|room| table.append(now(), &new(room))));
            say("opened");
        } else {
            for seq in open.drain(..) {
                table.remove(now(), seq, Outcome::Success);
            }
            say("closed");
        }
    });
}

/// Rooms that come and go until the parent says stop.
fn churn() {
    // Large enough that no room is overwritten while no agent is there.
    let geometry = Geometry { entries: 8192, ..SMALL };
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let table = Table::create(memfd(geometry.bytes(), seals), geometry).unwrap();
    write_header(&table, std::process::id());
    say("ready");
    let (tell, told) = std::sync::mpsc::channel();
    thread::spawn(move || listen(|_| tell.send(()).unwrap()));
    let (mut seqs, mut held) = (Vec::new(), Vec::new());
    while told.try_recv().is_err() {
        let room = seqs.len() as u64;
        let seq = table.append(now(), &new(room));
        table.post(now(), seq, 100);
        table.done(now(), seq, 100, true);
        table.beat(now());
        seqs.push(seq);
        held.push(seq);
        // Few enough that the table is never full, long enough that some are open at any time.
        if held.len() > 10 {
            table.remove(now(), held.remove(0), Outcome::Success);
        }
        thread::sleep(Duration::from_millis(20));
    }
    for seq in held {
        table.remove(now(), seq, Outcome::Aborted);
    }
    say_seqs(&seqs);
    thread::sleep(Duration::from_mins(1));
}

fn say(word: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "@{word}").unwrap();
    out.flush().unwrap();
}

fn say_seqs(seqs: &[Seq]) {
    let seqs: Vec<String> = seqs.iter().map(|seq| seq.0.to_string()).collect();
    say(&format!("seqs {}", seqs.join(" ")));
}

/// Hears what the parent says, until it says nothing more.
fn listen(mut hear: impl FnMut(&str)) {
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        hear(&line);
    }
}
