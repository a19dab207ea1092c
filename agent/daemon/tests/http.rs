//! Metrics, health and rooms of the agent's binary, as scrapers, probes and people ask for them.
//! Needs root.
#![allow(
    clippy::expect_used,
    clippy::float_cmp,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends by a panic, and its helpers are part of it"
)]

mod agent_support;
mod http_support;

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use agent_support::{Agent, Worker, inflightd, turn, within_a_minute};
use http_support::{fds, get, names_of, promtool, request, value};
use inflightd::http::client;
use rustix::process::Signal;
use serde_json::Value;

/// Not a test of its own: what [`Worker::table`] starts.
#[test]
fn as_a_worker() {
    agent_support::worker::main();
}

/// Asks on the socket.
fn ask(state: &Path, path: &str) -> (u16, Value) {
    let answered = client::get(state, path).unwrap();
    (answered.status, serde_json::from_slice(&answered.body).unwrap())
}

/// An agent that watches these processes alone, on a port of its own choice, and its address.
fn agent(state: &Path, pids: &[u32], more: &[&str]) -> (Agent, SocketAddr) {
    let pids: Vec<String> = pids.iter().map(|pid| format!("--pid={pid}")).collect();
    let pids: Vec<&str> = pids.iter().map(String::as_str).collect();
    let agent = Agent::start(state, &[&["--listen", "127.0.0.1:0"], &*pids, more].concat());
    let view = ready(state);
    (agent, view["http"]["listen"].as_str().unwrap().parse().unwrap())
}

/// What an agent says of itself, once it is ready.
fn ready(state: &Path) -> Value {
    let view = within_a_minute(|| {
        let answered = client::get(state, "/agent").ok()?;
        let view: Value = serde_json::from_slice(&answered.body).ok()?;
        (view["ready"] == true).then_some(view)
    });
    view.expect("the agent is ready")
}

/// A worker whose three rooms are stuck, and not by what nobody can see: their peer has died.
/// Watched besides: the worker `other`.
struct Stuck {
    agent: Agent,
    at: SocketAddr,
    worker: Worker,
    /// The verdict about its first room.
    verdict: Value,
}

impl Stuck {
    fn new(state: &Path, other: Option<&Worker>) -> Self {
        let (peer, worker) = (Worker::table("peer"), Worker::table("stay"));
        let mut pids = vec![peer.pid(), worker.pid()];
        pids.extend(other.map(Worker::pid));
        let (agent, at) = agent(state, &pids, &DEADLINES);
        for pid in pids {
            agent.wait_for(pid, "coverage", |_| true);
        }
        drop(peer);
        // Rooms that were not posted wait behind the one that was.
        let told = |room: u64| {
            agent.wait_for(worker.pid(), "verdict", |line| {
                let stuck = line["severity"] == "alert" || line["cause"] == "queued_behind";
                stuck && line["room"].as_str() == Some(&*room.to_string())
            })
        };
        let [verdict, ..] = [0, 1, 2].map(told);
        Self { agent, at, worker, verdict }
    }
}

const DEADLINES: [&str; 4] = ["--suspect", "0.5", "--stall", "1"];

/// What a worker with three stuck rooms shows, and the agent beside it.
fn check_stuck(text: &str, pid: &str) {
    let of = [("pid", pid), ("engine", "test"), ("role", "prefill"), ("index", "0")];
    let check = |name: &str, more: &[(&str, &str)], fits: &dyn Fn(f64) -> bool| {
        let labels = [&of, more].concat();
        let found = value(text, name, &labels);
        assert!(found.is_some_and(fits), "{name} {labels:?} is {found:?}\n{text}");
    };
    check("inflight_rooms_open", &[], &|rooms| rooms == 3.0);
    check("inflight_rooms_suspect", &[], &|rooms| rooms == 3.0);
    check("inflight_rooms_blind", &[], &|rooms| rooms == 0.0);
    check("inflight_oldest_dwell_seconds", &[], &|age| (1.0..600.0).contains(&age));
    check("inflight_oldest_without_progress_seconds", &[], &|age| age >= 1.0);
    check("inflight_appends_total", &[], &|rooms| rooms == 3.0);
    check("inflight_verdicts_total", &[("severity", "alert")], &|verdicts| verdicts >= 1.0);
    check("inflight_coverage", &[("source", "table"), ("sight", "visible")], &|one| one == 1.0);
    for name in ["inflightd_workers", "inflightd_links", "inflightd_build_info"] {
        assert!(value(text, name, &[]).is_some_and(|value| value >= 0.0), "{name}\n{text}");
    }
    assert!(value(text, "process_resident_memory_bytes", &[]).unwrap() > 1e6);
    assert!(value(text, "process_open_fds", &[]).unwrap() > 3.0);
    assert!(value(text, "inflightd_loop_lag_seconds_count", &[]).unwrap() > 10.0);
    assert!(!text.contains("rid"), "request ids are no labels");
}

