//! Sources that are read, not delivered: connections and processes.

pub mod batch;
mod connections;
mod diag;
mod netlink;
mod processes;
mod rdma;
mod snapshot;
mod sockets;
mod spaces;

pub use processes::{Lives, life};
pub use rdma::{CLASS, Device, Driver, Found, Port, Rdma, Seen, devices};
pub use snapshot::{SnapshotError, Stated, read as read_snapshot};
pub use sockets::{Reading, Sockets, Target, Wanted};
