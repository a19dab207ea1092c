//! What one NIXL transfer pays: probe hits, and CPU of the posting process with the agent off and
//! on.
//!
//! *Posting CPU* is that of the posting thread from making the request until its post has returned.
//! What the agent costs is held against it whole: what it adds to the thread from the room's entry to
//! its removal, not only inside that call. The process as a whole is no measure of posting: its
//! library polls as long as the wire takes, so that it pays more the slower the machine is.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::agent::Agent;
use super::sample::median;
use super::{Row, calls};
use crate::say;
use crate::setup::venv_python;
use crate::tree::root;

/// Descriptors of a transfer, the bytes of each, transfers of a series, and the goal in percent.
const SHAPES: [(u32, u32, u32, f64); 2] = [(32, 4096, 400, 1.0), (3840, 4096, 60, 0.1)];
/// Rounds, of one series of each setting.
const ROUNDS: usize = 9;
/// Counts hits and their run time in kernel programs, at a cost of its own: for counting only.
const STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";

pub(super) fn measure() -> Result<Vec<Row>> {
    let [hot, trap] = calls::trap()?;
    say::line(format_args!("  an empty uprobe takes {hot:.0} ns, with cold caches {trap:.0} ns"));
    let mut decode = Side::start("pair/decode.py", "bench-decode")?;
    let mut poster = Side::start("price/transfers.py", "bench-poster")?;
    poster.tell(&decode.introduced("peer"))?;
    poster.hear("peered")?;
    let mut rows = Vec::new();
    for (descriptors, page, transfers, goal) in SHAPES {
        let mut shape = Shape { poster: &mut poster, descriptors, page, transfers };
        rows.extend(shape.rows(trap, goal)?);
    }
    drop(decode.child.kill());
    Ok(rows)
}

/// CPU of one transfer, in nanoseconds.
#[derive(Clone, Copy)]
struct Cpu {
    /// Of the posting thread, from making the request until its post has returned.
    call: f64,
    /// Of the posting thread, from the room's entry to its removal, waiting left out.
    thread: f64,
    /// Of all threads, waiting included.
    process: f64,
}

/// One round: the agent off, the same again, and on.
type Round = [Cpu; 3];

struct Shape<'a> {
    poster: &'a mut Side,
    descriptors: u32,
    page: u32,
    transfers: u32,
}

impl Shape<'_> {
    fn rows(&mut self, trap: f64, goal: f64) -> Result<[Row; 3]> {
        let rounds: Vec<Round> = (0..ROUNDS).map(|n| self.round(n)).collect::<Result<_>>()?;
        let (hits, nanos) = self.counted()?;
        let n = self.descriptors;
        let cost = nanos + hits * trap;
        say::line(format_args!("  N = {n}: {hits:.1} hits, {nanos:.0} ns in programs"));
        let posting = Share::of(&rounds, |cpu| cpu.thread, |cpu| cpu.call, cost);
        let process = Share::of(&rounds, |cpu| cpu.process, |cpu| cpu.process, cost);
        Ok([
            Row::new(
                format!(
                    "probe hits of one NIXL transfer of {n} descriptors, 6 marks of the hook among \
                     them"
                ),
                format!("{hits:.1}"),
            ),
            Row::new(
                format!(
                    "CPU that they add to the posting thread, by that of making and posting the \
                     request (N = {n})"
                ),
                posting.to_string(),
            )
            .goal(format!("≤ {goal} %"), posting.judged() <= goal),
            Row::new(
                format!(
                    "CPU that they add to the process, whose library polls until all has arrived \
                     (N = {n})"
                ),
                process.to_string(),
            ),
        ])
    }

    /// A series of each setting, each in another place in the next round: what changes with time
    /// or comes of the series before must not be laid to one of them.
    fn round(&mut self, number: usize) -> Result<Round> {
        let mut round = [None; 3];
        for turn in 0..round.len() {
            let setting = (turn + number) % round.len();
            let agent =
                (setting == 2).then(|| Agent::start(&[self.poster.pid()], 600.0)).transpose()?;
            // Wires up and fills caches; an agent that has just come is done with its first look.
            self.run(self.transfers / 8)?;
            let cpu = self.run(self.transfers)?;
            drop(agent);
            if let Some(place) = round.get_mut(setting) {
                *place = Some(cpu);
            }
        }
        let [Some(off), Some(again), Some(on)] = round else { bail!("a setting was left out") };
        let us =
            [off, again, on].map(|cpu| format!("{:.0}/{:.0}", cpu.call / 1e3, cpu.thread / 1e3));
        say::line(format_args!(
            "  µs of call/thread: off {}, again {}, on {}",
            us[0], us[1], us[2]
        ));
        Ok([off, again, on])
    }

    fn run(&mut self, transfers: u32) -> Result<Cpu> {
        self.poster.tell(&json!({
            "do": "run", "transfers": transfers, "descriptors": self.descriptors, "page": self.page,
        }))?;
        let ran = self.poster.hear("ran")?;
        let of = |name| field(&ran, name).as_f64().with_context(|| format!("no {name} was said"));
        Ok(Cpu { call: of("call")?, thread: of("thread")?, process: of("process")? })
    }

    /// Hits for one transfer, and nanoseconds that they spent in kernel programs.
    fn counted(&mut self) -> Result<(f64, f64)> {
        let agent = Agent::start(&[self.poster.pid()], 600.0)?;
        let _stats = Stats::on()?;
        let before = agent.hits()?;
        self.run(self.transfers)?;
        let after = agent.hits()?;
        let transfers = f64::from(self.transfers);
        Ok(((after.0 - before.0) / transfers, (after.1 - before.1) / transfers))
    }
}

