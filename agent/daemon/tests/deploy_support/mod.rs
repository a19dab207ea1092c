//! What `deploy/` says, and a worker as a pod has it.

pub(crate) mod systemd;

use std::fs;
use std::path::{Path, PathBuf};

use crate::agent_support::{Worker, python};

/// A file of `deploy/`.
pub(crate) fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name)
}

/// Its text.
pub(crate) fn text(name: &str) -> String {
    fs::read_to_string(file(name)).unwrap_or_else(|error| panic!("deploy/{name}: {error}"))
}

/// A file beside this one.
pub(crate) fn support(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/deploy_support").join(name)
}

/// The capabilities that the unit leaves to the agent, such as `CAP_SYS_ADMIN`.
pub(crate) fn capabilities() -> Vec<String> {
    let unit = text("systemd/inflightd.service");
    let line = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
    line.split_whitespace().map(str::to_owned).collect()
}

/// The configuration inside the manifest's `ConfigMap`.
pub(crate) fn config_map() -> String {
    let manifest = text("kubernetes/inflightd.yaml");
    let (_, rest) = manifest.split_once("  inflightd.toml: |\n").unwrap();
    let block = rest.lines().take_while(|line| line.is_empty() || line.starts_with("    "));
    block.map(|line| line.trim_start().to_owned() + "\n").collect()
}

/// A worker with a stuck room, and the pid of its stopped peer: other user, other network.
pub(crate) fn apart() -> (Worker, u32) {
    let (worker, peer) = Worker::telling(&python(), &support("apart.py"));
    (worker, peer.parse().unwrap())
}
