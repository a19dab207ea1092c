//! What would mend a sight.

use inflightd_core::{Reason, Source};

/// What to do about a source that sees less than it could.
pub const fn fix(source: Source, reason: Reason) -> &'static str {
    match reason {
        Reason::NotAttached => {
            "set `probes = true`; without them tables and sockets alone are read"
        }
        Reason::LibraryMissing => match source {
            Source::Marks => {
                "install the hook (hook/README.md); mapped later, it is found by itself"
            }
            _ => "nothing, if the engine does not use this library; else it is mapped later",
        },
        Reason::UnknownBuild => {
            "use nixl-cu12 or nixl-cu13 1.5.1, or report the build-id below to have it added"
        }
        Reason::SelfCheckFailed => {
            "report the build-id below: fields are not where this build should have them"
        }
        Reason::SymbolMissing => "use a build that exports its symbols (not stripped of .dynsym)",
        Reason::UnsafeOpcode => {
            "use a build without -fpatchable-function-entry or -mfentry in this library"
        }
        Reason::NotPermitted => match source {
            Source::Table => {
                "give inflightd CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH (deploy/README.md)"
            }
            _ => "give inflightd CAP_SYS_ADMIN (deploy/README.md)",
        },
        Reason::KernelLacks => "see the node's checks above; a newer kernel may offer it",
        Reason::PeerElsewhere => "run inflightd on the peer's node too, and read both",
        Reason::TableFull => "find out why the engine holds more rooms or threads than its table",
        Reason::AbiMismatch => "install the hook of the agent's own release in the engine",
        Reason::ReadFailed => "read the agent's log: it says what failed",
        Reason::OtherTransport => {
            "nothing, if CMA is wanted; else UCX_TLS=^sm in the engine's environment at start"
        }
        Reason::NoHook => "install the hook in the engine (hook/README.md)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_remedy_that_fits_a_line() {
        for reason in Reason::ALL {
            for source in Source::ALL {
                let text = fix(source, reason);
                assert!((10..=80).contains(&text.len()), "{}: {text}", reason.name());
            }
        }
    }
}
