//! A writer that dies at any instruction leaves a table that reads.

use std::thread::sleep;
use std::time::Duration;

use crate::setup::Engine;
use crate::threads::sweep;

const KILLS: u64 = 200;
const THREADS: usize = 4;

#[test]
fn a_killed_writer_leaves_a_readable_table() {
    let mut torn_in_all = 0;
    for kill in 0..KILLS {
        let (mut engine, mapped) = Engine::opened();
        let table = mapped.table();
        engine.tell(&format!("hammer {THREADS} 1000000 {}", kill % 2));
        // At work, then moments that do not repeat, spread over 20 ms.
        while table.counters().appends == 0 {
            engine.assert_alive();
            sleep(Duration::from_micros(50));
        }
        sleep(Duration::from_micros(kill * 7919 % 20_000));
        engine.kill();
        let (whole, torn) = sweep(&table);
        assert!(whole > 0 && torn <= THREADS, "{whole} whole, {torn} torn: one at most per thread");
        let counters = table.counters();
        let taken = table.taken_slots().count() as u64;
        let apart = counters.appends.abs_diff(counters.removals + taken);
        assert!(apart <= THREADS as u64, "{counters:?} and {taken} taken");
        torn_in_all += torn;
    }
    println!("{KILLS} kills, {torn_in_all} descriptions torn");
}
