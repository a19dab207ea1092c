//! What is attached where: catalogue × library → points and gaps. Pure, and tested with a fake.

use std::fmt;

use inflightd_abi::{
    layout::{END_SEEN, issued_cookie},
    operations::operation_cookie,
    record::Kind,
};

use super::{
    builds::{BatchLayout, Builds, NixlBuild, UcpBuild},
    library::{Family, ObjectView},
    opcode::{self, Refusal},
    symbols::{
        ERR_CB, FLUSH, FLUSH_DONE, FREE_BATCH, OPERATION_DONE, POST_XFER, RELEASE_XFER, SUBMIT,
    },
};

/// What is seen when its points are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// One queue mark of libinflight.
    Mark(Kind),
    /// A handle is posted.
    XferPost,
    /// The post of a handle ends, and with what status.
    XferRet,
    /// A handle is released.
    XferRelease,
    /// A flush is issued, and completes.
    Flush,
    /// An endpoint fails.
    EpError,
    /// A batch of Mooncake is submitted, and freed.
    Batch,
}

impl Group {
    /// Every group.
    pub const ALL: [Self; 14] = [
        Self::Mark(Kind::Open),
        Self::Mark(Kind::Append),
        Self::Mark(Kind::Serve),
        Self::Mark(Kind::ServeEnd),
        Self::Mark(Kind::Post),
        Self::Mark(Kind::Done),
        Self::Mark(Kind::Phase),
        Self::Mark(Kind::Remove),
        Self::XferPost,
        Self::XferRet,
        Self::XferRelease,
        Self::Flush,
        Self::EpError,
        Self::Batch,
    ];
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mark(kind) => {
                let symbol = Kind::MARKS.iter().find(|(_, of)| of == kind);
                return f.write_str(symbol.map_or("a mark", |(symbol, _)| *symbol));
            }
            Self::XferPost => "xfer_post",
            Self::XferRet => "xfer_ret",
            Self::XferRelease => "xfer_release",
            Self::Flush => "flush",
            Self::EpError => "ep_error",
            Self::Batch => "batch",
        })
    }
}

/// Where return probes, which put another address in place of the caller's, are allowed.
///
/// They are never needed in a known build: there a plain probe sits at the end of the function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Returns {
    /// Nowhere: this kernel may kill a process under seccomp at its first return.
    Nowhere(String),
    /// On C functions: an exception that passes through a C++ function with a return probe ends
    /// its process (`terminate called`, measured), because the unwinder finds no caller.
    InC,
    /// On C++ functions too: the operator asked for it.
    Everywhere,
}

/// Why a function's return is not probed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReturnRisk {
    /// It is a C++ function.
    #[error(
        "the build is unknown, and a return probe would make an exception that passes through \
         this C++ function fatal"
    )]
    Exceptions,
    /// The kernel's return probes use a system call that seccomp filters refuse.
    #[error(
        "the build is unknown, and kernel {0} may kill a process under a seccomp filter at a \
         return probe"
    )]
    Seccomp(String),
}

