//! Which sources see a worker, which do not and why.

use alloc::collections::{BTreeMap, VecDeque};

use crate::time::Nanos;

/// Where facts come from. Numbers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The worker's shared table.
    Table,
    /// Uprobes on libinflight's markers.
    Marks,
    /// Uprobes on NIXL's post and release.
    Transfers,
    /// Uprobes on UCX's flush and its completion.
    Completions,
    /// Uprobe on the endpoint error callback.
    EndpointErrors,
    /// The kernel's counts per TCP connection.
    Connections,
    /// State of the peers' processes on this node.
    Peers,
    /// Exits of threads and processes.
    Exits,
}

impl Source {
    /// Every source.
    pub const ALL: [Self; 8] = [
        Self::Table,
        Self::Marks,
        Self::Transfers,
        Self::Completions,
        Self::EndpointErrors,
        Self::Connections,
        Self::Peers,
        Self::Exits,
    ];

    /// The word for it in outputs and captures.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Marks => "marks",
            Self::Transfers => "transfers",
            Self::Completions => "completions",
            Self::EndpointErrors => "endpoint_errors",
            Self::Connections => "connections",
            Self::Peers => "peers",
            Self::Exits => "exits",
        }
    }

    /// The source of that word.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.name() == name)
    }
}

/// Why a source sees less than it could.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Nothing was attached yet.
    NotAttached,
    /// The library that would be probed is not mapped.
    LibraryMissing,
    /// The library's build is not in the table of known builds.
    UnknownBuild,
    /// The fields read with the build's layout are not those of a handle.
    SelfCheckFailed,
    /// A symbol that the probe needs is not exported.
    SymbolMissing,
    /// The first instruction cannot be probed safely or cheaply.
    UnsafeOpcode,
    /// The agent lacks a right that the source needs.
    NotPermitted,
    /// The kernel does not offer it.
    KernelLacks,
    /// The far end is not on this node, or could not be found on it.
    PeerElsewhere,
    /// The worker's table was full: some rooms are known from marks only.
    TableFull,
    /// The worker runs another release of the hook.
    AbiMismatch,
    /// Reading it failed; the agent's log says how.
    ReadFailed,
    /// Payload may go by a transport that this source does not count. Of
    /// [`Source::Connections`]: the worker can write into processes of its own node directly
    /// (`process_vm_writev`, shared memory), past its sockets.
    OtherTransport,
    /// The worker marks no queue.
    NoHook,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 14] = [
        Self::NotAttached,
        Self::LibraryMissing,
        Self::UnknownBuild,
        Self::SelfCheckFailed,
        Self::SymbolMissing,
        Self::UnsafeOpcode,
        Self::NotPermitted,
        Self::KernelLacks,
        Self::PeerElsewhere,
        Self::TableFull,
        Self::AbiMismatch,
        Self::ReadFailed,
        Self::OtherTransport,
        Self::NoHook,
    ];

    /// The word for it in outputs and captures.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotAttached => "not_attached",
            Self::LibraryMissing => "library_missing",
            Self::UnknownBuild => "unknown_build",
            Self::SelfCheckFailed => "self_check_failed",
            Self::SymbolMissing => "symbol_missing",
            Self::UnsafeOpcode => "unsafe_opcode",
            Self::NotPermitted => "not_permitted",
            Self::KernelLacks => "kernel_lacks",
            Self::PeerElsewhere => "peer_elsewhere",
            Self::TableFull => "table_full",
            Self::AbiMismatch => "abi_mismatch",
            Self::ReadFailed => "read_failed",
            Self::OtherTransport => "other_transport",
            Self::NoHook => "no_hook",
        }
    }

    /// The reason of that word.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }
}

/// How well a source sees a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sight {
    /// It sees what happens from this coverage's time on.
    Visible,
    /// It sees less than it could.
    Degraded(Reason),
    /// It sees nothing.
    Blind(Reason),
}

/// What each source sees of one worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    sources: BTreeMap<Source, Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    sight: Sight,
    since: Nanos,
    lost: u64,
    /// The last losses, oldest first.
    losses: VecDeque<(Nanos, u64)>,
}

/// Most losses kept of one source; the victim is the oldest, whose count goes to the next.
const LOSSES_MAX: usize = 32;

static UNSEEN: Entry = Entry {
    sight: Sight::Blind(Reason::NotAttached),
    since: Nanos::ZERO,
    lost: 0,
    losses: VecDeque::new(),
};

impl Coverage {
    /// From `at` on, `source` sees this well. Returns whether that is a change.
    pub fn set(&mut self, at: Nanos, source: Source, sight: Sight) -> bool {
        let entry = self.sources.entry(source).or_insert_with(|| UNSEEN.clone());
        let changed = entry.sight != sight || entry.since == Nanos::ZERO;
        if changed {
            entry.sight = sight;
            entry.since = at;
        }
        changed
    }

    /// `count` events of `source` were lost before `at`.
    pub fn lose(&mut self, at: Nanos, source: Source, count: u64) {
        let entry = self.sources.entry(source).or_insert_with(|| UNSEEN.clone());
        entry.lost = entry.lost.saturating_add(count);
        let merged = if entry.losses.len() < LOSSES_MAX { None } else { entry.losses.pop_front() };
        if let (Some((_, count)), Some(next)) = (merged, entry.losses.front_mut()) {
            next.1 = next.1.saturating_add(count);
        }
        entry.losses.push_back((at, count));
    }

    fn entry(&self, source: Source) -> &Entry {
        self.sources.get(&source).unwrap_or(&UNSEEN)
    }

    /// How well `source` sees now.
    pub fn sight(&self, source: Source) -> Sight {
        self.entry(source).sight
    }

    /// Whether `source` sees anything now.
    pub fn sees(&self, source: Source) -> bool {
        !matches!(self.sight(source), Sight::Blind(_))
    }

    /// Whether `source` saw everything from `from` until now: it was visible all the time and
    /// lost nothing. Only then does its silence mean that nothing happened.
    pub fn whole_since(&self, source: Source, from: Nanos) -> bool {
        let entry = self.entry(source);
        entry.sight == Sight::Visible
            && entry.since <= from
            && self.lost_at(source).is_none_or(|at| at < from)
    }

    /// Events of `source` known to be lost so far.
    pub fn lost(&self, source: Source) -> u64 {
        self.entry(source).lost
    }

    /// Events of `source` known to be lost at `from` or later.
    pub fn lost_since(&self, source: Source, from: Nanos) -> u64 {
        self.entry(source).losses.iter().filter(|(at, _)| *at >= from).map(|(_, count)| count).sum()
    }

    /// When events of `source` were last lost.
    pub fn lost_at(&self, source: Source) -> Option<Nanos> {
        self.entry(source).losses.back().map(|(at, _)| *at)
    }

    /// Every source with its sight and since when.
    pub fn each(&self) -> impl Iterator<Item = (Source, Sight, Nanos)> + '_ {
        Source::ALL.into_iter().map(|source| {
            let entry = self.entry(source);
            (source, entry.sight, entry.since)
        })
    }
}
