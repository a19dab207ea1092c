//! The agent's own environment variables, and those that look like them.

use std::ffi::OsString;
use std::sync::OnceLock;

use super::draft::{Draft, nearest, short};
use super::problem::{Origin, clean};
use super::schema;

/// Environment variables and their keys.
pub(super) const VARIABLES: [(&str, &str); 13] = [
    ("INFLIGHTD_SUSPECT", "deadlines.suspect"),
    ("INFLIGHTD_STALL", "deadlines.stall"),
    ("INFLIGHTD_STALL_MOONCAKE", "deadlines.stall_mooncake"),
    ("INFLIGHTD_MAX_DWELL", "deadlines.max_dwell"),
    ("INFLIGHTD_HARD_GRACE", "deadlines.hard_grace"),
    ("INFLIGHTD_BEAT_FRESH", "deadlines.beat_fresh"),
    ("INFLIGHTD_SCHEDULER_WEDGED", "deadlines.scheduler_wedged"),
    ("INFLIGHTD_SETUP_GRACE", "deadlines.setup_grace"),
    ("INFLIGHTD_STATE_DIR", "state_dir"),
    ("INFLIGHTD_LISTEN", "http.listen"),
    ("INFLIGHTD_OTLP", "otlp.endpoint"),
    ("INFLIGHTD_LINES", "output.lines"),
    ("INFLIGHTD_HEALTHY_RATE", "output.healthy_rate"),
];

/// Variables of that beginning that others read: the hook, the build and the tests.
const OF_OTHERS: [&str; 7] = [
    "INFLIGHTD_EBPF_OBJECT",
    "INFLIGHTD_EBPF_ROUTE",
    "INFLIGHTD_HOOK",
    "INFLIGHTD_HOOK_COMMANDS",
    "INFLIGHTD_SGLANG_WHEELS",
    "INFLIGHTD_TEST_WORKER",
    "INFLIGHTD_VENV",
];

/// How all of them begin.
const PREFIX: &str = "INFLIGHTD_";
/// Most variables that are told not to be read.
const TOLD_MAX: usize = 20;

/// Environment variables, as `std::env::vars_os` gives them.
pub type Environment = Vec<(OsString, OsString)>;

/// The environment before [`seclude`] took something out of it.
static AT_START: OnceLock<Environment> = OnceLock::new();

/// Takes OpenTelemetry's variables out of the process's environment; the configuration still has
/// them. The exporters' crate reads them behind the agent's back: headers in any case, which would
/// go before those of `headers_file` and break a request by a name such as `host`.
///
/// # Safety
///
/// No other thread may run.
pub unsafe fn seclude() {
    let found = AT_START.get_or_init(|| std::env::vars_os().collect());
    for (name, _) in found {
        if name.as_encoded_bytes().starts_with(b"OTEL_") {
            // SAFETY: no other thread reads the environment, as the caller says.
            unsafe { std::env::remove_var(name) };
        }
    }
}

/// The environment that this process was started with.
pub(super) fn own() -> Environment {
    AT_START.get().cloned().unwrap_or_else(|| std::env::vars_os().collect())
}

/// The value of a variable.
pub(super) fn value(environment: &Environment, name: &str) -> Option<String> {
    let found = environment.iter().find(|(key, _)| key == name);
    found.map(|(_, value)| value.to_string_lossy().into_owned())
}

/// Takes the values of the agent's own variables; gives what to say of those that are not read.
pub(super) fn take(draft: &mut Draft, environment: &Environment) -> Vec<String> {
    for (name, key) in VARIABLES {
        if let Some(text) = value(environment, name) {
            draft.take_text(key, &text, Origin::Env(name));
        }
    }
    unread(environment)
}

/// Not errors: somebody else may use the same beginning.
fn unread(environment: &Environment) -> Vec<String> {
    let mut names: Vec<&str> = environment
        .iter()
        .filter_map(|(name, value)| Some((name.to_str()?, value.to_string_lossy())))
        .filter(|(name, value)| name.starts_with(PREFIX) && !is_known(name, value))
        .map(|(name, _)| name)
        .collect();
    names.sort_unstable();
    let more = names.len().saturating_sub(TOLD_MAX);
    let mut told: Vec<String> = names.into_iter().take(TOLD_MAX).map(not_read).collect();
    if more > 0 {
        told.push(format!("environment: {more} more variables {PREFIX}… are not read"));
    }
    told
}

fn is_known(name: &str, value: &str) -> bool {
    VARIABLES.iter().any(|(known, _)| *known == name)
        || OF_OTHERS.contains(&name)
        || is_of_a_service(name, value)
}

