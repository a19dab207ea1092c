//! The agent's export by OTLP, decoded by an independent collector. Needs root.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends by a panic, and its helpers are part of it"
)]

mod agent_support;
mod collector_support;

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use agent_support::{Agent, Worker, inflightd, turn, within_a_minute};
use collector_support::{Collector, agent, certificates, configure, is_about};
use rustix::process::Signal;
use serde_json::Value;

/// Not a test of its own: what [`Worker::table`] starts.
#[test]
fn as_a_worker() {
    agent_support::worker::main();
}

/// A worker with three rooms to a peer that has just died, seen by the agent.
fn bereaved(agent_of: impl FnOnce(&[&Worker]) -> Agent) -> (Worker, Agent) {
    let peer = Worker::table("peer");
    let worker = Worker::table("stay");
    let agent = agent_of(&[&worker, &peer]);
    agent.wait_for(peer.pid(), "coverage", |_| true);
    agent.wait_for(worker.pid(), "append", |line| line["room"] == "2");
    drop(peer);
    (worker, agent)
}

fn is_alert(span: &Value) -> bool {
    span["name"] == "inflight.stall" && span["attributes"]["inflight.severity"] == "alert"
}

fn a_stall_is_exported_while_it_stands(protocol: &str) {
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    let collector = Collector::start(&[]);
    let headers = dir.path().join("headers");
    fs::write(&headers, "# who\nx-tenant: 7\n").unwrap();
    let endpoint = collector.endpoint("http", protocol);
    let settings = [
        ("endpoint", &*endpoint),
        ("protocol", protocol),
        ("headers_file", headers.to_str().unwrap()),
    ];
    let config = configure(dir.path(), &settings);
    let (worker, agent) = bereaved(|workers| agent(&config, workers));

    let (batch, stall) = collector.wait_for("traces", |span| is_alert(span) && is_about(span, 0));
    assert!(agent.lines(worker.pid(), "dwell").is_empty(), "the room is still in the queue");
    assert_eq!((&batch["via"], &batch["headers"]["x-tenant"]), (&protocol.into(), &"7".into()));
    // How a message was packed over gRPC only the wire shows: `otlp_sent.rs`.
    assert!(protocol == "grpc" || batch["encoding"] == "gzip", "{batch:#}");
    let line = agent.wait_for(worker.pid(), "verdict", |line| {
        line["room"] == "0" && line["id"] == stall["attributes"]["inflight.id"]
    });
    check_resource(&batch);
    check_stall(&stall, &line);
    check_record(&collector, &stall);

    let (_, other) =
        collector.wait_for("traces", |span| span["name"] == "inflight.stall" && is_about(span, 2));
    assert_ne!(other["traceId"], stall["traceId"]);
    assert_eq!(other["attributes"]["inflight.incident"], stall["attributes"]["inflight.incident"]);
    drop(worker);
    for stall in [&stall, &other] {
        let room = stall["attributes"]["inflight.room"].as_str().unwrap().parse().unwrap();
        let (_, dwell) = collector.span("inflight.dwell", room);
        assert_eq!(dwell["spanId"], stall["parentSpanId"], "{dwell:#}");
        assert_eq!(dwell["traceId"], stall["traceId"]);
        assert_eq!(dwell["attributes"]["inflight.outcome"], "unknown");
    }
    let (_, metric) =
        collector.wait_for("metrics", |metric| metric["name"] == "inflight_verdicts_total");
    let points = metric["sum"]["dataPoints"].as_array().unwrap();
    assert!(points.iter().all(|point| point["attributes"]["finding"].is_string()), "{metric:#}");
    assert!(agent.end(Signal::TERM).1.success());
}

fn check_resource(batch: &Value) {
    let resource = &batch["resource"];
    assert_eq!(resource["service.name"], "inflightd");
    assert_eq!(resource["service.version"], env!("CARGO_PKG_VERSION"));
    for key in ["host.name", "service.instance.id"] {
        assert!(resource[key].as_str().is_some_and(|text| !text.is_empty()), "{resource:#}");
    }
}

