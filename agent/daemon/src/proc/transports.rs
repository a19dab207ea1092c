//! Which ways UCX may take in a process, by the environment that it was started with.

use std::fs::File;
use std::io::{self, Read as _};

/// Most bytes of an environment that are read.
const BYTES_MAX: u64 = 1024 * 1024;
/// UCX's names for what moves bytes between processes of one host past the sockets, groups first
/// (`UCX_TLS` in UCX's documentation).
const PAST_SOCKETS: [&str; 10] =
    ["all", "sm", "shm", "shared_memory", "mm", "cma", "knem", "xpmem", "posix", "sysv"];
/// Those that name all of them.
const GROUPS: [&str; 3] = ["sm", "shm", "shared_memory"];

/// Whether UCX in this process may move bytes past the sockets between processes of one host.
/// Yes where `UCX_TLS` is not set, or cannot be read: what a process sets for itself later does
/// not show.
pub fn may_pass_sockets(pid: u32) -> bool {
    environment(pid).ok().and_then(|text| setting(&text)).is_none_or(|value| allows(&value))
}

fn environment(pid: u32) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(format!("/proc/{pid}/environ"))?.take(BYTES_MAX).read_to_end(&mut text)?;
    Ok(text)
}

fn setting(environment: &[u8]) -> Option<String> {
    let mut variables = environment.split(|byte| *byte == 0);
    let value = variables.find_map(|variable| variable.strip_prefix(b"UCX_TLS="))?;
    Some(String::from_utf8_lossy(value).trim().to_owned()).filter(|value| !value.is_empty())
}

/// A list of transports, or `^` and a list of those that are not to be used. A name may begin with
/// `\`, which keeps UCX from adding helpers, and end with `:aux`.
fn allows(value: &str) -> bool {
    let (list, excluded) = value.strip_prefix('^').map_or((value, false), |list| (list, true));
    let name = |item: &str| -> String {
        let item = item.trim().trim_start_matches(['^', '\\']);
        item.split(':').next().unwrap_or_default().to_ascii_lowercase()
    };
    let mut names = list.split(',').map(name);
    if excluded {
        !names.any(|name| GROUPS.contains(&name.as_str()))
    } else {
        names.any(|name| PAST_SOCKETS.contains(&name.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_list_that_names_none_of_them_keeps_bytes_in_the_sockets() {
        for value in ["tcp,self", "tcp", " TCP , self", "rc,ud:aux,self", "\\tcp", "^sm", "^shm,ud"]
        {
            assert!(!allows(value), "{value}");
        }
        for value in
            ["all", "tcp,cma,self", "sm,self", "shm", "\\cma", "^cma", "^rc", "^posix,sysv"]
        {
            assert!(allows(value), "{value}");
        }
    }

    #[test]
    fn the_variable_is_found_among_others() {
        assert_eq!(setting(b"A=UCX_TLS=x\0UCX_TLS=tcp,self\0B=1\0"), Some("tcp,self".to_owned()));
        assert_eq!(setting(b"XUCX_TLS=tcp\0UCX_TLSX=tcp\0"), None);
        assert_eq!(setting(b"UCX_TLS=\0"), None, "as if it were not set");
    }

    #[test]
    fn a_process_s_own_environment_counts_and_an_unreadable_one_hides_nothing() {
        let start = |value: Option<&str>| {
            let mut command = std::process::Command::new("sleep");
            command.arg("60").env_remove("UCX_TLS");
            command.envs(value.map(|value| ("UCX_TLS", value)));
            command.spawn().unwrap()
        };
        let mut children = [start(Some("tcp,self")), start(None), start(Some("all"))];
        let seen = children.each_ref().map(|child| may_pass_sockets(child.id()));
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(seen, [false, true, true]);
        assert!(may_pass_sockets(u32::MAX));
    }
}
