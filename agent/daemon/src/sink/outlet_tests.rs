use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;

/// A reader that takes a line each time that it is told to, and keeps nothing.
struct Slow(Receiver<()>, Sender<Vec<u8>>);

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.recv().map_err(|_gone| io::ErrorKind::BrokenPipe)?;
        self.1.send(bytes.to_vec()).map_err(|_gone| io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn slow() -> (Outlet<u64>, SyncSender<()>, Receiver<Vec<u8>>) {
    let (go, told) = sync_channel(1 << 20);
    let (written, lines) = channel();
    (Outlet::new(Box::new(Slow(told, written))).unwrap(), go, lines)
}

const HEALTHY: Weight = Weight::Healthy(Worker(0));

/// Bytes of a long line.
const LONG: usize = 1 << 16;

fn line(bytes: usize) -> String {
    "x".repeat(bytes - 1) + "\n"
}

#[test]
fn what_is_to_be_done_after_a_line_comes_back_when_it_is_written_in_order() {
    let (mut outlet, go, lines) = slow();
    assert_eq!(outlet.send(line(10), Weight::Heavy, Some(1)).unwrap(), Sent::Goes);
    outlet.then(2);
    assert_eq!(outlet.send(line(20), HEALTHY, Some(3)).unwrap(), Sent::Goes);
    assert_eq!(outlet.done().unwrap(), Vec::<u64>::new());
    go.send(()).unwrap();
    go.send(()).unwrap();
    let (back, left) = outlet.finish().unwrap();
    assert_eq!((back, left), (vec![1, 2, 3], 0));
    assert_eq!(lines.iter().map(|line| line.len()).collect::<Vec<_>>(), [10, 20]);
}

#[test]
fn a_reader_that_stands_still_costs_healthy_lines_first_and_no_time() {
    let (mut outlet, go, lines) = slow();
    let began = Clock::now();
    let fits = |outlet: &mut Outlet<u64>, weight| {
        let goes = |n: &u64| outlet.send(line(LONG), weight, Some(*n)).unwrap() == Sent::Goes;
        (0..1 << 20).take_while(goes).count()
    };
    let healthy = fits(&mut outlet, HEALTHY);
    assert!((10..=HEALTHY_BYTES_MAX / LONG).contains(&healthy), "{healthy}");
    // Half of it is left to others, half of the rest to those after them.
    assert!(healthy <= HEALTHY_BYTES_MAX / LONG / 2, "{healthy}");
    let second = fits(&mut outlet, Weight::Healthy(Worker(1)));
    let third = fits(&mut outlet, Weight::Healthy(Worker(2)));
    assert!(second >= healthy / 3 && third >= healthy / 6, "{healthy} {second} {third}");
    let healthy = healthy + second + third;
    let heavy = fits(&mut outlet, Weight::Heavy);
    assert!((100..=BYTES_MAX / LONG).contains(&(healthy + heavy)), "{heavy}");
    // The patience is spent once, not for each line.
    for _ in 0..1000 {
        let sent = outlet.send(line(LONG), Weight::Heavy, Some(7)).unwrap();
        assert_eq!(sent, Sent::Dropped(Some(7)));
    }
    assert!(Clock::now().since(began) < PATIENCE.plus(Nanos::from_secs(20)));
    // Once it reads again, lines go out again.
    for _ in 0..=healthy + heavy {
        go.send(()).unwrap();
    }
    lines.recv().unwrap();
    // A line that is read is told of a moment later.
    let goes = |outlet: &mut Outlet<u64>| {
        outlet.send(line(LONG), Weight::Heavy, Some(8)).unwrap() == Sent::Goes
    };
    let due = Clock::now().plus(Nanos::from_secs(20));
    while !goes(&mut outlet) {
        assert!(Clock::now() < due, "lines are read, and none goes out");
        thread::yield_now();
    }
    let (back, left) = outlet.finish().unwrap();
    assert_eq!((back.len(), left), (healthy + heavy + 1, 0));
}

#[test]
fn a_reader_that_never_reads_does_not_keep_the_agent_from_ending() {
    let (mut outlet, _go, _lines) = slow();
    outlet.send(line(10), Weight::Heavy, Some(1)).unwrap();
    assert_eq!(outlet.finish().unwrap(), (Vec::new(), 1));
}

#[test]
fn a_reader_that_has_gone_is_an_error() {
    let (mut outlet, go, lines) = slow();
    drop(lines);
    go.send(()).unwrap();
    outlet.send(line(10), Weight::Heavy, Some(1)).unwrap();
    assert_eq!(outlet.finish().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
}

#[test]
fn a_line_larger_than_the_bound_goes_out_alone() {
    let (mut outlet, go, lines) = slow();
    go.send(()).unwrap();
    assert_eq!(outlet.send(line(BYTES_MAX + 1), HEALTHY, None).unwrap(), Sent::Goes);
    assert_eq!(outlet.finish().unwrap().1, 0);
    assert_eq!(lines.recv().unwrap().len(), BYTES_MAX + 1);
}

#[test]
fn patience_is_shorter_than_what_the_health_of_the_loop_allows() {
    assert!(PATIENCE.duration() < Duration::from_secs(1));
}

/// A disk that is full after `room` bytes, until there is more.
#[derive(Clone, Default)]
struct Disk(Arc<Mutex<(usize, Vec<u8>)>>);

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut disk = self.0.lock().unwrap();
        let count = bytes.len().min(disk.0);
        if count == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        disk.0 -= count;
        disk.1.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_a_full_disk_does_not_take_is_lost_and_counted_and_then_it_goes_on() {
    let disk = Disk::default();
    disk.0.lock().unwrap().0 = 6;
    let mut outlet = Outlet::new(Box::new(disk.clone())).unwrap();
    let send = |outlet: &mut Outlet<u64>, text: &str, weight, after| {
        outlet.send(text.to_owned(), weight, Some(after)).unwrap();
    };
    send(&mut outlet, "abc\n", Weight::Heavy, 1);
    send(&mut outlet, "cut short\n", Weight::Heavy, 2);
    send(&mut outlet, "healthy\n", HEALTHY, 3);
    while outlet.waiting > 0 {
        outlet.hear().unwrap();
        thread::yield_now();
    }
    let lost = outlet.take_lost();
    assert_eq!((lost.lines, lost.after, outlet.writes()), (2, vec![2], false));
    assert_eq!(lost.why.unwrap().kind(), io::ErrorKind::StorageFull);
    disk.0.lock().unwrap().0 = 100;
    send(&mut outlet, "again\n", Weight::Heavy, 4);
    let (back, left) = outlet.finish().unwrap();
    assert_eq!((back, left, outlet.writes()), (vec![1, 3, 4], 0, true));
    assert_eq!(outlet.take_lost().lines, 0);
    // The line that was cut spoils no other.
    assert_eq!(disk.0.lock().unwrap().1, b"abc\ncu\nagain\n");
}
