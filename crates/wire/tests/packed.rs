//! A commit as one line: what is written is read, and nothing else is.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod samples;

use proptest::prelude::*;
use samples::{commit, event, full, least, session, task};
use tenure_core::event::{Body, Commit, SCHEMA_VERSION, TaskProgress};
use tenure_core::id::AgentId;
use tenure_core::record::{EdgeReason, Progress, Reason};
use tenure_wire::stored::{
    EncodeError, LineError, decode_packed, encode, encode_packed, is_sealed, seal,
};

fn packed(commit: &Commit) -> Vec<u8> {
    let mut out = Vec::new();
    encode_packed(commit, &mut out).unwrap();
    assert_eq!(out.pop(), Some(b'\n'));
    assert!(is_sealed(&out) && !out.contains(&b'\n'));
    out
}

/// How many event types the first edition of the contract has: those of the golden file.
const FIRST_TYPES: usize = 29;

/// Commits with every event type of the first edition, each alone, and all together.
fn commits() -> Vec<Commit> {
    let first = full().into_iter().take(FIRST_TYPES).chain(least().into_iter().take(FIRST_TYPES));
    let all: Vec<_> = first.map(event).collect();
    let alone = all.iter().map(|event| commit(7, vec![event.clone()], true));
    alone.chain([commit(1, all.clone(), false), commit(3, all.clone(), true)]).collect()
}

fn sealed(text: &str) -> Vec<u8> {
    let mut line = text.as_bytes().to_vec();
    seal(&mut line, 0);
    line.truncate(line.len() - 1);
    line
}

/// WAL-03, WAL-13: every commit comes back as it was; so does who acted, where that changes.
#[test]
fn what_is_packed_is_read() {
    for commit in commits() {
        assert_eq!(decode_packed(&packed(&commit)).as_ref(), Ok(&commit));
    }
    let mut events: Vec<_> = full().into_iter().map(event).collect();
    events[1].run = None;
    events[2].run = None;
    events[3].actor = AgentId::new("another \" one").unwrap();
    // RETRY-12: the reason of an edge may be more than words.
    let linked = events.iter_mut().find_map(|event| match &mut event.body {
        Body::TaskLinked(linked) => Some(linked),
        _ => None,
    });
    linked.unwrap().edge.reason = Some(EdgeReason::Whole(Reason::new("code", "words").into()));
    let commit = commit(1, events, true);
    assert_eq!(decode_packed(&packed(&commit)), Ok(commit));
}

/// P02: the form in streams. A change of it is a new version of frames.
#[test]
fn golden_bytes_stay_readable() {
    let golden = include_bytes!("golden/packed-v1.txt");
    let mut written = Vec::new();
    for commit in commits() {
        encode_packed(&commit, &mut written).unwrap();
    }
    if std::env::var_os("TENURE_WRITE_GOLDEN").is_some() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/packed-v1.txt");
        std::fs::write(file, &written).unwrap();
        return;
    }
    assert!(written == golden, "the same commits are written as other bytes");
    let lines = golden.split_inclusive(|byte| *byte == b'\n');
    let read: Vec<_> = lines.map(|line| decode_packed(&line[..line.len() - 1]).unwrap()).collect();
    assert_eq!(read, commits());
}

/// The same commit as lines of a log takes far more room where it has many events.
#[test]
fn many_events_take_little_room() {
    let ready = Body::TYPES.iter().position(|name| *name == "task_step_ready").unwrap();
    let ready = full().into_iter().nth(ready).unwrap();
    let commit = commit(1, vec![event(ready); 1000], false);
    let mut lines = Vec::new();
    encode(&commit, &session(), &task(), &mut lines).unwrap();
    assert!(packed(&commit).len() * 5 < lines.len(), "{} bytes", lines.len());
}

