//! From checked values to the typed configuration: what depends on several values.

use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use inflightd_core::{Nanos, Policy};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::draft::{Draft, short};
use super::file::{File, HttpFile, OtlpFile};
use super::headers::{Headers, read_headers};
use super::problem::{ConfigError, Origin, Problem};
use super::show::settings;
use super::small::read_small;
use super::{Config, Http, Otlp, Output, failing};
use crate::http::{SOCKET_PATH_MAX, fresh};

/// Most bytes of a file of certificates or of a key.
pub(crate) const PEM_MAX: usize = 4 << 20;

/// Lifts what was given, or says everything that is wrong with it.
pub(super) fn lift(mut draft: Draft, warnings: Vec<String>) -> Result<Config, ConfigError> {
    let given = toml::Value::Table(draft.given.clone());
    let mut file: File = match given.try_into() {
        Ok(file) => file,
        // The checks let through only what the types take.
        Err(error) => {
            draft.wrong("", None, error.message().to_owned());
            File::default()
        }
    };
    let policy = deadlines(&mut draft, &mut file);
    let listen = listen(&mut draft, &file.http);
    let otlp = file.otlp.as_ref().and_then(|otlp| export(&mut draft, otlp));
    let force_fail = failing::lift(&mut draft, &file.force_fail);
    state_dir(&mut draft, &file.state_dir);
    if !draft.problems.is_empty() {
        draft.problems.sort_by_key(rank);
        return Err(ConfigError::new(draft.problems, draft.more));
    }
    Ok(Config {
        policy,
        probes: file.probes,
        output: Output {
            lines: file.output.lines,
            healthy_rate: file.output.healthy_rate,
            healthy_burst: file.output.healthy_burst,
        },
        otlp,
        http: Http { listen, asked: draft.origins.contains_key("http.listen") },
        force_fail,
        settings: settings(&file, &draft.origins),
        warnings,
        state_dir: file.state_dir,
    })
}

/// Whoever asks the agent looks for its socket from another directory than the agent runs in.
fn state_dir(draft: &mut Draft, path: &Path) {
    let shown = format!("`{}`", short(&path.to_string_lossy()));
    let (value, text) = if path.as_os_str().is_empty() {
        ("empty".to_owned(), "give a directory".to_owned())
    } else if path.as_os_str().as_bytes().contains(&0) {
        (shown, "no path has a NUL byte: leave it out".to_owned())
    } else if path.is_relative() {
        let text = "it must not depend on where the agent is started: give it from the root, such \
                    as `/run/inflightd`";
        (shown, text.to_owned())
    } else if let Some(over) = too_long(path) {
        (shown, over)
    } else {
        return;
    };
    draft.wrong("state_dir", Some(value), text);
}

/// What to say where the agent's socket cannot be made in the directory: of no file but a socket is
/// the whole path so short.
fn too_long(state_dir: &Path) -> Option<String> {
    let bytes = fresh(state_dir).as_os_str().len();
    let over = bytes.checked_sub(SOCKET_PATH_MAX + 1)? + 1;
    let most = state_dir.as_os_str().len().saturating_sub(over);
    Some(format!(
        "with the name of the agent's socket it has {bytes} bytes, and the path of a socket may have \
         {SOCKET_PATH_MAX}: give a directory whose path has at most {most} bytes, such as \
         `/run/inflightd`"
    ))
}

/// In the order of the file, then environment and flags.
fn rank(problem: &Problem) -> (u8, usize, usize) {
    match &problem.origin {
        Origin::File { line, column, .. } => (0, *line, *column),
        Origin::Env(_) => (1, 0, 0),
        Origin::Flag(_) => (2, 0, 0),
        Origin::Default | Origin::Follows(_) => (3, 0, 0),
    }
}

