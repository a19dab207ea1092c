//! Structure offsets by build-id. Data, in `builds.toml`; an operator may add to it.

use inflightd_abi::layout::{LAYOUT_SLOTS, NixlLayout, Register};
use serde::Deserialize;

use super::elf::BuildId;

const KNOWN: &str = include_str!("builds.toml");

/// Why a table of builds is refused.
#[derive(Debug, thiserror::Error)]
pub enum BuildsError {
    /// The text is not such a table.
    #[error("reading the table of builds")]
    Malformed(#[from] toml::de::Error),
    /// More layouts than the kernel side has slots for.
    #[error("{0} NIXL builds where {max} fit", max = LAYOUT_SLOTS - 1)]
    TooMany(usize),
    /// A build-id is not an even number of hexadecimal digits.
    #[error("build_id `{0}` is not hexadecimal")]
    BuildId(String),
    /// A register is not one that keeps its value over calls.
    #[error("register `{0}` is not one of rbx, rbp, r12 to r15")]
    Register(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(default)]
    nixl: Vec<NixlRow>,
    #[serde(default)]
    ucp: Vec<UcpRow>,
    #[serde(default)]
    mooncake: Vec<MooncakeRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NixlRow {
    name: String,
    build_id: String,
    remote_agent: u32,
    notif: u32,
    has_notif: u32,
    op: u32,
    status: u32,
    total_bytes: u32,
    desc_count: u32,
    end: u64,
    end_status: i32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UcpRow {
    name: String,
    build_id: String,
    distance: i64,
    issued: u64,
    ep: String,
    request: String,
    operation_ep: Option<i16>,
    operation_bytes: Option<i16>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MooncakeRow {
    name: String,
    build_id: String,
    tasks: u64,
    task_bytes: u64,
    transferred: u64,
}

/// Where a batch of Mooncake keeps what has arrived of it, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLayout {
    /// From the batch to the `std::vector` of its tasks.
    pub tasks: u64,
    /// Size of a task.
    pub task_bytes: u64,
    /// From a task to its count of bytes that have arrived, a `u64`.
    pub transferred: u64,
}

/// A build of Mooncake whose batches are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MooncakeBuild {
    pub(crate) name: String,
    pub(crate) build_id: BuildId,
    pub(crate) layout: BatchLayout,
}

/// A NIXL build whose handle's layout is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NixlBuild {
    pub(crate) name: String,
    pub(crate) build_id: BuildId,
    pub(crate) layout: NixlLayout,
    /// The last instruction that every return of `postXferReq` passes and that the kernel
    /// emulates: distance from the function's start, in bytes.
    pub(crate) end: u64,
}

/// A build of UCP whose distance from a flush request to its completion is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UcpBuild {
    pub(crate) name: String,
    pub(crate) build_id: BuildId,
    /// Completion less request, in bytes.
    pub(crate) distance: i64,
    /// The instruction that every call of `ucp_ep_flush_nbx` passes once the request is made:
    /// distance from the function's start, in bytes.
    pub(crate) issued: u64,
    /// Where the endpoint is at that instruction.
    pub(crate) ep: Register,
    /// Where the request is.
    pub(crate) request: Register,
    /// Where endpoint and bytes of an operation lie from its completion, in bytes, where that is
    /// known.
    pub(crate) operation: Option<(i16, i16)>,
}

/// The builds that are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Builds {
    nixl: Vec<NixlBuild>,
    ucp: Vec<UcpBuild>,
    mooncake: Vec<MooncakeBuild>,
}

impl Builds {
    /// The builds that this agent ships with.
    pub fn known() -> Result<Self, BuildsError> {
        Self::parse(KNOWN)
    }

    /// No build at all: every library is unknown. For tests of the degraded mode.
    pub const fn none() -> Self {
        Self { nixl: Vec::new(), ucp: Vec::new(), mooncake: Vec::new() }
    }

    /// Reads a table in the form of `builds.toml`.
    pub fn parse(text: &str) -> Result<Self, BuildsError> {
        let table: Table = toml::from_str(text)?;
        let most = usize::try_from(LAYOUT_SLOTS - 1).unwrap_or(usize::MAX);
        if table.nixl.len() > most {
            return Err(BuildsError::TooMany(table.nixl.len()));
        }
        let nixl = table.nixl.into_iter().map(NixlBuild::from_row);
        let ucp = table.ucp.into_iter().map(UcpBuild::from_row);
        let mooncake = table.mooncake.into_iter().map(MooncakeBuild::from_row);
        Ok(Self {
            nixl: nixl.collect::<Result<_, _>>()?,
            ucp: ucp.collect::<Result<_, _>>()?,
            mooncake: mooncake.collect::<Result<_, _>>()?,
        })
    }

