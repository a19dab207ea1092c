//! What is accepted, what is refused and in which words.

use std::path::Path;

use inflightd_core::{Nanos, Policy};

use super::*;
use crate::cli::Flags;

const NAME: &str = "inflightd.toml";

pub(super) fn assemble(
    text: &str,
    environment: &[(&str, &str)],
    flags: &Flags,
) -> Result<Config, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(NAME);
    std::fs::write(&path, text).unwrap();
    let environment =
        environment.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let config = Config::assemble(Some(&path), &environment, flags);
    config.map_err(|error| error.to_string().replace(&path.display().to_string(), NAME))
}

pub(super) fn lift(text: &str) -> Result<Config, String> {
    assemble(text, &[], &Flags::default())
}

fn origin(config: &Config, key: &str) -> String {
    let text = config.setting(key).unwrap().origin.to_string();
    text.split('/').next_back().unwrap().to_owned()
}

#[test]
fn nothing_given_means_the_design() {
    let config = Config::assemble(None, &Vec::new(), &Flags::default()).unwrap();
    assert_eq!(config.policy, Policy::default());
    assert!(config.probes);
    assert_eq!(config.state_dir, Path::new("/run/inflightd"));
    assert_eq!(config.otlp, None);
    assert_eq!(config.http.listen, Some("127.0.0.1:9464".parse().unwrap()));
    assert!(!config.http.asked);
    assert!(config.settings.iter().all(|setting| setting.origin == Origin::Default));
}

#[test]
fn the_whole_contract_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (pem, key) = (include_str!("tests_cert.pem"), include_str!("tests_key.pem"));
    let (ca, cert, key) = (file("ca", pem), file("cert", pem), file("key", key));
    let headers = file("headers", "a: b\n");
    let text = format!(
        "state_dir = '/var/x'\nprobes = false\n\
         [deadlines]\nsuspect = 1\nstall = 2.5\nstall_mooncake = 4\nmax_dwell = 50\n\
         hard_grace = 1\nbeat_fresh = 2\nscheduler_wedged = 3\nsetup_grace = 4\n\
         [output]\nlines = 'verdicts'\nhealthy_rate = 0\nhealthy_burst = 7\n\
         [otlp]\nendpoint = 'https://collector:4317'\nprotocol = 'http'\nheaders_file = {headers:?}\n\
         ca_file = {ca:?}\ncert_file = {cert:?}\nkey_file = {key:?}\ntimeout = 2\n\
         traces = false\nlogs = false\nmetrics = false\nmetrics_every = 5\nhealthy_share = 1\n\
         queue = 10\n[http]\nlisten = 'off'\n",
    );
    let config = lift(&text).unwrap();
    let policy = Policy {
        suspect: Nanos::from_secs(1),
        stall: Nanos::from_millis(2500),
        stall_mooncake: Nanos::from_secs(4),
        max_dwell: Nanos::from_secs(50),
        hard_grace: Nanos::from_secs(1),
        beat_fresh: Nanos::from_secs(2),
        scheduler_wedged: Nanos::from_secs(3),
        setup_grace: Nanos::from_secs(4),
        ..Policy::default()
    };
    let otlp = Otlp {
        endpoint: "https://collector:4317".to_owned(),
        protocol: Protocol::Http,
        headers_file: Some(headers),
        headers: Headers::default(),
        ca_file: Some(ca),
        identity: Some((cert, key)),
        timeout: Duration::from_secs(2),
        traces: false,
        logs: false,
        metrics: false,
        metrics_every: Duration::from_secs(5),
        healthy_share: 1.0,
        queue: 10,
    };
    assert_eq!(config.policy, policy);
    assert_eq!(config.otlp, Some(otlp));
    assert_eq!(config.output, Output { lines: Lines::Verdicts, healthy_rate: 0, healthy_burst: 7 });
    assert_eq!(config.http, Http { listen: None, asked: true });
    assert_eq!((config.probes, config.state_dir), (false, PathBuf::from("/var/x")));
}

