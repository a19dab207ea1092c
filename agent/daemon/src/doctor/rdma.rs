//! RDMA devices of this node, and who could see what goes over them.
//!
//! Sources: the kernel's `Documentation/ABI/stable/sysfs-class-infiniband`; what enters the kernel
//! by which driver is measured for soft-RoCE and read in the sources of UCX and mlx5 for the rest.

use std::fs;
use std::path::Path;

use super::node::{Check, State};

/// Where the kernel lists them.
pub(super) const CLASS: &str = "/sys/class/infiniband";

const NAME: &str = "RDMA device";

/// One check a device; one that says so where there is none. Devices of other network namespaces
/// are not listed where the RDMA subsystem is in exclusive mode.
pub(super) fn devices(class: &Path) -> Vec<Check> {
    let entries = match fs::read_dir(class) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return vec![none()],
        Err(error) => {
            let found = format!("{}: {error}", class.display());
            return vec![Check::new(NAME, State::NoRight, found, "run as root, with /sys mounted")];
        }
    };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    if paths.is_empty() { vec![none()] } else { paths.iter().map(|path| device(path)).collect() }
}

fn none() -> Check {
    Check::new(NAME, State::Ok, "none: transfers go by TCP, shared memory or CMA", "")
}

fn device(path: &Path) -> Check {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let driver = driver(path);
    let ports = ports(path);
    let listed: Vec<String> = ports.iter().map(Port::text).collect();
    let shown = |driver: &Driver| match driver {
        Driver::SoftRoce { over } => format!("soft-RoCE over {over}"),
        Driver::Mlx5 => "mlx5".to_owned(),
        Driver::Other(name) => name.clone(),
        Driver::Unknown => "driver unknown".to_owned(),
    };
    let found = format!(
        "{name} ({}), {}; {}",
        shown(&driver),
        if listed.is_empty() { "no port".to_owned() } else { listed.join(", ") },
        driver.hidden()
    );
    let down = ports.iter().any(|port| port.state != "ACTIVE");
    let fix = if down { "look at its cable, its switch port and `ip link`" } else { "" };
    Check::new(NAME, State::Note, found, fix)
}

/// What makes a device work.
enum Driver {
    /// `rdma_rxe` over a network interface.
    SoftRoce {
        over: String,
    },
    Mlx5,
    Other(String),
    Unknown,
}

impl Driver {
    /// What the agent sees of what goes over it.
    const fn hidden(&self) -> &'static str {
        match self {
            Self::SoftRoce { .. } => {
                "its sends pass the kernel, which this agent does not look at: seen by NIXL and \
                 UCX only"
            }
            Self::Mlx5 => {
                "sends never enter the kernel, and UCX makes its queue pairs by DEVX, which the \
                 kernel's own lists lack: seen by NIXL and UCX only"
            }
            Self::Other(_) | Self::Unknown => {
                "sends never enter the kernel: seen by NIXL and UCX only"
            }
        }
    }
}

fn driver(path: &Path) -> Driver {
    if let Some(over) = line(&path.join("parent")) {
        return Driver::SoftRoce { over };
    }
    let Ok(link) = fs::read_link(path.join("device/driver")) else {
        return Driver::Unknown;
    };
    match link.file_name().map(|name| name.to_string_lossy().into_owned()) {
        Some(name) if name.starts_with("mlx5") => Driver::Mlx5,
        Some(name) => Driver::Other(name),
        None => Driver::Unknown,
    }
}

/// A port of a device.
struct Port {
    number: String,
    /// `ACTIVE`, `DOWN`, `INIT`, …
    state: String,
    /// `InfiniBand` or `Ethernet`.
    layer: String,
    /// Its network interface, where it has one.
    interface: Option<String>,
}

impl Port {
    fn text(&self) -> String {
        let interface = self.interface.as_ref().map_or_else(String::new, |name| format!(" {name}"));
        format!("port {} {} {}{interface}", self.number, self.layer, self.state)
    }
}

fn ports(path: &Path) -> Vec<Port> {
    let entries = fs::read_dir(path.join("ports")).into_iter().flatten().flatten();
    let mut ports: Vec<Port> = entries.map(|entry| port(&entry.path())).collect();
    ports.sort_by(|a, b| a.number.cmp(&b.number));
    ports
}

fn port(path: &Path) -> Port {
    let text = |name: &str| line(&path.join(name));
    // As in `4: ACTIVE`.
    let state = text("state").map(|state| {
        state.split_once(": ").map_or_else(|| state.clone(), |(_, word)| word.to_owned())
    });
    let unknown = || "unknown".to_owned();
    Port {
        number: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        state: state.unwrap_or_else(unknown),
        layer: text("link_layer").unwrap_or_else(unknown),
        interface: text("gid_attrs/ndevs/0"),
    }
}

/// The file's text; nothing where it cannot be read or is empty.
fn line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
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
        let found = devices(class.path());
        let texts: Vec<&str> = found.iter().map(|check| check.found.as_str()).collect();
        assert!(
            texts[0].starts_with("efa_0 (efa), port 1 unknown ACTIVE; sends never"),
            "{texts:?}"
        );
        assert!(
            texts[1].starts_with("mlx5_0 (mlx5), port 1 Ethernet ACTIVE eth0; sends never enter"),
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
            devices(class.path()).into_iter().map(|check| check.found).collect();
        assert!(texts[0].starts_with("a_file (driver unknown), no port"), "{texts:?}");
        assert!(texts[1].starts_with("odd (driver unknown), no port"), "{texts:?}");
    }

    #[test]
    fn no_device_is_as_it_should_be() {
        let class = tempfile::tempdir().unwrap();
        for path in [class.path().to_owned(), class.path().join("missing")] {
            let found = devices(&path);
            assert_eq!((found.len(), found[0].state), (1, State::Ok));
        }
    }
}