/// The span of a verdict of room 0 says what its line does.
fn check_stall(span: &Value, line: &Value) {
    // The engine handed this context on: the worker's side has it.
    assert_eq!(span["traceId"], agent_support::worker::TRACEPARENT[3..35], "{span:#}");
    assert_eq!(span["status"]["code"], "STATUS_CODE_ERROR");
    let attributes = &span["attributes"];
    for key in ["finding", "cause", "tier", "confidence", "rid", "severity", "dwell_s", "incident"]
    {
        assert_eq!(attributes[&format!("inflight.{key}")], line[key], "{key}");
    }
    for (key, field) in [("pid", "pid"), ("engine", "engine"), ("role", "role")] {
        assert_eq!(attributes[&format!("inflight.worker.{key}")], line["worker"][field], "{key}");
    }
    assert_eq!(attributes["inflight.bytes.expected"], 100);
    assert!(attributes["inflight.coverage.gaps"].is_array(), "{span:#}");
    let peer = attributes["inflight.peers"][0].as_str().unwrap();
    assert!(peer.starts_with("nixl_agent nobody"), "{peer}");
    let names = |list: &Value, key: &str| -> Vec<Value> {
        list.as_array().unwrap().iter().map(|item| item[key].clone()).collect()
    };
    assert_eq!(names(&span["events"], "name"), names(&line["evidence"], "id"));
    assert_eq!(attributes["inflight.evidence"], Value::from(names(&line["evidence"], "id")));
    let nanos = |key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
    let seconds = Duration::from_nanos(nanos("endTimeUnixNano") - nanos("startTimeUnixNano"));
    assert!((seconds.as_secs_f64() - line["dwell_s"].as_f64().unwrap()).abs() < 1e-6);
}

/// A log record says the same under the same ids.
fn check_record(collector: &Collector, span: &Value) {
    let (_, record) = collector.wait_for("logs", |record| record["spanId"] == span["spanId"]);
    assert_eq!(record["traceId"], span["traceId"]);
    assert_eq!(record["severityText"], "ERROR");
    assert_eq!(record["severityNumber"], "SEVERITY_NUMBER_ERROR");
    assert_eq!(record["timeUnixNano"], span["endTimeUnixNano"]);
    assert!(record["body"].as_str().unwrap().contains("ALERT     room 0 "), "{record:#}");
    assert_eq!(record["attributes"]["inflight.id"], span["attributes"]["inflight.id"]);
}

#[test]
fn a_stall_is_exported_while_it_stands_over_grpc() {
    a_stall_is_exported_while_it_stands("grpc");
}

#[test]
fn a_stall_is_exported_while_it_stands_over_http() {
    a_stall_is_exported_while_it_stands("http");
}

#[test]
fn ids_are_the_same_in_every_life() {
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    let collector = Collector::start(&[]);
    let endpoint = collector.endpoint("http", "grpc");
    let config = configure(dir.path(), &[("endpoint", &endpoint)]);
    let peer = Worker::table("peer");
    let worker = Worker::table("stay");
    let first = agent(&config, &[&worker, &peer]);
    let (_, stall) = collector.wait_for("traces", |span| is_about(span, 2));
    first.end(Signal::KILL);
    // One that knows nothing of the first comes to the same verdict.
    fs::remove_dir_all(dir.path().join("state")).unwrap();
    let second = agent(&config, &[&worker, &peer]);
    let ids = |span: &Value| -> [Value; 3] {
        ["traceId", "spanId", "parentSpanId"].map(|key| span[key].clone())
    };
    let again = within_a_minute(|| {
        let spans = collector.items("traces");
        let mut same = spans.iter().filter(|(_, span)| ids(span) == ids(&stall));
        same.nth(1).cloned()
    });
    let (batch, _) = again.expect("the same ids again");
    let (first_batch, _) = collector.items("traces").swap_remove(0);
    let instance = |batch: &Value| batch["resource"]["service.instance.id"].clone();
    assert_ne!(instance(&batch), instance(&first_batch));
    drop(second);
}