/// The deadlines; those that were not given go along with the stall that was: one alone is enough.
fn deadlines(draft: &mut Draft, file: &mut File) -> Policy {
    let base = Policy::default();
    let deadlines = &mut file.deadlines;
    let span = |value: &mut Option<f64>, default: Nanos| {
        let seconds = *value.get_or_insert(default.secs_f64());
        Nanos::from(Duration::try_from_secs_f64(seconds).unwrap_or_default())
    };
    let stall = span(&mut deadlines.stall, base.stall);
    let stall_mooncake = span(&mut deadlines.stall_mooncake, base.stall_mooncake.max(stall));
    let longest = stall.max(stall_mooncake);
    let policy = Policy {
        suspect: span(&mut deadlines.suspect, base.suspect.min(Nanos(stall.0 / 2))),
        stall,
        stall_mooncake,
        max_dwell: span(&mut deadlines.max_dwell, base.max_dwell.max(longest)),
        hard_grace: span(&mut deadlines.hard_grace, base.hard_grace),
        beat_fresh: span(&mut deadlines.beat_fresh, base.beat_fresh),
        scheduler_wedged: span(&mut deadlines.scheduler_wedged, base.scheduler_wedged),
        setup_grace: span(&mut deadlines.setup_grace, base.setup_grace),
        ..base
    };
    let stalls =
        [("deadlines.stall", policy.stall), ("deadlines.stall_mooncake", policy.stall_mooncake)];
    let mooncake_is_given = draft.origins.contains_key("deadlines.stall_mooncake");
    for stall in stalls {
        let told = draft.problems.len();
        ordered(draft, ("deadlines.suspect", policy.suspect), stall);
        ordered(draft, stall, ("deadlines.max_dwell", policy.max_dwell));
        // The other stall goes along with this one: the same mistake would be told twice.
        if draft.problems.len() > told && !mooncake_is_given {
            break;
        }
    }
    follow(draft, &policy, &base);
    policy
}

/// Notes which deadlines went along with the stall.
fn follow(draft: &mut Draft, policy: &Policy, base: &Policy) {
    let followers = [
        ("deadlines.suspect", policy.suspect != base.suspect),
        ("deadlines.stall_mooncake", policy.stall_mooncake != base.stall_mooncake),
        ("deadlines.max_dwell", policy.max_dwell != base.max_dwell),
    ];
    for (key, moved) in followers {
        if moved && !draft.origins.contains_key(key) {
            draft.origins.insert(key.to_owned(), Origin::Follows("deadlines.stall"));
        }
    }
}

fn ordered(draft: &mut Draft, earlier: (&str, Nanos), later: (&str, Nanos)) {
    let bad = |key: &str| draft.bad.contains(key);
    if earlier.1 <= later.1 || bad(earlier.0) || bad(later.0) {
        return;
    }
    let given =
        |key: &str| draft.origins.get(key).is_some_and(|o| !matches!(o, Origin::Follows(_)));
    // It is told where somebody wrote it.
    let (at, other, relation) =
        if given(later.0) { (later, earlier, "shorter") } else { (earlier, later, "longer") };
    let text = format!(
        "it must not be {relation} than `{}` ({} s); raise `{}` or lower `{}`",
        other.0,
        other.1.secs_f64(),
        later.0,
        earlier.0
    );
    draft.wrong(at.0, Some(format!("{} s", at.1.secs_f64())), text);
}

fn listen(draft: &mut Draft, http: &HttpFile) -> Option<SocketAddr> {
    if http.listen == "off" {
        return None;
    }
    let parsed = http.listen.parse().ok();
    if parsed.is_none() {
        let text = "write an IP address and a port, such as `127.0.0.1:9464`, `[::1]:9464` or \
                    `0.0.0.0:9464`, or `off`";
        draft.wrong("http.listen", Some(format!("`{}`", http.listen)), text.to_owned());
    }
    parsed
}

fn export(draft: &mut Draft, otlp: &OtlpFile) -> Option<Otlp> {
    let endpoint = endpoint(draft, otlp);
    for (key, path) in [
        ("otlp.ca_file", &otlp.ca_file),
        ("otlp.cert_file", &otlp.cert_file),
        ("otlp.key_file", &otlp.key_file),
    ] {
        if let Some(path) = path {
            pem(draft, key, path);
        }
    }
    if let Some(path) = &otlp.headers_file
        && let Err(text) = read_headers(path)
    {
        draft.wrong("otlp.headers_file", Some(format!("`{}`", path.display())), text);
    }
    let identity = match (&otlp.cert_file, &otlp.key_file) {
        (Some(cert), Some(key)) => Some((cert.clone(), key.clone())),
        (Some(_), None) => lonely(draft, "otlp.cert_file", "otlp.key_file"),
        (None, Some(_)) => lonely(draft, "otlp.key_file", "otlp.cert_file"),
        (None, None) => None,
    };
    Some(Otlp {
        endpoint: endpoint?,
        protocol: otlp.protocol,
        headers_file: otlp.headers_file.clone(),
        headers: Headers::default(),
        ca_file: otlp.ca_file.clone(),
        identity,
        timeout: Duration::try_from_secs_f64(otlp.timeout).unwrap_or_default(),
        traces: otlp.traces,
        logs: otlp.logs,
        metrics: otlp.metrics,
        metrics_every: Duration::try_from_secs_f64(otlp.metrics_every).unwrap_or_default(),
        healthy_share: otlp.healthy_share,
        queue: usize::try_from(otlp.queue).unwrap_or(usize::MAX),
    })
}