#[test]
fn one_deadline_alone_is_enough() {
    let short = lift("deadlines.stall = 3").unwrap();
    assert_eq!(short.policy.suspect, Nanos::from_millis(1500));
    assert_eq!(short.policy.stall, Nanos::from_secs(3));
    assert_eq!(short.policy.stall_mooncake, Nanos::from_secs(35));
    assert_eq!(origin(&short, "deadlines.suspect"), "follows deadlines.stall");
    let long = lift("deadlines.stall = 700").unwrap().policy;
    assert_eq!((long.suspect, long.max_dwell), (Nanos::from_secs(5), Nanos::from_secs(700)));
    assert_eq!(long.stall_mooncake, Nanos::from_secs(700));
    let mooncake = lift("deadlines.stall_mooncake = 900").unwrap().policy;
    assert_eq!((mooncake.stall, mooncake.max_dwell), (Nanos::from_secs(30), Nanos::from_secs(900)));
}

#[test]
fn every_bad_value_names_place_key_and_remedy() {
    let cases = [
        (
            "deadlines.stall = 0",
            "inflightd.toml:1:19: `deadlines.stall` is 0: give seconds, at least 0.05",
        ),
        ("[deadlines]\n  stall = -1", "inflightd.toml:2:11: `deadlines.stall` is -1"),
        ("deadlines.stall = 1e-12", "at least 0.05 and at most 604800, such as 30"),
        ("deadlines.hard_grace = nan", "`deadlines.hard_grace` is nan: give seconds"),
        ("deadlines.max_dwell = 1e9", "at most 604800"),
        ("deadlines.stall = 99999999999999999999", "at most 604800"),
        ("deadlines.stall = 'soon'", "`deadlines.stall` is 'soon': give seconds"),
        (
            "deadlines.stal = 3",
            "`deadlines.stal`: there is no such key; did you mean `deadlines.stall`?",
        ),
        ("stall = 3", "`stall`: there is no such key; did you mean `deadlines.stall`?"),
        ("[deadline]\nstall = 3", "did you mean `deadlines`?"),
        ("xyzzy = 3", "known here: `deadlines`"),
        ("deadlines = 3", "`deadlines` is 3: write a table with `beat_fresh`"),
        (
            "deadlines.suspect = 40",
            "`deadlines.suspect` is 40 s: it must not be longer than `deadlines.stall` (30 s); raise `deadlines.stall` or lower `deadlines.suspect`",
        ),
        (
            "deadlines.max_dwell = 20",
            "`deadlines.max_dwell` is 20 s: it must not be shorter than `deadlines.stall` (30 s)",
        ),
        ("probes = 1", "`probes` is 1: write true or false"),
        ("state_dir = ''", "give a directory"),
        ("state_dir = 'run/x'", "`state_dir` is `run/x`: it must not depend on where"),
        ("output.lines = 'verdict'", "did you mean `verdicts`? write `all`, `verdicts` or `none`"),
        (
            "output.healthy_rate = 1.5",
            "give a whole number, at least 0 and at most 1000000, such as 100",
        ),
        ("[otlp]", "inflightd.toml:1:2: `otlp.endpoint`: it is missing"),
        ("otlp.endpoint = 'collector:4317'", "begin it with `http://`"),
        ("otlp.endpoint = 'http://me:secret@x:1'", "use `headers_file`"),
        ("otlp.endpoint = 'http://x:99999'", "its port is no number from 1 to 65535"),
        ("otlp.endpoint = 'http://x:'", "its port is no number"),
        ("otlp.endpoint = 'http://[::1]:0'", "its port is no number"),
        ("otlp.endpoint = 'http://x:1/?q=1'", "`?` or `#` does not belong here"),
        ("otlp.endpoint = 'http://x:1/#f'", "`?` or `#` does not belong here"),
        ("otlp.endpoint = ' x y '", "it is no URL"),
        ("otlp.endpoint = 'https://x'\notlp.cert_file = '/nonexistent'", "no such file"),
        ("otlp.endpoint = 'https://x'\notlp.headers_file = '/nonexistent'", "no such file"),
        (
            "otlp.endpoint = 'http://x'\notlp.ca_file = '/etc/passwd'",
            "holds no certificate in PEM form",
        ),
        ("http.listen = 'localhost'", "write an IP address and a port"),
        ("http.listen = 9464", "`http.listen` is 9464: write a text in quotes"),
        ("probes = ", "inflightd.toml:1:"),
        ("probes = true\nprobes = false", "inflightd.toml:2:1: duplicate key `probes`: it stands"),
    ];
    for (text, told) in cases {
        let message = lift(text).unwrap_err();
        assert!(message.contains(told), "{text}: {message}");
        assert!(!message.contains("secret"), "{message}");
    }
}

