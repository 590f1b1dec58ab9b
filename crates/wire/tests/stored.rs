//! The line format: what is written is read, and nothing else is.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod samples;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use samples::{commit, event, full, least, session, task};
use tenure_core::event::{Body, Commit, Event, StepCompleted, TaskProgress};
use tenure_core::id::{AgentId, CommandId, CommitId, Digest, Ref, RunId, SessionId, TaskId};
use tenure_core::record::{Progress, Value};
use tenure_wire::stored::{Assembler, EncodeError, Line, LineError, decode_line, encode, seal};
use uuid::Uuid;

fn written(commit: &Commit) -> Vec<u8> {
    let mut out = Vec::new();
    encode(commit, &session(), &task(), &mut out).unwrap();
    out
}

fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').map(|line| &line[..line.len() - 1]).collect()
}

fn decoded(commit: &Commit) -> Vec<Line> {
    lines(&written(commit)).into_iter().map(|line| decode_line(line).unwrap()).collect()
}

/// Any JSON that a caller may have put into an open field.
fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<u64>().prop_map(Into::into),
        prop::num::f64::NORMAL.prop_map(Into::into),
        any::<String>().prop_map(Into::into),
        Just(serde_json::Value::Null),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Into::into),
            btree_map(any::<String>(), inner, 0..4)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

fn opaque() -> impl Strategy<Value = String> {
    "[^\0]{1,40}"
}

fn progress() -> impl Strategy<Value = Body> {
    let refs = btree_map(opaque(), any::<u64>(), 0..3);
    (prop::option::of(0.0..=100.0), any::<String>(), json(), refs).prop_map(
        |(percent, summary, checklist, refs)| {
            let progress = Progress {
                percent,
                summary: Some(summary),
                checklist: Some(checklist).filter(|json| !json.is_null()),
                output_offsets: refs.into_iter().map(|(k, v)| (Ref::new(k).unwrap(), v)).collect(),
                ..Progress::default()
            };
            let report = TaskProgress { progress: Some(progress), ..TaskProgress::default() };
            Body::TaskProgress(Box::new(report))
        },
    )
}

fn completed() -> impl Strategy<Value = Body> {
    (any::<String>(), vec(any::<u8>(), 0..200)).prop_map(|(content_type, data)| {
        Body::StepCompleted(StepCompleted {
            attempt_id: Some(samples::attempt()),
            outcome: None,
            reason: None,
            output: Some(Value::inline(&content_type, data)),
            reply: None,
            adopted: false,
            report: samples::facts(),
        })
    })
}

fn body() -> impl Strategy<Value = Body> {
    let known: Vec<Body> = full().into_iter().chain(least()).collect();
    prop_oneof![2 => prop::sample::select(known), 1 => progress(), 1 => completed()]
}

fn any_event() -> impl Strategy<Value = Event> {
    (body(), opaque(), prop::option::of(any::<u128>())).prop_map(|(body, actor, run)| Event {
        actor: AgentId::new(actor).unwrap(),
        run: run.map(|id| RunId(Uuid::from_u128(id))),
        ..event(body)
    })
}

prop_compose! {
    fn any_commit()(
        id in any::<u128>(),
        first_seq in 1..1_u64 << 53,
        created_at in any::<i64>(),
        command in prop::option::of(opaque()),
        digest in prop::option::of(any::<[u8; 32]>()),
        epoch in any::<u64>(),
        trace in prop::option::of(any::<String>()),
        events in vec(any_event(), 1..6),
    ) -> Commit {
        Commit {
            commit_id: CommitId(Uuid::from_u128(id)),
            first_seq,
            created_at,
            command_id: command.map(|id| CommandId::new(id).unwrap()),
            command_digest: digest.map(Digest::second),
            epoch,
            trace: trace.map(Into::into),
            events,
        }
    }
}

