//! What this machine offers, each item really tried where that is cheap.

use std::fs;
use std::path::Path;

use inflightd_core::Nanos;
use rustix::net::{AddressFamily, SocketFlags, SocketType, netlink, socket_with};
use serde::{Deserialize, Serialize};

use super::rdma;
use crate::clock::uncertainty;
use crate::probe::{LoadError, Obstacle, bpf_features, kernel_types, obstacle, trial};

/// How an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// As it should be.
    Ok,
    /// Worth knowing; nothing has to be done.
    Note,
    /// A right is missing.
    NoRight,
    /// The kernel does not offer it.
    KernelLacks,
}

/// One item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// How it is.
    pub state: State,
    /// What was found.
    pub found: String,
    /// What to do; empty where nothing is.
    pub fix: String,
}

impl Check {
    pub(super) fn new(
        name: &'static str,
        state: State,
        found: impl Into<String>,
        fix: &str,
    ) -> Self {
        let fix = if state == State::Ok { String::new() } else { fix.to_owned() };
        Self { name, state, found: found.into(), fix }
    }
}

/// Capabilities by their bit, and what each is for.
const CAPABILITIES: [(u32, &str, &str); 3] = [
    (21, "CAP_SYS_ADMIN", "probes, sockets in other network namespaces"),
    (19, "CAP_SYS_PTRACE", "tables of engines that run as other users"),
    (2, "CAP_DAC_READ_SEARCH", "tables of engines that run as other users"),
];

/// What notes.toml holds.
#[derive(Deserialize)]
struct Notes {
    note: Vec<Note>,
}

#[derive(Deserialize)]
struct Note {
    from: String,
    before: Option<String>,
    text: String,
}

/// Every check.
pub(super) fn checks() -> Vec<Check> {
    let release = text("/proc/sys/kernel/osrelease");
    let mut checks = vec![kernel(&release)];
    checks.extend(bpf_features().into_iter().map(feature));
    checks.push(types(kernel_types()));
    checks.push(exists(
        "uprobes by perf",
        "/sys/bus/event_source/devices/uprobe/type",
        State::KernelLacks,
        "boot a kernel with CONFIG_UPROBE_EVENTS=y, and mount /sys",
    ));
    checks.push(tried(trial()));
    checks.push(exists(
        "kprobes by perf",
        "/sys/bus/event_source/devices/kprobe/type",
        State::Note,
        "needed to see what soft-RoCE sends: CONFIG_KPROBE_EVENTS=y",
    ));
    checks.push(exists(
        "tracefs",
        "/sys/kernel/tracing/events",
        State::Note,
        "not needed: exits come by a raw tracepoint",
    ));
    checks.push(sock_diag());
    checks.push(lockdown(&text("/sys/kernel/security/lockdown")));
    checks.extend(capabilities(&text("/proc/self/status")));
    checks.extend(sysctls());
    checks.push(clock(uncertainty()));
    checks.extend(rdma::checks(Path::new(crate::meters::CLASS)));
    checks.extend(notes(&release));
    checks
}

fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn kernel(release: &str) -> Check {
    let old = version(release).is_none_or(|version| version < (5, 15));
    let state = if old { State::KernelLacks } else { State::Ok };
    Check::new("kernel", state, release, "5.15 is the oldest that has attach cookies: upgrade")
}

/// Only what shows of queue pairs rests on it: where the kernel's own structures have their fields.
fn types(read: Result<usize, String>) -> Check {
    match read {
        Ok(count) => Check::new("BTF", State::Ok, format!("{count} types read"), ""),
        Err(error) => Check::new(
            "BTF",
            State::Note,
            error,
            "needed to see what soft-RoCE sends: CONFIG_DEBUG_INFO_BTF=y, and /sys mounted",
        ),
    }
}

/// Only the spans of two nodes beside each other rest on it.
fn clock(error: Option<Nanos>) -> Check {
    let found = error.map_or_else(
        || "nothing keeps it right".to_owned(),
        |error| format!("right to {} ms", error.0.div_ceil(1_000_000)),
    );
    let fix = "run chrony or systemd-timesyncd, to compare spans of two nodes";
    let state = if error.is_some() { State::Ok } else { State::Note };
    Check::new("clock", state, found, if error.is_some() { "" } else { fix })
}

fn feature((name, answer): (&'static str, Result<bool, String>)) -> Check {
    match answer {
        Ok(true) => Check::new(name, State::Ok, "tried", ""),
        Ok(false) => Check::new(name, State::KernelLacks, "not offered", "upgrade the kernel"),
        Err(error) => Check::new(
            name,
            State::NoRight,
            error,
            "run as root with CAP_SYS_ADMIN, and without a seccomp filter that forbids bpf",
        ),
    }
}

/// What came of a probe on a file that nobody maps.
fn tried(trial: Result<usize, LoadError>) -> Check {
    let name = "programs and a probe";
    match trial {
        Ok(programs) => {
            let found = format!("{programs} loaded, one put on a file that nobody maps");
            Check::new(name, State::Ok, found, "")
        }
        Err(error) => {
            let state = match &error {
                LoadError::Obstacle(Obstacle::Capabilities(_)) | LoadError::Denied { .. } => {
                    State::NoRight
                }
                LoadError::Obstacle(_) | LoadError::NoBpf | LoadError::Verifier { .. } => {
                    State::KernelLacks
                }
                // No memory at this moment, or what nobody has thought of.
                _ => State::Note,
            };
            Check::new(name, state, crate::error::chain(&error), "")
        }
    }
}

fn exists(name: &'static str, path: &str, missing: State, fix: &str) -> Check {
    if Path::new(path).exists() {
        return Check::new(name, State::Ok, path, "");
    }
    Check::new(name, missing, format!("{path} is missing"), fix)
}

/// Opening the socket loads the kernel's module where that is one.
fn sock_diag() -> Check {
    let opened = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    );
    match opened {
        Ok(_socket) => Check::new("sock_diag", State::Ok, "opened", ""),
        Err(error) => Check::new(
            "sock_diag",
            State::KernelLacks,
            error.to_string(),
            "boot a kernel with CONFIG_INET_DIAG, or load the module inet_diag",
        ),
    }
}