    /// Slots and layouts for the kernel side, slot 0 left out.
    pub(crate) fn layouts(&self) -> impl Iterator<Item = (u32, NixlLayout)> + '_ {
        (1..).zip(self.nixl.iter().map(|build| build.layout))
    }

    /// Slot and name of a NIXL build.
    pub(crate) fn nixl(&self, build_id: Option<&BuildId>) -> Option<(u32, &NixlBuild)> {
        (1..).zip(&self.nixl).find(|(_, build)| Some(&build.build_id) == build_id)
    }

    /// A build of UCP.
    pub(crate) fn ucp(&self, build_id: Option<&BuildId>) -> Option<&UcpBuild> {
        self.ucp.iter().find(|build| Some(&build.build_id) == build_id)
    }

    /// A build of Mooncake.
    pub(crate) fn mooncake(&self, build_id: Option<&BuildId>) -> Option<&MooncakeBuild> {
        self.mooncake.iter().find(|build| Some(&build.build_id) == build_id)
    }
}

impl NixlBuild {
    fn from_row(row: NixlRow) -> Result<Self, BuildsError> {
        Ok(Self {
            name: row.name,
            build_id: parse_build_id(&row.build_id)?,
            layout: NixlLayout {
                known: 1,
                remote_agent: row.remote_agent,
                notif: row.notif,
                has_notif: row.has_notif,
                op: row.op,
                status: row.status,
                total_bytes: row.total_bytes,
                desc_count: row.desc_count,
                end_status: row.end_status,
            },
            end: row.end,
        })
    }
}

impl MooncakeBuild {
    fn from_row(row: MooncakeRow) -> Result<Self, BuildsError> {
        let MooncakeRow { name, build_id, tasks, task_bytes, transferred } = row;
        let layout = BatchLayout { tasks, task_bytes, transferred };
        Ok(Self { name, build_id: parse_build_id(&build_id)?, layout })
    }
}

impl UcpBuild {
    fn from_row(row: UcpRow) -> Result<Self, BuildsError> {
        Ok(Self {
            name: row.name,
            build_id: parse_build_id(&row.build_id)?,
            distance: row.distance,
            issued: row.issued,
            ep: parse_register(&row.ep)?,
            request: parse_register(&row.request)?,
            operation: row.operation_ep.zip(row.operation_bytes),
        })
    }
}

fn parse_register(text: &str) -> Result<Register, BuildsError> {
    Register::NAMES
        .iter()
        .find(|(name, _)| *name == text)
        .map(|(_, register)| *register)
        .ok_or_else(|| BuildsError::Register(text.to_owned()))
}

fn parse_build_id(text: &str) -> Result<BuildId, BuildsError> {
    let digits = text.as_bytes().chunks(2).map(|pair| {
        std::str::from_utf8(pair)
            .ok()
            .filter(|digits| digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|digits| u8::from_str_radix(digits, 16).ok())
    });
    digits
        .collect::<Option<Vec<u8>>>()
        .filter(|bytes| !bytes.is_empty())
        .map(BuildId::new)
        .ok_or_else(|| BuildsError::BuildId(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_table_is_read_and_found_by_build_id() {
        let builds = Builds::known().unwrap();
        let id = parse_build_id("c60ac851fdd67a4d9738b5b2f53bd4849505f241").unwrap();
        let (slot, build) = builds.nixl(Some(&id)).expect("nixl 1.5.1 is known");
        assert_eq!(slot, 1);
        assert_eq!(build.layout.known, 1);
        assert_eq!(build.layout.total_bytes, 0xd8);
        assert_eq!(builds.layouts().next(), Some((1, build.layout)));
        let ucp = parse_build_id("1ef9ed4d38a46fd6351698d23bb7446e3442b39d").unwrap();
        assert_eq!(builds.ucp(Some(&ucp)).map(|build| build.distance), Some(-128));
    }

    #[test]
    fn another_build_and_no_build_are_unknown() {
        let builds = Builds::known().unwrap();
        assert_eq!(builds.nixl(None), None);
        assert_eq!(builds.nixl(Some(&BuildId::new(vec![1; 20]))), None);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let row = |id: &str| {
            format!(
                "[[ucp]]\nname = 'x'\nbuild_id = '{id}'\ndistance = -1\nissued = 1\n\
                 ep = 'rbx'\nrequest = 'rbp'\n"
            )
        };
        assert!(Builds::parse(&row("00ff")).is_ok());
        for bad in ["", "0", "00f", "zz", "+1"] {
            assert!(
                matches!(Builds::parse(&row(bad)), Err(BuildsError::BuildId(text)) if text == bad),
                "{bad}"
            );
        }
        assert!(matches!(Builds::parse("[[ucp]]\nname = 'x'\n"), Err(BuildsError::Malformed(_))));
    }
}