#[test]
fn certificates_are_checked_both_ways() {
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    certificates(dir.path());
    let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    let (cert, key, ca) = (path("server.pem"), path("server.key"), path("ca.pem"));
    let collector = Collector::start(&["--cert", &cert, "--key", &key, "--client-ca", &ca]);
    let worker = Worker::table("stay");
    for protocol in ["grpc", "http"] {
        let otlp = |ca: &str, identity: bool| {
            let endpoint = collector.endpoint("https", protocol);
            let (ca, cert, key) = (path(ca), path("client.pem"), path("client.key"));
            let mut settings = vec![("endpoint", &*endpoint), ("protocol", protocol)];
            settings.push(("ca_file", &ca));
            if identity {
                settings.extend([("cert_file", &*cert), ("key_file", &*key)]);
            }
            // What an agent before it has told is told again.
            drop(fs::remove_dir_all(dir.path().join("state")));
            configure(dir.path(), &settings)
        };
        for (ca, identity) in [("other.pem", true), ("ca.pem", false)] {
            let stranger = agent(&otlp(ca, identity), &[&worker]);
            stranger.wait_for(worker.pid(), "verdict", |_| true);
            thread::sleep(Duration::from_secs(2));
            drop(stranger);
            let taken = collector.items("metrics");
            let of_it = taken.iter().filter(|(batch, _)| batch["via"] == protocol).count();
            assert_eq!(of_it, 0, "{protocol} {ca} {identity}");
        }
        let known = agent(&otlp("ca.pem", true), &[&worker]);
        for signal in ["metrics", "logs"] {
            within_a_minute(|| {
                collector
                    .items(signal)
                    .iter()
                    .any(|(batch, _)| batch["via"] == protocol)
                    .then_some(())
            })
            .unwrap_or_else(|| panic!("{signal} over {protocol}"));
        }
        drop(known);
    }
}

#[test]
fn headers_are_read_again_on_sighup() {
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    let collector = Collector::start(&[]);
    let headers = dir.path().join("headers");
    fs::write(&headers, "authorization: Bearer one").unwrap();
    let endpoint = collector.endpoint("http", "http");
    let settings = [
        ("endpoint", &*endpoint),
        ("protocol", "http"),
        ("headers_file", headers.to_str().unwrap()),
    ];
    let worker = Worker::table("stay");
    let agent = agent(&configure(dir.path(), &settings), &[&worker]);
    let with = |token: &str| {
        let find = || {
            let taken = collector.items("metrics");
            taken.iter().any(|(batch, _)| batch["headers"]["authorization"] == token).then_some(())
        };
        within_a_minute(find).unwrap_or_else(|| panic!("{token}"));
    };
    with("Bearer one");
    fs::write(&headers, "authorization: Bearer two").unwrap();
    agent.signal(Signal::HUP);
    with("Bearer two");
    assert!(agent.end(Signal::TERM).1.success());
}

#[test]
fn headers_of_the_standard_variable_are_sent_but_where_the_file_has_them() {
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    let collector = Collector::start(&[]);
    let headers = dir.path().join("headers");
    fs::write(&headers, "x-tenant: mine\n").unwrap();
    let worker = Worker::table("stay");
    for protocol in ["grpc", "http"] {
        let endpoint = collector.endpoint("http", protocol);
        let settings = [
            ("endpoint", &*endpoint),
            ("protocol", protocol),
            ("headers_file", headers.to_str().unwrap()),
        ];
        let mut command = inflightd(&["run", "--json", "--log", "warn", "--config"]);
        command.arg(configure(dir.path(), &settings)).args(["--pid", &worker.pid().to_string()]);
        command.env("OTEL_EXPORTER_OTLP_HEADERS", "X-Tenant=theirs,x-more=a%20b,content-type=no");
        let agent = Agent::of(&mut command);
        let taken = within_a_minute(|| {
            let taken = collector.items("metrics");
            taken.into_iter().map(|(batch, _)| batch).find(|batch| batch["via"] == protocol)
        });
        let headers = taken.unwrap_or_else(|| panic!("over {protocol}"))["headers"].clone();
        assert_eq!((&headers["x-tenant"], &headers["x-more"]), (&"mine".into(), &"a b".into()));
        assert!(agent.end(Signal::TERM).1.success());
    }
}