#[test]
fn a_stall_shows_in_every_metric_and_ends_with_its_worker() {
    let _turn = turn();
    let state = tempfile::tempdir().unwrap();
    let Stuck { agent, at, worker, verdict } = Stuck::new(state.path(), None);
    let pid = worker.pid().to_string();
    let told = |key: &str| verdict[key].as_str().unwrap().to_owned();
    let (finding, cause) = (told("finding"), told("cause"));
    let alert = [("pid", pid.as_str()), ("finding", &finding), ("cause", &cause)];
    let text = within_a_minute(|| {
        let response = get(at, "/metrics");
        let stalled = value(&response.body, "inflight_rooms_stalled", &alert);
        (stalled? >= 1.0).then_some(response)
    });
    let response = text.expect("the stall shows");
    assert_eq!(response.status, 200);
    assert!(
        response.head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"),
        "{response:?}"
    );
    check_stuck(&response.body, &pid);
    promtool(&response.body);
    let number = worker.pid();
    drop(worker);
    agent.wait_for(number, "dwell", |line| line["room"] == "2");
    let counters = within_a_minute(|| {
        let text = get(at, "/metrics").body;
        let names = names_of(&text, number);
        let gauges = names.iter().any(|name| name.starts_with("inflight_rooms"));
        (!gauges).then(|| names.into_iter().map(str::to_owned).collect::<BTreeSet<_>>())
    });
    let counters = counters.expect("gauges end with their worker");
    let histogram = |name: &&String| name.starts_with("inflight_dwell_seconds");
    assert_eq!(counters.iter().filter(histogram).count(), 3, "{counters:?}");
    assert!(
        counters.iter().all(|name| name.ends_with("_total") || histogram(&name)),
        "{counters:?}"
    );
    assert!(counters.contains("inflight_clears_total"), "{counters:?}");
    agent.end(Signal::TERM);
}