#[derive(Clone, Copy, Debug)]
enum Symbol {
    Exact(&'static str),
    Prefix(&'static str),
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

/// One point of the catalogue.
#[derive(Clone, Copy, Debug)]
struct Want {
    program: &'static str,
    symbol: Symbol,
    /// Distance from the function's start, in bytes, in a known build; `None` for its entry.
    inside: Option<u64>,
    cookie: u64,
}

impl Want {
    const fn entry(program: &'static str, symbol: Symbol, cookie: u64) -> Self {
        Self { program, symbol, inside: None, cookie }
    }
}

/// Points that are attached together or not at all, and what is seen by them.
struct Wants {
    groups: Vec<Group>,
    points: Vec<Want>,
}

impl Wants {
    fn one(group: Group, point: Want) -> Self {
        Self { groups: vec![group], points: vec![point] }
    }
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
    /// The instruction does not take a probe.
    #[error("`{0}`: {1}")]
    Refused(String, Refusal),
    /// The function's return is not probed for the target's sake.
    #[error(transparent)]
    Return(ReturnRisk),
    /// The kernel did not take the probe; tried again at the next visit.
    #[error("attaching to `{point}`: {reason}")]
    Attach {
        /// Name of the kernel program.
        point: &'static str,
        /// What the kernel said.
        reason: String,
        /// It said that this process may not: rights, a seccomp filter or a security module.
        denied: bool,
    },
}

/// Points that are attached together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bundle {
    /// What is seen once they are attached.
    pub(crate) groups: Vec<Group>,
    pub(crate) points: Vec<Point>,
}

/// What is to be done to one library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) bundles: Vec<Bundle>,
    pub(crate) gaps: Vec<(Group, Gap)>,
    /// The known build, where the family's probes depend on one.
    pub(crate) build: Option<String>,
    /// Completion less request of a flush, in bytes, where the build is known.
    pub(crate) distance: Option<i64>,
    /// Where operations are counted as they complete: attached to one process at a time, while it has
    /// a suspect.
    pub(crate) armed: Option<Point>,
    /// Where a batch keeps what has arrived of it, where the build is known.
    pub(crate) batch: Option<BatchLayout>,
}

/// Plans one library: every group of its family is in a bundle or has a gap.
pub(crate) fn plan(
    family: Family,
    view: &dyn ObjectView,
    builds: &Builds,
    returns: &Returns,
) -> Plan {
    let mut plan = Plan::default();
    let wants = match family {
        Family::Inflight => marks(),
        Family::Nixl => plan.nixl(builds.nixl(view.build_id()), returns),
        Family::NixlUcx => {
            let point = Want::entry("ep_error", Symbol::Prefix(ERR_CB), 0);
            vec![Wants::one(Group::EpError, point)]
        }
        Family::Ucp => {
            let build = builds.ucp(view.build_id());
            plan.armed = build.and_then(|build| operations(build, view));
            plan.ucp(build, returns)
        }
        Family::Mooncake => {
            let build = builds.mooncake(view.build_id());
            plan.build = build.map(|build| build.name.clone());
            plan.batch = build.map(|build| build.layout);
            batches()
        }
    };
    for Wants { groups, points } in wants {
        match points.iter().map(|want| point(want, view)).collect::<Result<Vec<_>, _>>() {
            Ok(points) => plan.bundles.push(Bundle { groups, points }),
            Err(gap) => plan.gaps.extend(groups.into_iter().map(|group| (group, gap.clone()))),
        }
    }
    plan
}

/// Where operations complete, in a build whose requests are known.
fn operations(build: &UcpBuild, view: &dyn ObjectView) -> Option<Point> {
    let (ep, bytes) = build.operation?;
    let symbol = Symbol::Exact(OPERATION_DONE);
    point(&Want::entry("operation_done", symbol, operation_cookie(ep, bytes)), view).ok()
}

/// An end that is missed would leave a batch open for ever: its probe comes first.
fn batches() -> Vec<Wants> {
    let end = Want::entry("batch_end", Symbol::Prefix(FREE_BATCH), 0);
    let begin = Want::entry("batch", Symbol::Prefix(SUBMIT), 0);
    vec![Wants { groups: vec![Group::Batch], points: vec![end, begin] }]
}

fn marks() -> Vec<Wants> {
    let of = |(symbol, kind): (&'static str, Kind)| {
        let program = if kind == Kind::Append { "append" } else { "mark" };
        let point = Want::entry(program, Symbol::Exact(symbol), kind as u64);
        Wants::one(Group::Mark(kind), point)
    };
    Kind::MARKS.into_iter().map(of).collect()
}

impl Plan {
    /// A post and its end stand or fall together: an entry without its end would leave the thread
    /// inside its call.
    fn nixl(&mut self, build: Option<(u32, &NixlBuild)>, returns: &Returns) -> Vec<Wants> {
        let (post, release) = (Symbol::Prefix(POST_XFER), Symbol::Prefix(RELEASE_XFER));
        let slot = build.map_or(0, |(slot, _)| u64::from(slot));
        self.build = build.map(|(_, build)| build.name.clone());
        let end = match (build, returns) {
            (Some((_, build)), _) => {
                Ok(Want { inside: Some(build.end), ..Want::entry("xfer_end", post, slot) })
            }
            (None, Returns::Everywhere) => Ok(Want::entry("xfer_ret", post, 0)),
            (None, Returns::InC) => Err(ReturnRisk::Exceptions),
            (None, Returns::Nowhere(kernel)) => Err(ReturnRisk::Seccomp(kernel.clone())),
        };
        let posts = match end {
            Ok(end) => Wants {
                groups: vec![Group::XferPost, Group::XferRet],
                points: vec![end, Want::entry("xfer_post", post, slot | END_SEEN)],
            },
            Err(risk) => {
                self.gaps.push((Group::XferRet, Gap::Return(risk)));
                Wants::one(Group::XferPost, Want::entry("xfer_post", post, slot))
            }
        };
        let release = Want::entry("xfer_release", release, slot);
        vec![posts, Wants::one(Group::XferRelease, release)]
    }

    /// A flush without its completion would read as a transfer that never ends; the completion
    /// comes first, so that it is not missed for a flush that is seen.
    fn ucp(&mut self, build: Option<&UcpBuild>, returns: &Returns) -> Vec<Wants> {
        let flush = Symbol::Exact(FLUSH);
        let done = |distance: i64| {
            Want::entry("flush_done", Symbol::Exact(FLUSH_DONE), distance.cast_unsigned())
        };
        self.build = build.map(|build| build.name.clone());
        self.distance = build.map(|build| build.distance);
        let points = match (build, returns) {
            (Some(build), _) => {
                let cookie = issued_cookie(build.ep, build.request);
                let issued = Want::entry("flush_issued", flush, cookie);
                vec![done(build.distance), Want { inside: Some(build.issued), ..issued }]
            }
            (None, Returns::Nowhere(kernel)) => {
                let risk = ReturnRisk::Seccomp(kernel.clone());
                self.gaps.push((Group::Flush, Gap::Return(risk)));
                return Vec::new();
            }
            (None, _) => {
                vec![done(0), Want::entry("flush_ret", flush, 0), Want::entry("flush", flush, 0)]
            }
        };
        vec![Wants { groups: vec![Group::Flush], points }]
    }
}

fn point(want: &Want, view: &dyn ObjectView) -> Result<Point, Gap> {
    let text = want.symbol.text();
    let mut fitting = view.functions(text);
    fitting.retain(|(name, _)| want.symbol.admits(name));
    let (name, function) = match fitting.as_slice() {
        [] => return Err(Gap::Missing(text)),
        [one] => *one,
        several => return Err(Gap::Ambiguous(text, several.len())),
    };
    let within = match want.inside {
        None => opcode::entry(view.machine(), &function.code),
        Some(at) => opcode::inside(view.machine(), &function.code, at),
    };
    let within = within.map_err(|refusal| Gap::Refused(name.to_owned(), refusal))?;
    Ok(Point {
        program: want.program,
        offset: function.offset.saturating_add(within),
        cookie: want.cookie,
    })
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
