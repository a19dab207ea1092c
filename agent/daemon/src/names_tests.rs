//! Names: what is kept, told and forgotten.

use super::*;

#[test]
fn a_peer_has_one_number_by_kind_and_value() {
    let mut names = Names::default();
    let agent = names.peer(PeerName::nixl(b"decode-0")).unwrap();
    assert_eq!(names.peer(PeerName::nixl(b"decode-0")), Some(agent));
    let session = PeerName { kind: "mooncake_session".to_owned(), value: "decode-0".to_owned() };
    assert_ne!(names.peer(session), Some(agent));
    assert_eq!(names.peer_name(agent), Some(&PeerName::nixl(b"decode-0")));
}

#[test]
fn peers_beyond_the_bound_have_no_number_until_others_are_forgotten() {
    let mut names = Names::default();
    for n in 0..PEERS_MAX {
        assert!(names.peer(PeerName::nixl(n.to_string().as_bytes())).is_some());
    }
    assert_eq!(names.peer(PeerName::nixl(b"one more")), None);
    let kept = names.peer(PeerName::nixl(b"7")).unwrap();
    names.sweep_peers(|| BTreeSet::from([kept]));
    assert_eq!(names.peer(PeerName::nixl(b"7")), Some(kept));
    let again = names.peer(PeerName::nixl(b"8")).unwrap();
    assert!(again.0 as usize >= PEERS_MAX, "a number is never used again");
    assert_eq!(names.peer_name(Peer(8)), None);
}

#[test]
fn a_request_id_that_a_mark_has_cut_ends_with_a_whole_character() {
    let rid = |whole: &str| RoomName::marked(&whole.as_bytes()[..63], None).rid;
    assert_eq!(rid(&format!("{}é", "x".repeat(62))), "x".repeat(62));
    assert_eq!(rid(&format!("{}é!", "x".repeat(61))), "x".repeat(61) + "é");
}

#[test]
fn an_endpoint_is_an_address_and_nothing_else_is() {
    let name =
        |kind: &str, value: &str| PeerName { kind: kind.to_owned(), value: value.to_owned() };
    assert_eq!(name("endpoint", "10.0.0.1:80").endpoint(), "10.0.0.1:80".parse().ok());
    assert!(name("endpoint", "[::1]:80").endpoint().is_some());
    assert_eq!(name("endpoint", "decode-0").endpoint(), None);
    assert_eq!(name("nixl_agent", "10.0.0.1:80").endpoint(), None);
}

#[test]
fn who_is_followed_comes_before_its_neighbours_and_those_that_ended_go_first() {
    let of = |pid| {
        let identities = vec![PeerName::nixl(b"decode-0")];
        let identity = Identity { boot: "b".to_owned(), pid, start: 1, index: 0 };
        WorkerName { identity, about: About { identities, ..About::unread() } }
    };
    let mut names = Names::default();
    let (near, own) = (Worker(NEIGHBOUR), Worker(3));
    names.add_worker(own, of(3));
    names.add_worker(near, of(4));
    let name = PeerName::nixl(b"decode-0");
    assert_eq!(names.pid_of(own, &name), Some(3));
    names.end_worker(near, Nanos(1));
    for n in 0..u32::try_from(WORKERS_MAX).unwrap() {
        names.add_worker(Worker(NEIGHBOUR + 1 + n), of(9));
        names.end_worker(Worker(NEIGHBOUR + 1 + n), Nanos(2));
    }
    assert!(names.worker(own).is_some() && names.worker(near).is_none());
}