#[test]
fn all_errors_come_at_once_in_the_order_of_the_file() {
    let text = "probs = true\n[deadlines]\nsuspect = 0\nstall = 10\nmax_dwell = 5\n\
                [output]\nlines = 'some'\n[http]\nlisten = 'x'\n";
    let flags =
        Flags { stall: None, listen: None, otlp: Some("ftp://x".into()), ..Flags::default() };
    let message = assemble(text, &[("INFLIGHTD_BEAT_FRESH", "soon")], &flags).unwrap_err();
    let lines: Vec<&str> = message.lines().map(str::trim).collect();
    let wanted = [
        "7 errors in the configuration:",
        "inflightd.toml:1:1: `probs`",
        "inflightd.toml:3:11: `deadlines.suspect`",
        "inflightd.toml:5:13: `deadlines.max_dwell`",
        "inflightd.toml:7:9: `output.lines`",
        "inflightd.toml:9:10: `http.listen`",
        "environment INFLIGHTD_BEAT_FRESH: `deadlines.beat_fresh` is `soon`: give seconds",
        "flag --otlp: `otlp.endpoint` is `ftp://x`",
    ];
    assert_eq!(lines.len(), wanted.len(), "{message}");
    for (line, wanted) in lines.iter().zip(wanted) {
        assert!(line.starts_with(wanted), "{line}\nis not\n{wanted}");
    }
}

#[test]
fn deadlines_out_of_order_are_told_once() {
    for text in ["deadlines.suspect = 40\ndeadlines.stall = 30\n", "deadlines.max_dwell = 20\n"] {
        let message = assemble(text, &[], &Flags::default()).unwrap_err();
        assert_eq!(message.matches("it must not be").count(), 1, "{message}");
    }
}

#[test]
fn the_lines_that_go_out_are_chosen_by_flag_environment_and_file_alike() {
    let flags = Flags { lines: Some("none".to_owned()), ..Flags::default() };
    let (text, environment) = ("output.lines = 'all'\n", [("INFLIGHTD_LINES", "verdicts")]);
    assert_eq!(assemble(text, &environment, &flags).unwrap().output.lines, Lines::None);
    let by_environment = assemble(text, &environment, &Flags::default()).unwrap();
    assert_eq!(by_environment.output.lines, Lines::Verdicts);
    let flags = Flags { lines: Some("verdict".to_owned()), ..Flags::default() };
    let message = assemble(text, &[], &flags).unwrap_err();
    assert!(
        message.contains("flag --lines: `output.lines` is `verdict`: did you mean"),
        "{message}"
    );
}

#[test]
fn a_broken_line_hides_no_other() {
    let message = lift("probes = ?\n[deadlines]\nstall = 0\n").unwrap_err();
    assert!(
        message.contains("toml:1:") && message.contains("toml:3:9: `deadlines.stall`"),
        "{message}"
    );
}

