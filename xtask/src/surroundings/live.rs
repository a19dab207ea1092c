//! `surroundings`: a real Prometheus scrapes the real agent while a transfer hangs.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use rustix::process::Signal;

use super::dashboard::{Query, queries};
use super::server::{Server, await_some, free_port};
use super::worker::Duo;
use crate::clock::Moment;
use crate::say;
use crate::tree::target;
use crate::{cases, setup};

/// Longest wait for the alert: the stall of 3 s, a scrape and an evaluation, on a loaded machine.
const FIRES: Duration = Duration::from_mins(1);
/// Longest wait for its end: the alert is kept for 30 s, so that it does not flap.
const ENDS: Duration = Duration::from_mins(2);
/// Metrics that have no series before the first event, which a stall is not.
const ON_EVENT: [&str; 2] = ["inflight_events_lost_total", "inflightd_mishaps_total"];
/// Metrics of which each query says something while a room is stalled.
const OF_A_STALL: [&str; 7] = [
    "inflight_verdicts_total",
    "inflight_rooms_open",
    "inflight_rooms_suspect",
    "inflight_rooms_stalled",
    "inflight_oldest_without_progress_seconds",
    "inflight_oldest_dwell_seconds",
    "inflight_worker_beat_age_seconds",
];
/// Metrics that are 0 where the agent itself is well and sees all.
const OF_TROUBLE: [&str; 6] = [
    "inflight_rooms_blind",
    "inflight_events_lost_total",
    "inflightd_export_dropped_total",
    "inflightd_export_failures_total",
    "inflightd_misfits_total",
    "inflightd_mishaps_total",
];
/// Longest wait for what the dashboard shows of a stall: some scrapes.
const SHOWS: Duration = Duration::from_secs(30);
/// Rooms that end well before the decode is stopped.
const HEALTHY: u64 = 10;
/// Bytes of the room that hangs.
const LARGE: u64 = 64 << 20;

/// Options of `cargo xtask surroundings`.
#[derive(Args)]
pub(crate) struct Options {
    /// Check only what needs no agent
    #[arg(long)]
    still: bool,
}

/// Set up, build the agent, and go through a stall; an error where anything was not as it should.
pub(crate) fn run(options: &Options) -> Result<()> {
    setup::run()?;
    let tally = super::still();
    if !options.still {
        live()?;
    }
    if !tally.is_good() {
        bail!("{} checks failed: see above", tally.failed);
    }
    Ok(())
}

/// A real Prometheus on a real stall, with the agent of this tree: about a minute.
pub(crate) fn live() -> Result<()> {
    cases::need_root()?;
    cases::build_agent()?;
    let directory = tempfile::tempdir().context("making a directory")?;
    go(directory.path()).with_context(|| logs(directory.path()))
}

