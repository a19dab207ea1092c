//! What is attached where: catalogue × library → points and gaps. Pure, and tested with a fake.
//!
//! Points come in groups, and a group is attached as a whole or not at all: a flush without its
//! completion would read as a transfer that never ends.

use inflightd_abi::record::Kind;

use super::{
    builds::Builds,
    library::{Family, ObjectView},
    opcode::{self, Refusal},
};

/// What is seen when the points of a group are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// One queue mark of libinflight.
    Mark(Kind),
    /// A handle is posted, and the post returns.
    XferPost,
    /// A handle is released.
    XferRelease,
    /// A flush is issued, and completes.
    Flush,
    /// An endpoint fails.
    EpError,
}

impl Group {
    /// Every group.
    pub const ALL: [Self; 12] = [
        Self::Mark(Kind::Open),
        Self::Mark(Kind::Append),
        Self::Mark(Kind::Serve),
        Self::Mark(Kind::ServeEnd),
        Self::Mark(Kind::Post),
        Self::Mark(Kind::Done),
        Self::Mark(Kind::Phase),
        Self::Mark(Kind::Remove),
        Self::XferPost,
        Self::XferRelease,
        Self::Flush,
        Self::EpError,
    ];

    /// The library that the group's functions are in.
    pub const fn family(self) -> Family {
        match self {
            Self::Mark(_) => Family::Inflight,
            Self::XferPost | Self::XferRelease => Family::Nixl,
            Self::EpError => Family::NixlUcx,
            Self::Flush => Family::Ucp,
        }
    }

    /// The catalogue.
    fn wants(self) -> Vec<Want> {
        match self {
            Self::Mark(kind) => Kind::MARKS
                .iter()
                .filter(|(_, of)| *of == kind)
                .map(|(symbol, _)| mark(symbol, kind))
                .collect(),
            Self::XferPost => vec![
                Want::new("xfer_post", Symbol::Prefix(POST_XFER), Cookie::Layout),
                Want::new("xfer_ret", Symbol::Prefix(POST_XFER), Cookie::Plain(0)),
            ],
            Self::XferRelease => {
                vec![Want::new("xfer_release", Symbol::Prefix(RELEASE_XFER), Cookie::Layout)]
            }
            Self::Flush => vec![
                // The completion first: it must not be missed for a flush that is seen.
                Want::new("flush_done", Symbol::Exact(FLUSH_DONE), Cookie::Distance),
                Want::new("flush_ret", Symbol::Exact(FLUSH), Cookie::Plain(0)),
                Want::new("flush", Symbol::Exact(FLUSH), Cookie::Plain(0)),
            ],
            Self::EpError => vec![Want::new("ep_error", Symbol::Prefix(ERR_CB), Cookie::Plain(0))],
        }
    }
}

// C++ symbols up to where the argument types begin to differ between versions: the arguments
// that are read come before that.
const POST_XFER: &str = "_ZNK9nixlAgent11postXferReqEP12nixlXferReqH";
const RELEASE_XFER: &str = "_ZNK9nixlAgent14releaseXferReqEP12nixlXferReqH";
const ERR_CB: &str = "_ZN9nixlUcxEp6err_cbEP6ucp_ep";
const FLUSH: &str = "ucp_ep_flush_nbx";
const FLUSH_DONE: &str = "ucp_ep_flush_completion";