#[test]
fn a_flag_goes_before_the_environment_and_that_before_the_file() {
    let text = "deadlines.suspect = 1\ndeadlines.stall = 9\ndeadlines.max_dwell = 90\n";
    let environment = [("INFLIGHTD_STALL", "8"), ("INFLIGHTD_SUSPECT", "2")];
    let flags = Flags { stall: Some("7".into()), ..Flags::default() };
    let config = assemble(text, &environment, &flags).unwrap();
    assert_eq!(config.policy.stall, Nanos::from_secs(7));
    assert_eq!(config.policy.suspect, Nanos::from_secs(2));
    assert_eq!(config.policy.max_dwell, Nanos::from_secs(90));
    assert_eq!(origin(&config, "deadlines.stall"), "flag --stall");
    assert_eq!(origin(&config, "deadlines.suspect"), "environment INFLIGHTD_SUSPECT");
    assert_eq!(origin(&config, "deadlines.max_dwell"), "inflightd.toml:3:23");
    assert_eq!(origin(&config, "deadlines.setup_grace"), "default");
    let shown = config.to_toml();
    assert!(shown.contains("stall = 7 ") && shown.contains("# flag --stall"), "{shown}");
}

#[test]
fn each_deadline_has_its_variable_with_the_same_checks() {
    let schema = schema();
    let keys = schema["properties"]["deadlines"]["properties"].as_object().unwrap();
    for key in keys.keys() {
        let name = format!("INFLIGHTD_{}", key.to_uppercase());
        let value = if key == "max_dwell" { "700" } else { "30" };
        let config = assemble("", &[(&name, value)], &Flags::default());
        assert_eq!(
            origin(&config.unwrap(), &format!("deadlines.{key}")),
            format!("environment {name}")
        );
        for bad in ["", "soon", "0", "-2", "inf", "nan", "1e300"] {
            let message = assemble("", &[(&name, bad)], &Flags::default()).unwrap_err();
            assert!(
                message.contains(&format!(
                    "environment {name}: `deadlines.{key}` is `{bad}`: give seconds"
                )),
                "{message}"
            );
        }
    }
}

#[test]
fn a_good_value_that_replaces_a_bad_one_mends_it() {
    let flags = Flags { stall: Some("7".into()), ..Flags::default() };
    assert_eq!(
        assemble("deadlines.stall = 0", &[], &flags).unwrap().policy.stall,
        Nanos::from_secs(7)
    );
}

#[test]
fn the_standard_endpoint_is_used_where_no_other_is_given() {
    let environment = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://node:4317")];
    let none = Flags::default();
    let config = assemble("", &environment, &none).unwrap();
    assert_eq!(config.otlp.unwrap().endpoint, "http://node:4317");
    let config = assemble("otlp.endpoint = 'http://mine:1'", &environment, &none).unwrap();
    assert_eq!(config.otlp.unwrap().endpoint, "http://mine:1");
    let empty = [("OTEL_EXPORTER_OTLP_ENDPOINT", "")];
    assert_eq!(assemble("", &empty, &none).unwrap().otlp, None);
}