fn lockdown(text: &str) -> Check {
    let state = if text.contains("[confidentiality]") { State::KernelLacks } else { State::Ok };
    let found = if text.is_empty() { "none" } else { text };
    Check::new("lockdown", state, found, "boot with lockdown=integrity")
}

fn capabilities(status: &str) -> Vec<Check> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap_or_default();
    let effective = u64::from_str_radix(line.trim(), 16).unwrap_or(0);
    let of = |(bit, name, what): (u32, &'static str, &str)| {
        if effective & (1 << bit) == 0 {
            return Check::new(
                name,
                State::NoRight,
                "not effective",
                &format!("give it to inflightd, or run it as root: it is for {what}"),
            );
        }
        Check::new(name, State::Ok, "effective", "")
    };
    CAPABILITIES.into_iter().map(of).collect()
}

/// Settings that matter to whoever lacks a capability only.
fn sysctls() -> Vec<Check> {
    let paranoid = text("/proc/sys/kernel/perf_event_paranoid");
    let yama = text("/proc/sys/kernel/yama/ptrace_scope");
    let mut checks = vec![Check::new(
        "perf_event_paranoid",
        State::Ok,
        format!("{paranoid} (no matter with CAP_SYS_ADMIN)"),
        "",
    )];
    if yama == "3" {
        checks.push(Check::new(
            "yama ptrace_scope",
            State::NoRight,
            "3: nobody may look into another process",
            "reboot with kernel.yama.ptrace_scope at most 2",
        ));
    } else if !yama.is_empty() {
        let found = format!("{yama} (no matter with CAP_SYS_PTRACE)");
        checks.push(Check::new("yama ptrace_scope", State::Ok, found, ""));
    }
    checks
}

fn notes(release: &str) -> Vec<Check> {
    let Ok(notes) = toml::from_str::<Notes>(include_str!("notes.toml")) else {
        return Vec::new();
    };
    let Some(running) = version(release) else {
        return Vec::new();
    };
    let affected = |note: &Note| {
        version(&note.from).is_some_and(|from| running >= from)
            && note.before.as_deref().and_then(version).is_none_or(|before| running < before)
    };
    let notes = notes.note.into_iter().filter(affected);
    notes.map(|note| Check::new("known of this kernel", State::Note, note.text, "")).collect()
}

/// Major and minor of a release such as `6.18.44-fc-v657`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// What keeps the agent from using its probes here, in words.
pub(super) fn hindrance() -> Option<String> {
    obstacle().map(|obstacle| obstacle.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notes_are_read_and_meet_the_kernels_they_are_about() {
        let count = |release: &str| notes(release).len();
        assert_eq!(
            ["6.10.3", "6.11.0-29-generic", "6.13.1", "6.14.0", "6.18.44-fc"].map(count),
            [0, 1, 1, 0, 1]
        );
        assert!(toml::from_str::<Notes>(include_str!("notes.toml")).is_ok());
    }

    #[test]
    fn what_is_missing_is_named_with_its_remedy() {
        let missing = capabilities("CapEff:\t0000000000200000\n");
        let states: Vec<State> = missing.iter().map(|check| check.state).collect();
        assert_eq!(states, [State::Ok, State::NoRight, State::NoRight]);
        assert!(missing[1].fix.contains("tables of engines"));
        assert_eq!(kernel("5.14.0").state, State::KernelLacks);
        assert_eq!(kernel("5.15.0").state, State::Ok);
        assert_eq!(lockdown("none integrity [confidentiality]").state, State::KernelLacks);
        assert_eq!(lockdown("[none] integrity confidentiality").state, State::Ok);
        assert_eq!(feature(("x", Err("no".to_owned()))).state, State::NoRight);
        assert_eq!(feature(("x", Ok(false))).state, State::KernelLacks);
        let (what, tail) = ("x".to_owned(), "no".to_owned());
        assert_eq!(tried(Err(LoadError::Denied { what })).state, State::NoRight);
        let program = "y".to_owned();
        assert_eq!(tried(Err(LoadError::Verifier { program, tail })).state, State::KernelLacks);
        assert_eq!(types(Ok(7)).found, "7 types read");
        assert_eq!(types(Err("cut".to_owned())).state, State::Note, "the agent runs without");
        let gone = exists("x", "/nonexistent", State::KernelLacks, "mend it");
        assert_eq!((gone.state, gone.fix.as_str()), (State::KernelLacks, "mend it"));
    }
}
