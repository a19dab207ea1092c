//! What a plan goes by.

use super::{builds::Builds, plan::Returns};

/// Known builds, and where return probes are allowed.
pub(crate) struct Rules {
    pub(crate) builds: Builds,
    pub(crate) returns: Returns,
}
