use super::*;

const HEAD: Head = Head { at: 7, tgid: 100, tid: 101, kind: Kind::Remove as u32, reserved: 0 };

#[test]
fn a_mark_is_read_back() {
    let mark = Mark { head: HEAD, worker: 0, seq: 9, a: 2, b: 0 };
    assert_eq!(Record::parse(mark.as_bytes()), Ok(Record::Mark(Kind::Remove, mark)));
}

#[test]
fn every_truncation_is_refused() {
    let mark = Mark { head: HEAD, worker: 0, seq: 9, a: 2, b: 0 };
    for len in 0..mark.as_bytes().len() {
        assert!(
            matches!(
                Record::parse(&mark.as_bytes()[..len]),
                Err(RecordError::Short { have, .. }) if have == len
            ),
            "{len} bytes"
        );
    }
}

#[test]
fn the_marks_are_the_kinds_that_the_mark_program_may_stamp() {
    for cookie in 0..u64::from(KIND_SLOTS) {
        let listed =
            Kind::MARKS.iter().any(|(_, kind)| *kind as u64 == cookie && *kind != Kind::Append);
        assert_eq!(Kind::is_mark(cookie), listed, "{cookie}");
    }
    assert!(!Kind::is_mark(u64::from(u32::MAX) + 2));
}

#[test]
fn an_unknown_kind_is_named() {
    let mark = Mark { head: Head { kind: 999, ..HEAD }, worker: 0, seq: 0, a: 0, b: 0 };
    assert_eq!(Record::parse(mark.as_bytes()), Err(RecordError::UnknownKind(999)));
}

#[test]
fn text_ends_at_the_first_nul() {
    assert_eq!(text(b"abc\0def\0"), b"abc");
    assert_eq!(text(b"abc"), b"abc");
    assert_eq!(text(b"\0abc"), b"");
}