proptest! {
    /// WAL-02, WAL-03, WAL-13: every commit comes back as it was, bit for bit.
    #[test]
    fn what_is_written_is_read(commit in any_commit()) {
        let text = written(&commit);
        prop_assert_eq!(lines(&text).len(), commit.events.len());
        let mut assembler = Assembler::after(session(), task(), commit.first_seq - 1);
        let mut read = None;
        for line in lines(&text) {
            prop_assert!(read.is_none());
            read = assembler.push(decode_line(line).unwrap()).unwrap();
        }
        prop_assert_eq!(read.as_ref(), Some(&commit));
        prop_assert_eq!(written(&read.unwrap()), text);
    }

    /// RECOVER-05: no line with a changed byte is read.
    #[test]
    fn a_changed_byte_is_seen(commit in any_commit(), at in any::<prop::sample::Index>(), mask in 1..=255_u8) {
        let text = written(&commit);
        let mut line = lines(&text)[0].to_vec();
        let at = at.index(line.len());
        line[at] ^= mask;
        prop_assert!(decode_line(&line).is_err());
    }

    /// RECOVER-05: no input makes the reader fall over.
    #[test]
    fn garbage_is_refused(mut garbage in vec(any::<u8>(), 0..300)) {
        prop_assert!(decode_line(&garbage).is_err());
        seal(&mut garbage, 0);
        garbage.pop();
        prop_assert!(decode_line(&garbage).is_err());
    }
}

fn sample() -> Commit {
    commit(5, vec![event(full().swap_remove(9)), event(least().swap_remove(9))], true)
}

/// A line with a text replaced, under a checksum that is right.
fn forged(line: usize, from: &str, to: &str) -> Result<Line, LineError> {
    let text = String::from_utf8(written(&sample())).unwrap();
    let line = text.lines().nth(line).unwrap();
    let (before, _) = line.rsplit_once(",\"crc\":").unwrap();
    assert!(before.contains(from), "{before}");
    let mut out = before.replacen(from, to, 1).into_bytes();
    seal(&mut out, 0);
    out.pop();
    decode_line(&out)
}

fn refusal(from: &str, to: &str) -> LineError {
    forged(0, from, to).unwrap_err()
}

/// WAL-03: the fields of the envelope in the order of the contract, the checksum last.
#[test]
fn a_line_has_the_fields_of_the_contract_in_order() {
    let commit = commit(5, vec![event(least().swap_remove(17))], true);
    let text = String::from_utf8(written(&commit)).unwrap();
    let expected = concat!(
        r#"{"wal_seq":5,"session_id":"session_1","#,
        r#""event_id":"0190e2a4-7d3f-7c52-9f60-000000000005.0","event_type":"task_step_ready","#,
        r#""actor_agent_id":"worker \"3\"","actor_run_id":"0190e2a4-7d3f-7c52-9f60-1d8b5e1c2a01","#,
        r#""task_id":"report-2024","step_id":"write","payload":{},"created_at":1700000000123,"#,
        r#""schema_version":1,"command_id":"command\t\"1\"","#,
        r#""command_digest":"a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5","#,
        r#""commit_id":"0190e2a4-7d3f-7c52-9f60-000000000005","commit_index":0,"commit_count":1,"#,
        r#""epoch":9007199254740991,"#,
        r#""trace":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","crc":"#,
    );
    let crc = text.strip_prefix(expected).unwrap().strip_suffix("}\n").unwrap();
    let mut before = expected.strip_suffix(",\"crc\":").unwrap().to_owned();
    before.push('}');
    assert_eq!(crc.parse(), Ok(crc32fast::hash(before.as_bytes())));
}

