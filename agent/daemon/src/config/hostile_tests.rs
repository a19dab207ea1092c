//! Files and variables that somebody else wrote, or that are no configuration at all.

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::tests::{assemble, lift};
use super::*;
use crate::cli::Flags;

#[test]
fn a_file_that_may_never_answer_is_refused_wherever_one_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let error = Config::assemble(Some(&pipe), &Vec::new(), &Flags::default()).unwrap_err();
    assert!(error.to_string().contains("pipe: is a pipe"), "{error}");
    for key in ["headers_file", "ca_file", "cert_file", "key_file"] {
        for (path, what) in [(pipe.as_path(), "a pipe"), ("/dev/zero".as_ref(), "a device")] {
            let text = format!("otlp.endpoint = 'https://x'\notlp.{key} = {path:?}\n");
            let message = lift(&text).unwrap_err();
            assert!(message.contains(&format!("`otlp.{key}`")), "{message}");
            assert!(message.contains(&format!("it is {what}: name a regular file")), "{message}");
        }
    }
}

#[test]
fn standard_variables_that_cannot_be_used_keep_no_agent_from_running() {
    let none = Flags::default();
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://x:1");
    let secure = ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://x:1");
    for environment in [
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", "garbage")][..],
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://x:1?q")],
        &[endpoint, ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")],
        &[endpoint, ("OTEL_EXPORTER_OTLP_TIMEOUT", "abc")],
        &[secure, ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nonexistent")],
        &[secure, ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/dev/null")],
    ] {
        let config = assemble("", environment, &none).unwrap();
        assert_eq!((config.otlp, config.settings.len() > 10), (None, true), "{environment:?}");
        let said = config.warnings.join("\n");
        let name = environment.last().unwrap().0;
        assert!(said.contains(name) && said.contains("OTLP is off"), "{said}");
    }
    // What is ours stays in force, and our own mistakes stay errors.
    let bad = [("OTEL_EXPORTER_OTLP_TIMEOUT", "abc"), ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/none")];
    let config = assemble("otlp.endpoint = 'http://mine:1'", &bad, &none).unwrap();
    let otlp = config.otlp.unwrap();
    assert_eq!((otlp.endpoint.as_str(), otlp.timeout), ("http://mine:1", Duration::from_secs(10)));
    assert!(config.warnings.join("\n").contains("it is not used"));
    let message = assemble("probs = 1", &bad, &none).unwrap_err();
    assert!(message.contains("`probs`") && !message.contains("OTEL"), "{message}");
    assemble("", &[("INFLIGHTD_OTLP", "garbage")], &none).unwrap_err();
}

#[test]
fn only_the_first_of_very_many_problems_are_told() {
    let keys = [("", "key", "= 1"), ("[deadlines]\n", "stal", "= 1"), ("", "", "=")];
    for (head, key, rest) in keys {
        let lines = (0..60_000).map(|n| format!("{key}{n} {rest}\n"));
        let text = head.to_owned() + &lines.collect::<String>();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || tell.send(lift(&text).unwrap_err()));
        // Not how fast it is, but that it does not take minutes.
        let message = told.recv_timeout(Duration::from_mins(1)).unwrap();
        let lines: Vec<&str> = message.lines().collect();
        assert!(lines.len() <= 52 && message.len() < 64 << 10, "{}", lines.len());
        assert!(lines[0].starts_with("60000 errors"), "{}", lines[0]);
        assert_eq!(*lines.last().unwrap(), "  and 59950 more");
    }
    // Nor does a key without end fill the screen, or take long to compare.
    let message = lift(&format!("{} = 1", "k".repeat(1 << 19))).unwrap_err();
    assert!(message.len() < 2000, "{}", message.len());
}

#[test]
fn what_somebody_wrote_begins_no_line_of_its_own() {
    for text in ["\"a\\nERROR b\\u001b[2J\" = 1", "state_dir = 1\n\"x\\rERROR\" = 2"] {
        let message = lift(text).unwrap_err();
        assert!(message.chars().all(|c| c == '\n' || !c.is_control()), "{message:?}");
        assert!(!message.contains("\nERROR"), "{message:?}");
    }
    let bad = [("INFLIGHTD_STALL", "x\nERROR y\u{1b}")];
    let message = assemble("", &bad, &Flags::default()).unwrap_err();
    assert!(message.contains("x\\nERROR y\\u{1b}"), "{message:?}");
}

#[test]
fn a_key_or_table_that_stands_twice_is_named_and_one_that_is_missing_is_told_at_its_table() {
    for (text, told) in [
        ("deadlines.stall = 3\ndeadlines.stall = 4", "toml:2:11: duplicate key `stall`: it stands"),
        ("[http]\n[http]", "toml:2:2: duplicate key `http`: it stands there twice"),
        ("http = { listen = 'off', listen = 'x' }", "toml:1:26: duplicate key `listen`"),
        ("probes = true\n[otlp]\ntimeout = 3", "toml:2:2: `otlp.endpoint`: it is missing"),
        ("probes = true\notlp.timeout = 3", "toml:2:1: `otlp.endpoint`: it is missing"),
    ] {
        let message = lift(text).unwrap_err();
        assert!(message.contains(told), "{text}: {message}");
    }
}

#[test]
fn a_state_directory_that_no_socket_fits_into_is_refused_in_numbers() {
    let of = |bytes: usize| format!("state_dir = '/{}'", "x".repeat(bytes - 1));
    assert_eq!(lift(&of(92)).unwrap().state_dir.as_os_str().len(), 92);
    for bytes in [93, 3000] {
        let message = lift(&of(bytes)).unwrap_err();
        let all = format!("it has {} bytes", bytes + 15);
        for part in ["`state_dir` is", &all, "may have 107", "at most 92 bytes"] {
            assert!(message.contains(part) && message.len() < 500, "{message}");
        }
    }
    let message = lift("state_dir = \"/run/a\\u0000b\"").unwrap_err();
    assert!(
        message.contains("`state_dir` is `/run/a\\u{0}b`: no path has a NUL byte"),
        "{message}"
    );
    let flags =
        Flags { state_dir: Some(format!("/{}", "x".repeat(99)).into()), ..Flags::default() };
    let message = assemble("", &[], &flags).unwrap_err();
    assert!(message.contains("flag --state-dir: `state_dir`"), "{message}");
}

#[test]
fn a_standard_time_out_beyond_the_bounds_is_taken_as_near_as_can_be() {
    let none = Flags::default();
    for (millis, seconds, told) in [
        ("10", 0.1, Some("is 10, in milliseconds: 100 is used, the least that can be")),
        ("0", 0.1, Some("is 0, in milliseconds: 100 is used, the least that can be")),
        ("1e9", 600.0, Some("in milliseconds: 600000 is used, the most that can be")),
        ("100", 0.1, None),
        (" 2500 ", 2.5, None),
    ] {
        let environment =
            [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://x:1"), ("OTEL_EXPORTER_OTLP_TIMEOUT", millis)];
        let config = assemble("", &environment, &none).unwrap();
        assert_eq!(config.otlp.unwrap().timeout, Duration::from_secs_f64(seconds), "{millis}");
        let said = config.warnings.join("\n");
        let named = said.contains("environment OTEL_EXPORTER_OTLP_TIMEOUT");
        assert_eq!((named, said.is_empty()), (told.is_some(), told.is_none()), "{said}");
        assert!(said.contains(told.unwrap_or_default()), "{said}");
    }
    let text = "otlp.endpoint = 'http://x:1'";
    for (name, bad, remedy) in [
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "`10s`: give milliseconds, such as 10000"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "write `grpc` or `http/protobuf`"),
    ] {
        let said = assemble(text, &[(name, bad)], &none).unwrap().warnings.join("\n");
        assert!(said.contains(name) && said.contains(remedy), "{said}");
    }
}

#[test]
fn standard_headers_that_cannot_be_sent_are_left_out_and_told() {
    let none = Flags::default();
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://x:1");
    let headers = ("OTEL_EXPORTER_OTLP_HEADERS", "novalue,a=b%20c,host=secret");
    let config = assemble("", &[endpoint, headers], &none).unwrap();
    assert_eq!(config.otlp.unwrap().headers.0, [("a".to_owned(), "b c".to_owned())]);
    let said = config.warnings.join("\n");
    for part in ["OTEL_EXPORTER_OTLP_HEADERS: pair 1 is left out", "pair 3 is left out: `host`"] {
        assert!(said.contains(part) && !said.contains("secret"), "{said}");
    }
    // Without an export they are nobody's business here.
    assert_eq!(assemble("", &[headers], &none).unwrap().warnings, Vec::<String>::new());
    let of_one = [
        endpoint,
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta"),
    ];
    let said = assemble("", &of_one, &none).unwrap().warnings.join("\n");
    let told = "environment OTEL_EXPORTER_OTLP_TRACES_PROTOCOL is not read: all signals go where";
    assert!(said.contains(told), "{said}");
}

#[test]
fn the_null_device_is_an_empty_file() {
    let null = Config::assemble(Some("/dev/null".as_ref()), &Vec::new(), &Flags::default());
    let none = Config::assemble(None, &Vec::new(), &Flags::default());
    assert_eq!(null.unwrap(), none.unwrap());
}

#[test]
fn a_certificate_or_a_key_that_cannot_be_used_is_told_before_the_agent_runs() {
    let dir = tempfile::tempdir().unwrap();
    let good = include_str!("tests_cert.pem");
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let cases = [
        ("ca_file", broken.to_owned(), "a certificate (number 1) that cannot be read"),
        ("ca_file", format!("{good}{broken}"), "a certificate (number 2) that cannot be read"),
        (
            "ca_file",
            good.replace("END CERT", "END"),
            "holds no certificate at place 1: its PEM is broken",
        ),
        ("cert_file", String::new(), "holds no certificate in PEM form"),
        ("key_file", good.to_owned(), "holds no private key in PEM form"),
    ];
    for (key, text, told) in cases {
        let path = dir.path().join(key);
        std::fs::write(&path, &text).unwrap();
        let config = format!("otlp.endpoint = 'https://x'\notlp.{key} = '{}'", path.display());
        let message = lift(&config).unwrap_err();
        assert!(message.contains(told) && message.contains(key), "{text}: {message}");
    }
}
