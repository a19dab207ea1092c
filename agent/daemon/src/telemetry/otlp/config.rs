//! What export by OTLP needs to know.

use std::path::PathBuf;
use std::time::Duration;

/// How batches are carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC.
    #[default]
    Grpc,
    /// HTTP with protobuf bodies.
    Http,
}

/// Where and what is exported.
#[derive(Clone, Debug, PartialEq)]
pub struct OtlpConfig {
    /// `http://host:port` or `https://…`.
    pub endpoint: String,
    /// How batches are carried.
    pub protocol: Protocol,
    /// Lines `name: value` that go with every batch.
    pub headers_file: Option<PathBuf>,
    /// Roots that the collector's certificate must come from, PEM.
    pub ca_file: Option<PathBuf>,
    /// The agent's own certificate chain, PEM.
    pub cert_file: Option<PathBuf>,
    /// Its key, PEM.
    pub key_file: Option<PathBuf>,
    /// How long a batch may take.
    pub timeout: Duration,
    /// Whether spans are exported.
    pub traces: bool,
    /// Whether log records are exported.
    pub logs: bool,
    /// Whether the instruments are exported.
    pub metrics: bool,
    /// How often the instruments are exported.
    pub metrics_every: Duration,
    /// Share of healthy stays that become spans, 0 to 1.
    pub healthy_share: f64,
    /// Spans that may wait, and log records that may wait.
    pub queue: usize,
}

impl OtlpConfig {
    /// What holds where only the endpoint is known.
    pub fn to(endpoint: String) -> Self {
        Self {
            endpoint,
            protocol: Protocol::Grpc,
            headers_file: None,
            ca_file: None,
            cert_file: None,
            key_file: None,
            timeout: Duration::from_secs(10),
            traces: true,
            logs: true,
            metrics: true,
            metrics_every: Duration::from_secs(30),
            healthy_share: 0.01,
            queue: 2048,
        }
    }
}
