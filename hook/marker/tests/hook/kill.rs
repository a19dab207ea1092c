//! A writer that dies at any instruction leaves a table that reads.

use std::thread::sleep;
use std::time::Duration;

use crate::setup::Engine;
use crate::threads::sweep;

const KILLS: u64 = 200;
const THREADS: usize = 4;

#[test]
fn a_killed_writer_leaves_a_readable_table() {
    let (mut torn_in_all, mut busy) = (0, 0);
    for kill in 0..KILLS {
        let (mut engine, mapped) = Engine::opened();
        engine.tell(&format!("hammer {THREADS} 1000000 {}", kill % 2));
        // Moments that do not repeat, spread over the first 20 ms.
        sleep(Duration::from_micros(kill * 7919 % 20_000));
        engine.kill();
        let table = mapped.table();
        let (whole, torn) = sweep(&table);
        assert!(torn <= THREADS, "one description at most per thread, not {torn}");
        let counters = table.counters();
        let taken = table.taken_slots().count() as u64;
        let apart = counters.appends.abs_diff(counters.removals + taken);
        assert!(apart <= THREADS as u64, "{counters:?} and {taken} taken");
        torn_in_all += torn;
        busy += u64::from(whole > 0);
    }
    assert!(busy > KILLS / 2, "most were killed at work: {busy} of {KILLS}");
    println!("{KILLS} kills, {busy} at work, {torn_in_all} descriptions torn");
}
