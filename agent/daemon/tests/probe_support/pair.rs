//! A connected NIXL pair of which one end is probed, and what its records say.
#![allow(
    dead_code,
    clippy::panic,
    reason = "a test ends by a panic, and each binary uses a part of this"
)]

use inflightd::probe::{Group, Options, Probes};
use inflightd_abi::record::{EpError, Exit, Flush, FlushDone, Record, XferPost, XferRet};

use super::nixl::Peer;
use super::probe_support::load;

/// What the records of one process say.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) posts: Vec<XferPost>,
    pub(crate) returns: Vec<XferRet>,
    pub(crate) releases: Vec<XferRet>,
    pub(crate) flushes: Vec<Flush>,
    pub(crate) dones: Vec<FlushDone>,
    pub(crate) errors: Vec<EpError>,
    pub(crate) exits: Vec<Exit>,
}

/// Of all records, what those of one process say.
pub(crate) fn seen(records: &[Record], pid: u32) -> Seen {
    let mut seen = Seen::default();
    for record in records.iter().filter(|record| record.head().tgid == pid) {
        match record {
            Record::XferPost(post) => seen.posts.push(*post),
            Record::XferRet(ret) => seen.returns.push(*ret),
            Record::XferRelease(release) => seen.releases.push(*release),
            Record::Flush(flush) => seen.flushes.push(*flush),
            Record::FlushDone(done) => seen.dones.push(*done),
            Record::EpError(error) => seen.errors.push(*error),
            Record::Exit(exit) => seen.exits.push(*exit),
            other => panic!("{other:?}"),
        }
    }
    seen
}

/// A connected pair whose prefill end is probed.
pub(crate) fn pair(options: Options) -> (Probes, Peer, Peer) {
    let mut probes = load(options);
    let decode = Peer::start("decode-agent-with-a-long-name");
    let mut prefill = Peer::start("prefill-agent");
    let report = probes.attach_process(prefill.pid());
    for group in [Group::XferPost, Group::XferRelease, Group::Flush, Group::EpError] {
        assert!(report.sees(group), "{group:?}: {report:#?}");
    }
    prefill.connect(&decode);
    (probes, prefill, decode)
}