#[derive(Clone, Copy, Debug)]
enum Symbol {
    Exact(&'static str),
    Prefix(&'static str),
}

/// What the program finds in its attach cookie.
#[derive(Clone, Copy, Debug)]
enum Cookie {
    Plain(u64),
    /// Slot of the build's layout; 0 for an unknown build.
    Layout,
    /// The build's distance from request to completion; 0 for an unknown build.
    Distance,
}

/// One line of the catalogue.
struct Want {
    program: &'static str,
    symbol: Symbol,
    cookie: Cookie,
}

impl Want {
    const fn new(program: &'static str, symbol: Symbol, cookie: Cookie) -> Self {
        Self { program, symbol, cookie }
    }
}

const fn mark(symbol: &'static str, kind: Kind) -> Want {
    let program = match kind {
        Kind::Append => "append",
        _ => "mark",
    };
    Want::new(program, Symbol::Exact(symbol), Cookie::Plain(kind as u64))
}

impl Symbol {
    const fn text(self) -> &'static str {
        match self {
            Self::Exact(text) | Self::Prefix(text) => text,
        }
    }

    fn admits(self, name: &str) -> bool {
        match self {
            Self::Exact(text) => name == text,
            Self::Prefix(text) => name.starts_with(text),
        }
    }
}

/// Whether any group of the family could want this symbol.
pub(crate) fn wanted(family: Family, name: &str) -> bool {
    Group::ALL
        .iter()
        .filter(|group| group.family() == family)
        .flat_map(|group| group.wants())
        .any(|want| want.symbol.admits(name))
}

/// One probe to attach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    /// Name of the kernel program.
    pub(crate) program: &'static str,
    /// Offset in the file, in bytes.
    pub(crate) offset: u64,
    pub(crate) cookie: u64,
}

/// Why a group is not attached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Gap {
    /// The library does not export the function.
    #[error("the library exports no `{0}…`")]
    Missing(&'static str),
    /// Several functions fit, and each call could be counted twice.
    #[error("the library exports {1} functions `{0}…`")]
    Ambiguous(&'static str, usize),
    /// The function's first instruction does not take a probe.
    #[error("`{0}`: {1}")]
    Refused(String, Refusal),
    /// The kernel did not take the probe; tried again at the next visit.
    #[error("attaching to `{point}`: {reason}")]
    Attach {
        /// Name of the kernel program.
        point: &'static str,
        /// What the kernel said.
        reason: String,
    },
}

/// What is to be done to one library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) points: Vec<(Group, Vec<Point>)>,
    pub(crate) gaps: Vec<(Group, Gap)>,
    /// The known build, where the family's probes depend on one.
    pub(crate) build: Option<String>,
    /// Completion less request of a flush, in bytes, where the build is known.
    pub(crate) distance: Option<i64>,
}

/// Plans one library: each group of its family becomes points or a gap.
pub(crate) fn plan(family: Family, view: &dyn ObjectView, builds: &Builds) -> Plan {
    let mut plan = Plan::default();
    match family {
        Family::Nixl => plan.build = builds.nixl(view.build_id()).map(|(_, b)| b.name.clone()),
        Family::Ucp => {
            let build = builds.ucp(view.build_id());
            plan.build = build.map(|build| build.name.clone());
            plan.distance = build.map(|build| build.distance);
        }
        Family::Inflight | Family::NixlUcx => {}
    }
    for group in Group::ALL {
        if group.family() != family {
            continue;
        }
        let points = group
            .wants()
            .iter()
            .map(|want| point(want, view, builds))
            .collect::<Result<Vec<_>, _>>();
        match points {
            Ok(points) => plan.points.push((group, points)),
            Err(gap) => plan.gaps.push((group, gap)),
        }
    }
    plan
}

fn point(want: &Want, view: &dyn ObjectView, builds: &Builds) -> Result<Point, Gap> {
    let text = want.symbol.text();
    let mut fitting = view.functions(text);
    fitting.retain(|(name, _)| want.symbol.admits(name));
    let (name, function) = match fitting.as_slice() {
        [] => return Err(Gap::Missing(text)),
        [one] => *one,
        several => return Err(Gap::Ambiguous(text, several.len())),
    };
    let skip = opcode::entry(view.machine(), &function.code)
        .map_err(|refusal| Gap::Refused(name.to_owned(), refusal))?;
    Ok(Point {
        program: want.program,
        offset: function.offset.saturating_add(skip),
        cookie: cookie(want.cookie, view, builds),
    })
}

fn cookie(cookie: Cookie, view: &dyn ObjectView, builds: &Builds) -> u64 {
    match cookie {
        Cookie::Plain(value) => value,
        Cookie::Layout => builds.nixl(view.build_id()).map_or(0, |(slot, _)| u64::from(slot)),
        Cookie::Distance => {
            builds.ucp(view.build_id()).map_or(0, |build| build.distance.cast_unsigned())
        }
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
