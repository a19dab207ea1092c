//! A systemd manager of this test's own that runs the agent's unit.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::{support, text};
use crate::agent_support::within_a_minute;

/// A running manager and its unit `inflightd.service`.
pub(crate) struct Manager {
    child: Child,
    name: String,
    _units: TempDir,
}

impl Manager {
    /// Starts one that knows the unit, with another binary and configuration than an installation
    /// has, and with its lines in a file. It watches `pids`, or all workers where there are none.
    pub(crate) fn start(config: &str, pids: &[u32]) -> Self {
        Self::start_unit(&text("systemd/inflightd.service"), config, pids)
    }

    /// The same with another unit.
    pub(crate) fn start_unit(unit: &str, config: &str, pids: &[u32]) -> Self {
        let units = tempfile::tempdir().unwrap();
        let output = "[Service]\nStandardOutput=append:/run/lines\nStandardError=append:/run/log\n";
        let watched: Vec<String> = pids.iter().map(|pid| format!(" --pid {pid}")).collect();
        let unit = unit
            .replace("/usr/bin/inflightd", "/opt/inflightd")
            .replace(
                "/etc/inflightd/inflightd.toml",
                &format!("/opt/inflightd.toml{}", watched.concat()),
            )
            .replace("[Service]\n", output);
        fs::write(units.path().join("inflightd.service"), unit).unwrap();
        for target in ["basic.target", "default.target", "shutdown.target"] {
            fs::write(units.path().join(target), "[Unit]\nDescription=of a test\n").unwrap();
        }
        let file = units.path().join("config");
        fs::write(&file, config).unwrap();
        let name = format!("inflightd-deploy-test-{}", std::process::id());
        let child = Command::new("sh")
            .arg(support("manager.sh"))
            .args([&name, env!("CARGO_BIN_EXE_inflightd")])
            .args([&file, units.path()])
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        let manager = Self { child, name, _units: units };
        let ready = within_a_minute(|| manager.path("/run/systemd/private").exists().then_some(()));
        assert!(ready.is_some(), "the manager did not start");
        manager
    }

    /// Runs `systemctl` on this manager: whether it succeeded, and what it said.
    pub(crate) fn systemctl(&self, arguments: &[&str]) -> (bool, String) {
        let output = Command::new("nsenter")
            .args(["--mount", "--target", &self.child.id().to_string()])
            .args(["env", "XDG_RUNTIME_DIR=/run", "systemctl", "--user"])
            .args(arguments)
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    /// A property of the unit.
    pub(crate) fn property(&self, name: &str) -> String {
        let (_, said) = self.systemctl(&["show", "--value", "--property", name, "inflightd"]);
        said.trim().to_owned()
    }

    /// The lines that the agent has written.
    pub(crate) fn lines(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.path("/run/lines")).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// What the agent said on standard error.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("/run/log")).unwrap_or_default()
    }

    /// A path as the manager sees it.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.child.id()))
    }

    fn cgroups(&self) -> Vec<PathBuf> {
        ["", "systemd", "unified"]
            .map(|top| Path::new("/sys/fs/cgroup").join(top).join(&self.name))
            .into_iter()
            .filter(|path| path.exists())
            .collect()
    }
}

/// Ends what is left in a cgroup and below it, and removes it.
fn clear(cgroup: &Path) {
    for entry in fs::read_dir(cgroup).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            clear(&entry.path());
        }
    }
    let gone = within_a_minute(|| {
        let pids = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
        for pid in pids.lines().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
            let killed = kill_process(pid, Signal::KILL);
            assert!(killed.is_ok() || killed == Err(Errno::SRCH), "{killed:?}");
        }
        (fs::remove_dir(cgroup).is_ok() || !cgroup.exists()).then_some(())
    });
    assert!(gone.is_some() || std::thread::panicking(), "{} is left behind", cgroup.display());
}

impl Drop for Manager {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        for cgroup in self.cgroups() {
            clear(&cgroup);
        }
    }
}
