use super::*;

const OWN: u32 = 10;
const FAR: u32 = 20;

fn pair(device: &str, pid: u32, (number, far): (u32, u32), state: u32) -> Pair {
    Pair { device: device.to_owned(), number, far, state, pid }
}

/// A pair of queue pairs that lead to each other, and one of the worker to itself.
fn round(state: u32, queue: Queue) -> Round {
    let pairs = [
        pair("rxe0", OWN, (17, 18), state),
        pair("rxe0", OWN, (30, 31), STATE_RTS),
        pair("rxe0", OWN, (31, 30), STATE_RTS),
        pair("rxe1", FAR, (18, 17), STATE_RTS),
    ];
    let seen = BTreeMap::from([(("rxe0".to_owned(), 17), queue)]);
    let mut round = Round { seen, counted: vec!["rxe0".to_owned()], ..Round::default() };
    round.list(pairs);
    round
}

fn sent(bytes: u64) -> Queue {
    Queue { bytes, done_at: 5, ..Queue::default() }
}

#[test]
fn what_a_queue_pair_has_sent_counts_for_the_process_that_has_its_other_end() {
    let mut account = Account::default();
    let to = Target::Process(FAR);
    let part = account.read(OWN, to, &round(STATE_RTS, sent(700)));
    assert_eq!((part.connections, part.bytes), (1, 700));
    let mut meter = Meter { connections: 1, acked: 3, unread: Some(0), ..Meter::default() };
    part.add_to(&mut meter);
    assert_eq!((meter.connections, meter.taken()), (2, Some(703)));
    assert_eq!(
        account.read(OWN, Target::Process(99), &round(STATE_RTS, sent(900))).bytes,
        900,
        "what was to it stays its own"
    );
    let mut other = Account::default();
    assert_eq!(other.read(OWN, Target::Process(99), &round(STATE_RTS, sent(900))), Part::default());
}

#[test]
fn a_queue_pair_whose_thread_has_ended_belongs_to_the_process_that_the_probes_saw() {
    let mut round = Round::default();
    round.seen.insert(("rxe0".to_owned(), 17), Queue { tgid: OWN, ..sent(700) });
    // The last is the kernel's own.
    let nobodys = [(17, 18), (40, 0)].map(|ends| pair("rxe0", 0, ends, STATE_RTS));
    round.list(nobodys.into_iter().chain([pair("rxe1", FAR, (18, 17), STATE_RTS)]));
    let part = Account::default().read(OWN, Target::Process(FAR), &round);
    assert_eq!((part.uncounted, part.bytes), (1, 700));
    assert_eq!(round.pairs.keys().collect::<Vec<_>>(), [&OWN, &FAR]);
}

#[test]
fn an_address_is_known_by_the_gid_that_the_queue_pair_was_set_up_with() {
    let mut gid = [0; 16];
    gid[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 2]);
    let queue = Queue { gid, ..sent(4) };
    let read = |address: &str| {
        let to = Target::Address(address.parse().unwrap());
        Account::default().read(OWN, to, &round(STATE_RTS, queue)).bytes
    };
    assert_eq!((read("10.0.0.2:7000"), read("10.0.0.3:7000")), (4, 0));
}

#[test]
fn what_ended_queue_pairs_had_sent_is_kept_also_when_their_number_is_used_again() {
    let mut account = Account::default();
    let to = Target::Process(FAR);
    account.read(OWN, to, &round(STATE_RTS, sent(700)));
    assert_eq!(account.read(OWN, to, &round(STATE_RTS, sent(50))).bytes, 750);
    let gone = account.read(OWN, Target::Gone, &Round::default());
    assert_eq!((gone.bytes, gone.connections), (750, 0));
}

#[test]
fn one_that_failed_is_broken_until_another_leads_there() {
    let mut account = Account::default();
    let failed = Queue { failed_at: 77, retransmits: 9, ..sent(700) };
    let to = Target::Process(FAR);
    account.read(OWN, to, &round(STATE_RTS, sent(700)));
    let part = account.read(OWN, Target::Gone, &round(STATE_ERR, failed));
    assert_eq!((part.failed_at, part.connections, part.again), (Some(Nanos(77)), 0, true));
    let mut renewed = round(STATE_ERR, failed);
    renewed.list([pair("rxe0", OWN, (19, 21), STATE_RTS), pair("rxe1", FAR, (21, 19), STATE_RTS)]);
    let part = account.read(OWN, to, &renewed);
    assert_eq!((part.failed_at, part.connections), (None, 1));
}

#[test]
fn a_link_is_down_where_no_port_of_any_device_on_the_way_can_send() {
    let mut round = round(STATE_RTS, sent(1));
    round.down = vec!["rxe0".to_owned()];
    assert!(Account::default().read(OWN, Target::Process(FAR), &round).down);
    round.list([pair("mlx5_0", OWN, (5, 6), STATE_RTS), pair("mlx5_1", FAR, (6, 5), STATE_RTS)]);
    let part = Account::default().read(OWN, Target::Process(FAR), &round);
    assert_eq!((part.down, part.connections, part.uncounted), (false, 1, 1));
}

#[test]
fn a_queue_pair_made_by_devx_is_met_by_its_commands_and_accuses_nobody() {
    let mut gid = [0; 16];
    gid[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 2]);
    let made = |number, state| Queue {
        device: DEVX_NAME,
        gid,
        number,
        state,
        far: 18,
        tgid: OWN,
        failed_at: 9,
        ..Queue::default()
    };
    let queues = [made(40, STATE_RTS), made(17, STATE_RTS), Queue { ended_at: 7, ..made(41, 3) }];
    let read = |queues: &[Queue]| {
        let mut round = round(STATE_RTS, sent(4));
        round.seen.extend(queues.iter().map(|queue| ((DEVX.to_owned(), queue.number), *queue)));
        round.list_unlisted(by_commands(queues));
        Account::default().read(OWN, Target::Address("10.0.0.2:7000".parse().unwrap()), &round)
    };
    let part = read(&queues);
    assert_eq!((part.connections, part.uncounted), (0, 1), "17 is listed, 41 has ended");
    let failed = read(&[made(40, STATE_ERR)]);
    assert_eq!((failed.uncounted, failed.failed_at), (0, None));
}

/// Devices number by themselves: both ends of a connection may have one number.
#[test]
fn both_ends_of_a_connection_may_have_the_same_number() {
    let mut round = Round { counted: vec!["rxe0".to_owned()], ..Round::default() };
    let ends = [("rxe0", OWN), ("rxe1", FAR)];
    round.list(ends.map(|(device, pid)| pair(device, pid, (18, 18), STATE_RTS)));
    let part = Account::default().read(OWN, Target::Process(FAR), &round);
    assert_eq!((part.connections, part.uncounted), (1, 0));
}
