//! RDMA devices and their ports, as sysfs has them.
//!
//! Source: the kernel's `Documentation/ABI/stable/sysfs-class-infiniband`.

use std::path::Path;
use std::{fs, io};

/// Where the kernel lists them.
pub const CLASS: &str = "/sys/class/infiniband";

/// What makes a device work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Driver {
    /// `rdma_rxe` over a network interface.
    SoftRoce {
        /// The interface.
        over: String,
    },
    /// Another, by its name.
    Other(String),
    /// It does not say.
    Unknown,
}

/// A port of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its number, from 1 on.
    pub number: String,
    /// `ACTIVE`, `DOWN`, `INIT`, …
    pub state: String,
    /// `InfiniBand` or `Ethernet`.
    pub layer: String,
    /// Its network interface, where it has one.
    pub interface: Option<String>,
}

/// An RDMA device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// What makes it work.
    pub driver: Driver,
    /// Its ports.
    pub ports: Vec<Port>,
}

impl Device {
    /// Whether what it sends passes the kernel.
    pub const fn is_soft(&self) -> bool {
        matches!(self.driver, Driver::SoftRoce { .. })
    }

    /// Whether none of its ports can send.
    pub fn is_down(&self) -> bool {
        !self.ports.is_empty() && self.ports.iter().all(|port| !port.is_active())
    }
}

impl Port {
    /// Whether it can send.
    pub fn is_active(&self) -> bool {
        self.state == "ACTIVE"
    }
}

/// The devices that a folder as `/sys/class/infiniband` lists, by name; none where there is no such
/// folder. Devices of other network namespaces are not listed where the RDMA subsystem is in exclusive
/// mode.
pub fn devices(class: &Path) -> io::Result<Vec<Device>> {
    let entries = match fs::read_dir(class) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut devices: Vec<Device> = entries.flatten().map(|entry| device(&entry.path())).collect();
    devices.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(devices)
}

fn device(path: &Path) -> Device {
    Device { name: file_name(path), driver: driver(path), ports: ports(path) }
}

fn driver(path: &Path) -> Driver {
    if let Some(over) = line(&path.join("parent")) {
        return Driver::SoftRoce { over };
    }
    let link = fs::read_link(path.join("device/driver")).ok();
    let name = link.as_deref().and_then(Path::file_name);
    name.map_or(Driver::Unknown, |name| Driver::Other(name.to_string_lossy().into_owned()))
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
        number: file_name(path),
        state: state.unwrap_or_else(unknown),
        layer: text("link_layer").unwrap_or_else(unknown),
        interface: text("gid_attrs/ndevs/0"),
    }
}

pub(super) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The file's text; nothing where it cannot be read or is empty.
fn line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}
