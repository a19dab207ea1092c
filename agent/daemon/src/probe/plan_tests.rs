use std::collections::BTreeMap;

use inflightd_abi::layout::Register;

use super::*;
use crate::probe::elf::{BuildId, Exports, Function};
use crate::probe::symbols::{BEGIN, families, wanted};

const SUBMIT: &str = "_ZN8mooncake14TransferEngine14submitTransferEmRKSt6vectorI";
const FREE: &str = "_ZN8mooncake14TransferEngine11freeBatchIDEm";
const PUSH: &[u8] = &[0x55];

fn library(build_id: Option<&[u8]>, functions: &[(&str, u64, &[u8])]) -> Exports {
    Exports {
        machine: opcode::X86_64,
        build_id: build_id.map(|bytes| BuildId::new(bytes.to_vec())),
        functions: functions
            .iter()
            .map(|(name, offset, code)| {
                let function = Function { offset: *offset, code: code.to_vec() };
                ((*name).to_owned(), function)
            })
            .collect::<BTreeMap<_, _>>(),
        bytes: 0,
    }
}

fn builds() -> Builds {
    Builds::parse(
        "[[nixl]]\nname = 'n'\nbuild_id = 'aa'\nremote_agent = 1\nnotif = 2\nhas_notif = 3\n\
         op = 4\nstatus = 5\ntotal_bytes = 6\ndesc_count = 7\nend = 2\nend_status = -8\n\
         [[ucp]]\nname = 'u'\nbuild_id = 'bb'\ndistance = -128\nissued = 1\nep = 'rbx'\n\
         request = 'rbp'\noperation_ep = -120\noperation_bytes = -48\n\
         [[mooncake]]\nname = 'm'\nbuild_id = 'dd'\ntasks = 16\ntask_bytes = 112\n\
         transferred = 24\n",
    )
    .unwrap()
}

fn plan_of(family: Family, view: &Exports) -> Plan {
    plan(family, view, &builds(), &Returns::InC)
}

/// Program, offset and cookie of every planned point.
fn points(plan: &Plan) -> Vec<(&'static str, u64, u64)> {
    plan.bundles
        .iter()
        .flat_map(|bundle| &bundle.points)
        .map(|point| (point.program, point.offset, point.cookie))
        .collect()
}

const POST: &str = "_ZNK9nixlAgent11postXferReqEP12nixlXferReqHPK21nixlAgentOptionalArgs";
const RELEASE: &str = "_ZNK9nixlAgent14releaseXferReqEP12nixlXferReqH";
/// `push; push; je`: an entry, and a place inside.
const BODY: &[u8] = &[0x55, 0x53, 0x74, 0x00];

#[test]
fn a_known_nixl_gets_every_point_with_its_layout() {
    let view = library(Some(&[0xaa]), &[(POST, 0x100, BODY), (RELEASE, 0x200, PUSH)]);
    let plan = plan_of(Family::Nixl, &view);
    assert_eq!(plan.gaps, []);
    assert_eq!(plan.build.as_deref(), Some("n"));
    assert_eq!(
        points(&plan),
        [("xfer_end", 0x102, 1), ("xfer_post", 0x100, 1 | END_SEEN), ("xfer_release", 0x200, 1)]
    );
    assert_eq!(plan.bundles[0].groups, [Group::XferPost, Group::XferRet]);
}

#[test]
fn an_unknown_nixl_is_attached_without_a_layout_and_without_a_return() {
    let view = library(Some(&[0xcc]), &[(POST, 0x100, BODY), (RELEASE, 0x200, PUSH)]);
    let plan = plan_of(Family::Nixl, &view);
    assert_eq!(plan.build, None);
    assert_eq!(points(&plan), [("xfer_post", 0x100, 0), ("xfer_release", 0x200, 0)]);
    assert_eq!(plan.gaps, [(Group::XferRet, Gap::Return(ReturnRisk::Exceptions))]);
}

#[test]
fn an_unknown_nixl_gets_its_return_where_the_operator_takes_the_risk() {
    let view = library(Some(&[0xcc]), &[(POST, 0x100, BODY), (RELEASE, 0x200, PUSH)]);
    let plan = plan(Family::Nixl, &view, &builds(), &Returns::Everywhere);
    assert_eq!(plan.gaps, []);
    assert_eq!(points(&plan)[..2], [("xfer_ret", 0x100, 0), ("xfer_post", 0x100, END_SEEN)]);
}

#[test]
fn a_known_build_whose_code_is_another_has_a_gap() {
    let view = library(Some(&[0xaa]), &[(POST, 0x100, PUSH), (RELEASE, 0x200, PUSH)]);
    let plan = plan_of(Family::Nixl, &view);
    let gap = Gap::Refused(POST.to_owned(), Refusal::Unreadable);
    assert_eq!(plan.gaps, [(Group::XferPost, gap.clone()), (Group::XferRet, gap)]);
}

#[test]
fn a_bundle_is_planned_whole_or_not_at_all() {
    let view = library(Some(&[0xbb]), &[("ucp_ep_flush_nbx", 0x100, BODY)]);
    let plan = plan_of(Family::Ucp, &view);
    assert_eq!(plan.bundles, []);
    assert_eq!(plan.gaps, [(Group::Flush, Gap::Missing("ucp_ep_flush_completion"))]);
}

const LANDING: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0x54];

