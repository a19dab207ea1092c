//! Sources that are read, not delivered: connections and processes.

mod connections;
mod diag;
mod processes;
mod sockets;
mod spaces;

pub use processes::{Lives, life};
pub use sockets::{Reading, Sockets, Target, Wanted};
