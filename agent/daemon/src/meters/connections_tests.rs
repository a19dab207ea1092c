//! Matching and accounting on made-up dumps.

use super::super::diag::Info;
use super::*;

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn socket(cookie: u64, inode: u32, local: &str, remote: &str) -> Socket {
    Socket::fake(cookie, inode, address(local), address(remote))
}

fn carrying(mut socket: Socket, acked: u64, received: u64) -> Socket {
    socket.info = Some(Info { acked, received, ..Info::default() });
    socket
}

fn dump(space: u64, sockets: &[Socket]) -> Dump {
    Dump::new(Space::fake(space), Nanos::from_secs(100), sockets.to_vec())
}

fn inodes(inodes: &[u32]) -> BTreeSet<u32> {
    inodes.iter().copied().collect()
}

const WORKER: &str = "127.0.0.1:5000";
const PEER: &str = "127.0.0.1:6000";

#[test]
fn a_connection_counts_when_the_peer_owns_its_far_end() {
    let mut far = socket(2, 20, PEER, WORKER);
    far.unread = 300;
    let near = carrying(socket(1, 10, WORKER, PEER), 1000, 9);
    let stranger = carrying(socket(3, 30, "127.0.0.1:5001", PEER), 7777, 0);
    let dump = dump(1, &[near, far, stranger]);
    let (own, peers, others) = (inodes(&[10, 30]), inodes(&[20]), inodes(&[21]));
    let side = Side { dump: &dump, inodes: &own };
    let peer = Far::Process(Side { dump: &dump, inodes: &peers });
    let meter = Account::default().read(&side, Some(peer));
    assert_eq!((meter.connections, meter.acked, meter.received), (1, 1000, 9));
    assert_eq!((meter.unread, meter.taken()), (Some(300), Some(700)));
    let other = Far::Process(Side { dump: &dump, inodes: &others });
    let meter = Account::default().read(&side, Some(other));
    assert_eq!((meter.connections, meter.acked), (0, 0));
}

#[test]
fn a_connection_that_nobody_has_accepted_belongs_to_the_listener() {
    let near = carrying(socket(1, 10, WORKER, PEER), 50, 0);
    let waiting = socket(2, 0, PEER, WORKER);
    let listener = Socket::fake_listener(3, 20, address("0.0.0.0:6000"));
    let dump = dump(1, &[near, waiting, listener]);
    let own = inodes(&[10]);
    let side = Side { dump: &dump, inodes: &own };
    let read = |listeners: &[u32]| {
        let listeners = inodes(listeners);
        let peer = Far::Process(Side { dump: &dump, inodes: &listeners });
        Account::default().read(&side, Some(peer)).connections
    };
    assert_eq!(read(&[20]), 1);
    assert_eq!(read(&[21]), 0);
}

#[test]
fn loopback_ends_at_the_namespace() {
    let near = |at: &str, to: &str| dump(1, &[carrying(socket(1, 10, at, to), 5, 0)]);
    let far = |at: &str, to: &str| dump(2, &[socket(2, 20, to, at)]);
    let (own, peers) = (inodes(&[10]), inodes(&[20]));
    let count = |at, to| {
        let (near, far) = (near(at, to), far(at, to));
        let peer = Far::Process(Side { dump: &far, inodes: &peers });
        Account::default().read(&Side { dump: &near, inodes: &own }, Some(peer)).connections
    };
    assert_eq!(count("10.0.0.1:5000", "10.0.0.2:6000"), 1);
    assert_eq!(count(WORKER, PEER), 0);
}

#[test]
fn an_endpoint_is_matched_by_its_address_and_its_reading_is_not_known() {
    let near = carrying(socket(1, 10, "10.0.0.1:5000", "10.0.0.2:6000"), 5, 0);
    let dump = dump(1, &[near]);
    let own = inodes(&[10]);
    let side = Side { dump: &dump, inodes: &own };
    let meter = Account::default().read(&side, Some(Far::Address(address("10.0.0.2:6000"))));
    assert_eq!((meter.connections, meter.acked, meter.unread), (1, 5, None));
    let meter = Account::default().read(&side, Some(Far::Address(address("10.0.0.2:6001"))));
    assert_eq!(meter.connections, 0);
}

#[test]
fn counts_never_fall_when_connections_close() {
    let own = inodes(&[10, 11]);
    let peers = inodes(&[20, 21]);
    let mut account = Account::default();
    let mut read = |sockets: &[Socket], gone: bool| {
        let dump = dump(1, sockets);
        let side = Side { dump: &dump, inodes: &own };
        let peer = Far::Process(Side { dump: &dump, inodes: &peers });
        account.read(&side, (!gone).then_some(peer))
    };
    let mut far = socket(2, 20, PEER, WORKER);
    far.unread = 40;
    let near = |acked| carrying(socket(1, 10, WORKER, PEER), acked, 18);
    assert_eq!(read(&[near(100), far], false).taken(), Some(60));
    // The far end is gone first: what it had not read stays unread.
    let half = read(&[near(100)], true);
    assert_eq!((half.connections, half.acked, half.taken()), (1, 100, Some(60)));
    let gone = read(&[], true);
    assert_eq!((gone.connections, gone.acked, gone.taken()), (0, 100, Some(60)));
    // A new connection adds to the old ones.
    let again = carrying(socket(3, 11, "127.0.0.1:5002", PEER), 7, 0);
    let far = socket(4, 21, PEER, "127.0.0.1:5002");
    let meter = read(&[again, far], false);
    assert_eq!((meter.connections, meter.acked, meter.received), (1, 107, 18));
    assert_eq!(meter.taken(), Some(67));
}

#[test]
fn data_was_last_received_when_the_kernel_says() {
    let mut near = carrying(socket(1, 10, WORKER, PEER), 0, 9);
    if let Some(info) = &mut near.info {
        info.last_received_ms = 1500;
    }
    let dump = dump(1, &[near, socket(2, 20, PEER, WORKER)]);
    let (own, peers) = (inodes(&[10]), inodes(&[20]));
    let peer = Far::Process(Side { dump: &dump, inodes: &peers });
    let meter = Account::default().read(&Side { dump: &dump, inodes: &own }, Some(peer));
    assert_eq!(meter.last_received, Some(Nanos::from_millis(98_500)));
}
