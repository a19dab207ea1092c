//! A diagnostic socket in each network namespace that is asked about.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use inflightd_core::Nanos;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::diag::{self, Family, Socket};
use super::netlink;

/// Most namespaces whose sockets are kept open. The victim is the one not used for longest.
const SPACES_MAX: usize = 256;
/// Most sockets read of one namespace and family: the rest is not seen, and said so.
const SOCKETS_MAX: usize = 256 * 1024;

/// A network namespace, by device and inode of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Space(u64, u64);

impl Space {
    /// The namespace of a process.
    pub(super) fn of(pid: u32) -> io::Result<Self> {
        let file = std::fs::metadata(format!("/proc/{pid}/ns/net"))?;
        Ok(Self(file.dev(), file.ino()))
    }

    /// A namespace that no process has, for tests.
    #[cfg(test)]
    pub(crate) const fn fake(number: u64) -> Self {
        Self(0, number)
    }
}

struct Opened {
    fd: OwnedFd,
    used_at: Nanos,
}

/// Diagnostic sockets by namespace.
#[derive(Default)]
pub(super) struct Spaces {
    opened: BTreeMap<Space, Opened>,
    buffer: Vec<u8>,
}

impl std::fmt::Debug for Spaces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spaces").field("opened", &self.opened.len()).finish_non_exhaustive()
    }
}

impl Spaces {
    /// Every TCP socket of the namespace that `pid` is in.
    pub(super) fn dump(&mut self, pid: u32, now: Nanos) -> io::Result<(Space, Vec<Socket>)> {
        let space = Space::of(pid)?;
        self.open(space, pid, now)?;
        let mut sockets = Vec::new();
        for family in [Family::V4, Family::V6] {
            if let Err(error) = self.read(space, family, &mut sockets) {
                // What is left of the dump would be taken for the next one.
                self.opened.remove(&space);
                return Err(error);
            }
        }
        Ok((space, sockets))
    }

    fn open(&mut self, space: Space, pid: u32, now: Nanos) -> io::Result<()> {
        if let Some(opened) = self.opened.get_mut(&space) {
            opened.used_at = now;
            return Ok(());
        }
        if self.opened.len() >= SPACES_MAX {
            let oldest = self.opened.iter().min_by_key(|(_, opened)| opened.used_at);
            if let Some(oldest) = oldest.map(|(space, _)| *space) {
                self.opened.remove(&oldest);
            }
        }
        let file = File::open(format!("/proc/{pid}/ns/net"))?;
        let opened_space = file.metadata()?;
        if Space(opened_space.dev(), opened_space.ino()) != space {
            return Err(io::Error::other("the process changed its network namespace"));
        }
        let fd = socket_in(file)?;
        self.opened.insert(space, Opened { fd, used_at: now });
        Ok(())
    }

    fn read(&mut self, space: Space, family: Family, sockets: &mut Vec<Socket>) -> io::Result<()> {
        let Some(opened) = self.opened.get(&space) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        netlink::ask(&opened.fd, &diag::request(family), &mut self.buffer, |part| {
            let complete = diag::parse(part, sockets).map_err(io::Error::other)?;
            if sockets.len() > SOCKETS_MAX {
                return Err(io::Error::other(format!("more than {SOCKETS_MAX} sockets")));
            }
            Ok(complete)
        })
    }
}

/// A diagnostic socket in a namespace. A socket stays in the namespace it was made in, so only a
/// thread that ends at once has to enter it.
fn socket_in(space: File) -> io::Result<OwnedFd> {
    let own = Space::of(std::process::id())?;
    let wanted = space.metadata()?;
    if Space(wanted.dev(), wanted.ino()) == own {
        return diagnostic();
    }
    let enter = move || -> io::Result<OwnedFd> {
        move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))?;
        diagnostic()
    };
    std::thread::Builder::new()
        .name("netns".to_owned())
        .spawn(enter)?
        .join()
        .map_err(|_panic| io::Error::other("the thread that enters a namespace panicked"))?
}

fn diagnostic() -> io::Result<OwnedFd> {
    netlink::open(rustix::net::netlink::SOCK_DIAG)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_of_this_process_is_found_with_both_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let out = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (inside, _) = listener.accept().unwrap();
        (&out).write_all(&[7; 1000]).unwrap();
        let mut spaces = Spaces::default();
        let (_, sockets) = spaces.dump(std::process::id(), Nanos(1)).unwrap();
        let (local, remote) = (out.local_addr().unwrap(), out.peer_addr().unwrap());
        let find = |local, remote| {
            sockets.iter().find(|socket| (socket.local, socket.remote) == (local, remote)).unwrap()
        };
        let (sender, receiver) = (find(local, remote), find(remote, local));
        assert!(sender.is_established() && receiver.is_established());
        assert!(sender.info.unwrap().acked >= 1000);
        assert_eq!(receiver.unread, 1000);
        assert_ne!(sender.cookie, receiver.cookie);
        let port = listener.local_addr().unwrap();
        assert!(sockets.iter().any(|socket| socket.is_listening() && socket.local == port));
        drop(inside);
    }
}
