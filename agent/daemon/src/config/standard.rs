//! OpenTelemetry's own environment variables. They are often set for a whole cluster and for other
//! programs: file, flag and the agent's own variables go before them, and one that cannot be used
//! is no reason not to run.

use super::draft::Draft;
use super::environment::{Environment, value};
use super::headers::{Headers, read_pairs};
use super::problem::{ConfigError, Origin, Problem, clean};

/// Where to send.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// What to send along.
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
const TIMEOUT: &str = "otlp.timeout";
const PROTOCOL: &str = "otlp.protocol";

/// More of them, taken where an endpoint is known and nothing else says it: each with its key.
const MORE: [(&str, &str); 5] = [
    ("OTEL_EXPORTER_OTLP_PROTOCOL", PROTOCOL),
    ("OTEL_EXPORTER_OTLP_TIMEOUT", TIMEOUT),
    ("OTEL_EXPORTER_OTLP_CERTIFICATE", "otlp.ca_file"),
    ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "otlp.cert_file"),
    ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "otlp.key_file"),
];

/// Those of one signal alone begin with one of these.
const OF_A_SIGNAL: [&str; 3] =
    ["OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_METRICS_", "OTEL_EXPORTER_OTLP_LOGS_"];
/// Of a signal, and none of ours: how points are summed up is fixed.
const NOT_MISSED: [&str; 2] = ["_TEMPORALITY_PREFERENCE", "_DEFAULT_HISTOGRAM_AGGREGATION"];

/// Takes the standard endpoint, where the file has none.
pub(super) fn take_endpoint(draft: &mut Draft, environment: &Environment) {
    if let Some(text) = value(environment, ENDPOINT).filter(|text| !text.is_empty())
        && !draft.origins.contains_key("otlp.endpoint")
        && !draft.bad.contains("otlp.endpoint")
    {
        draft.take_text("otlp.endpoint", &text, Origin::Env(ENDPOINT));
    }
}

/// What the variables say of the export, where there is one. Gives what to say of them.
pub(super) fn take(draft: &mut Draft, environment: &Environment) -> Vec<String> {
    if !draft.origins.contains_key("otlp.endpoint") {
        return Vec::new();
    }
    let endpoint = draft.given.get("otlp").and_then(|otlp| otlp.get("endpoint")?.as_str());
    let is_plain = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
    let mut told = Vec::new();
    for (name, key) in MORE {
        let Some(text) = value(environment, name).filter(|text| !text.is_empty()) else {
            continue;
        };
        // Without TLS they say nothing.
        if is_plain && key.ends_with("_file") {
            continue;
        }
        if draft.origins.contains_key(key) || draft.bad.contains(key) {
            continue;
        }
        match key {
            TIMEOUT => told.extend(take_timeout(draft, &text, name)),
            PROTOCOL => take_protocol(draft, &text, name),
            _ => draft.take_text(key, &text, Origin::Env(name)),
        }
    }
    told.extend(of_a_signal(environment));
    told
}

/// The variable counts milliseconds. One that is too short or too long is meant for others: the
/// nearest that can be is taken.
fn take_timeout(draft: &mut Draft, text: &str, name: &'static str) -> Option<String> {
    let millis = text.trim().parse::<f64>().ok();
    let Some(millis) = millis.filter(|millis| millis.is_finite() && *millis >= 0.0) else {
        let remedy = "give milliseconds, such as 10000";
        draft.refuse(TIMEOUT, text, Origin::Env(name), remedy.to_owned());
        return None;
    };
    let (least, most) = draft.bounds(TIMEOUT);
    let seconds = millis / 1e3;
    draft.take_text(TIMEOUT, &seconds.clamp(least, most).to_string(), Origin::Env(name));
    let (bound, word) = match seconds {
        seconds if seconds < least => (least, "least"),
        seconds if seconds > most => (most, "most"),
        _ => return None,
    };
    Some(format!(
        "environment {name} is {millis}, in milliseconds: {} is used, the {word} that can be; give \
         milliseconds, such as 10000",
        bound * 1e3
    ))
}

fn take_protocol(draft: &mut Draft, text: &str, name: &'static str) {
    let word = match text.trim().to_ascii_lowercase().as_str() {
        "grpc" => "grpc",
        "http/protobuf" | "http" => "http",
        _ => {
            let remedy = "write `grpc` or `http/protobuf`";
            draft.refuse(PROTOCOL, text, Origin::Env(name), remedy.to_owned());
            return;
        }
    };
    draft.take_text(PROTOCOL, word, Origin::Env(name));
}

/// All signals go the same way: what is meant for one of them is said not to be read.
fn of_a_signal(environment: &Environment) -> Option<String> {
    let is_missed = |name: &&str| {
        OF_A_SIGNAL.iter().any(|prefix| name.starts_with(prefix))
            && !NOT_MISSED.iter().any(|end| name.ends_with(end))
    };
    let mut names: Vec<&str> =
        environment.iter().filter_map(|(name, _)| name.to_str()).filter(is_missed).collect();
    names.sort_unstable();
    let first = names.first()?;
    let more = match names.len() {
        1 => " is not read".to_owned(),
        all => format!(" and {} more of its kind are not read", all - 1),
    };
    let why = "all signals go where `otlp.endpoint` says, in the same way";
    Some(format!("environment {}{more}: {why}", clean(first)))
}

/// The headers that are to be sent, and what to say of those that cannot be.
pub(super) fn headers(environment: &Environment) -> (Headers, Vec<String>) {
    let (headers, left_out) = read_pairs(&value(environment, HEADERS).unwrap_or_default());
    let told = left_out.iter().map(|text| format!("environment {HEADERS}: {text}"));
    (headers, told.collect())
}

/// Whether a value comes from one of these variables.
pub(super) fn is_foreign(origin: Option<&Origin>) -> bool {
    matches!(origin, Some(Origin::Env(name)) if name.starts_with("OTEL_"))
}

/// Whether a problem is with one of them.
pub(super) fn is_foreign_at(problem: &Problem) -> bool {
    is_foreign(Some(&problem.origin))
}

/// The environment without those that cannot be used, and what to say of them. An endpoint that
/// comes from there too is then not used: half of what was meant for it is missing.
pub(super) fn without_foreign(
    environment: &Environment,
    error: &ConfigError,
    is_endpoint_foreign: bool,
) -> (Environment, Vec<String>) {
    let mut names = Vec::new();
    let mut told = Vec::new();
    for problem in error.problems.iter().filter(|problem| is_foreign_at(problem)) {
        if let Origin::Env(name) = problem.origin {
            names.push(name);
        }
        let what = if is_endpoint_foreign { "OTLP is off" } else { "it is not used" };
        told.push(format!("{problem} ({what})"));
    }
    if is_endpoint_foreign {
        names.push(ENDPOINT);
    }
    let mut left = environment.clone();
    left.retain(|(name, _)| names.iter().all(|other| name != other));
    (left, told)
}
