use std::collections::BTreeSet;

use inflightd_abi::table::Gauge;
use inflightd_abi::table::Ranks;
use inflightd_core::fact::{Outcome, Room, Seq};
use inflightd_core::verdict::{Appended, Bytes, Clear, ClearReason, Dwell, Tier};
use inflightd_core::{Cause, Finding, Reason, Sight, Source};

use super::*;
use crate::glance::{Wedged, Why};
use crate::identity::Identity;
use crate::names::About;

fn name(pid: u32) -> WorkerName {
    let about = About {
        index: 2,
        role: "prefill".to_owned(),
        engine: "sgl\"ang\n".to_owned(),
        version: "1".to_owned(),
        ranks: Ranks::default(),
        identities: Vec::new(),
    };
    let identity = Identity { boot: "b".to_owned(), pid, start: 1, index: 2 };
    WorkerName { identity, about }
}

fn dwell(worker: u32, outcome: Outcome) -> Output {
    Output::Dwell(Dwell {
        at: Nanos::from_secs(9),
        worker: Worker(worker),
        seq: Seq(1),
        room: Room(1),
        outcome,
        dwell: Nanos::from_millis(30),
        bytes: Bytes { expected: 7, posted: 7, completed: 7 },
        peers: Vec::new(),
        cause: None,
        stalled: false,
        held: false,
        evidence: Vec::new(),
        tier: Tier::Room,
    })
}

fn glance() -> Glance {
    Glance {
        open: 3,
        suspects: 2,
        blind: 1,
        stalled: [((Finding::StoppedMidway, Cause::PeerFrozen), 1)].into(),
        oldest_dwell: Nanos::from_secs(40),
        oldest_still: Nanos::from_secs(39),
        beat_age: Some(Nanos::from_millis(1500)),
        wedged: Some(Wedged { why: Why::NothingCompletes, since: Nanos::from_secs(1) }),
        coverage: vec![
            (Source::Table, Sight::Visible),
            (Source::Marks, Sight::Blind(Reason::NotAttached)),
        ],
        says: vec![(Gauge::SlotsFree, 5)],
    }
}

fn scrape(meters: &Meters) -> String {
    String::from_utf8(meters.scrape().text().unwrap()).unwrap()
}

