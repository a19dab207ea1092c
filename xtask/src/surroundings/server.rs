//! A real Prometheus on loopback, and questions to it.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::rules::{RULES, promtool};
use crate::clock::Moment;
use crate::setup::prometheus;
use crate::tree;

/// How often it scrapes and evaluates.
const EVERY: &str = "1s";
/// Longest wait for it to answer.
const READY: Duration = Duration::from_mins(1);

/// A running server.
pub(super) struct Server {
    child: Child,
    url: String,
}

/// A port of loopback that was free a moment ago.
pub(crate) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("asking for a port")?;
    Ok(listener.local_addr().context("asking for a port")?.port())
}

/// Call `done` until it gives something, five times a second, for `limit` at most.
pub(super) fn await_some<T>(
    limit: Duration,
    mut done: impl FnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    let end = Moment::now().plus(limit);
    loop {
        if let Some(found) = done()? {
            return Ok(Some(found));
        }
        if Moment::now() >= end {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

impl Server {
    /// Start one that scrapes `agent` (an address) and has the rules.
    pub(super) fn start(directory: &Path, agent: &str) -> Result<Self> {
        let config = serde_json::json!({
            "global": {"scrape_interval": EVERY, "evaluation_interval": EVERY},
            "rule_files": [tree::root().join(RULES)],
            "scrape_configs": [{"job_name": "inflightd", "static_configs": [{"targets": [agent]}]}],
        });
        let file = directory.join("prometheus.yml");
        fs::write(&file, config.to_string()).context("writing prometheus.yml")?;
        let listen = format!("127.0.0.1:{}", free_port()?);
        let log = fs::File::create(directory.join("prometheus.log")).context("making its log")?;
        let child = Command::new(prometheus("prometheus"))
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
            .arg(format!("--web.listen-address={listen}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("starting prometheus")?;
        let server = Self { child, url: format!("http://{listen}") };
        let scraped = || Ok(server.ask("up == 1").ok().filter(|found| !found.is_empty()));
        if await_some(READY, scraped)?.is_none() {
            let log = fs::read_to_string(directory.join("prometheus.log")).unwrap_or_default();
            bail!("Prometheus has not scraped the agent within {READY:?}:\n{log}");
        }
        Ok(server)
    }

    /// The series that a query gives now.
    pub(super) fn ask(&self, expr: &str) -> Result<Vec<Value>> {
        self.query(&["instant", "-o", "json"], expr)
    }

    /// Its clock, as its samples have it.
    pub(super) fn now(&self) -> Result<f64> {
        let found = self.ask("vector(time())")?;
        let at = found.first().and_then(|one| one.pointer("/value/0")?.as_f64());
        at.with_context(|| format!("no time in {found:?}"))
    }

    /// The series that it gives over the last five minutes.
    pub(super) fn ask_over(&self, expr: &str) -> Result<Vec<Value>> {
        self.query(&["range", "-o", "json", "--step", "1s"], expr)
    }

    fn query(&self, how: &[&str], expr: &str) -> Result<Vec<Value>> {
        let mut query = promtool(&["query"]);
        let output = query.args(how).args([&self.url, expr]).output();
        let output = output.context("starting promtool")?;
        if !output.status.success() {
            bail!("{expr}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        serde_json::from_slice(&output.stdout).with_context(|| {
            format!("{expr}: no series in {}", String::from_utf8_lossy(&output.stdout))
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