/// What the agent adds, in percent of what is paid without it.
struct Share {
    /// What is paid without it, in nanoseconds.
    base: f64,
    /// The median of what the rounds differ by with it.
    measured: f64,
    /// The median of what the two equal series of a round differ by.
    noise: f64,
    /// By the number of hits and what each costs.
    counted: f64,
}

impl Share {
    /// What is added to `paid`, in percent of `base`; `cost` is that by hits, in nanoseconds.
    fn of(
        rounds: &[Round],
        paid: impl Fn(&Cpu) -> f64,
        base: impl Fn(&Cpu) -> f64,
        cost: f64,
    ) -> Self {
        let over = |of: &dyn Fn(&Round) -> f64| median(&rounds.iter().map(of).collect::<Vec<_>>());
        let base = over(&|[off, again, _]| f64::midpoint(base(off), base(again))).max(1.0);
        let share = |nanos: f64| nanos / base * 100.0;
        Self {
            base,
            measured: share(over(&|[off, again, on]| {
                paid(on) - f64::midpoint(paid(off), paid(again))
            })),
            noise: share(over(&|[off, again, _]| (paid(off) - paid(again)).abs())),
            counted: share(cost),
        }
    }

    /// What was measured where that is more than noise.
    fn judged(&self) -> f64 {
        if self.measured > self.noise { self.measured } else { self.counted }
    }
}

impl std::fmt::Display for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { base, measured, noise, counted } = self;
        let us = base / 1e3;
        write!(
            f,
            "{measured:+.1} % of {us:.0} µs (two equal series differ by {noise:.1} %; by hits × \
             cost {counted:.2} %)"
        )
    }
}

/// The kernel's counting of its programs' runs, put back as it was.
pub(super) struct Stats {
    was: String,
}

impl Stats {
    pub(super) fn on() -> Result<Self> {
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
pub(super) struct Side {
    name: String,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    ready: Value,
}

impl Side {
    fn start(script: &str, name: &str) -> Result<Self> {
        Self::start_with(script, name, &[], "tcp,self")
    }

    /// Starts a script with further arguments, over these transports of UCX.
    pub(super) fn start_with(
        script: &str,
        name: &str,
        arguments: &[&str],
        transports: &str,
    ) -> Result<Self> {
        // A name that processes of two runs claim is nobody's.
        let name = format!("{name}-{}", std::process::id());
        let mut command = Command::new(venv_python());
        command.arg(root().join("xtask").join(script)).arg(&name);
        command.args(["--memory", "67108864"]).args(arguments).env("UCX_TLS", transports);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().with_context(|| format!("starting {script}"))?;
        let input = child.stdin.take().context("a piped stdin is always there")?;
        let output = child.stdout.take().context("a piped stdout is always there")?;
        let output = BufReader::new(output);
        let mut side = Self { name, child, input, output, ready: Value::Null };
        side.ready = side.hear("ready")?;
        Ok(side)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn tell(&mut self, command: &Value) -> Result<()> {
        writeln!(self.input, "{command}").with_context(|| format!("telling {}", self.name))
    }

    /// A command that says who this one is, as a far end.
    pub(super) fn introduced(&self, command: &str) -> Value {
        json!({
            "do": command, "name": self.name, "address": field(&self.ready, "address"),
            "metadata": field(&self.ready, "metadata"),
        })
    }

    /// The next event of that name; others are passed over.
    pub(super) fn hear(&mut self, event: &str) -> Result<Value> {
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
pub(super) fn field<'a>(event: &'a Value, name: &str) -> &'a Value {
    event.get(name).unwrap_or(&Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(thread: [f64; 3]) -> [Round; 3] {
        [thread.map(|thread| Cpu { call: 100.0, thread, process: 0.0 }); 3]
    }

    #[test]
    fn what_was_measured_counts_where_it_is_more_than_noise() {
        let share =
            Share::of(&rounds([149.0, 151.0, 160.0]), |cpu| cpu.thread, |cpu| cpu.call, 5.0);
        assert!((share.measured - 10.0).abs() < 1e-9 && (share.noise - 2.0).abs() < 1e-9);
        assert!((share.judged() - 10.0).abs() < 1e-9);
        let share =
            Share::of(&rounds([145.0, 165.0, 160.0]), |cpu| cpu.thread, |cpu| cpu.call, 5.0);
        assert!((share.measured - 5.0).abs() < 1e-9 && (share.noise - 20.0).abs() < 1e-9);
        assert!((share.judged() - 5.0).abs() < 1e-9);
    }
}
