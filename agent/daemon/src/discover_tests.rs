use std::io::Write as _;

use super::*;

const STAT: Stat = Stat { state: b'S', flags: 0, start: 1, vsize: 4096, threads: 1 };
const MS: fn(u64) -> Nanos = Nanos::from_millis;

fn seen(first: u64, read: u64) -> Seen {
    let read_at = Some(Nanos::from_secs(read));
    Seen { read_at, ..Seen::new(STAT, Nanos::from_secs(first)) }
}

#[test]
fn an_unchanged_process_is_left_alone_for_a_while() {
    let process = seen(0, 0);
    assert!(!process.is_due(Nanos::from_secs(59), 4096));
    assert!(process.is_due(Nanos::from_secs(60), 4096));
}

#[test]
fn a_changed_process_is_read_once_a_second_or_less_where_that_takes_long() {
    let mut process = seen(0, 10);
    assert!(!process.is_due(MS(10_900), 8192));
    assert!(process.is_due(MS(11_000), 8192));
    process.took = MS(30);
    assert!(!process.is_due(MS(12_900), 8192));
    assert!(process.is_due(MS(13_000), 8192));
    assert!(!process.is_ripe(MS(10_500)));
    assert!(process.is_ripe(MS(10_600)));
}

#[test]
fn only_old_processes_of_no_interest_are_asked_seldom() {
    let at = Nanos::from_secs;
    let mut process = Seen { asked_at: at(700), ..seen(0, 700) };
    assert!(!process.is_asked(at(701)) && process.is_asked(at(705)));
    process.has_libraries = true;
    assert!(process.is_asked(at(701)));
    let young = Seen { asked_at: at(599), ..seen(0, 599) };
    assert!(young.is_asked(at(599)));
    let ended = Seen { vsize: 0, ..young };
    assert!(!ended.is_asked(at(599)), "kernel threads and zombies");
}

#[test]
fn a_look_reads_a_process_once_until_it_changes_or_is_hinted() {
    // This test process cannot be its own subject: a census skips the agent itself.
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let pid = child.id();
    let mut census = Census::new((0, 0), vec![pid]);
    // The size may change until `sleep` has loaded its libraries.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let at = Nanos::from_secs;
    assert_eq!(census.look(at(1)).unwrap().len(), 1);
    assert_eq!(census.look(at(2)).unwrap().len(), 0);
    census.hint(pid);
    assert_eq!(census.look_hinted(at(9)).len(), 1);
    census.hint(pid);
    assert_eq!(census.look_hinted(at(9)).len(), 0, "not at every mark");
    assert_eq!(census.look_hinted(at(19)).len(), 1);
    census.hint(1);
    assert_eq!(census.look_hinted(at(29)).len(), 0, "only the processes asked for");
    assert_eq!((census.effort().maps, census.processes()), (3, 1));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(census.look(at(30)).unwrap().len(), 0);
    assert_eq!(census.processes(), 0);
}

#[test]
fn another_program_in_the_same_process_is_read_at_once() {
    let script = "read go; exec sleep 60";
    let mut child = std::process::Command::new("sh")
        .args(["-c", script])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    let pid = child.id();
    let mut census = Census::new((0, 0), vec![pid]);
    let read = census.look(Nanos::from_secs(1)).unwrap().remove(0);
    // As if it mapped a table there.
    let range = read.maps.objects[0].range.clone();
    census.seen.get_mut(&pid).unwrap().tables = vec![TableMap { range, inode: 1 }];
    assert_eq!(census.look(Nanos::from_secs(2)).unwrap().len(), 0, "it still maps it");
    writeln!(child.stdin.take().unwrap(), "go").unwrap();
    let is_sleep = || std::fs::read(format!("/proc/{pid}/comm")).unwrap() == b"sleep\n";
    for _ in 0..500 {
        if is_sleep() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let again = census.look(MS(2_001)).unwrap();
    assert_eq!((again.len(), again[0].start), (1, read.start));
    assert_ne!(again[0].maps.objects, read.maps.objects);
    child.kill().unwrap();
    child.wait().unwrap();
}
