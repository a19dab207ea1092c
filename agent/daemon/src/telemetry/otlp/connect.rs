//! The exporters: protocol, headers, certificates.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use opentelemetry_otlp::tonic_types::metadata::MetadataMap;
use opentelemetry_otlp::tonic_types::transport::{Certificate, ClientTlsConfig, Identity};
use opentelemetry_otlp::{
    Compression, ExporterBuildError, LogExporter, MetricExporter, SpanExporter, WithExportConfig,
    WithHttpConfig, WithTonicConfig,
};
use opentelemetry_sdk::metrics::Temporality;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::client::{Client, Why};
use crate::config::{Headers, Otlp, PEM_MAX, Protocol, read_headers, read_small};
use crate::error::chain;

/// Where distributions keep the roots that the system trusts.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// A setting of `[otlp]` that cannot be used, and what would help.
#[derive(Debug, thiserror::Error)]
#[error("`otlp.{field}`: {text}")]
pub struct OtlpError {
    field: &'static str,
    text: String,
}

impl OtlpError {
    fn new(field: &'static str, text: impl Into<String>) -> Self {
        Self { field, text: text.into() }
    }
}

/// What every signal's exporter is made with, read from the files that the settings name.
pub struct Ingredients {
    pub(super) config: Otlp,
    headers: Vec<(String, String)>,
    /// For `https` only.
    tls: Option<Tls>,
    /// Why requests by HTTP fail.
    pub(super) why: Why,
}

impl std::fmt::Debug for Ingredients {
    /// Without headers and key: those are secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ingredients").field("config", &self.config).finish_non_exhaustive()
    }
}

struct Tls {
    roots: Vec<u8>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Ingredients {
    /// Reads the files, which may take as long as their file systems like: never on the loop.
    pub fn read(config: &Otlp) -> Result<Self, OtlpError> {
        // The HTTP client wants this choice to be made, for plain HTTP too; a second one changes
        // nothing.
        drop(rustls::crypto::ring::default_provider().install_default());
        let headers = match &config.headers_file {
            None => Vec::new(),
            Some(path) => read_headers(path).map_err(|text| {
                OtlpError::new("headers_file", format!("{}: {text}", path.display()))
            })?,
        };
        let headers = joined(headers, &config.headers);
        let tls = match scheme(&config.endpoint)? {
            "https" => Some(Tls::read(config)?),
            _ => None,
        };
        Ok(Self { config: config.clone(), headers, tls, why: Why::default() })
    }

    /// The exporter of spans.
    pub(super) fn spans(&self) -> Result<SpanExporter, OtlpError> {
        let builder = SpanExporter::builder();
        match self.config.protocol {
            Protocol::Grpc => self.grpc(builder.with_tonic())?.build(),
            Protocol::Http => self.http(builder.with_http(), "/v1/traces")?.build(),
        }
        .map_err(|error| refused(&error))
    }

    /// The exporter of log records.
    pub(super) fn records(&self) -> Result<LogExporter, OtlpError> {
        let builder = LogExporter::builder();
        match self.config.protocol {
            Protocol::Grpc => self.grpc(builder.with_tonic())?.build(),
            Protocol::Http => self.http(builder.with_http(), "/v1/logs")?.build(),
        }
        .map_err(|error| refused(&error))
    }

    /// The exporter of the instruments.
    pub(super) fn instruments(&self) -> Result<MetricExporter, OtlpError> {
        let builder = MetricExporter::builder().with_temporality(Temporality::Cumulative);
        match self.config.protocol {
            Protocol::Grpc => self.grpc(builder.with_tonic())?.build(),
            Protocol::Http => self.http(builder.with_http(), "/v1/metrics")?.build(),
        }
        .map_err(|error| refused(&error))
    }

    fn grpc<B: WithExportConfig + WithTonicConfig>(&self, builder: B) -> Result<B, OtlpError> {
        let builder = builder
            .with_endpoint(&self.config.endpoint)
            .with_timeout(self.config.timeout)
            .with_compression(Compression::Gzip)
            .with_metadata(MetadataMap::from_headers(self.header_map()?));
        let Some(tls) = &self.tls else {
            return Ok(builder);
        };
        let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.roots));
        if let Some((cert, key)) = &tls.identity {
            config = config.identity(Identity::from_pem(cert, key));
        }
        Ok(builder.with_tls_config(config))
    }

    fn http<B: WithExportConfig + WithHttpConfig>(
        &self,
        builder: B,
        path: &str,
    ) -> Result<B, OtlpError> {
        let headers: HashMap<String, String> = self.headers.iter().cloned().collect();
        Ok(builder
            // Else the builder asks the environment, and refuses what it finds there.
            .with_protocol(opentelemetry_otlp::Protocol::HttpBinary)
            .with_endpoint(format!("{}{path}", self.config.endpoint.trim_end_matches('/')))
            .with_timeout(self.config.timeout)
            .with_compression(Compression::Gzip)
            .with_headers(headers)
            .with_http_client(Client::new(self.http_client()?, self.why.clone())))
    }

    fn http_client(&self) -> Result<reqwest::Client, OtlpError> {
        let builder = reqwest::Client::builder()
            .timeout(self.config.timeout)
            .redirect(reqwest::redirect::Policy::none());
        let builder = match &self.tls {
            Some(tls) => tls.of_client(builder)?,
            // Else the client would look for the system's roots, and fail where there are none.
            None => builder.tls_certs_only([]),
        };
        builder.build().map_err(|error| OtlpError::new("endpoint", chain(&error)))
    }

    fn header_map(&self) -> Result<HeaderMap, OtlpError> {
        let mut map = HeaderMap::new();
        for (name, value) in &self.headers {
            let bad = |error: &dyn std::error::Error| {
                OtlpError::new("headers_file", format!("header `{name}`: {error}"))
            };
            let key = HeaderName::from_bytes(name.as_bytes()).map_err(|error| bad(&error))?;
            let mut value = HeaderValue::from_str(value).map_err(|error| bad(&error))?;
            value.set_sensitive(true);
            map.append(key, value);
        }
        Ok(map)
    }
}

