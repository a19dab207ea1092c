//! No tracked file names a package registry's host: builds use whatever the machine is set up for.

use anyhow::{Result, bail};

use crate::tree;

/// Split, so that this file does not name them either.
const HOSTS: [&str; 6] = [
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("python", "hosted.org"),
    concat!("deb.", "debian.org"),
    concat!("npmjs", ".org"),
    concat!("golang", ".org"),
];
/// Written by cargo, which names its registry in it.
const LOCK: &str = "Cargo.lock";

/// Fail with every place that names a host.
pub(super) fn check() -> Result<()> {
    let mut places = Vec::new();
    for file in tree::files()? {
        if file.ends_with(LOCK) {
            continue;
        }
        let text = tree::text(&file)?.unwrap_or_default();
        places.extend(named(&text).map(|line| format!("    {}:{line}", file.display())));
    }
    if !places.is_empty() {
        bail!("registry hosts are named in\n{}\nfix: leave the host out", places.join("\n"));
    }
    Ok(())
}

/// The lines, from 1, of a text that name a host.
fn named(text: &str) -> impl Iterator<Item = usize> + '_ {
    text.lines()
        .enumerate()
        .filter(|(_, line)| HOSTS.iter().any(|host| line.contains(host)))
        .map(|(index, _)| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_found_by_its_line() {
        let text = format!("fine\nindex = \"{}/simple\"\n", HOSTS[1]);
        assert_eq!(named(&text).collect::<Vec<_>>(), [2]);
        assert_eq!(named("crates and io").count(), 0);
    }
}