/// RECOVER-05: what is no whole commit is refused, with the reason.
#[test]
fn what_is_no_commit_is_refused() {
    let whole =
        String::from_utf8(packed(&commit(1, vec![event(least().remove(0))], true))).unwrap();
    let (whole, _) = whole.rsplit_once(",\"crc\":").unwrap();
    let (head, _) = whole.split_once(",\"events\":").unwrap();
    let refusal = |text: &str| decode_packed(&sealed(text)).unwrap_err();
    assert!(decode_packed(&sealed(whole)).is_ok());
    let later = whole.replacen("\"schema\":1", "\"schema\":2", 1);
    assert_eq!(refusal(&later), LineError::Schema(2));
    let with_more = later.replacen("\"schema\":2", "\"schema\":2,\"more\":0", 1);
    assert_eq!(refusal(&with_more), LineError::Schema(2));
    let with_more = whole.replacen("\"schema\":1", "\"schema\":1,\"more\":0", 1);
    assert!(matches!(refusal(&with_more), LineError::Form(_)));
    let first = whole.replacen("\"first_seq\":1", "\"first_seq\":0", 1);
    assert_eq!(refusal(&first), LineError::Commit("first_seq"));
    let last = format!("\"first_seq\":{}", u64::MAX);
    let first = whole.replacen("\"first_seq\":1", &last, 1);
    assert_eq!(refusal(&first), LineError::Commit("first_seq"));
    let with = |events: &str| refusal(&format!("{head},\"events\":{events}"));
    assert_eq!(with("[]"), LineError::Commit("events"));
    assert_eq!(with(r#"[["task_step_ready","a",{}]]"#), LineError::Commit("actor"));
    let unknown = with(r#"[["task_exploded","a",{},"me",null]]"#);
    assert_eq!(unknown, LineError::EventType("task_exploded".into()));
    for short in [r#"[["task_step_ready"]]"#, r#"[["task_step_ready","a",{},"me"]]"#, "[{}]"] {
        assert!(matches!(with(short), LineError::Form(_)), "{short}");
    }
    let longer = r#"[["task_step_ready","a",{},"me",null,0]]"#;
    assert!(matches!(with(longer), LineError::Form(_)));
    assert_eq!(decode_packed(whole.as_bytes()), Err(LineError::Crc));
}

/// What no reader of a log would take is not written, and leaves no trace.
#[test]
fn what_could_not_be_read_is_not_packed() {
    let nested = |depth: usize| {
        let value = (1..depth).fold(serde_json::json!([]), |inner, _| serde_json::json!([inner]));
        let progress = Progress { checklist: Some(value), ..Progress::default() };
        let report = TaskProgress { progress: Some(progress), ..TaskProgress::default() };
        commit(1, vec![event(Body::TaskProgress(Box::new(report)))], true)
    };
    for depth in 100..130 {
        let (mut line, mut out) = (Vec::new(), b"before".to_vec());
        let is_line = encode(&nested(depth), &session(), &task(), &mut line).is_ok();
        let taken = encode_packed(&nested(depth), &mut out);
        assert_eq!(taken.is_ok(), is_line, "{depth}");
        match taken {
            Ok(()) => assert_eq!(decode_packed(&packed(&nested(depth))), Ok(nested(depth))),
            Err(refused) => {
                assert!(matches!(refused, EncodeError::TooDeep { wal_seq: 1 }), "{refused:?}");
                assert_eq!(out, b"before");
            }
        }
    }
}

proptest! {
    /// No line with a changed byte is read, and no bytes bring a reader down.
    #[test]
    fn a_changed_byte_is_seen(
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        mask in 1..=255_u8,
    ) {
        let commits = commits();
        let mut line = packed(&commits[which.index(commits.len())]);
        let at = at.index(line.len());
        line[at] ^= mask;
        prop_assert!(decode_packed(&line).is_err());
        let _ = decode_packed(&line[..at]);
    }
}

/// Mechanisms 17: a commit says the version of its form, and one of a version that is not known is refused.
#[test]
fn a_commit_of_another_version_is_refused() {
    let line = packed(&commit(1, vec![event(full().remove(0))], true));
    let known = format!("{{\"schema\":{SCHEMA_VERSION},");
    let rest = line.strip_prefix(known.as_bytes()).unwrap();
    // Without the checksum and the brace behind it, which the line gets anew.
    let rest = &rest[..rest.windows(7).rposition(|part| part == b",\"crc\":").unwrap()];
    let mut later = b"{\"schema\":7,".to_vec();
    later.extend_from_slice(rest);
    seal(&mut later, 0);
    let later = later.strip_suffix(b"\n").unwrap();
    assert!(matches!(decode_packed(later), Err(LineError::Schema(7))));
}

/// RECOVER-05: numbers of events end long before those of the machine: a commit there would overflow whoever counts on.
#[test]
fn a_commit_beyond_all_numbers_is_refused() {
    let whole = String::from_utf8(packed(&commits()[0])).unwrap();
    let (open, _) = whole.rsplit_once(",\"crc\"").unwrap();
    for first in [u64::MAX, u64::MAX - 1, u64::MAX / 2 + 1] {
        let line = sealed(&open.replacen("\"first_seq\":7", &format!("\"first_seq\":{first}"), 1));
        assert_eq!(decode_packed(&line), Err(LineError::Commit("first_seq")), "{first}");
    }
    // The last number of all is one, as it is in a line of a log: what can be written can be read.
    for first in [8, u64::MAX / 2 + 1 - commits()[0].events.len() as u64] {
        let line = sealed(&open.replacen("\"first_seq\":7", &format!("\"first_seq\":{first}"), 1));
        assert_eq!(decode_packed(&line).map(|read| read.first_seq), Ok(first));
    }
}