impl Tls {
    fn read(config: &Otlp) -> Result<Self, OtlpError> {
        let roots = match &config.ca_file {
            Some(path) => certificates("ca_file", path)?,
            None => system_roots()?,
        };
        let identity = match &config.identity {
            None => None,
            Some((cert, key)) => Some((certificates("cert_file", cert)?, key_of(key)?)),
        };
        Ok(Self { roots, identity })
    }
}

impl Tls {
    fn of_client(
        &self,
        builder: reqwest::ClientBuilder,
    ) -> Result<reqwest::ClientBuilder, OtlpError> {
        let roots = reqwest::Certificate::from_pem_bundle(&self.roots)
            .map_err(|error| OtlpError::new("ca_file", chain(&error)))?;
        let builder = builder.tls_certs_only(roots);
        let Some((cert, key)) = &self.identity else {
            return Ok(builder);
        };
        let pem = [key.as_slice(), b"\n", cert.as_slice()].concat();
        let identity = reqwest::Identity::from_pem(&pem)
            .map_err(|error| OtlpError::new("cert_file", chain(&error)))?;
        Ok(builder.identity(identity))
    }
}

/// The file's headers, and of the others those that it does not have.
fn joined(mut own: Vec<(String, String)>, others: &Headers) -> Vec<(String, String)> {
    let named = |name: &String| own.iter().any(|(known, _)| known == name);
    let added: Vec<_> = others.0.iter().filter(|(name, _)| !named(name)).cloned().collect();
    own.extend(added);
    own
}

fn scheme(endpoint: &str) -> Result<&'static str, OtlpError> {
    let bad = |why: &str| {
        let text = format!("`{endpoint}` {why}: write one such as `http://127.0.0.1:4317`");
        OtlpError::new("endpoint", text)
    };
    let url =
        reqwest::Url::parse(endpoint).map_err(|error| bad(&format!("is no URL ({error})")))?;
    match url.scheme() {
        "http" => Ok("http"),
        "https" => Ok("https"),
        _ => Err(bad("begins neither with `http://` nor with `https://`")),
    }
}

fn system_roots() -> Result<Vec<u8>, OtlpError> {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let known = SYSTEM_ROOTS.iter().map(PathBuf::from);
    for path in named.into_iter().chain(known) {
        if path.exists() {
            return certificates("ca_file", &path);
        }
    }
    let text = "the system has no certificates of its own (package `ca-certificates`), and an \
                `https` endpoint needs some: name the file of the collector's CA";
    Err(OtlpError::new("ca_file", text))
}

fn certificates(field: &'static str, path: &Path) -> Result<Vec<u8>, OtlpError> {
    let pem = read(field, path)?;
    match reqwest::Certificate::from_pem_bundle(&pem) {
        Ok(found) if !found.is_empty() => Ok(pem),
        _ => {
            let text = format!("{} holds no certificate in PEM form", path.display());
            Err(OtlpError::new(field, text))
        }
    }
}

fn key_of(path: &Path) -> Result<Vec<u8>, OtlpError> {
    let pem = read("key_file", path)?;
    let has_key = pem.windows(12).any(|bytes| bytes == b"PRIVATE KEY-");
    if has_key {
        return Ok(pem);
    }
    let text = format!("{} holds no private key in PEM form", path.display());
    Err(OtlpError::new("key_file", text))
}

fn read(field: &'static str, path: &Path) -> Result<Vec<u8>, OtlpError> {
    read_small(path, PEM_MAX)
        .map_err(|text| OtlpError::new(field, format!("{} {text}", path.display())))
}

/// The builder names what it does not like, in its own words.
fn refused(error: &ExporterBuildError) -> OtlpError {
    let text = error.to_string();
    let field = if text.contains("tls") { "ca_file` or `otlp.cert_file" } else { "endpoint" };
    OtlpError::new(field, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_the_file_go_before_those_of_the_environment() {
        let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let others = Headers(pairs(&[("a", "theirs"), ("b", "theirs")]));
        let joined = joined(pairs(&[("a", "own"), ("a", "more")]), &others);
        assert_eq!(joined, pairs(&[("a", "own"), ("a", "more"), ("b", "theirs")]));
    }
}