/// WAL-03: keys that are always there are there, with null; the digest is on the first line only.
#[test]
fn absent_facts_are_null() {
    let text = written(&commit(1, vec![event(least().swap_remove(17)); 2], false));
    let all = String::from_utf8(text).unwrap();
    for line in all.lines() {
        assert!(line.contains(r#""command_id":null,"command_digest":null,"#), "{line}");
        assert!(!line.contains("trace"), "{line}");
    }
    let text = written(&sample());
    let digests = lines(&text).into_iter().map(|line| decode_line(line).unwrap().command_digest);
    assert_eq!(digests.collect::<Vec<_>>(), [Some(Digest::first([0xa5; 32])), None]);
}

/// RECOVER-05
#[test]
fn what_this_version_does_not_know_is_refused() {
    assert_eq!(refusal("\"schema_version\":1", "\"schema_version\":2"), LineError::Schema(2));
    let later = "\"schema_version\":2,\"mood\":\"new\"";
    assert_eq!(refusal("\"schema_version\":1", later), LineError::Schema(2));
    let slept = "\"task_slept\"";
    assert_eq!(refusal("\"task_progress\"", slept), LineError::EventType("task_slept".into()));
    for (from, to) in [
        ("\"epoch\":", "\"mood\":1,\"epoch\":"),
        ("\"payload\":{", "\"payload\":{\"mood\":1,"),
        ("\"percent\":", "\"mood\":1,\"percent\":"),
        ("\"percent\":", "\"_mood\":1,\"percent\":"),
    ] {
        assert!(matches!(refusal(from, to), LineError::Form(_)), "{to}");
    }
}

/// RECOVER-05: a marked field may stand in the envelope and at the top of a payload.
#[test]
fn marked_fields_are_passed_over() {
    let sound = forged(0, "", "").unwrap();
    for (from, to) in [
        ("\"epoch\":", "\"_mood\":{\"_\":[1,\"}\"]},\"epoch\":"),
        ("\"payload\":{", "\"payload\":{\"_mood\":null,"),
        ("{\"wal_seq\":", "{\"_\":1,\"_a\\u0062\":2,\"wal_seq\":"),
    ] {
        assert_eq!(forged(0, from, to).as_ref(), Ok(&sound), "{to}");
    }
    let both = ("\"payload\":{", "\"_a\":1,\"payload\":{\"_b\":2,");
    assert_eq!(forged(0, both.0, both.1).as_ref(), Ok(&sound));
    let names_kept = full().swap_remove(0);
    let kept = decoded(&commit(1, vec![event(names_kept.clone())], true));
    assert_eq!(kept[0].event.body, names_kept, "open maps keep names with an underscore");
}

/// RECOVER-05: a marked field lets nothing else through.
#[test]
fn a_marked_field_excuses_nothing() {
    for to in ["\"_a\":1,\"mood\":1,\"epoch\":", "\"_a\":1,\"wal_seq\":5,\"epoch\":"] {
        assert!(matches!(refusal("\"epoch\":", to), LineError::Form(_)), "{to}");
    }
}

/// RECOVER-05
#[test]
fn a_form_that_is_not_quite_right_is_refused() {
    for (from, to) in [
        ("\"wal_seq\":5", "\"wal_seq\":\"5\""),
        ("\"wal_seq\":5", "\"wal_seq\":-5"),
        ("\"wal_seq\":5,", ""),
        ("\"wal_seq\":5", "\"wal_seq\":5,\"wal_seq\":5"),
        ("\"session_id\":\"session_1\"", "\"session_id\":\"../up\""),
        ("\"task_id\":\"report-2024\"", "\"task_id\":\"Report\""),
        ("\"actor_run_id\":\"0190e2a4-7d3f-7c52-9f60-1d8b5e1c2a01\",", ""),
        ("\"command_id\":\"command\\t\\\"1\\\"\",", ""),
        ("\"commit_count\":2", "\"commit_count\":4294967296"),
    ] {
        assert!(matches!(refusal(from, to), LineError::Form(_)), "{to}");
    }
    let other = refusal(".0\",\"event_type\"", ".1\",\"event_type\"");
    assert!(matches!(other, LineError::EventId(_)), "{other}");
    let text = written(&sample());
    let line = lines(&text)[0];
    for wrong in
        [&line[..line.len() - 1], &[line, b" "].concat(), &[b" ", line].concat(), b"", b"{}"]
    {
        assert_eq!(decode_line(wrong), Err(LineError::Crc));
    }
    let (before, crc) = str::from_utf8(line).unwrap().rsplit_once("\"crc\":").unwrap();
    for wrong in [format!("{before}\"crc\":0{crc}"), format!("{before}\"crc\":+{crc}")] {
        assert_eq!(decode_line(wrong.as_bytes()), Err(LineError::Crc), "{wrong}");
    }
}

fn pushed(change: impl Fn(usize, &mut Line)) -> Result<Option<Commit>, LineError> {
    let mut assembler = Assembler::after(session(), task(), 4);
    let mut made = None;
    for (index, mut line) in decoded(&sample()).into_iter().enumerate() {
        change(index, &mut line);
        made = assembler.push(line)?;
    }
    Ok(made)
}

/// WAL-04, WAL-08, RECOVER-05
#[test]
fn lines_that_do_not_follow_are_refused() {
    assert_eq!(pushed(|_, _| ()), Ok(Some(sample())));
    let other = SessionId::new("other").unwrap();
    let foreign = pushed(|_, line| line.session_id = other.clone());
    assert_eq!(foreign, Err(LineError::ForeignSession(other)));
    let other = TaskId::new("other").unwrap();
    let foreign = pushed(|index, line| {
        if index == 1 {
            line.task_id = other.clone();
        }
    });
    assert_eq!(foreign, Err(LineError::ForeignTask(other)));
    for found in [4, 6] {
        let gap = pushed(|_, line| line.wal_seq = found);
        assert_eq!(gap, Err(LineError::Sequence { expected: 5, found }));
    }
    type Change = fn(&mut Line);
    let first: [(&str, Change); 2] =
        [("commit_index", |l| l.commit_index = 1), ("commit_count", |l| l.commit_count = 0)];
    for (what, change) in first {
        let result = pushed(|index, line| {
            if index == 0 {
                change(line)
            }
        });
        assert_eq!(result, Err(LineError::Commit(what)));
    }
    let second: [(&str, Change); 8] = [
        ("commit_id", |l| l.commit_id = samples::commit_id(99)),
        ("commit_index", |l| l.commit_index = 0),
        ("commit_count", |l| l.commit_count = 3),
        ("created_at", |l| l.created_at += 1),
        ("command_id", |l| l.command_id = None),
        ("command_digest", |l| l.command_digest = Some(Digest::first([0; 32]))),
        ("epoch", |l| l.epoch = 1),
        ("trace", |l| l.trace = None),
    ];
    for (what, change) in second {
        let result = pushed(|index, line| {
            if index == 1 {
                change(line)
            }
        });
        assert_eq!(result, Err(LineError::Commit(what)));
    }
}

/// RECOVER-06: a commit whose lines are not all there is not handed out.
#[test]
fn an_unfinished_commit_is_held_back() {
    let mut assembler = Assembler::after(session(), task(), 4);
    let mut lines = decoded(&sample()).into_iter();
    assert_eq!((assembler.is_mid_commit(), assembler.last_seq()), (false, 4));
    assert_eq!(assembler.push(lines.next().unwrap()), Ok(None));
    assert_eq!((assembler.is_mid_commit(), assembler.last_seq()), (true, 4));
    assert_eq!(assembler.push(lines.next().unwrap()), Ok(Some(sample())));
    assert_eq!((assembler.is_mid_commit(), assembler.last_seq()), (false, 6));
}

/// What no reader would take is not written, and leaves no trace.
#[test]
fn what_could_not_be_read_is_not_written() {
    let nested = |depth: usize| {
        let value = (1..depth).fold(serde_json::json!([]), |inner, _| serde_json::json!([inner]));
        let progress = Progress { checklist: Some(value), ..Progress::default() };
        let report = TaskProgress { progress: Some(progress), ..TaskProgress::default() };
        commit(1, vec![event(Body::TaskProgress(Box::new(report)))], true)
    };
    let mut out = b"before".to_vec();
    for depth in [1, 60, 110] {
        assert_eq!(decoded(&nested(depth)).len(), 1);
    }
    for depth in [130, 500] {
        let refused = encode(&nested(depth), &session(), &task(), &mut out);
        assert!(matches!(refused, Err(EncodeError::TooDeep { wal_seq: 1 })), "{refused:?}");
        assert_eq!(out, b"before");
    }
    let huge = Value::json(vec![b'x'; tenure_wire::stored::LINE_MAX]);
    let mut body = least().swap_remove(22);
    let Body::StepCompleted(completed) = &mut body else { panic!("{body:?}") };
    completed.output = Some(huge);
    let refused = encode(&commit(1, vec![event(body)], true), &session(), &task(), &mut out);
    assert!(matches!(refused, Err(EncodeError::TooLong { wal_seq: 1, .. })), "{refused:?}");
    assert_eq!(out, b"before");
}
