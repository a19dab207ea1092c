//! Who a worker is across lives of the agent, and the stable ids made from that.

use std::fmt;

use inflightd_core::fact::Seq;
use inflightd_core::{Cause, Finding};

/// A worker for as long as it lives, whoever looks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// Identity of the boot.
    pub boot: String,
    /// Process id in the host's pid namespace.
    pub pid: u32,
    /// Clock ticks from boot to the process's start.
    pub start: u64,
    /// Index of the worker inside its process.
    pub index: u64,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.boot, self.pid, self.start, self.index)
    }
}

impl Identity {
    /// The id of a verdict: the same in every life of the agent.
    pub fn verdict_id(&self, seq: Seq, finding: Finding, cause: Cause) -> String {
        id(&format!("{self} {} {} {}", seq.0, finding.name(), cause.name()))
    }

    /// The id of a room's stay: of its `append` and `dwell`.
    pub fn room_id(&self, seq: Seq) -> String {
        id(&format!("{self} {}", seq.0))
    }
}

fn id(text: &str) -> String {
    format!("{:032x}", fnv1a(text.as_bytes()))
}

/// FNV-1a of 128 bits: stable for ever, unlike the standard library's hasher.
pub fn fnv1a(bytes: &[u8]) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(BASIS, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity { boot: "b".to_owned(), pid: 7, start: 99, index: 0 }
    }

    #[test]
    fn an_id_depends_on_everything_that_makes_a_verdict() {
        let of = |identity: &Identity, seq, finding, cause| {
            identity.verdict_id(Seq(seq), finding, cause)
        };
        let base = of(&identity(), 1, Finding::NeverStarted, Cause::PeerDead);
        let restarted = Identity { start: 100, ..identity() };
        assert_eq!(base.len(), 32);
        assert_eq!(base, of(&identity(), 1, Finding::NeverStarted, Cause::PeerDead));
        assert_ne!(base, of(&identity(), 2, Finding::NeverStarted, Cause::PeerDead));
        assert_ne!(base, of(&identity(), 1, Finding::StoppedMidway, Cause::PeerDead));
        assert_ne!(base, of(&identity(), 1, Finding::NeverStarted, Cause::PeerFrozen));
        assert_ne!(base, of(&restarted, 1, Finding::NeverStarted, Cause::PeerDead));
        assert_ne!(base, identity().room_id(Seq(1)));
    }

    #[test]
    fn the_hash_is_the_published_one() {
        // Test vectors of the FNV reference: "" and "a".
        assert_eq!(fnv1a(b""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(fnv1a(b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }
}