#[test]
fn a_worker_that_gets_nothing_through_is_wedged_and_a_busy_one_is_not() {
    let _turn = turn();
    let state = tempfile::tempdir().unwrap();
    let busy = Worker::table("churn");
    let Stuck { agent, at, worker: stuck, .. } = Stuck::new(state.path(), Some(&busy));
    let wedged = within_a_minute(|| {
        let response = get(at, &format!("/workers/{}", stuck.pid()));
        (response.status == 503 && response.json()["wedged"] == true).then_some(response)
    });
    let wedged = wedged.expect("a worker whose every room is stuck is wedged").json();
    let of = &wedged["workers"][0];
    assert_eq!(of["pid"], stuck.pid());
    assert_eq!((&of["why"], &of["open"]), (&"nothing_completes".into(), &3.into()), "{of:#}");
    assert!(of["wedged_since"].as_str().unwrap().starts_with("20"), "{of:#}");
    assert!(of["stalled"][0]["count"].as_u64().unwrap() >= 1, "{of:#}");
    assert!(of["oldest_dwell_s"].as_f64().unwrap() > 1.0, "{of:#}");
    let series = [("pid", &*stuck.pid().to_string())];
    let shown = within_a_minute(|| {
        let one = value(&get(at, "/metrics").body, "inflight_worker_wedged", &series);
        (one == Some(1.0)).then_some(())
    });
    shown.expect("the gauge shows it, too");
    let response = get(at, &format!("/workers/{}", busy.pid()));
    assert_eq!(response.status, 200, "{}", response.body);
    let view = response.json();
    assert_eq!((&view["wedged"], &view["workers"][0]["why"]), (&false.into(), &Value::Null));
    assert!(view["workers"][0]["beat_age_s"].as_f64().unwrap() < 60.0, "{view:#}");
    let all = get(at, "/workers");
    let pids: BTreeSet<u64> = all.json()["workers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|worker| worker["pid"].as_u64().unwrap())
        .collect();
    assert_eq!(all.status, 200);
    assert!(pids.is_superset(&BTreeSet::from([stuck.pid().into(), busy.pid().into()])));
    agent.end(Signal::TERM);
}

#[test]
fn every_path_says_what_it_is() {
    let _turn = turn();
    let state = tempfile::tempdir().unwrap();
    let worker = Worker::table("peer");
    let (agent, at) = agent(state.path(), &[worker.pid()], &[]);
    let health = get(at, "/healthz");
    assert_eq!(health.status, 200, "{health:?}");
    assert!(health.json()["loop_age_s"].as_f64().unwrap() < 10.0);
    assert_eq!(get(at, "/readyz").status, 200);
    let cases = [
        ("/", 404, "/workers/{pid}"),
        ("/rooms", 404, "/metrics"),
        ("/agent", 404, "/metrics"),
        ("/workers/1", 404, "process 1 is no worker under watch"),
        ("/workers/abc", 404, "`abc` is no process id"),
        ("/workers/99999999999", 404, "is no process id"),
    ];
    for (path, status, told) in cases {
        let response = get(at, path);
        assert_eq!(response.status, status, "{path}: {response:?}");
        assert!(response.json().to_string().contains(told), "{path}: {response:?}");
    }
    assert_eq!(request(at, "POST /metrics HTTP/1.1\r\ncontent-length: 0").status, 405);
    let long = format!("GET /{} HTTP/1.1", "x".repeat(20_000));
    assert!(matches!(request(at, &long).status, 414 | 431));
    let (status, told) = ask(state.path(), "/rooms?limit=many");
    assert!(status == 400 && told.to_string().contains("`limit` is `many`"), "{told}");
    let (status, told) = ask(state.path(), "/nothing");
    assert!(status == 404 && told.to_string().contains("/rooms"), "{told}");
    agent.end(Signal::TERM);
}

#[test]
fn the_socket_is_roots_alone_and_outlives_a_killed_agent() {
    let _turn = turn();
    let state = tempfile::tempdir().unwrap();
    let socket = state.path().join("agent.sock");
    let worker = Worker::table("peer");
    let (first, _) = agent(state.path(), &[worker.pid()], &[]);
    let mode = socket.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    first.end(Signal::KILL);
    assert!(socket.exists());
    let (second, at) = agent(state.path(), &[worker.pid()], &["--stall", "7"]);
    let (status, view) = ask(state.path(), "/agent");
    assert_eq!(status, 200);
    assert_eq!(view["http"]["listen"], at.to_string());
    assert_eq!((&view["probes"]["on"], &view["ready"]), (&true.into(), &true.into()), "{view:#}");
    let settings = view["settings"].as_array().unwrap();
    let stall = settings.iter().find(|setting| setting["key"] == "deadlines.stall").unwrap();
    assert_eq!((stall["value"].as_f64(), &stall["origin"]), (Some(7.0), &"flag --stall".into()));
    second.end(Signal::TERM);
}

#[test]
fn open_rooms_are_listed_the_oldest_first() {
    let _turn = turn();
    let state = tempfile::tempdir().unwrap();
    let Stuck { agent, worker, .. } = Stuck::new(state.path(), None);
    let (status, view) = ask(state.path(), &format!("/rooms?pid={}", worker.pid()));
    assert_eq!((status, &view["open"]), (200, &3.into()));
    let rooms = view["rooms"].as_array().unwrap();
    assert_eq!(
        rooms.iter().map(|room| room["room"].as_str().unwrap()).collect::<Vec<_>>(),
        ["0", "1", "2"]
    );
    let first = &rooms[0];
    assert_eq!((&first["rid"], &first["posts"]), (&"rid".into(), &1.into()), "{first:#}");
    assert_eq!(first["worker"]["pid"], worker.pid());
    assert_eq!(first["peers"][0]["value"], "nobody");
    assert!(first["dwell_s"].as_f64().unwrap() >= 1.0, "{first:#}");
    let standing = rooms.iter().filter(|room| room["verdict"]["severity"] == "alert");
    let alerts = standing.count();
    assert!(alerts > 0 && view["alerts"] == alerts, "{view:#?}");
    let shown = |more: &[&str]| {
        let state = state.path().to_str().unwrap();
        let output = inflightd(&["rooms", "--state-dir", state]).args(more).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let pid = worker.pid().to_string();
    let table = shown(&["--pid", &pid]);
    assert!(table.starts_with("3 open rooms, "), "{table}");
    assert_eq!(table.lines().count(), 5, "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 160), "{table}");
    let one: Value =
        serde_json::from_str(&shown(&["--json", "--pid", &pid, "--limit", "1"])).unwrap();
    assert_eq!((&one["open"], one["rooms"].as_array().unwrap().len()), (&3.into(), 1));
    assert_eq!((&one["left"], &one["alerts"]), (&0.into(), &alerts.into()), "{one:#}");
    let none = shown(&["--pid", &pid, "--limit", "0"]);
    let sum = format!("3 open rooms, {alerts} of them in an alert; none shown");
    assert!(none.starts_with(&sum) && none.lines().count() == 1, "{none}");
    agent.end(Signal::TERM);
    let output = inflightd(&["rooms", "--state-dir"]).arg(state.path()).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(7), "{told}");
    assert!(told.contains("no agent runs"), "{told}");
}

#[test]
fn clients_that_never_read_or_write_harm_nobody() {
    let _turn = turn();
    let state = tempfile::tempdir().unwrap();
    let worker = Worker::table("stay");
    let (agent, at) = agent(state.path(), &[worker.pid()], &DEADLINES);
    // More than there are places, half of them within a request's head.
    let silent: Vec<TcpStream> = (0..400)
        .map(|n| {
            let mut stream = TcpStream::connect(at).unwrap();
            if n % 2 == 0 {
                write!(stream, "GET /metr").unwrap();
            }
            stream
        })
        .collect();
    assert_eq!(get(at, "/healthz").status, 200, "silence does not take the places of others");
    let deaf: Vec<TcpStream> = (0..10)
        .map(|_| {
            let mut stream = TcpStream::connect(at).unwrap();
            write!(stream, "GET /metrics HTTP/1.1\r\nhost: test\r\n\r\n").unwrap();
            stream
        })
        .collect();
    // The socket has places of its own, and the loop does not notice.
    assert_eq!(ask(state.path(), "/healthz").0, 200);
    agent.wait_for(worker.pid(), "verdict", |line| line["room"] == "2");
    let health = ask(state.path(), "/healthz").1;
    assert!(health["loop_age_s"].as_f64().unwrap() < 5.0, "{health}");
    let fds = fds(agent.pid());
    assert!(fds < 256 + 110, "{fds} descriptors: the bound on connections does not hold");
    // Those that ask for nothing are closed, and keep nobody waiting meanwhile.
    for mut stream in &silent {
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        let closed = stream.read_to_end(&mut Vec::new());
        assert!(closed.is_ok() || closed.unwrap_err().kind() == ErrorKind::ConnectionReset);
    }
    let served = within_a_minute(|| {
        let mut stream = TcpStream::connect(at).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        write!(stream, "GET /healthz HTTP/1.1\r\nhost: test\r\n\r\n").ok()?;
        stream.shutdown(Shutdown::Write).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        text.starts_with("HTTP/1.1 200").then_some(())
    });
    served.expect("others are served again");
    drop((silent, deaf));
    let (_, status) = agent.end(Signal::TERM);
    assert!(status.success());
}

#[test]
fn an_address_that_is_taken_is_an_error_only_where_it_was_asked_for() {
    let _turn = turn();
    let state = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = inflightd(&["run", "--listen", &address, "--state-dir"])
        .arg(state.path())
        .output()
        .unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("http.listen") && told.contains(&address), "{told}");
    // Whoever has the default's port, this test or another agent: it is taken.
    let held = TcpListener::bind("127.0.0.1:9464");
    let worker = Worker::table("peer");
    let only = format!("--pid={}", worker.pid());
    let agent = Agent::start(state.path(), &[&only]);
    let view = ready(state.path());
    let http = &view["http"];
    assert_eq!(http["listen"], Value::Null, "{view:#}");
    assert!(http["problem"].as_str().unwrap().contains("127.0.0.1:9464"), "{view:#}");
    drop(held);
    agent.end(Signal::TERM);
    let off = Agent::start(state.path(), &["--listen", "off", &only]);
    let http = &ready(state.path())["http"];
    assert_eq!((&http["listen"], &http["problem"]), (&Value::Null, &Value::Null), "{http:#}");
    off.end(Signal::TERM);
}
