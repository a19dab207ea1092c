//! An OTLP collector that shares no code with the agent: `xtask/pair/collector.py`.
#![allow(dead_code, reason = "each test binary includes this file and uses a part of it")]

pub(crate) mod wire;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

use crate::agent_support::{Agent, Worker, inflightd, python, within_a_minute};

/// A running collector and what it has taken.
pub(crate) struct Collector {
    child: Child,
    _stdin: ChildStdin,
    batches: Arc<Mutex<Vec<Arc<Value>>>>,
    ports: (u16, u16),
}

impl Collector {
    /// Starts one; the options are those of the script.
    pub(crate) fn start(options: &[&str]) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xtask/pair/collector.py");
        let mut child = Command::new(python())
            .arg(script)
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines.next().expect("the collector ended before it was ready").unwrap();
        let ports: Vec<u16> = ready.split(' ').skip(1).map(|port| port.parse().unwrap()).collect();
        let batches = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&batches);
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let batch = Arc::new(serde_json::from_str(&line).unwrap());
                sink.lock().unwrap().push(batch);
            }
        });
        Self { child, _stdin: stdin, batches, ports: (ports[0], ports[1]) }
    }

    /// The endpoint for a protocol: `grpc` or `http`.
    pub(crate) fn endpoint(&self, scheme: &str, protocol: &str) -> String {
        let (grpc, http) = self.ports;
        let port = if protocol == "grpc" { grpc } else { http };
        format!("{scheme}://127.0.0.1:{port}")
    }

    /// The port for gRPC.
    pub(crate) fn grpc(&self) -> u16 {
        self.ports.0
    }

    /// The batches of a signal that have come. The lock is held for as long as it takes to name
    /// them: while a look holds up the reader, the collector cannot say what it takes, and answers
    /// nobody.
    fn batches(&self, signal: &str) -> Vec<Arc<Value>> {
        let batches = self.batches.lock().unwrap();
        batches.iter().filter(|batch| batch["signal"] == signal).map(Arc::clone).collect()
    }

    /// Every item of a signal that has come and `fits`, each with its batch.
    pub(crate) fn items_that(
        &self,
        signal: &str,
        fits: impl Fn(&Value) -> bool,
    ) -> Vec<(Arc<Value>, Value)> {
        let mut found = Vec::new();
        for batch in self.batches(signal) {
            let items = batch["items"].as_array().unwrap().iter().filter(|item| fits(item));
            found.extend(items.map(|item| (Arc::clone(&batch), item.clone())));
        }
        found
    }

    /// Every item of a signal that has come, each with its batch.
    pub(crate) fn items(&self, signal: &str) -> Vec<(Arc<Value>, Value)> {
        self.items_that(signal, |_| true)
    }

    /// The items of a signal in one line each.
    fn told(&self, signal: &str) -> Vec<String> {
        self.items(signal).iter().map(|(_, item)| item.to_string()).collect()
    }

    /// Waits for an item of a signal that `fits`.
    pub(crate) fn wait_for(
        &self,
        signal: &str,
        fits: impl Fn(&Value) -> bool,
    ) -> (Arc<Value>, Value) {
        within_a_minute(|| self.items_that(signal, &fits).into_iter().next())
            .unwrap_or_else(|| panic!("no such {signal}: {:#?}", self.told(signal)))
    }

    /// The span of that name about a room.
    pub(crate) fn span(&self, name: &str, room: u64) -> (Arc<Value>, Value) {
        self.wait_for("traces", |span| span["name"] == name && is_about(span, room))
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Writes a configuration with these settings of `[otlp]`.
pub(crate) fn configure(dir: &Path, settings: &[(&str, &str)]) -> PathBuf {
    let path = dir.join("config.toml");
    let mut lines = vec![
        format!("state_dir = '{}'", dir.join("state").display()),
        "[deadlines]\nsuspect = 0.5\nstall = 1\n[http]\nlisten = 'off'".to_owned(),
        "[otlp]\nmetrics_every = 1".to_owned(),
    ];
    for (key, value) in settings {
        let number = value.parse::<f64>().is_ok();
        lines.push(if number { format!("{key} = {value}") } else { format!("{key} = '{value}'") });
    }
    fs::write(&path, lines.join("\n")).unwrap();
    path
}

/// An agent on these workers alone.
pub(crate) fn agent(config: &Path, workers: &[&Worker]) -> Agent {
    let mut command = inflightd(&["run", "--json", "--log", "warn", "--config"]);
    command.arg(config);
    for worker in workers {
        command.args(["--pid", &worker.pid().to_string()]);
    }
    Agent::of(&mut command)
}

/// Whether an item is about a room.
pub(crate) fn is_about(item: &Value, room: u64) -> bool {
    item["attributes"]["inflight.room"].as_str().and_then(|text| text.parse().ok()) == Some(room)
}

/// A CA, and certificates of a server on 127.0.0.1 and of a client, as PEM files in `dir`.
pub(crate) fn certificates(dir: &Path) {
    let openssl = |arguments: &str| {
        let mut command = Command::new("openssl");
        let output = command.current_dir(dir).args(arguments.split(' ')).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    for ca in ["ca", "other"] {
        openssl(&format!("req -x509 {key} -days 2 -subj /CN={ca} -keyout {ca}.key -out {ca}.pem"));
    }
    for (name, extension) in
        [("server", "subjectAltName=IP:127.0.0.1"), ("client", "extendedKeyUsage=clientAuth")]
    {
        fs::write(dir.join(format!("{name}.ext")), extension).unwrap();
        openssl(&format!("req {key} -subj /CN={name} -keyout {name}.key -out {name}.csr"));
        openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
             -extfile {name}.ext -out {name}.pem"
        ));
    }
}
