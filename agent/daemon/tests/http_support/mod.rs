//! A plain client of HTTP, and what it makes of a scrape.
#![allow(dead_code, reason = "each test binary includes this file and uses a part of it")]

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

/// A response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

pub(crate) fn request(at: SocketAddr, head: &str) -> Response {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    // A request that is too long is answered and hung up on before all of it is read: whether the
    // rest could be sent, and how the end came, says nothing. The answer does.
    drop(stream.write_all(format!("{head}\r\nhost: test\r\n\r\n").as_bytes()));
    let mut bytes = Vec::new();
    drop(stream.read_to_end(&mut bytes));
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Response { status, head: head.to_lowercase(), body: body.to_owned() }
}

pub(crate) fn get(at: SocketAddr, path: &str) -> Response {
    request(at, &format!("GET {path} HTTP/1.1"))
}

/// The value of the series of that name with all of these labels.
pub(crate) fn value(text: &str, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let of_name = series == name || series.starts_with(&format!("{name}{{"));
        let has = |(key, value): &(&str, &str)| series.contains(&format!("{key}=\"{value}\""));
        (of_name && labels.iter().all(has)).then(|| value.parse().ok())?
    })
}

/// Names of the series that have a label of this process.
pub(crate) fn names_of(text: &str, pid: u32) -> BTreeSet<&str> {
    let label = format!("pid=\"{pid}\"");
    let of = text.lines().filter(|line| line.contains(&label));
    of.map(|line| line.split('{').next().unwrap()).collect()
}

/// Whether Prometheus' own check has nothing to say about the series.
pub(crate) fn promtool(text: &str) {
    // The system's own, or the one that `cargo xtask setup` has unpacked.
    let target = Path::new(env!("CARGO_BIN_EXE_inflightd")).ancestors().nth(2).unwrap();
    let unpacked = target.join("parts/prometheus/usr/bin/promtool");
    let promtool = if unpacked.exists() { unpacked } else { "promtool".into() };
    let mut child = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool: `cargo xtask setup` provides it");
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
}

/// Open descriptors of a process.
pub(crate) fn fds(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}
