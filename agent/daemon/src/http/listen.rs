//! Where connections come in.

use std::fs::{self, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tokio::net::{TcpListener, UnixListener};

use crate::journal::is_full;

/// The socket in the state directory.
pub const SOCKET: &str = "agent.sock";

/// Longest path of a socket, in bytes: `sun_path` has 108, and a NUL ends it.
pub(crate) const SOCKET_PATH_MAX: usize = 107;

/// Where the socket lies until it may be found: its longest path.
pub(crate) fn fresh(state_dir: &Path) -> PathBuf {
    state_dir.join(format!("{SOCKET}.new"))
}

/// Why the agent cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The TCP address.
    #[error(
        "http.listen (or --listen) is {address}: give an address of this node and a port that is \
         free, or `off`"
    )]
    Tcp {
        /// What was given.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The Unix socket.
    #[error("making the socket {}: give another state_dir (or --state-dir)", path.display())]
    Unix {
        /// Where it should be.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl HttpError {
    /// The exit code. An address that is in use, or not there yet, may be free at the next try.
    pub(crate) fn exit_code(&self) -> u8 {
        let Self::Tcp { source, .. } = self else {
            return 1;
        };
        match source.kind() {
            io::ErrorKind::PermissionDenied => 3,
            io::ErrorKind::InvalidInput => 2,
            _ => 1,
        }
    }

    /// Whether there was no room for the socket: that passes.
    pub(super) fn is_full(&self) -> bool {
        matches!(self, Self::Unix { source, .. } if is_full(source))
    }
}

/// Listens on an address; returns it with the port that was chosen where none was given.
pub(super) fn tcp(address: SocketAddr) -> Result<(TcpListener, SocketAddr), HttpError> {
    let bind = || {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        Ok((TcpListener::from_std(listener)?, bound))
    };
    bind().map_err(|source| HttpError::Tcp { address, source })
}

/// The agent's socket.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) listener: UnixListener,
    path: PathBuf,
    /// Device and inode: what must lie at `path` for anybody to find it.
    id: (u64, u64),
}

impl Socket {
    /// Whether it is still what others find.
    pub(super) fn is_in_place(&self) -> bool {
        id(&self.path).is_ok_and(|id| id == self.id)
    }
}

fn id(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|there| (there.dev(), there.ino()))
}

/// Listens on the socket in the state directory, which this agent has locked: a socket that is
/// there belongs to nobody any more.
pub(super) fn unix(state_dir: &Path) -> Result<Socket, HttpError> {
    let path = state_dir.join(SOCKET);
    let bind = || {
        // Nobody may connect before the permissions are set.
        let fresh = fresh(state_dir);
        if fs::symlink_metadata(&fresh).is_ok() {
            fs::remove_file(&fresh)?;
        }
        let listener = UnixListener::bind(&fresh)?;
        fs::set_permissions(&fresh, Permissions::from_mode(0o600))?;
        let id = id(&fresh)?;
        fs::rename(&fresh, &path)?;
        Ok(Socket { listener, path: path.clone(), id })
    };
    bind().map_err(|source| HttpError::Unix { path: path.clone(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_address_that_can_never_be_bound_is_wrong_for_good() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let code = |address: SocketAddr| tcp(address).unwrap_err().exit_code();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = runtime.enter();
        assert_eq!(code(taken.local_addr().unwrap()), 1);
        // Kept for documentation: no machine has it.
        assert_eq!(code("192.0.2.1:9464".parse().unwrap()), 1);
        let of = |kind: io::ErrorKind| {
            let address = taken.local_addr().unwrap();
            HttpError::Tcp { address, source: kind.into() }.exit_code()
        };
        assert_eq!((of(io::ErrorKind::PermissionDenied), of(io::ErrorKind::InvalidInput)), (3, 2));
    }

    #[test]
    fn the_longest_path_of_a_socket_is_what_the_system_takes() {
        let dir = tempfile::tempdir().unwrap();
        let room = SOCKET_PATH_MAX - dir.path().as_os_str().len() - 1;
        for (bytes, taken) in [(room, true), (room + 1, false)] {
            let path = dir.path().join("x".repeat(bytes));
            assert_eq!(std::os::unix::net::UnixListener::bind(path).is_ok(), taken, "{bytes}");
        }
    }
}
