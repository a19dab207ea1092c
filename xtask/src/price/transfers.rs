//! What one NIXL transfer pays: probe hits, and CPU of the posting process with the agent off and
//! on.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::agent::Agent;
use super::sample::{change, median, noise};
use super::{Row, calls};
use crate::say;
use crate::setup::venv_python;
use crate::tree::root;

/// Descriptors of a transfer, the bytes of each, transfers of a series, and the goal in percent.
const SHAPES: [(u32, u32, u32, f64); 2] = [(32, 4096, 400, 1.0), (3840, 4096, 60, 0.1)];
/// Series of each setting, taken in turn.
const SERIES: usize = 7;
/// Counts hits and their run time in kernel programs, at a cost of its own: for counting only.
const STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";
pub(super) fn measure() -> Result<Vec<Row>> {
    let trap = calls::trap()?;
    say::line(format_args!("  an empty uprobe takes {trap:.0} ns"));
    let mut decode = Side::start("pair/decode.py", "bench-decode")?;
    let mut poster = Side::start("price/transfers.py", "bench-poster")?;
    poster.tell(&json!({
        "do": "peer", "name": decode.name, "address": field(&decode.ready, "address"),
        "metadata": field(&decode.ready, "metadata"),
    }))?;
    poster.hear("peered")?;
    let mut rows = Vec::new();
    for (descriptors, page, transfers, goal) in SHAPES {
        let run = json!({
            "do": "run", "transfers": transfers, "descriptors": descriptors, "page": page,
        });
        // Wires up, and fills caches.
        cpu(&mut poster, &run)?;
        rows.extend(shape(&mut poster, &run, (descriptors, goal), trap)?);
    }
    drop(decode.child.kill());
    Ok(rows)
}

fn shape(
    poster: &mut Side,
    run: &Value,
    (descriptors, goal): (u32, f64),
    trap: f64,
) -> Result<[Row; 2]> {
    let (mut off, mut again, mut on) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..SERIES {
        off.push(cpu(poster, run)?);
        again.push(cpu(poster, run)?);
        let agent = Agent::start(&[poster.pid()], 600.0)?;
        on.push(cpu(poster, run)?);
        drop(agent);
    }
    let agent = Agent::start(&[poster.pid()], 600.0)?;
    let (hits, nanos) = counted(poster, run, &agent)?;
    let cost = nanos + hits * trap;
    let base = median(&off);
    let share = cost / base.max(1.0) * 100.0;
    let (plus, noise) = (change(base, median(&on)), noise(&off, &again));
    say::line(format_args!(
        "  N = {descriptors}: {base:.0} ns of CPU a transfer, {:.0} again, {:.0} with the agent; \
         {hits:.1} hits, {nanos:.0} ns in programs",
        median(&again),
        median(&on)
    ));
    Ok([
        Row::new(
            format!("probe hits of one NIXL transfer of {descriptors} descriptors, 6 marks of the hook among them"),
            format!("{hits:.1}"),
        ),
        Row::new(
            format!("its share of the posting process's CPU, by hits × cost (N = {descriptors})"),
            format!(
                "{share:.2} % of {:.0} µs (measured: {plus:+.1} %, two equal runs differ by {noise:.1} %)",
                base / 1e3
            ),
        )
        .goal(format!("≤ {goal} %"), share <= goal),
    ])
}

/// CPU time of the poster for one transfer, in nanoseconds.
fn cpu(poster: &mut Side, run: &Value) -> Result<f64> {
    poster.tell(run)?;
    let ran = poster.hear("ran")?;
    field(&ran, "cpu").as_f64().context("the poster said no cpu")
}

/// Hits for one transfer, and nanoseconds that they spent in kernel programs.
fn counted(poster: &mut Side, run: &Value, agent: &Agent) -> Result<(f64, f64)> {
    let _stats = Stats::on()?;
    let before = agent.hits()?;
    poster.tell(run)?;
    poster.hear("ran")?;
    let after = agent.hits()?;
    let transfers = field(run, "transfers").as_f64().unwrap_or(1.0);
    Ok(((after.0 - before.0) / transfers, (after.1 - before.1) / transfers))
}

/// The kernel's counting of its programs' runs, put back as it was.
struct Stats {
    was: String,
}

impl Stats {
    fn on() -> Result<Self> {
        let was = std::fs::read_to_string(STATS).with_context(|| format!("reading {STATS}"))?;
        std::fs::write(STATS, "1").with_context(|| format!("writing {STATS}"))?;
        Ok(Self { was })
    }
}

impl Drop for Stats {
    fn drop(&mut self) {
        drop(std::fs::write(STATS, self.was.trim()));
    }
}

/// One process that speaks JSON lines.
struct Side {
    name: String,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    ready: Value,
}

impl Side {
    fn start(script: &str, name: &str) -> Result<Self> {
        // A name that processes of two runs claim is nobody's.
        let name = format!("{name}-{}", std::process::id());
        let mut command = Command::new(venv_python());
        command.arg(root().join("xtask").join(script)).arg(&name);
        command.args(["--memory", "67108864"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().with_context(|| format!("starting {script}"))?;
        let input = child.stdin.take().context("a piped stdin is always there")?;
        let output = child.stdout.take().context("a piped stdout is always there")?;
        let output = BufReader::new(output);
        let mut side = Self { name, child, input, output, ready: Value::Null };
        side.ready = side.hear("ready")?;
        Ok(side)
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn tell(&mut self, command: &Value) -> Result<()> {
        writeln!(self.input, "{command}").with_context(|| format!("telling {}", self.name))
    }

    /// The next event of that name; others are passed over.
    fn hear(&mut self, event: &str) -> Result<Value> {
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).context("hearing the pair")? == 0 {
                bail!("{} ended before it said {event:?}", self.name);
            }
            let told: Value = serde_json::from_str(&line).context("an event is a JSON line")?;
            if field(&told, "event") == event {
                return Ok(told);
            }
            if field(&told, "event") == "refused" {
                bail!("{} refused: {}", self.name, field(&told, "why"));
            }
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A field of an event; null where it has none.
fn field<'a>(event: &'a Value, name: &str) -> &'a Value {
    event.get(name).unwrap_or(&Value::Null)
}