/// Kubernetes makes such variables of each service's name: `…_SERVICE_HOST`, `…_SERVICE_PORT_HTTP`,
/// `…_PORT` with a URL, `…_PORT_9464_TCP_ADDR`.
fn is_of_a_service(name: &str, value: &str) -> bool {
    let is_url = || value.contains("://");
    let of_port = || {
        let rest = name.rsplit_once("_PORT_")?.1;
        let (port, protocol) = rest.split_once('_')?;
        let protocol = protocol.split('_').next().unwrap_or_default();
        Some(port.parse::<u16>().is_ok() && ["TCP", "UDP", "SCTP"].contains(&protocol))
    };
    name.ends_with("_SERVICE_HOST")
        || name.ends_with("_SERVICE_PORT")
        || name.contains("_SERVICE_PORT_")
        || (name.ends_with("_PORT") && is_url())
        || of_port().unwrap_or(false)
}

/// What to say of a variable that nobody reads. The common beginning says nothing of what was meant.
fn not_read(name: &str) -> String {
    let rest = name.trim_start_matches(PREFIX).to_lowercase();
    let keys = schema::paths(&schema());
    let known = names(&keys);
    let near = nearest(&rest, known.iter().map(|(name, _)| name.as_str()));
    let key = near.and_then(|near| known.iter().find(|(name, _)| name == near));
    let told = match key {
        None => "see `inflightd run --help` for those that are".to_owned(),
        Some((near, key)) => match VARIABLES.iter().find(|(_, of)| of == key) {
            Some((variable, _)) => format!("did you mean {variable}?"),
            None if *near == rest => format!("only the file sets `{key}`"),
            None => format!("did you mean `{key}`? Only the file sets it"),
        },
    };
    format!("environment {} is not read: {told}", clean(&short(name)))
}

/// What a variable may be called, in lower case and without the common beginning, with the key that
/// is meant: as it is called, and as the key is, with its table and without.
fn names(keys: &[String]) -> Vec<(String, &str)> {
    let mut names: Vec<(String, &str)> = VARIABLES
        .iter()
        .map(|(name, key)| (name.trim_start_matches(PREFIX).to_lowercase(), *key))
        .collect();
    for key in keys {
        let last = key.rsplit('.').next().unwrap_or_default();
        names.push((last.to_owned(), key));
        names.push((key.replace('.', "_"), key));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(environment: &[(&str, &str)]) -> Vec<String> {
        let environment =
            environment.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        unread(&environment)
    }

    #[test]
    fn every_variable_that_is_not_read_is_told_with_what_was_meant() {
        for (name, meant) in [
            ("INFLIGHTD_STAL", "did you mean INFLIGHTD_STALL?"),
            ("INFLIGHTD_DEADLINES_STALL", "did you mean INFLIGHTD_STALL?"),
            ("INFLIGHTD_HTTP_LISTEN", "did you mean INFLIGHTD_LISTEN?"),
            ("INFLIGHTD_OTLP_ENDPOINT", "did you mean INFLIGHTD_OTLP?"),
            ("INFLIGHTD_HEALTHY_BURST", "only the file sets `output.healthy_burst`"),
            ("INFLIGHTD_PROBES", "only the file sets `probes`"),
            ("INFLIGHTD_OTLP_HEADERS_FILE", "only the file sets `otlp.headers_file`"),
            ("INFLIGHTD_PROBE", "did you mean `probes`? Only the file sets it"),
            ("INFLIGHTD_XYZZY", "see `inflightd run --help` for those that are"),
            ("INFLIGHTD_PORT", "see `inflightd run --help` for those that are"),
        ] {
            let wanted = format!("environment {name} is not read: {meant}");
            assert_eq!(told(&[(name, "9464")]), [wanted]);
        }
        let hostile = told(&[("INFLIGHTD_X\n\u{1b}[2J", "")]).concat();
        assert!(hostile.contains("INFLIGHTD_X\\n\\u{1b}[2J"), "{hostile}");
    }

    #[test]
    fn variables_of_others_are_no_mistakes() {
        let of_services = [
            ("INFLIGHTD_SERVICE_HOST", "10.0.0.1"),
            ("INFLIGHTD_SERVICE_PORT", "9464"),
            ("INFLIGHTD_METRICS_SERVICE_PORT_HTTP", "9464"),
            ("INFLIGHTD_PORT", "tcp://10.0.0.1:9464"),
            ("INFLIGHTD_PORT_9464_TCP", "tcp://10.0.0.1:9464"),
            ("INFLIGHTD_PORT_9464_TCP_ADDR", "10.0.0.1"),
        ];
        let known = VARIABLES.map(|(name, _)| (name, "1"));
        let others = OF_OTHERS.map(|name| (name, "x"));
        let all = [&of_services[..], &known, &others, &[("OTHER_STALL", "1")]].concat();
        assert_eq!(told(&all), Vec::<String>::new());
    }

    #[test]
    fn a_flood_of_them_is_told_in_few_lines() {
        let names: Vec<String> = (0..1000).map(|n| format!("INFLIGHTD_X{n:04}")).collect();
        let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
        let told = told(&many);
        assert_eq!(told.len(), TOLD_MAX + 1);
        assert!(told.last().unwrap().contains("980 more variables"), "{told:?}");
    }
}
