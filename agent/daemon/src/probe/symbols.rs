//! The functions that are probed, by their names in the libraries.

use super::library::{Family, ObjectView};

// C++ symbols up to where the argument types begin to differ between versions: the arguments
// that are read come before that.
pub(super) const POST_XFER: &str = "_ZNK9nixlAgent11postXferReqEP12nixlXferReqH";
pub(super) const RELEASE_XFER: &str = "_ZNK9nixlAgent14releaseXferReqEP12nixlXferReqH";
pub(super) const ERR_CB: &str = "_ZN9nixlUcxEp6err_cbEP6ucp_ep";
pub(super) const SUBMIT: &str = "_ZN8mooncake14TransferEngine14submitTransferEm";
pub(super) const FREE_BATCH: &str = "_ZN8mooncake14TransferEngine11freeBatchIDEm";
pub(super) const FLUSH: &str = "ucp_ep_flush_nbx";
pub(super) const FLUSH_DONE: &str = "ucp_ep_flush_completion";
pub(super) const OPERATION_DONE: &str = "ucp_proto_request_zcopy_completion";

/// How the names of all functions begin that could be probed.
pub(crate) const BEGIN: &[&str] = &[
    "inflight_mark_",
    "_ZNK9nixlAgent1",
    "_ZN9nixlUcxEp6err_cb",
    "ucp_ep_flush_",
    OPERATION_DONE,
    SUBMIT,
    FREE_BATCH,
];

/// The functions of a family that can be probed: names, or how they begin.
const fn symbols(family: Family) -> &'static [&'static str] {
    match family {
        Family::Inflight => &["inflight_mark_"],
        Family::Nixl => &[POST_XFER, RELEASE_XFER],
        Family::NixlUcx => &[ERR_CB],
        Family::Ucp => &[FLUSH, FLUSH_DONE, OPERATION_DONE],
        Family::Mooncake => &[SUBMIT, FREE_BATCH],
    }
}

/// Whether a function could be probed.
pub(crate) fn wanted(name: &str) -> bool {
    Family::ALL
        .into_iter()
        .flat_map(symbols)
        .any(|symbol| name.starts_with(symbol) && !name.contains('.'))
}

/// What an object is to us, by the functions that it defines: nothing, one family, or several that
/// were linked into one.
pub(crate) fn families(view: &dyn ObjectView) -> Vec<Family> {
    Family::ALL
        .into_iter()
        .filter(|family| symbols(*family).iter().any(|name| !view.functions(name).is_empty()))
        .collect()
}
