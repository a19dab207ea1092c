//! RDMA devices of this node, and who could see what goes over them.
//!
//! Sources: the kernel's `Documentation/ABI/stable/sysfs-class-infiniband`; what enters the kernel
//! by which driver is measured for soft-RoCE and read in the sources of UCX and mlx5 for the rest.

use std::path::Path;

use super::node::{Check, State};
use crate::meters::{Device, Driver, Port, devices};

const NAME: &str = "RDMA device";
/// Where the kernel says that perf can place probes on its functions.
const KPROBES: &str = "/sys/bus/event_source/devices/kprobe/type";

/// One check a device; one that says so where there is none.
pub(super) fn checks(class: &Path) -> Vec<Check> {
    match devices(class) {
        Ok(found) if found.is_empty() => {
            vec![Check::new(NAME, State::Ok, "none: transfers go by TCP, shared memory or CMA", "")]
        }
        Ok(found) => {
            let kprobes = Path::new(KPROBES).exists();
            found.iter().map(|device| check(device, kprobes)).collect()
        }
        Err(error) => {
            let found = format!("{}: {error}", class.display());
            vec![Check::new(NAME, State::NoRight, found, "run as root, with /sys mounted")]
        }
    }
}

fn check(device: &Device, kprobes: bool) -> Check {
    let listed: Vec<String> = device.ports.iter().map(text).collect();
    let driver = match &device.driver {
        Driver::SoftRoce { over } => format!("soft-RoCE over {over}"),
        Driver::Other(name) => name.clone(),
        Driver::Unknown => "no driver named in sysfs".to_owned(),
    };
    let found = format!(
        "{} ({driver}), {}; {}",
        device.name,
        if listed.is_empty() { "no port".to_owned() } else { listed.join(", ") },
        shown(&device.driver, kprobes)
    );
    let down = device.ports.iter().any(|port| !port.is_active());
    let fix = if down { "look at its cable, its switch port and `ip link`" } else { "" };
    Check::new(NAME, State::Note, found, fix)
}

/// What the agent sees of what goes over a device.
fn shown(driver: &Driver, kprobes: bool) -> &'static str {
    match driver {
        Driver::SoftRoce { .. } if kprobes => "its sends pass the kernel, which shows each of them",
        Driver::SoftRoce { .. } => {
            "its sends pass the kernel, which has no probes on its own functions: seen by NIXL and UCX \
             only"
        }
        Driver::Other(name) if name.starts_with("mlx5") => {
            "sends never enter the kernel, and UCX makes its queue pairs by DEVX, which the kernel's \
             own lists lack: seen by NIXL and UCX only; that they are set up and end shows by their \
             commands (experimental)"
        }
        Driver::Other(_) | Driver::Unknown => {
            "sends never enter the kernel: seen by NIXL and UCX only; of its queue pairs whether they \
             can send"
        }
    }
}

fn text(port: &Port) -> String {
    let interface = port.interface.as_ref().map_or_else(String::new, |name| format!(" {name}"));
    format!("port {} {} {}{interface}", port.number, port.layer, port.state)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A device as sysfs shows one: files by their names, and the driver's where it has one.
    fn add(class: &Path, name: &str, files: &[(&str, &str)], driver: Option<&str>) {
        for (file, text) in files {
            let path = class.join(name).join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        if let Some(driver) = driver {
            fs::create_dir_all(class.join(name).join("device")).unwrap();
            symlink(
                format!("../../../bus/pci/drivers/{driver}"),
                class.join(name).join("device/driver"),
            )
            .unwrap();
        }
    }

    #[test]
    fn each_device_says_who_could_see_what_goes_over_it() {
        let class = tempfile::tempdir().unwrap();
        let ethernet = [
            ("ports/1/state", "4: ACTIVE"),
            ("ports/1/link_layer", "Ethernet"),
            ("ports/1/gid_attrs/ndevs/0", "eth0"),
        ];
        add(class.path(), "mlx5_0", &ethernet, Some("mlx5_core"));
        let soft = [("parent", "veth0"), ("ports/1/state", "1: DOWN")];
        add(class.path(), "rxe0", &soft, None);
        add(class.path(), "efa_0", &[("ports/1/state", "4: ACTIVE")], Some("efa"));
        let found = checks(class.path());
        let texts: Vec<&str> = found.iter().map(|check| check.found.as_str()).collect();
        assert!(
            texts[0].starts_with("efa_0 (efa), port 1 unknown ACTIVE; sends never"),
            "{texts:?}"
        );
        assert!(
            texts[1]
                .starts_with("mlx5_0 (mlx5_core), port 1 Ethernet ACTIVE eth0; sends never enter"),
            "{texts:?}"
        );
        assert!(texts[1].contains("DEVX"));
        assert!(
            texts[2].starts_with("rxe0 (soft-RoCE over veth0), port 1 unknown DOWN; its sends")
        );
        assert!(found.iter().all(|check| check.state == State::Note));
        assert_eq!(found[1].fix, "");
        assert!(found[2].fix.contains("cable"));
    }

    #[test]
    fn a_device_of_which_nothing_can_be_read_is_told_as_such() {
        let class = tempfile::tempdir().unwrap();
        fs::create_dir(class.path().join("odd")).unwrap();
        fs::write(class.path().join("a_file"), "").unwrap();
        let texts: Vec<String> =
            checks(class.path()).into_iter().map(|check| check.found).collect();
        assert!(texts[0].starts_with("a_file (no driver named in sysfs), no port"), "{texts:?}");
        assert!(texts[1].starts_with("odd (no driver named in sysfs), no port"), "{texts:?}");
    }

    #[test]
    fn no_device_is_as_it_should_be() {
        let class = tempfile::tempdir().unwrap();
        for path in [class.path().to_owned(), class.path().join("missing")] {
            let found = checks(&path);
            assert_eq!((found.len(), found[0].state), (1, State::Ok));
        }
    }
}
