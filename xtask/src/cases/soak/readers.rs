//! Who reads the agent during a soak: a scraper, and a collector that shares no code with it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::cases::AgentSetting;
use crate::clock::Moment;
use crate::setup::python;
use crate::surroundings::free_port;

const COLLECTOR: &str = "xtask/pair/collector.py";
/// Time from one scrape to the next.
const EVERY: Duration = Duration::from_secs(1);
/// Longest wait for an answer. The agent shares its cores with the pair and its faults.
const ANSWER: Duration = Duration::from_secs(10);
/// Longest wait for what is on its way to the collector.
const ARRIVES: Duration = Duration::from_secs(15);
/// Faults that are told; of more there is the count.
const TOLD: usize = 5;
/// What is asked, and what each answer holds.
const PATHS: [(&str, &str); 2] =
    [("/metrics", "inflightd_build_info"), ("/workers", "\"workers\"")];
/// What the agent could not export, by its own count.
const DROPPED: &str = "inflightd_export_dropped_total{";

/// What has come to the collector.
#[derive(Default)]
struct Taken {
    spans: AtomicU64,
    logs: AtomicU64,
    metrics: AtomicU64,
}

/// A batch, as the collector tells it.
#[derive(Deserialize)]
struct Batch {
    signal: String,
    items: Vec<IgnoredAny>,
}

/// Both, and what they have seen.
pub(super) struct Readers {
    collector: Child,
    /// The collector ends with it.
    _stdin: ChildStdin,
    taken: Arc<Taken>,
    address: String,
    scrapes: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    faults: (Sender<String>, Receiver<String>),
}

impl Readers {
    /// Start the collector, and have the agent export to it and listen where it will be asked.
    pub(super) fn start(agent: &mut AgentSetting) -> Result<Self> {
        let mut command = python(&[COLLECTOR]);
        let mut collector = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {COLLECTOR}"))?;
        let stdin = collector.stdin.take().context("a piped stdin is always there")?;
        let stdout = collector.stdout.take().context("a piped stdout is always there")?;
        let mut lines = BufReader::new(stdout);
        let mut ready = String::new();
        lines.read_line(&mut ready).context("hearing the collector")?;
        let port = ready.split(' ').nth(1).context("the collector ended before it was ready")?;
        let mut otlp = toml::Table::new();
        otlp.insert("endpoint".to_owned(), format!("http://127.0.0.1:{port}").into());
        otlp.insert("healthy_share".to_owned(), 1.0.into());
        otlp.insert("metrics_every".to_owned(), 1.0.into());
        agent.config.insert("otlp".to_owned(), otlp.into());
        let address = format!("127.0.0.1:{}", free_port()?);
        agent.listen = Some(address.clone());
        let taken = Arc::new(Taken::default());
        let to = Arc::clone(&taken);
        let faults = channel();
        let tell = faults.0.clone();
        thread::spawn(move || take(lines, &to, &tell));
        let (scrapes, stop) = (Arc::default(), Arc::default());
        Ok(Self { collector, _stdin: stdin, taken, address, scrapes, stop, faults })
    }

    /// Scrape from now on.
    pub(super) fn begin(&self) {
        let (address, scrapes) = (self.address.clone(), Arc::clone(&self.scrapes));
        let (stop, tell) = (Arc::clone(&self.stop), self.faults.0.clone());
        thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                match scrape(&address) {
                    Ok(()) => {
                        scrapes.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(error) => drop(tell.send(format!("a scrape: {error:#}"))),
                }
                thread::sleep(EVERY);
            }
        });
    }

    /// What was read, as a line, and what was not right: `rooms` have ended well, and each is a span.
    pub(super) fn end(self, rooms: u64) -> (String, Vec<String>) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let end = Moment::now().plus(ARRIVES);
        while of(&self.taken.spans) < rooms && Moment::now() < end {
            thread::sleep(EVERY);
        }
        self.stop.store(true, Ordering::Relaxed);
        let scrapes = of(&self.scrapes);
        let [spans, logs, metrics] =
            [&self.taken.spans, &self.taken.logs, &self.taken.metrics].map(of);
        let mut faults: Vec<String> = self.faults.1.try_iter().collect();
        if faults.len() > TOLD {
            let more = faults.len() - TOLD;
            faults.truncate(TOLD);
            faults.push(format!("{more} more of readers"));
        }
        if spans < rooms || logs == 0 || metrics == 0 || scrapes == 0 {
            faults.push(format!("not all was read that {rooms} rooms give"));
        }
        let line =
            format!("  {scrapes} scrapes; exported: {spans} spans, {logs} logs, {metrics} metrics");
        (line, faults)
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.collector.kill());
        drop(self.collector.wait());
    }
}

/// Counts what the collector tells, to its end.
fn take(lines: BufReader<ChildStdout>, taken: &Taken, faults: &Sender<String>) {
    for line in lines.lines().map_while(Result::ok) {
        let Ok(batch) = serde_json::from_str::<Batch>(&line) else {
            drop(faults.send(format!("the collector says {line}")));
            continue;
        };
        let count = match batch.signal.as_str() {
            "traces" => &taken.spans,
            "logs" => &taken.logs,
            _ => &taken.metrics,
        };
        count.fetch_add(batch.items.len() as u64, Ordering::Relaxed);
    }
}

/// Asks for everything once.
fn scrape(address: &str) -> Result<()> {
    for (path, holds) in PATHS {
        let answer = get(address, path).with_context(|| path.to_owned())?;
        let is_whole = answer.starts_with("HTTP/1.1 200 ") && answer.contains(holds);
        ensure!(is_whole, "{path}: {}", answer.lines().next().unwrap_or_default());
        let dropped = answer.lines().filter(|line| line.starts_with(DROPPED));
        for line in dropped {
            ensure!(line.ends_with(" 0"), "the agent could not export all: {line}");
        }
    }
    Ok(())
}

fn get(address: &str, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(ANSWER))?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: soak\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
