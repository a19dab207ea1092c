//! What this machine must have before anything is loaded, each with its remedy.

use std::{fs, path::Path};

/// What stands in the way of loading the probes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// Capabilities are missing.
    #[error(
        "inflightd lacks {}: run it as root, or give the container these capabilities and those \
         named in deploy/README.md",
        .0.join(", ")
    )]
    Capabilities(Vec<&'static str>),
    /// The kernel is older than 5.15, the first with attach cookies.
    #[error(
        "kernel {0} is older than 5.15, the oldest that has attach cookies: upgrade the kernel"
    )]
    Kernel(String),
    /// Lockdown forbids reading user memory from BPF.
    #[error(
        "kernel lockdown is `confidentiality`, which forbids BPF to read memory: boot with \
         `lockdown=integrity`"
    )]
    Lockdown,
    /// The kernel has no uprobes for perf.
    #[error(
        "{0} is missing: the kernel is built without CONFIG_UPROBE_EVENTS, or /sys is not mounted"
    )]
    Uprobes(&'static str),
}

/// Where the kernel says that perf can place uprobes.
const UPROBE_PMU: &str = "/sys/bus/event_source/devices/uprobe/type";
/// The oldest kernel: attach cookies for uprobes.
const OLDEST: (u32, u32) = (5, 15);
/// What is needed, by bit in `CapEff`. It contains `CAP_BPF` and `CAP_PERFMON`, which do not suffice:
/// with both and without it Linux 6.18 refuses the perf event of an uprobe (EACCES, measured).
const NEEDED: [(u32, &str); 1] = [(21, "CAP_SYS_ADMIN")];

/// What the checks look at, read once.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// Contents of `/proc/self/status`.
    pub(crate) status: String,
    /// Contents of `/proc/sys/kernel/osrelease`.
    pub(crate) release: String,
    /// Contents of `/sys/kernel/security/lockdown`; empty where there is none.
    pub(crate) lockdown: String,
    /// Whether the uprobe PMU exists.
    pub(crate) uprobes: bool,
}

impl Machine {
    /// Reads this machine. What cannot be read counts as empty, and fails its check.
    pub(crate) fn read() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self {
            status: text("/proc/self/status"),
            release: text("/proc/sys/kernel/osrelease"),
            lockdown: text("/sys/kernel/security/lockdown"),
            uprobes: Path::new(UPROBE_PMU).exists(),
        }
    }

    /// The first obstacle, if there is one.
    pub(crate) fn check(&self) -> Result<(), Obstacle> {
        let effective = effective_capabilities(&self.status).unwrap_or(0);
        let missing: Vec<_> = NEEDED
            .iter()
            .filter(|(bit, _)| effective & (1 << bit) == 0)
            .map(|(_, name)| *name)
            .collect();
        if !missing.is_empty() {
            return Err(Obstacle::Capabilities(missing));
        }
        if version(&self.release).is_none_or(|version| version < OLDEST) {
            return Err(Obstacle::Kernel(self.release.trim().to_owned()));
        }
        if self.lockdown.contains("[confidentiality]") {
            return Err(Obstacle::Lockdown);
        }
        if !self.uprobes {
            return Err(Obstacle::Uprobes(UPROBE_PMU));
        }
        Ok(())
    }
}

/// The kernels whose return probes use a system call that seccomp filters see: a process under
/// such a filter (any container's default) dies at its first probed return. x86-64 from 6.11;
/// seccomp lets the call through from 6.14. Stable releases have the repair too, from which on is
/// not verified here, so the whole series count as affected.
const SECCOMP_KILLS: std::ops::Range<(u32, u32)> = (6, 11)..(6, 14);

/// Whether return probes are a danger to processes under seccomp on a kernel of this release.
pub(crate) fn seccomp_kills_at_returns(release: &str) -> bool {
    version(release).is_some_and(|version| SECCOMP_KILLS.contains(&version))
}

fn effective_capabilities(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// Major and minor of a release such as `6.18.44-fc-v657`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Machine {
        Machine {
            status: "Name:\tx\nCapEff:\t000001ffffffffff\nSeccomp:\t0\n".to_owned(),
            release: "6.18.44-fc-v657\n".to_owned(),
            lockdown: "none [integrity] confidentiality\n".to_owned(),
            uprobes: true,
        }
    }

    #[test]
    fn a_good_machine_passes() {
        assert_eq!(good().check(), Ok(()));
        let oldest =
            Machine { release: "5.15.0-91-generic".to_owned(), lockdown: String::new(), ..good() };
        assert_eq!(oldest.check(), Ok(()));
    }

    #[test]
    fn the_kernels_whose_return_probes_are_a_danger() {
        for (release, danger) in [
            ("5.15.0-91-generic", false),
            ("6.10.14", false),
            ("6.11.0-29-generic", true),
            ("6.13.2", true),
            ("6.14.0-rc1", false),
            ("6.18.44-fc-v657", false),
            ("7.0.1", false),
        ] {
            assert_eq!(seccomp_kills_at_returns(release), danger, "{release}");
        }
    }

    #[test]
    fn each_obstacle_is_found_and_named() {
        let cases = [
            (
                Machine { status: "CapEff:\t0000000000000000\n".to_owned(), ..good() },
                "lacks CAP_SYS_ADMIN:",
            ),
            (
                // CAP_BPF, CAP_PERFMON and CAP_CHECKPOINT_RESTORE.
                Machine { status: "CapEff:\t000001c000000000\n".to_owned(), ..good() },
                "lacks CAP_SYS_ADMIN:",
            ),
            (
                Machine { release: "5.14.21-default".to_owned(), ..good() },
                "kernel 5.14.21-default is older",
            ),
            (Machine { release: String::new(), ..good() }, "older than 5.15"),
            (
                Machine { lockdown: "none integrity [confidentiality]".to_owned(), ..good() },
                "lockdown=integrity",
            ),
            (Machine { uprobes: false, ..good() }, "CONFIG_UPROBE_EVENTS"),
        ];
        for (machine, told) in cases {
            let message = machine.check().unwrap_err().to_string();
            assert!(message.contains(told), "{message}");
        }
    }
}
