//! The ledger's cost for an event, at 1,000 to 100,000 open rooms, from its own benchmark.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::Row;
use crate::shell::Step;
use crate::tree::cargo;

/// How long it may take, its compiling included.
const LIMIT: Duration = Duration::from_mins(40);
/// Events of one stay in the benchmark, and of the room beside it.
const EVENTS: f64 = 13.0;

/// Most growth from 1,000 rooms to 100,000: log2(100,000) / log2(1,000) is 1.7; caches take their
/// part.
const GROWTH_MAX: f64 = 3.0;
/// Benchmarks of ticks, what the table says of them, and the goal.
const TICKS: [(&str, &str, &str); 2] = [
    (
        "tick_with_nothing_due/",
        "a tick with nothing due, at the same sizes",
        "flat but for a logarithm",
    ),
    (
        "tick_with_one_due/",
        "a tick with one room due, whose stall is told, at the same sizes",
        "costs only what is due",
    ),
];

pub(super) fn measure() -> Result<Vec<Row>> {
    let step = Step { what: "the ledger's benchmark", fix: "see the lines above" };
    let mut bench = cargo(&["bench", "--package", "inflightd-core", "--bench", "ledger"]);
    let (lines, good) = step.told(&mut bench, LIMIT)?;
    if !good {
        bail!("the ledger's benchmark failed");
    }
    rows(&times(&lines)).context("the benchmark did not print the times of three sizes")
}

/// Benchmarks by name with their median time in nanoseconds.
///
/// criterion prints `name   time:   [low unit  median unit  high unit]`, the name on a line of
/// its own where it is long.
fn times(lines: &[String]) -> Vec<(String, f64)> {
    let mut name = String::new();
    let mut found = Vec::new();
    for line in lines {
        let Some((before, after)) = line.split_once("time:") else {
            line.trim().clone_into(&mut name);
            continue;
        };
        if !before.trim().is_empty() {
            before.trim().clone_into(&mut name);
        }
        let fields: Vec<&str> = after.trim().trim_matches(['[', ']']).split_whitespace().collect();
        if let [_, _, value, unit, ..] = fields.as_slice()
            && let Some(nanos) = nanos(value, unit)
        {
            found.push((name.clone(), nanos));
        }
    }
    found
}

fn nanos(value: &str, unit: &str) -> Option<f64> {
    let scale = match unit {
        "ps" => 1e-3,
        "ns" => 1.0,
        "µs" | "us" => 1e3,
        "ms" => 1e6,
        _ => return None,
    };
    Some(value.parse::<f64>().ok()? * scale)
}

fn rows(times: &[(String, f64)]) -> Option<Vec<Row>> {
    let of = |what: &str, size: &str| {
        let wanted = |(name, _): &&(String, f64)| name.contains(what) && name.ends_with(size);
        times.iter().find(wanted).map(|(_, nanos)| *nanos)
    };
    let sizes = ["1000", "10000", "100000"];
    let [small, middle, large] = sizes.map(|size| of("event/", size));
    let (small, middle, large) = (small? / EVENTS, middle? / EVENTS, large? / EVENTS);
    let growth = large / small.max(1.0);
    let mut rows = vec![
        Row::new(
            "the ledger, per event, with 1,000, 10,000 and 100,000 rooms open in 1, 1 and 7 workers, \
             all at work",
            format!("{small:.0}, {middle:.0} and {large:.0} ns: {growth:.1} ×"),
        )
        .goal("flat but for a logarithm", growth <= GROWTH_MAX),
    ];
    for (name, what, goal) in TICKS {
        if let [Some(small), Some(middle), Some(large)] = sizes.map(|size| of(name, size)) {
            let growth = large / small.max(1.0);
            let value = format!("{small:.0}, {middle:.0} and {large:.0} ns: {growth:.1} ×");
            rows.push(Row::new(what, value).goal(goal, growth <= GROWTH_MAX));
        }
    }
    Some(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_benchmark_s_lines_are_read() {
        let lines: Vec<String> = [
            "event/open_rooms/1000   time:   [6.0000 µs 6.5000 µs 7.0000 µs]",
            "                        change: [-1% +0% +1%] (p = 0.5)",
            "Benchmarking event/open_rooms/10000",
            "event/open_rooms/10000",
            "                        time:   [7.0 µs 7.8 µs 8.0 µs]",
            "event/open_rooms/100000 time:   [9.0 µs 9.1 µs 9.2 µs]",
        ]
        .map(str::to_owned)
        .to_vec();
        let found = times(&lines);
        assert_eq!(found.len(), 3);
        assert_eq!(found[1].0, "event/open_rooms/10000");
        let rows = rows(&found).unwrap();
        assert_eq!(rows[0].value, "500, 600 and 700 ns: 1.4 ×");
        assert!(rows[0].goal.as_ref().unwrap().1);
    }
}
