//! Who speaks.

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;

use crate::identity::fnv1a;
use crate::proc;

/// This agent, in this life of it, on this host.
pub fn resource() -> Resource {
    let mut builder = Resource::builder_empty()
        .with_service_name("inflightd")
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_attribute(KeyValue::new("service.instance.id", instance()));
    if let Ok(host) = std::fs::read_to_string("/proc/sys/kernel/hostname") {
        builder = builder.with_attribute(KeyValue::new("host.name", host.trim().to_owned()));
    }
    builder.build()
}

/// Differs between any two lives of any two agents: the boot, the process, its start.
fn instance() -> String {
    let boot = proc::boot_id().unwrap_or_default();
    let pid = std::process::id();
    let start = proc::Stat::of(pid).map(|stat| stat.start).unwrap_or_default();
    let hash = format!("{:032x}", fnv1a(format!("agent {boot} {pid} {start}").as_bytes()));
    let part = |from: usize, to: usize| hash.get(from..to).unwrap_or_default();
    let parts = [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)];
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resource_says_who_speaks() {
        let resource = resource();
        for key in ["service.name", "service.version", "service.instance.id", "host.name"] {
            let value = resource.get(&opentelemetry::Key::from(key));
            assert!(value.is_some_and(|value| !value.as_str().is_empty()), "{key}");
        }
        assert_eq!((instance().len(), instance()), (36, instance()));
    }
}