/// The value of the series whose name and labels are these.
fn value(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

/// A worker's labels as they show, with more before the role.
fn labels(pid: u32, before: &str, after: &str) -> String {
    format!(
        "{{{before}engine=\"sgl\\\"ang\\n\",index=\"2\"{after},pid=\"{pid}\",role=\"prefill\"}}"
    )
}

fn meters() -> Meters {
    let meters = Meters::new().unwrap();
    meters.instruments.meet(Worker(1), &name(77));
    meters
}

#[test]
fn every_definition_is_there_once_and_by_the_rules() {
    let names: BTreeSet<&str> = defs::ALL.iter().map(|def| def.name).collect();
    assert_eq!(names.len(), defs::ALL.len());
    for def in defs::ALL {
        assert_eq!(def.name.ends_with("_total"), def.kind == defs::Kind::Counter, "{}", def.name);
        assert!(def.help.ends_with('.'), "{}", def.name);
        assert_eq!(def.unit == "s", def.name.contains("_seconds"), "{}", def.name);
        assert_eq!(def.unit == "By", def.name.contains("_bytes"), "{}", def.name);
    }
}

#[test]
fn every_definition_shows_in_a_scrape() {
    let meters = meters();
    let instruments = &meters.instruments;
    instruments.show(Worker(1), glance());
    instruments.take(&dwell(1, Outcome::Success));
    instruments.take(&Output::Append(Appended {
        at: Nanos::ZERO,
        worker: Worker(1),
        seq: Seq(1),
        room: Room(1),
        expected: 0,
        peers: Vec::new(),
        late: false,
        tier: Tier::Room,
    }));
    instruments.take(&Output::Clear(Clear {
        at: Nanos::ZERO,
        worker: Worker(1),
        seq: Seq(1),
        room: Room(1),
        finding: Finding::Blind,
        cause: Cause::Unknown,
        why: ClearReason::Ended,
    }));
    instruments.take(&Output::Loss(Nanos::ZERO, Worker(1), Source::Marks, 5));
    instruments.woke_late_by(Nanos::from_millis(2));
    instruments.set_counts(4, 6, &[("ring_full", 8)]);
    instruments.set_armed((2, 90));
    let text = scrape(&meters);
    for def in defs::ALL {
        // A verdict has too many parts to be made by hand; the agent's own test has one.
        if def.name != defs::VERDICTS.name {
            assert!(text.contains(&format!("# HELP {} {}\n", def.name, def.help)), "{}", def.name);
        }
    }
    let check = |series: String, expected: f64| {
        assert_eq!(value(&text, &series), Some(expected), "{series}\n{text}");
    };
    check(format!("inflight_rooms_open{}", labels(77, "", "")), 3.0);
    check(format!("inflight_worker_beat_age_seconds{}", labels(77, "", "")), 1.5);
    let says = labels(77, "", "").replace('}', ",what=\"slots_free\"}");
    check(format!("inflight_worker_says{says}"), 5.0);
    check(format!("inflight_worker_wedged{}", labels(77, "", "")), 1.0);
    check(format!("inflight_completed_bytes_total{}", labels(77, "", "")), 7.0);
    check("inflightd_mishaps_total{kind=\"ring_full\"}".to_owned(), 8.0);
    check("inflightd_links".to_owned(), 6.0);
    check("inflightd_workers".to_owned(), 1.0);
    check("inflightd_armed_processes".to_owned(), 2.0);
    check("inflightd_armed_hits_total".to_owned(), 90.0);
    let outcome = labels(77, "", ",outcome=\"success\"");
    check(format!("inflight_removals_total{outcome}"), 1.0);
    check(format!("inflight_dwell_seconds_count{outcome}"), 1.0);
}

#[test]
fn gauges_end_with_their_worker_and_counters_stay() {
    let meters = meters();
    meters.instruments.show(Worker(1), glance());
    meters.instruments.take(&dwell(1, Outcome::Failed));
    assert!(scrape(&meters).contains("inflight_coverage{"));
    meters.instruments.end(Worker(1));
    let text = scrape(&meters);
    let of_workers: BTreeSet<&str> = text
        .lines()
        .filter(|line| line.contains("pid=\"77\""))
        .filter_map(|line| line.split('{').next())
        .filter(|name| !name.starts_with("inflight_dwell_seconds"))
        .collect();
    let counters =
        ["inflight_appends_total", "inflight_completed_bytes_total", "inflight_removals_total"];
    assert_eq!(of_workers, BTreeSet::from(counters), "{text}");
}

#[test]
fn a_worker_that_comes_by_the_same_labels_begins_anew() {
    let meters = meters();
    meters.instruments.take(&dwell(1, Outcome::Success));
    meters.instruments.end(Worker(1));
    meters.instruments.meet(Worker(2), &name(77));
    let text = scrape(&meters);
    let series = format!("inflight_completed_bytes_total{}", labels(77, "", ""));
    assert_eq!(value(&text, &series), Some(0.0), "{text}");
}

#[test]
fn series_are_bounded_however_many_workers_come_and_go() {
    let meters = Meters::new().unwrap();
    for pid in 0..4_000 {
        meters.instruments.meet(Worker(pid), &name(pid));
        meters.instruments.show(Worker(pid), glance());
        meters.instruments.take(&dwell(pid, Outcome::Success));
        meters.instruments.end(Worker(pid));
    }
    for pid in 4_000..6_000 {
        meters.instruments.meet(Worker(pid), &name(pid));
        meters.instruments.show(Worker(pid), glance());
    }
    let text = scrape(&meters);
    let count = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
    assert_eq!(count("inflight_rooms_open{"), board::LIVING_MAX);
    assert_eq!(count("inflight_appends_total{"), board::LIVING_MAX + board::ENDED_MAX);
    let kept = count("inflight_dwell_seconds_count{");
    assert!(kept < board::ENDED_MAX, "{kept}");
    assert!(!text.contains("overflow"), "the SDK's bound is never met");
}

#[test]
fn what_otlp_collects_is_what_prometheus_scrapes() {
    use opentelemetry_sdk::metrics::data::ResourceMetrics;
    use opentelemetry_sdk::metrics::reader::MetricReader as _;
    let meters = meters();
    // From here on the histograms are kept for OTLP, too.
    drop(meters.exported().readers());
    meters.instruments.show(Worker(1), glance());
    meters.instruments.take(&dwell(1, Outcome::Success));
    meters.instruments.woke_late_by(Nanos::from_millis(2));
    let mut names = BTreeSet::new();
    for reader in meters.exported().readers() {
        let mut collected = ResourceMetrics::default();
        reader.collect(&mut collected).unwrap();
        for scope in collected.scope_metrics() {
            names.extend(scope.metrics().map(|metric| metric.name().to_owned()));
        }
    }
    let text = scrape(&meters);
    let scraped: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next())
        .map(ToOwned::to_owned)
        .collect();
    assert_eq!(names, scraped);
}

#[test]
fn a_worker_that_ended_between_two_readers_shows_at_neither() {
    use opentelemetry_sdk::metrics::data::ResourceMetrics;
    use opentelemetry_sdk::metrics::reader::MetricReader as _;
    let meters = meters();
    meters.instruments.show(Worker(1), glance());
    let [reader, _] = meters.exported().readers();
    reader.collect(&mut ResourceMetrics::default()).unwrap();
    meters.instruments.end(Worker(1));
    assert!(!scrape(&meters).contains("inflight_rooms_open{"));
}

#[test]
fn the_histogram_of_otlp_goes_on_when_it_begins_anew() {
    use opentelemetry_sdk::metrics::data::{ResourceMetrics, ScopeMetrics};
    use opentelemetry_sdk::metrics::reader::MetricReader as _;
    let meters = Meters::new().unwrap();
    drop(meters.exported().readers());
    for pid in 0..600 {
        meters.instruments.meet(Worker(pid), &name(pid));
        meters.instruments.end(Worker(pid));
    }
    meters.instruments.meet(Worker(9_000), &name(77));
    meters.instruments.take(&dwell(9_000, Outcome::Success));
    let [_, dwells] = meters.exported().readers();
    let mut collected = ResourceMetrics::default();
    dwells.collect(&mut collected).unwrap();
    assert_eq!(collected.scope_metrics().flat_map(ScopeMetrics::metrics).count(), 1);
}
