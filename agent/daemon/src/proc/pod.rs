//! Which pod of Kubernetes a process belongs to, by its cgroup.

use std::fmt;

/// Longest UID that is taken.
const LONGEST: usize = 64;

/// A pod's UID: `metadata.uid`, in small letters and with hyphens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodUid(String);

impl PodUid {
    /// A UID as the API writes it, or as systemd's cgroups do, with underscores.
    pub fn parse(text: &str) -> Option<Self> {
        let is_uid = |c: char| c.is_ascii_hexdigit() || c == '-' || c == '_';
        let fits = (8..=LONGEST).contains(&text.len()) && text.chars().all(is_uid);
        fits.then(|| Self(plain(text)))
    }

    /// Whether a process's cgroup is one of this pod's. It is not where that cannot be read.
    pub fn has(&self, pid: u32) -> bool {
        let text = super::small(&format!("/proc/{pid}/cgroup"));
        text.is_ok_and(|text| self.is_in(&String::from_utf8_lossy(&text)))
    }

    /// `/kubepods/burstable/pod<uid>/…` of cgroupfs, `…/kubepods-burstable-pod<uid>.slice/…` of
    /// systemd, which writes underscores for hyphens.
    fn is_in(&self, cgroup: &str) -> bool {
        let whole = format!("pod{}", self.0);
        let mut parts =
            cgroup.split(['/', '\n']).map(|part| plain(part.trim_end_matches(".slice")));
        parts.any(|part| {
            let before = part.strip_suffix(&whole);
            before.is_some_and(|before| before.is_empty() || before.ends_with('-'))
        })
    }
}

impl fmt::Display for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn plain(text: &str) -> String {
    text.to_ascii_lowercase().replace('_', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "3f2c6d1e-8a4b-4c7d-9e21-0b5a6f7c8d90";

    #[test]
    fn a_pod_is_known_in_both_spellings_and_from_inside_a_cgroup_namespace() {
        let pod = PodUid::parse(UID).unwrap();
        let under = UID.replace('-', "_");
        for cgroup in [
            format!("0::/kubepods/burstable/pod{UID}/4cf8\n"),
            format!("0::/kubepods.slice/kubepods-pod{under}.slice/cri-containerd-4cf8.scope\n"),
            format!("0::/../../kubepods-besteffort-pod{under}.slice/crio-4cf8.scope\n"),
            format!("12:pids:/kubepods/pod{UID}/4cf8\n1:name=systemd:/init.scope\n"),
        ] {
            assert!(pod.is_in(&cgroup), "{cgroup}");
        }
        for cgroup in [
            "0::/system.slice/docker.service\n".to_owned(),
            format!("0::/kubepods/burstable/pod{UID}0/4cf8\n"),
            format!("0::/kubepods/burstable/notpod{UID}/4cf8\n"),
            format!("0::/kubepods/burstable/pod0{UID}/4cf8\n"),
        ] {
            assert!(!pod.is_in(&cgroup), "{cgroup}");
        }
        assert_eq!(PodUid::parse(&under.to_uppercase()), Some(pod));
    }

    #[test]
    fn what_is_no_uid_is_refused() {
        for text in ["", "7", "../../etc/passwd", "3f2c6d1e 8a4b", &"a".repeat(65)] {
            assert_eq!(PodUid::parse(text), None, "{text}");
        }
    }
}
