//! What a reading of a worker's queue needs besides the queue.

use inflightd_core::{Event, Nanos};

use crate::names::Names;

/// Where facts go, and where names come from.
pub struct Out<'a> {
    /// Numbers and names.
    pub names: &'a mut Names,
    /// Facts, to be sorted by time before the ledger sees them.
    pub events: &'a mut Vec<Event>,
    /// What time it is. What a reading of the table shows may have happened after the moment for
    /// which the reading was begun, and so may have what the ring tells of it: cut to that moment, a
    /// room would leave before its transfers came.
    pub clock: fn() -> Nanos,
}

impl Out<'_> {
    /// A moment that a worker's table states, cut to what the clock has reached.
    pub fn stated(&self, at: u64) -> Nanos {
        Nanos(at).min((self.clock)())
    }
}