/// Resident memory of a process, in KiB.
fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The agent's own count of what was dropped of a signal, as a collector knows it.
fn dropped(collector: &Collector, signal: &str) -> usize {
    let counts = collector
        .items_that("metrics", |metric| metric["name"] == "inflightd_export_dropped_total");
    let counts = counts.iter();
    let points = counts.flat_map(|(_, metric)| metric["sum"]["dataPoints"].as_array().unwrap());
    let of_signal = points.filter(|point| point["attributes"]["signal"] == signal);
    of_signal.map(|point| point["asInt"].as_str().unwrap().parse().unwrap()).max().unwrap_or(0)
}

#[test]
fn a_collector_that_never_reads_harms_nobody() {
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    let deaf = Collector::start(&["--deaf"]);
    let (port, endpoint) = (deaf.grpc().to_string(), deaf.endpoint("http", "grpc"));
    let settings =
        [("endpoint", &*endpoint), ("queue", "8"), ("timeout", "2"), ("healthy_share", "1")];
    let config = configure(dir.path(), &settings);
    // 60 rooms get a verdict at the same moment; 8 may wait, and again 8 while those are sent.
    let crowd = Worker::table("crowd");
    let mut churn = Worker::table("churn");
    let agent = agent(&config, &[&crowd, &churn]);
    within_a_minute(|| (agent.count(crowd.pid(), "verdict") >= 60).then_some(())).unwrap();
    let before = resident(agent.pid());
    // While a batch is on its way that nobody reads, rooms are told as they come.
    for _ in 0..3 {
        let seen = agent.count(churn.pid(), "append");
        let more = || (agent.count(churn.pid(), "append") >= seen + 50).then_some(());
        within_a_minute(more).expect("the loop does not wait for the collector");
    }
    let grown = resident(agent.pid()).saturating_sub(before);
    assert!(grown < 16 * 1024, "grew by {grown} KiB");
    drop(deaf);
    let told = agent.count(churn.pid(), "append");
    let collector = Collector::start(&["--grpc", &port]);
    // A room that came after the collector: nothing is stuck. Which ones find a place in so short
    // a queue is chance.
    collector.wait_for("traces", |span| {
        let attributes = &span["attributes"];
        let room = attributes["inflight.room"].as_str().and_then(|room| room.parse().ok());
        let pid = attributes["inflight.worker.pid"].as_u64();
        pid == Some(churn.pid().into()) && room.is_some_and(|room: usize| room >= told)
    });
    drop(churn.stop());
    // Nothing is lost in silence: what the collector has not taken is counted. How much that is,
    // is chance, and a batch that comes too late for its answer is both.
    let told = |kind| agent.count(crowd.pid(), kind) + agent.count(churn.pid(), kind);
    for (signal, kinds) in [("traces", ["verdict", "dwell"]), ("logs", ["verdict", "clear"])] {
        let told: usize = kinds.into_iter().map(told).sum();
        let counts = || (dropped(&collector, signal), collector.items(signal).len());
        within_a_minute(|| (counts().0 + counts().1 >= told).then_some(()))
            .unwrap_or_else(|| panic!("{signal}: {:?} of {told}", counts()));
        assert!((1..=told).contains(&counts().0), "{signal}: {:?} of {told}", counts());
    }
    assert!(agent.end(Signal::TERM).1.success());
}

#[test]
fn a_setting_that_cannot_be_used_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let bad = dir.path().join("bad.pem");
    fs::write(&bad, "-----BEGIN NOTHING-----\n").unwrap();
    let settings = [("endpoint", "https://127.0.0.1:1"), ("ca_file", bad.to_str().unwrap())];
    let config = configure(dir.path(), &settings);
    let mut command: Command = inflightd(&["run", "--config"]);
    let output = command.arg(&config).stdout(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("`otlp.ca_file`") && said.contains("holds no certificate"), "{said}");
}
