use std::collections::BTreeMap;

use super::*;
use crate::probe::elf::{BuildId, Exports, Function};

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
    }
}

fn builds() -> Builds {
    Builds::parse(
        "[[nixl]]\nname = 'n'\nbuild_id = 'aa'\nremote_agent = 1\nnotif = 2\nhas_notif = 3\n\
         op = 4\nstatus = 5\ntotal_bytes = 6\ndesc_count = 7\n\
         [[ucp]]\nname = 'u'\nbuild_id = 'bb'\ndistance = -128\n",
    )
    .unwrap()
}

const POST: &str = "_ZNK9nixlAgent11postXferReqEP12nixlXferReqHPK21nixlAgentOptionalArgs";
const RELEASE: &str = "_ZNK9nixlAgent14releaseXferReqEP12nixlXferReqH";

#[test]
fn a_known_nixl_gets_every_point_with_its_layout() {
    let view = library(Some(&[0xaa]), &[(POST, 0x100, PUSH), (RELEASE, 0x200, PUSH)]);
    let plan = plan(Family::Nixl, &view, &builds());
    assert_eq!(plan.gaps, []);
    assert_eq!(plan.build.as_deref(), Some("n"));
    let at = |program, offset, cookie| Point { program, offset, cookie };
    assert_eq!(
        plan.points,
        [
            (Group::XferPost, vec![at("xfer_post", 0x100, 1), at("xfer_ret", 0x100, 0)]),
            (Group::XferRelease, vec![at("xfer_release", 0x200, 1)]),
        ]
    );
}

#[test]
fn an_unknown_build_is_attached_without_a_layout() {
    let view = library(Some(&[0xcc]), &[(POST, 0x100, PUSH), (RELEASE, 0x200, PUSH)]);
    let plan = plan(Family::Nixl, &view, &builds());
    assert_eq!(plan.build, None);
    assert!(plan.points.iter().flat_map(|(_, points)| points).all(|point| point.cookie == 0));
    assert_eq!(plan.points.len(), 2);
}

#[test]
fn a_group_is_planned_whole_or_not_at_all() {
    let view = library(Some(&[0xbb]), &[("ucp_ep_flush_nbx", 0x100, PUSH)]);
    let plan = plan(Family::Ucp, &view, &builds());
    assert_eq!(plan.points, []);
    assert_eq!(plan.gaps, [(Group::Flush, Gap::Missing("ucp_ep_flush_completion"))]);
}

#[test]
fn a_known_ucp_carries_its_distance_in_the_cookie() {
    let view = library(
        Some(&[0xbb]),
        &[
            ("ucp_ep_flush_nbx", 0x100, PUSH),
            ("ucp_ep_flush_nbx_other", 0x180, PUSH),
            ("ucp_ep_flush_completion", 0x200, &[0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0x54]),
        ],
    );
    let plan = plan(Family::Ucp, &view, &builds());
    assert_eq!(plan.distance, Some(-128));
    let (_, points) = &plan.points[0];
    assert_eq!(points[0].program, "flush_done");
    assert_eq!(points[0].cookie, (-128_i64).cast_unsigned());
    assert_eq!(points[0].offset, 0x204, "behind the endbr64");
    assert_eq!(points.len(), 3);
}

#[test]
fn refusals_and_ambiguities_are_gaps_with_their_reason() {
    let nop5 = &[0x0f, 0x1f, 0x44, 0, 0];
    let view = library(
        None,
        &[
            (POST, 0x100, PUSH),
            ("_ZNK9nixlAgent11postXferReqEP12nixlXferReqHi", 0x180, PUSH),
            (RELEASE, 0x200, nop5),
        ],
    );
    let plan = plan(Family::Nixl, &view, &builds());
    assert_eq!(plan.points, []);
    assert_eq!(
        plan.gaps,
        [
            (Group::XferPost, Gap::Ambiguous(POST_XFER, 2)),
            (Group::XferRelease, Gap::Refused(RELEASE.to_owned(), Refusal::FiveByteNop)),
        ]
    );
}

#[test]
fn every_mark_has_a_point_with_its_kind_and_an_old_library_has_gaps() {
    let all: Vec<_> = Kind::MARKS.iter().map(|(name, kind)| (*name, *kind as u64, PUSH)).collect();
    let whole = plan(Family::Inflight, &library(None, &all), &builds());
    assert_eq!(whole.gaps, []);
    for (group, points) in &whole.points {
        let Group::Mark(kind) = group else {
            panic!("{group:?} is no mark");
        };
        assert_eq!(points.len(), 1);
        assert_eq!(points[0].cookie, *kind as u64);
        let program = if *kind == Kind::Append { "append" } else { "mark" };
        assert_eq!(points[0].program, program);
    }
    let old = plan(Family::Inflight, &library(None, &all[..7]), &builds());
    assert_eq!(old.points.len(), 7);
    assert_eq!(old.gaps, [(Group::Mark(Kind::Remove), Gap::Missing("inflight_mark_remove"))]);
}

#[test]
fn the_filter_lets_through_what_the_catalogue_wants_and_nothing_else() {
    assert!(wanted(Family::Nixl, POST));
    assert!(!wanted(Family::Ucp, POST));
    assert!(!wanted(Family::Ucp, "ucp_ep_flush_nbx_other"));
    assert!(wanted(Family::Ucp, "ucp_ep_flush_nbx"));
    assert!(!wanted(Family::Nixl, "_ZNK9nixlAgent13getXferStatusEP12nixlXferReqH"));
}

#[test]
fn every_group_of_the_catalogue_wants_something() {
    for group in Group::ALL {
        assert!(!group.wants().is_empty(), "{group:?}");
    }
}
