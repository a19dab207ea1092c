//! Unit, manifest and image.

use std::fs;

use anyhow::{Context as _, Result, bail};

use super::text;
use crate::setup::{BPF_LINKER, python};

const MANIFEST: &str = "deploy/kubernetes/inflightd.yaml";
const UNIT: &str = "deploy/systemd/inflightd.service";
const IMAGE: &str = "deploy/Containerfile";
/// The oldest release whose fields suffice, and the newest that is known.
const KUBERNETES: [&str; 2] = ["1.30", "1.37"];
/// Changes that must be refused.
const MISSPELT: [(&str, &str); 3] = [
    ("readOnlyRootFilesystem", "readOnlyRootFileSystem"),
    ("containerPort: 9464", "containerPort: many"),
    ("hostPID: true", "hostPid: true"),
];

/// Whether the schemas of a release admit a manifest, and what they say.
fn admits(release: &str, manifest: &str) -> Result<(bool, String)> {
    let directory = tempfile::tempdir().context("making a directory")?;
    let file = directory.path().join("manifest.yaml");
    fs::write(&file, manifest).with_context(|| format!("writing {}", file.display()))?;
    let mut validate = python(&["-m", "kubernetes_validate", "--strict", "-k", release]);
    let output = validate.arg(&file).output().context("starting kubernetes-validate")?;
    let said = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

pub(super) fn manifest() -> Result<()> {
    let manifest = text(MANIFEST)?;
    for release in KUBERNETES {
        let (good, said) = admits(release, &manifest)?;
        let kinds = ["namespace/", "serviceaccount/", "configmap/", "daemonset/"];
        if !good || kinds.iter().any(|kind| !said.contains(kind)) {
            bail!("Kubernetes {release} does not admit {MANIFEST}:\n{said}");
        }
    }
    for (right, wrong) in MISSPELT {
        let (good, _) = admits("1.37", &manifest.replace(right, wrong))?;
        if good || !manifest.contains(right) {
            bail!("{wrong} for {right} is not refused: the check sees nothing");
        }
    }
    Ok(())
}

pub(super) fn unit() -> Result<()> {
    let unit = text(UNIT)?;
    let said = verify(&unit)?;
    if !said.is_empty() {
        bail!("systemd-analyze verify {UNIT}:\n{said}");
    }
    if verify(&unit.replace("ProtectSystem=", "ProtectSytem="))?.is_empty() {
        bail!("a misspelt setting is not noticed: the check sees nothing");
    }
    Ok(())
}

/// What systemd finds wrong with a unit. The agent need not be installed for it.
fn verify(unit: &str) -> Result<String> {
    let directory = tempfile::tempdir().context("making a directory")?;
    let file = directory.path().join("inflightd.service");
    fs::write(&file, unit.replace("/usr/bin/inflightd", "/bin/true"))
        .with_context(|| format!("writing {}", file.display()))?;
    let mut verify = std::process::Command::new("systemd-analyze");
    let output = verify.args(["verify", "--man=no"]).arg(&file).output();
    let output = output.context("starting systemd-analyze (Debian package systemd)")?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() || !said.is_empty() {
        return Ok(said);
    }
    Ok(output.status.to_string())
}

/// The words of a line that begins so.
fn words<'a>(text: &'a str, begin: &str) -> Result<Vec<&'a str>> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(begin));
    let line = line.with_context(|| format!("no line begins with {begin:?}"))?;
    let ends = |c: char| !c.is_ascii_alphanumeric() && !"_./-".contains(c);
    Ok(line.split(ends).filter(|word| !word.is_empty()).collect())
}

pub(super) fn agree() -> Result<()> {
    let (unit, manifest, image) = (text(UNIT)?, text(MANIFEST)?, text(IMAGE)?);
    let of_unit = words(&unit, "CapabilityBoundingSet=")?;
    let of_pod = words(&manifest, "add:")?;
    let of_pod: Vec<String> = of_pod.iter().map(|name| format!("CAP_{name}")).collect();
    if of_unit != of_pod {
        bail!("the unit has {of_unit:?}, the manifest {of_pod:?}\nfix: the same in both");
    }
    let readme = text("deploy/README.md")?;
    if let Some(name) = of_unit.iter().find(|name| !readme.contains(&format!("| `{name}` |"))) {
        bail!("deploy/README.md does not say what is lost without {name}");
    }
    let start = words(&unit, "ExecStart=/usr/bin/inflightd ")?;
    for (what, other) in [(IMAGE, words(&image, "CMD ")?), (MANIFEST, words(&manifest, "args: ")?)]
    {
        if start != other {
            bail!("{UNIT} starts the agent by {start:?}, {what} by {other:?}");
        }
    }
    let linker = words(&image, "RUN cargo install bpf-linker")?;
    if !linker.contains(&BPF_LINKER) {
        bail!("{IMAGE} does not build with bpf-linker {BPF_LINKER}");
    }
    Ok(())
}