/// The last words of agent and server, for the error.
fn logs(directory: &Path) -> String {
    let tail = |name: &str| {
        let text = std::fs::read_to_string(directory.join(name)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = lines.get(lines.len().saturating_sub(5)..).unwrap_or_default();
        format!("{name}:\n{}\n", last.join("\n"))
    };
    [tail("agent.log"), tail("prometheus.log"), "what failed".to_owned()].concat()
}

fn go(directory: &Path) -> Result<()> {
    let begun = Moment::now();
    let mut duo = Duo::start(directory)?;
    let port = free_port()?;
    let address = format!("127.0.0.1:{port}");
    let _agent = Agent::start(directory, &address, &duo.pids())?;
    let server = Server::start(directory, &address)?;
    tell(begun, "Prometheus scrapes the agent");
    for _ in 0..HEALTHY {
        duo.append(1 << 20)?;
        duo.await_removal()?;
        std::thread::sleep(Duration::from_millis(300));
    }
    if let Some(found) = alerts(&server, "firing")?.first() {
        bail!("an alert fires while all is well: {found}");
    }
    duo.signal(Signal::STOP)?;
    duo.append(LARGE)?;
    let frozen = await_some(FIRES, || {
        let firing = alerts(&server, "firing")?;
        Ok(firing.iter().any(|alert| alert == "InflightStall peer_frozen page").then_some(firing))
    })?;
    let firing = frozen.context("the stall alert does not fire")?;
    let stalled_at = server.now()?;
    tell(begun, &format!("firing: {}", firing.join(", ")));
    if firing.len() != 1 {
        bail!("one root, {} alerts", firing.len());
    }
    let asked = ask_all(&server, stalled_at)?;
    tell(
        begun,
        &format!("{asked} queries of the dashboard, each with the numbers that it must have"),
    );
    duo.signal(Signal::CONT)?;
    duo.await_removal()?;
    let ended = await_some(ENDS, || Ok(alerts(&server, "firing")?.is_empty().then_some(())))?;
    ended.context("the alert does not end though the room has")?;
    tell(begun, "the room has ended, and the alert with it");
    Ok(())
}

fn tell(begun: Moment, what: &str) {
    let at = Moment::now().seconds_after(begun);
    say::line(format_args!("  {at:5.1} s  {what}"));
}

/// Alerts in a state: name, cause and severity of each.
fn alerts(server: &Server, state: &str) -> Result<Vec<String>> {
    let found = server.ask(&format!("ALERTS{{alertstate=\"{state}\"}}"))?;
    let text = |series: &serde_json::Value| {
        let label = |name: &str| {
            let label = series.pointer(&format!("/metric/{name}"));
            label.and_then(serde_json::Value::as_str).unwrap_or("-").to_owned()
        };
        format!("{} {} {}", label("alertname"), label("cause"), label("severity"))
    };
    Ok(found.iter().map(text).collect())
}

/// Ask every query of the dashboard until each has the numbers that it must have; how many there
/// were. A stall has stood since `stalled_at`.
fn ask_all(server: &Server, stalled_at: f64) -> Result<usize> {
    let all = queries("20s")?;
    let mut bad = Vec::new();
    let good = await_some(SHOWS, || {
        bad.clear();
        for query in &all {
            if let Some(fault) = fault(server, query, stalled_at)? {
                bad.push(format!("  {}: {}: {fault}", query.panel, query.expr));
            }
        }
        Ok(bad.is_empty().then_some(all.len()))
    })?;
    good.with_context(|| format!("queries that do not show the stall:\n{}", bad.join("\n")))
}

/// What is wrong with what a query gives. A number that is none, such as a quantile of nothing, is
/// no answer; nor is, for what shows a stall, what was so before it.
fn fault(server: &Server, query: &Query, stalled_at: f64) -> Result<Option<&'static str>> {
    let Query { expr, instant, .. } = query;
    let names = |metrics: &[&str]| metrics.iter().any(|metric| expr.contains(metric));
    // A query that gives 0 where the metric is missing would hide that it is.
    let expr = if names(&ON_EVENT) { expr } else { expr.trim_end_matches(" or vector(0)") };
    let since = if names(&OF_A_STALL) { stalled_at } else { 0.0 };
    let found = if *instant { server.ask(expr)? } else { server.ask_over(expr)? };
    let mut samples = found.iter().flat_map(samples).filter(|(at, _)| *at >= since).peekable();
    if found.is_empty() {
        return Ok(Some("no series"));
    }
    if samples.peek().is_none() {
        return Ok(Some("no sample of its time"));
    }
    let numbers: Vec<f64> = samples.map(|(_, number)| number).filter(|n| n.is_finite()).collect();
    if numbers.is_empty() {
        return Ok(Some("no sample is a number"));
    }
    let is_nothing = numbers.iter().all(|number| *number == 0.0);
    Ok((is_nothing && !names(&OF_TROUBLE)).then_some("every sample is 0"))
}

/// The samples of a series: when, and the number.
fn samples(series: &serde_json::Value) -> Vec<(f64, f64)> {
    let one = series.get("value").into_iter();
    let many = series.get("values").and_then(serde_json::Value::as_array).into_iter().flatten();
    let read = |sample: &serde_json::Value| {
        let number = sample.get(1)?.as_str()?.parse().ok()?;
        Some((sample.get(0)?.as_f64()?, number))
    };
    one.chain(many).filter_map(read).collect()
}

/// An agent with short deadlines.
pub(super) struct Agent(Child);

impl Agent {
    fn start(directory: &Path, listen: &str, pids: &[u32]) -> Result<Self> {
        Self::spawn((&["--json"], Stdio::null()), directory, listen, pids)
    }

    /// The same, whose lines people read as they come.
    pub(super) fn shown(directory: &Path, listen: &str, pids: &[u32]) -> Result<Self> {
        Self::spawn((&["--lines", "verdicts"], Stdio::inherit()), directory, listen, pids)
    }

    fn spawn(
        (lines, to): (&[&str], Stdio),
        directory: &Path,
        listen: &str,
        pids: &[u32],
    ) -> Result<Self> {
        let log = File::create(directory.join("agent.log")).context("making the agent's log")?;
        // A terminal that closes ends this program; the agent would take its hang-up for a reload.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM"]).arg(target().join("release/inflightd"));
        command.arg("run").args(lines).stdout(to);
        command.args(["--suspect", "1", "--stall", "3", "--listen", listen]);
        command.arg("--state-dir").arg(directory.join("state"));
        command.args(pids.iter().flat_map(|pid| ["--pid".to_owned(), pid.to_string()]));
        command.stdin(Stdio::null()).stderr(log);
        command.spawn().context("starting the agent").map(Self)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_a_moment_and_of_a_range_are_read() {
        let one = serde_json::json!({"metric": {}, "value": [7.5, "3"]});
        assert_eq!(samples(&one), [(7.5, 3.0)]);
        let many = serde_json::json!({"metric": {}, "values": [[1, "NaN"], [2, "0.5"]]});
        let [(at, none), last] = samples(&many)[..] else { panic!("two samples") };
        assert!((at - 1.0).abs() < 1e-9 && none.is_nan());
        assert_eq!(last, (2.0, 0.5));
    }
}