fn ucp(build_id: u8) -> Exports {
    library(
        Some(&[build_id]),
        &[
            ("ucp_ep_flush_nbx", 0x100, &[0x55, 0x74, 0x00]),
            ("ucp_ep_flush_nbx_other", 0x180, PUSH),
            ("ucp_ep_flush_completion", 0x200, LANDING),
        ],
    )
}

#[test]
fn a_known_ucp_is_probed_where_the_request_is_made() {
    let plan = plan_of(Family::Ucp, &ucp(0xbb));
    assert_eq!(plan.distance, Some(-128));
    let issued = issued_cookie(Register::Rbx, Register::Rbp);
    assert_eq!(
        points(&plan),
        [("flush_done", 0x204, (-128_i64).cast_unsigned()), ("flush_issued", 0x101, issued)],
        "the completion first, and behind its endbr64"
    );
}

#[test]
fn an_unknown_ucp_is_probed_at_its_return_unless_that_may_kill() {
    let plan_a = plan_of(Family::Ucp, &ucp(0xcc));
    assert_eq!(
        points(&plan_a),
        [("flush_done", 0x204, 0), ("flush_ret", 0x100, 0), ("flush", 0x100, 0)]
    );
    let kernel = "6.11.0-29-generic".to_owned();
    let plan_b = plan(Family::Ucp, &ucp(0xcc), &builds(), &Returns::Nowhere(kernel.clone()));
    assert_eq!(plan_b.bundles, []);
    let gap = Gap::Return(ReturnRisk::Seccomp(kernel.clone()));
    assert_eq!(plan_b.gaps, [(Group::Flush, gap)]);
    let known = plan(Family::Ucp, &ucp(0xbb), &builds(), &Returns::Nowhere(kernel));
    assert_eq!((known.gaps.len(), points(&known).len()), (0, 2), "a known build needs no return");
}

#[test]
fn refusals_and_ambiguities_are_gaps_with_their_reason() {
    let nop5 = &[0x0f, 0x1f, 0x44, 0, 0];
    let other = "_ZNK9nixlAgent11postXferReqEP12nixlXferReqHi";
    let view = library(
        Some(&[0xaa]),
        &[(POST, 0x100, BODY), (other, 0x180, BODY), (RELEASE, 0x200, nop5)],
    );
    let plan = plan_of(Family::Nixl, &view);
    assert_eq!(plan.bundles, []);
    let twice = Gap::Ambiguous(POST_XFER, 2);
    assert_eq!(
        plan.gaps,
        [
            (Group::XferPost, twice.clone()),
            (Group::XferRet, twice),
            (Group::XferRelease, Gap::Refused(RELEASE.to_owned(), Refusal::FiveByteNop)),
        ]
    );
}

#[test]
fn every_mark_has_a_point_with_its_kind_and_an_old_library_has_gaps() {
    let all: Vec<_> = Kind::MARKS.iter().map(|(name, kind)| (*name, *kind as u64, PUSH)).collect();
    let whole = plan_of(Family::Inflight, &library(None, &all));
    assert_eq!(whole.gaps, []);
    for (bundle, (_, kind)) in whole.bundles.iter().zip(Kind::MARKS) {
        let program = if kind == Kind::Append { "append" } else { "mark" };
        assert_eq!(bundle.groups, [Group::Mark(kind)]);
        assert_eq!(bundle.points.len(), 1);
        assert_eq!((bundle.points[0].program, bundle.points[0].cookie), (program, kind as u64));
    }
    let old = plan_of(Family::Inflight, &library(None, &all[..7]));
    assert_eq!(old.bundles.len(), 7);
    assert_eq!(old.gaps, [(Group::Mark(Kind::Remove), Gap::Missing("inflight_mark_remove"))]);
}

#[test]
fn the_filter_lets_through_what_the_catalogue_wants() {
    for name in [POST, RELEASE, SUBMIT, FREE, "ucp_ep_flush_nbx", "inflight_mark_open"] {
        assert!(wanted(name), "{name}");
        assert!(BEGIN.iter().any(|begin| name.starts_with(begin)), "{name} is searched for");
    }
    for name in [
        "_ZNK9nixlAgent13getXferStatusEP12nixlXferReqH",
        "ucp_ep_flush_progress",
        "ucp_ep_flush_nbx.cold",
    ] {
        assert!(!wanted(name), "{name}");
    }
}

#[test]
fn what_an_object_is_shows_in_its_functions() {
    let view = library(None, &[("ucp_ep_flush_nbx", 1, PUSH), ("inflight_mark_open", 2, PUSH)]);
    assert_eq!(families(&view), [Family::Inflight, Family::Ucp]);
    assert_eq!(families(&library(None, &[])), []);
}

#[test]
fn both_ends_of_a_batch_are_probed_or_none() {
    let both = [(SUBMIT, 1, PUSH), (FREE, 2, PUSH)];
    let whole = plan_of(Family::Mooncake, &library(Some(&[0xdd]), &both));
    let layout = BatchLayout { tasks: 16, task_bytes: 112, transferred: 24 };
    let programs: Vec<&str> = whole.bundles[0].points.iter().map(|point| point.program).collect();
    assert_eq!((programs, whole.batch), (vec!["batch_end", "batch"], Some(layout)));
    let half = plan_of(Family::Mooncake, &library(None, &[(SUBMIT, 1, PUSH)]));
    assert_eq!((half.bundles.len(), half.batch), (0, None));
    assert_eq!(half.gaps, [(Group::Batch, Gap::Missing(FREE))]);
}
