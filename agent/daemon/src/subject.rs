//! Whether a process that somebody names is one to look at, and why not.

use std::io;

use crate::probe::is_telling;
use crate::proc::{self, Maps, Stat};

/// Why a process is none to look at.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// There is none.
    #[error("no such process")]
    Gone,
    /// It has ended; its parent has not taken note.
    #[error("it has ended, and its parent has not taken note (a zombie)")]
    Ended,
    /// It has no memory of its own.
    #[error("it is a thread of the kernel")]
    Kernel,
    /// The system does not show it.
    #[error(
        "its /proc/{pid}/maps cannot be read ({source}): run inflightd as root of the host's \
         user namespace with CAP_SYS_PTRACE; a security module such as AppArmor may forbid it"
    )]
    Denied {
        /// Which process.
        pid: u32,
        /// What the system said.
        source: io::Error,
    },
    /// Neither hook nor library.
    #[error(
        "it is no worker: it maps neither a table (`/memfd:inflight`) nor a transfer library nor \
         SGLang's load snapshot; is the hook installed in the engine?"
    )]
    NoWorker,
}

/// Looks at a process. `device` is that of memfds on this kernel.
pub fn check(pid: u32, device: (u32, u32)) -> Result<(), Unfit> {
    let stat = match Stat::of(pid) {
        Ok(stat) => stat,
        Err(source) if source.kind() == io::ErrorKind::PermissionDenied => {
            return Err(Unfit::Denied { pid, source });
        }
        Err(_) => return Err(Unfit::Gone),
    };
    if stat.is_gone() {
        return Err(Unfit::Ended);
    }
    match Maps::of(pid, device) {
        Ok(maps) if maps.bytes == 0 && stat.vsize == 0 => Err(Unfit::Kernel),
        Ok(maps)
            if maps.tables.is_empty()
                && maps.load.is_none()
                && !maps.objects.iter().any(|map| is_telling(&map.path)) =>
        {
            Err(Unfit::NoWorker)
        }
        Ok(_) => Ok(()),
        Err(_) if stat.vsize == 0 => Err(Unfit::Kernel),
        Err(error) if proc::is_gone(&error) => Err(Unfit::Gone),
        Err(source) => Err(Unfit::Denied { pid, source }),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn each_kind_of_process_is_told_from_the_others() {
        let device = crate::table::memfd_device().unwrap();
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(matches!(check(child.id(), device), Err(Unfit::NoWorker)));
        child.kill().unwrap();
        let ended = (0..500).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            matches!(check(child.id(), device), Err(Unfit::Ended))
        });
        assert!(ended, "killed, not yet waited for");
        child.wait().unwrap();
        assert!(matches!(check(child.id(), device), Err(Unfit::Gone)));
        assert!(matches!(check(u32::MAX, device), Err(Unfit::Gone)));
        // kthreadd has this id wherever the kernel's threads show.
        if std::fs::read("/proc/2/comm").is_ok_and(|name| name == b"kthreadd\n") {
            assert!(matches!(check(2, device), Err(Unfit::Kernel)));
        }
    }
}