fn lonely<T>(draft: &mut Draft, given: &str, missing: &str) -> Option<T> {
    if !draft.bad.contains(missing) && !draft.bad.contains(given) {
        draft.wrong(given, None, format!("it needs `{missing}`: give both, or neither"));
    }
    None
}

fn endpoint(draft: &mut Draft, otlp: &OtlpFile) -> Option<String> {
    let key = "otlp.endpoint";
    let Some(text) = &otlp.endpoint else {
        if !draft.bad.contains(key) {
            let text = "it is missing: write `endpoint = \"http://127.0.0.1:4317\"`, or leave the \
                        table `[otlp]` out";
            draft.wrong(key, None, text.to_owned());
        }
        return None;
    };
    let mut bad = |remedy: &str| draft.wrong(key, Some(shown(text)), remedy.to_owned());
    let Ok(url) = text.parse::<hyper::Uri>() else {
        bad("it is no URL: write one such as `http://127.0.0.1:4317`");
        return None;
    };
    let (scheme, host) = (url.scheme_str().unwrap_or_default(), url.host().unwrap_or_default());
    if !["http", "https"].contains(&scheme) || host.is_empty() {
        bad("begin it with `http://` or `https://` and a host, such as `http://127.0.0.1:4317`");
        return None;
    }
    if url.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        bad("a user name or password does not belong here: use `headers_file`");
        return None;
    }
    let has_port = !url.authority().is_some_and(|at| at.as_str().ends_with(host));
    if has_port && url.port_u16().is_none_or(|port| port == 0) {
        bad("its port is no number from 1 to 65535: write one such as `http://127.0.0.1:4317`");
        return None;
    }
    if url.query().is_some() || text.contains('#') {
        bad("what begins with `?` or `#` does not belong here: leave it out");
        return None;
    }
    let tls = otlp.ca_file.is_some() || otlp.cert_file.is_some() || otlp.key_file.is_some();
    if scheme == "http" && tls {
        bad("certificates are used with `https://` only: change it, or leave them out");
        return None;
    }
    Some(text.clone())
}

/// An endpoint without what may be a secret.
fn shown(text: &str) -> String {
    let rest = text.split_once('@').map(|(_, rest)| format!("…@{rest}"));
    format!("`{}`", rest.unwrap_or_else(|| text.to_owned()))
}

fn pem(draft: &mut Draft, key: &str, path: &Path) {
    let problem = read_small(path, PEM_MAX).and_then(|bytes| match key {
        "otlp.key_file" => private_key(&bytes),
        _ => certificates(&bytes),
    });
    if let Err(text) = problem {
        draft.wrong(key, Some(format!("`{}`", path.display())), format!("it {text}"));
    }
}

/// Whether a file holds certificates, each of which can be read.
fn certificates(bytes: &[u8]) -> Result<(), String> {
    let mut found = 0_usize;
    for certificate in CertificateDer::pem_slice_iter(bytes) {
        found += 1;
        // The library shows the bytes of a broken line as numbers.
        let broken = || format!("holds no certificate at place {found}: its PEM is broken there");
        let der = certificate.map_err(|_broken| broken())?;
        let read = RootCertStore::empty().add(der);
        read.map_err(|error| {
            format!("holds a certificate (number {found}) that cannot be read: {error}")
        })?;
    }
    let none = || "holds no certificate in PEM form (`-----BEGIN CERTIFICATE-----`)".to_owned();
    (found > 0).then_some(()).ok_or_else(none)
}

/// Whether a file holds a private key.
fn private_key(bytes: &[u8]) -> Result<(), String> {
    let key = PrivateKeyDer::from_pem_slice(bytes);
    let none = "holds no private key in PEM form that can be read";
    key.map(drop).map_err(|_broken| none.to_owned())
}