#[test]
fn the_standard_variables_fill_in_what_nothing_else_says() {
    let environment =
        [("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"), ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500")];
    let none = Flags::default();
    assert_eq!(assemble("", &environment, &none).unwrap().otlp, None);
    let otlp = assemble("otlp.endpoint = 'http://x:1'", &environment, &none).unwrap().otlp.unwrap();
    assert_eq!((otlp.protocol, otlp.timeout), (Protocol::Http, Duration::from_millis(2500)));
    let file = "otlp = { endpoint = 'http://x:1', protocol = 'grpc', timeout = 7 }";
    let otlp = assemble(file, &environment, &none).unwrap().otlp.unwrap();
    assert_eq!((otlp.protocol, otlp.timeout), (Protocol::Grpc, Duration::from_secs(7)));
}

#[test]
fn a_variable_that_is_nearly_right_is_pointed_out() {
    let environment = [
        ("INFLIGHTD_STAL", "3"),
        ("INFLIGHTD_SERVICE_HOST", "x"),
        ("INFLIGHTD_PORT", "tcp://10.0.0.1:9464"),
    ];
    let config = assemble("", &environment, &Flags::default()).unwrap();
    assert_eq!(
        config.warnings,
        ["environment INFLIGHTD_STAL is not read: did you mean INFLIGHTD_STALL?"]
    );
}

#[test]
fn what_is_shown_reads_back_as_the_same() {
    let text = "[deadlines]\nstall = 3\n[otlp]\nendpoint = 'http://x:1'\nhealthy_share = 0.5\n";
    let config = lift(text).unwrap();
    let again = lift(&config.to_toml()).unwrap();
    assert_eq!((again.policy, again.otlp), (config.policy, config.otlp));
    assert_eq!((again.output, again.http.listen), (config.output, config.http.listen));
}

#[test]
fn a_file_that_is_none_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let binary = dir.path().join("binary");
    std::fs::write(&binary, [b'a', 0xff]).unwrap();
    let none = dir.path().join("none");
    for (path, told) in [
        (dir.path(), "is a directory"),
        (none.as_path(), "there is no such file"),
        (binary.as_path(), "byte 1 is not UTF-8"),
        (Path::new("/dev/zero"), "is a device"),
    ] {
        let error = Config::assemble(Some(path), &Vec::new(), &Flags::default()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(told) && text.contains(&path.display().to_string()), "{text}");
    }
}

#[test]
fn the_schema_kept_in_the_repository_is_current() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("config.schema.json");
    let text = std::fs::read_to_string(kept).unwrap_or_default();
    assert!(
        text == schema_text(),
        "run `inflightd check-config --schema > agent/daemon/config.schema.json`"
    );
}

#[test]
fn the_schema_says_what_is_in_force() {
    let config = Config::assemble(None, &Vec::new(), &Flags::default()).unwrap();
    for setting in &config.settings {
        let stated = schema::at(&schema(), &setting.key).unwrap().get("default").cloned();
        let stated = stated.or_else(|| {
            let (under, key) = setting.key.rsplit_once('.').unwrap();
            schema::at(&schema(), under)?.get("default")?.get(key).cloned()
        });
        let (stated, value) = (stated.unwrap(), &setting.value);
        assert!(stated == *value || stated.as_f64() == value.as_f64(), "{}", setting.key);
    }
    let mut undocumented = schema::paths(&schema());
    undocumented.retain(|path| schema::at(&schema(), path).unwrap().get("description").is_none());
    assert_eq!(undocumented, Vec::<String>::new());
}

#[test]
fn what_cannot_change_live_stays_and_is_named() {
    let mut config = lift("").unwrap();
    let text = "state_dir = '/x'\nprobes = false\nhttp.listen = 'off'\ndeadlines.stall = 4";
    assert_eq!(config.take_over(lift(text).unwrap()), ["state_dir", "probes", "http.listen"]);
    let old = lift("").unwrap();
    assert_eq!((&config.state_dir, config.probes, config.http), (&old.state_dir, true, old.http));
    assert_eq!(config.policy.stall, Nanos::from_secs(4));
    assert_eq!(config.setting("probes").unwrap().value, true);
    assert_eq!(config.setting("deadlines.stall").unwrap().value, 4.0);
    assert!(config.take_over(lift("deadlines.stall = 5").unwrap()).is_empty());
}

#[test]
fn a_state_directory_is_given_from_the_root_but_on_a_command_line() {
    let none = Flags::default();
    let message = assemble("", &[("INFLIGHTD_STATE_DIR", "./x")], &none).unwrap_err();
    assert!(message.contains("INFLIGHTD_STATE_DIR") && message.contains("`/run/inflightd`"));
    let flags = Flags { state_dir: Some("x".into()), ..none };
    let config = assemble("", &[], &flags).unwrap();
    assert_eq!(config.state_dir, std::env::current_dir().unwrap().join("x"));
}
