//! VALUE: values that are too large for a log, and how their bytes are encoded.

use crate::common;
use common::*;
use serde_json::Value as Json;
use tenure_core::command::blobs::{BlobHolder, blob_missing, check_blob, no_blob_task};
use tenure_core::command::{Complete, StepReport};
use tenure_core::id::{BlobHash, Ref};
use tenure_core::patch::ReasonInput;
use tenure_core::record::{Blob, Value, ValueBody};
use tenure_core::status::{Policy, Role, StepStatus};
use tenure_core::view::claim::claim_result;
use tenure_core::{Code, Command, Limits, Rejection};

const MIB: u64 = 1 << 20;

/// A blob, by a byte of its content.
fn blob(byte: u8) -> Blob {
    Blob::of(&vec![byte; 70_000])
}

fn value(blob: Blob) -> Value {
    Value::of("text/plain", ValueBody::Blob(blob))
}

fn written(value: &Value) -> Json {
    serde_json::to_value(value).unwrap()
}

fn read(given: Json) -> Result<Value, String> {
    serde_json::from_value(given).map_err(|error| error.to_string())
}

/// Through MessagePack, as the bus carries it.
fn carried(value: &Value) -> Value {
    rmp_serde::from_slice(&rmp_serde::to_vec_named(value).unwrap()).unwrap()
}

fn completes(held: &Held, output: Value) -> Command {
    let status = Some(StepStatus::Completed);
    Command::TaskUpdateStep(StepReport { status, output: Some(output), ..held.says() })
}

/// VALUE-01: a value in a blob is written as the blob's ref, with its size and digest, and read back.
#[test]
fn a_blob_is_a_ref_with_size_and_digest() {
    let blob = blob(b'x');
    let hex = blob.hash.to_string();
    let expected = json!({
        "content_type": "text/plain", "ref": format!("blob:sha256:{hex}"),
        "size_bytes": 70_000, "digest": format!("sha256:{hex}"),
    });
    assert_eq!(written(&value(blob)), expected);
    assert_eq!(read(expected).unwrap(), value(blob));
    assert_eq!(carried(&value(blob)), value(blob));
    assert_eq!(Blob::hash_in(blob.reference().as_str()), Some(blob.hash));
}

/// VALUE-01: size and digest go with the ref of a blob, and only with one, and the digest is that of
/// the ref.
#[test]
fn a_blob_of_another_form_cannot_be_read() {
    let (hex, other) = (blob(1).hash.to_string(), blob(2).hash.to_string());
    let (reference, digest) = (format!("blob:sha256:{hex}"), format!("sha256:{hex}"));
    for (given, why) in [
        (json!({"ref": reference, "size_bytes": 1}), "needs `size_bytes` and `digest`"),
        (json!({"ref": reference, "digest": digest}), "needs `size_bytes` and `digest`"),
        (
            json!({"ref": reference, "size_bytes": 1, "digest": format!("sha256:{other}")}),
            "the hash in the ref",
        ),
        (json!({"ref": reference, "size_bytes": 1, "digest": hex}), "the hash in the ref"),
        (json!({"ref": reference, "size_bytes": -1, "digest": digest}), "invalid value"),
        (json!({"ref": "https://a.b", "size_bytes": 1}), "go with a ref `blob:sha256:<hex>`"),
        (
            json!({"ref": reference.to_uppercase(), "size_bytes": 1, "digest": digest}),
            "go with a ref",
        ),
        (json!({"data": "x", "size_bytes": 1}), "go with the ref of a blob"),
        (json!({"data": "x", "ref": reference}), "exactly one"),
    ] {
        let error = read(given.clone()).unwrap_err();
        assert!(error.contains(why), "{given}: {error}");
    }
}

/// VALUE-01, EVOLVE-01: in an older log a ref of this form is one of something elsewhere; K3 does not
/// accept it any more.
#[test]
fn a_bare_ref_of_a_blob_is_read_in_old_logs_and_refused_in_new_requests() {
    for reference in [blob(1).reference().to_string(), "blob:sha256:ABC".into()] {
        let old = read(json!({"ref": reference})).unwrap();
        assert_eq!(old.body, ValueBody::Ref(Ref::new(&reference).unwrap()));
        let mut given = create_input("a");
        given.steps[0].input = Some(old.clone());
        let refused = Fixture::try_create(given, Policy::Auto, Limits::default()).unwrap_err();
        assert_eq!(refused.code, Code::ValidationError);
        assert_eq!(refused.details["field"], "steps[0].input");
        let mut t = Fixture::manual("a");
        let held = t.claim("a");
        let refused = t.refuse_as(&held.caller(), completes(&held, old), Code::ValidationError);
        assert!(refused.message.contains("size_bytes and digest"), "{refused}");
    }
}

/// VALUE-01, VALUE-02: a value has at most 16 MiB, in a create, a patch and a report.
#[test]
fn a_blob_has_at_most_sixteen_mib() {
    let of = |size_bytes| value(Blob { size_bytes, ..blob(1) });
    let given = |size| {
        let mut given = create_input("a b");
        given.steps[1].input = Some(of(size));
        Fixture::try_create(given, Policy::Manual, Limits::default())
    };
    let refused = given(16 * MIB + 1).unwrap_err();
    assert_eq!((refused.code, &refused.details["limit"]), (Code::ValueTooLarge, &json!(16 * MIB)));
    assert_eq!(refused.details["field"], "steps[1].input");
    let mut t = given(16 * MIB).unwrap();
    let change = |size| {
        let fields = json!({"input": written(&of(size))});
        patch(json!([{"op": "update_step", "step_id": "b", "fields": fields}]))
    };
    let refused = t.refuse(change(16 * MIB + 1), Code::ValueTooLarge);
    assert_eq!(
        (&refused.details["field"], &refused.details["op_index"]),
        (&json!("input"), &json!(0))
    );
    t.ok(change(16 * MIB));
    let held = t.claim("a");
    t.refuse_as(&held.caller(), completes(&held, of(16 * MIB + 1)), Code::ValueTooLarge);
    t.ok_as(&held.caller(), completes(&held, of(16 * MIB)));
    assert!(!Code::ValueTooLarge.is_retryable() && !Code::BlobMissing.is_retryable());
    assert!(Code::StorageUnavailable.is_retryable());
}

/// VALUE-01: what goes over the inline limit is refused with the way to do it.
#[test]
fn inline_data_over_the_limit_is_to_be_put_as_a_blob() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    let output = Value::inline("text/plain", vec![b'x'; 70_000]);
    let refused = t.refuse_as(&held.caller(), completes(&held, output), Code::ValidationError);
    assert!(refused.message.contains("put it as a blob"), "{refused}");
    t.ok_as(&held.caller(), completes(&held, value(blob(b'x'))));
}

/// VALUE-01: creates, patches and reports tell which blobs they name, and so do their events.
#[test]
fn the_blobs_that_a_request_names_are_those_that_its_event_names() {
    let mut given = create_input("a b c");
    given.steps[0].input = Some(value(blob(1)));
    given.steps[1].input = Some(Value::json(*b"2"));
    assert_eq!(given.blobs(), [blob(1)]);
    let mut t = Fixture::create(given, Policy::Manual);
    let named = |t: &Fixture| -> Vec<Blob> {
        t.last().events.iter().flat_map(|event| event.body.blobs()).collect()
    };
    assert_eq!(named(&t), [blob(1)]);
    let mut added = json!({"step_id": "d", "title": "d", "summary": "", "depends_on_step_ids": []});
    added["input"] = written(&value(blob(2)));
    let change = patch(json!([
        {"op": "add_step", "step": added},
        {"op": "update_step", "step_id": "b", "fields": {"input": written(&value(blob(3)))}},
        {"op": "update_step", "step_id": "c", "fields": {"input": null}},
    ]));
    assert_eq!(change.blobs(), [blob(2), blob(3)]);
    t.ok(change);
    assert_eq!(named(&t), [blob(2), blob(3)]);
    let held = t.claim("a");
    assert_eq!(named(&t), [], "a claim names none newly");
    let report = completes(&held, value(blob(4)));
    assert_eq!(report.blobs(), [blob(4)]);
    t.ok_as(&held.caller(), report);
    assert_eq!(named(&t), [blob(4)]);

    let lines: Vec<Vec<u8>> = t
        .log
        .iter()
        .flat_map(|commit| &commit.events)
        .map(|event| serde_json::to_vec(&event.body).unwrap())
        .collect();
    let mut all: Vec<BlobHash> = [1, 2, 3, 4].map(|n| blob(n).hash).to_vec();
    all.sort();
    assert!(Blob::hashes_in(&lines.concat()).into_iter().eq(all), "and so do the lines of the log");
    assert!(Blob::hashes_in(b"").is_empty() && Blob::hashes_in(b"blob:sha256:12").is_empty());
}

/// VALUE-01: a claim carries the blobs of the Step's input, of its dependencies' outputs, and of refs
/// that came with a reopening. Its worker gets these and no others, and only while it holds the Step.
#[test]
fn a_worker_gets_the_blobs_that_its_claim_carries() {
    let mut given = create_input("a b<-a c");
    given.steps[1].input = Some(value(blob(1)));
    given.steps[2].input = Some(value(blob(3)));
    let mut t = Fixture::create(given, Policy::Manual);
    let held = t.claim("a");
    t.ok_as(&held.caller(), completes(&held, value(blob(2))));
    let first = t.claim("b");
    t.report(&first, StepStatus::Blocked);
    let late = blob(4).reference();
    t.ok(patch(json!([{"op": "reopen_step", "step_id": "b", "input_refs": [late]}])));
    let held = t.claim("b");
    let claim = claim_result(&t.task.durable(), held.attempt_id).unwrap();
    for byte in [1, 2, 4] {
        assert!(claim.input_refs.contains(&blob(byte).reference()), "{byte}");
    }
    let get = |t: &Fixture, held: &Held, byte| {
        let holder = BlobHolder { attempt_id: held.attempt_id, fencing_token: held.token };
        t.task.durable().check_blob_get(&held.caller(), Some(holder), blob(byte).hash)
    };
    for byte in [1, 2, 4] {
        assert_eq!(get(&t, &held, byte), Ok(()), "{byte}");
    }
    let refused = get(&t, &held, 3).unwrap_err();
    assert_eq!(refused.code, Code::PermissionDenied, "the blob of another Step");
    assert_eq!(get(&t, &first, 1).unwrap_err().code, Code::StaleAttempt);
    let mut thief = held.clone();
    thief.worker = "wasp".into();
    assert_eq!(get(&t, &thief, 1).unwrap_err().code, Code::StaleAttempt);
    thief = Held { run_id: first.run_id, ..held.clone() };
    assert_eq!(get(&t, &thief, 1).unwrap_err().code, Code::StaleAttempt);
    t.complete(&held);
    assert_eq!(get(&t, &held, 1).unwrap_err().code, Code::StaleAttempt);
}

/// VALUE-01, PERM-16: who may put and get blobs, and what is said to those who may not.
#[test]
fn blobs_are_put_by_orchestrators_and_holders_and_read_by_those_who_read_the_task() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    let holder = BlobHolder { attempt_id: held.attempt_id, fencing_token: held.token };
    let view = t.task.durable();
    let observer = caller("eye", Role::Observer);
    assert_eq!(view.check_blob_get(&observer, None, blob(1).hash), Ok(()));
    assert_eq!(view.check_blob_put(&observer, None).unwrap_err().code, Code::ToolNotAvailable);
    assert_eq!(view.check_blob_get(&orchestrator(), None, blob(1).hash), Ok(()));
    assert_eq!(view.check_blob_put(&orchestrator(), None), Ok(()));
    assert_eq!(view.check_blob_put(&held.caller(), Some(holder)), Ok(()));
    let refused = view.check_blob_put(&held.caller(), None).unwrap_err();
    assert_eq!(
        (refused.code, &refused.details["field"]),
        (Code::ValidationError, &json!("attempt_id"))
    );
    let wrong = BlobHolder { fencing_token: held.token + 1, ..holder };
    let stale = view.check_blob_put(&held.caller(), Some(wrong)).unwrap_err();
    assert_eq!(stale.code, Code::StaleAttempt);
    let absent = Rejection::new(Code::TaskNotFound, "no such task");
    assert_eq!(no_blob_task(&held.caller(), Some(holder), absent.clone()), stale);
    assert_eq!(no_blob_task(&orchestrator(), None, absent.clone()), absent);
    t.complete(&held);
    t.ok(complete_task());
    let view = t.task.durable();
    let refused = view.check_blob_put(&orchestrator(), None).unwrap_err();
    assert_eq!(refused.code, Code::TaskTerminal);
    assert_eq!(
        view.check_blob_put(&held.caller(), Some(holder)).unwrap_err().code,
        Code::TaskTerminal
    );
    assert_eq!(view.check_blob_get(&orchestrator(), None, blob(1).hash), Ok(()));
}

/// VALUE-01, REPORT-14: a worker whose result still counts although it lost the Step may put it, and gets
/// nothing more.
#[test]
fn a_late_result_may_be_put() {
    let mut given = create_input("a");
    given.steps[0].input = Some(value(blob(1)));
    let mut t = Fixture::create(given, Policy::Auto);
    let held = t.grant(WORKER, POOL).unwrap();
    let holder = BlobHolder { attempt_id: held.attempt_id, fencing_token: held.token };
    t.lose(&held);
    let view = t.task.durable();
    assert_eq!(view.check_blob_put(&held.caller(), Some(holder)), Ok(()));
    let refused = view.check_blob_get(&held.caller(), Some(holder), blob(1).hash).unwrap_err();
    assert_eq!(refused.code, Code::StaleAttempt);
    t.ok_as(&held.caller(), completes(&held, value(blob(2))));
    let view = t.task.durable();
    assert!(view.check_blob_put(&held.caller(), Some(holder)).is_err());
}

/// VALUE-01: bytes are what their ref says, or they are not stored.
#[test]
fn bytes_that_are_not_those_of_the_ref_are_refused() {
    let (bytes, limits) = (vec![1; 70_000], Limits::default());
    assert_eq!(check_blob(blob(1), &bytes, &limits), Ok(()));
    for wrong in [blob(2), Blob { size_bytes: 69_999, ..blob(1) }] {
        let refused = check_blob(wrong, &bytes, &limits).unwrap_err();
        assert_eq!(
            (refused.code, &refused.details["field"]),
            (Code::ValidationError, &json!("data"))
        );
    }
    let huge = Blob { size_bytes: 16 * MIB + 1, ..blob(1) };
    assert_eq!(check_blob(huge, &bytes, &limits).unwrap_err().code, Code::ValueTooLarge);
    let missing = blob_missing(blob(1));
    assert_eq!(missing.code, Code::BlobMissing);
    assert_eq!(missing.details["ref"], blob(1).reference().as_str());
}

/// RETRY-05, VALUE-01, VALUE-02: a blob that cannot be read, and a value that is too large, are not
/// retried by themselves; a store that does not answer is.
#[test]
fn what_would_be_so_again_is_not_retried() {
    let cases = [
        ("blob_missing", None, StepStatus::Failed),
        ("value_too_large", None, StepStatus::Failed),
        ("quota_exceeded", Some(false), StepStatus::Failed),
        ("storage_unavailable", Some(true), StepStatus::Pending),
    ];
    for (code, retryable, status) in cases {
        let mut t = with_policy("a", json!({"max_attempts": 9}), Policy::Manual);
        let held = t.claim("a");
        let why = ReasonInput { retryable, ..reason(code, "") };
        let report =
            StepReport { status: Some(StepStatus::Failed), reason: Some(why), ..held.says() };
        t.ok_as(&held.caller(), Command::TaskUpdateStep(report));
        assert_eq!(t.status("a"), status, "{code}");
    }
}

/// VALUE-04: JSON that is no text becomes its text; it has no encoding and no other media type.
#[test]
fn json_that_is_no_text_becomes_its_text() {
    for (given, text) in [
        (
            json!({"run": "echo hello", "env": {"A": "1"}}),
            r#"{"env":{"A":"1"},"run":"echo hello"}"#,
        ),
        (json!([1, null, "x"]), r#"[1,null,"x"]"#),
        (json!(2.5), "2.5"),
        (json!(-7), "-7"),
        (json!(true), "true"),
    ] {
        let value = read(json!({ "data": given })).unwrap();
        assert_eq!(value, Value::json(text.as_bytes()), "{given}");
        assert_eq!(
            read(json!({"data": given, "content_type": "application/json"})).unwrap(),
            value
        );
        for more in [json!({"encoding": "zstd"}), json!({"content_type": "text/plain"})] {
            let mut with = json!({ "data": given });
            with.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            assert!(read(with.clone()).is_err(), "{with}");
        }
    }
    assert!(read(json!({"data": null})).is_err(), "null is no data");
}

/// VALUE-03: encodings are read as text or list and written as text when it is `base64` alone; JSON adds
/// and takes off only `base64`.
#[test]
fn encodings_are_kept_and_only_base64_is_read() {
    let names = |value: &Value| value.encoding.names().join(",");
    for (given, data, kept, back) in [
        (json!({"data": "x"}), &b"x"[..], "", None),
        (json!({"data": "/w==", "encoding": "base64"}), b"\xff", "", Some(json!("base64"))),
        (json!({"data": "/w==", "encoding": ["base64"]}), b"\xff", "", Some(json!("base64"))),
        (json!({"data": "x", "encoding": []}), b"x", "", None),
        (
            json!({"data": "/w==", "encoding": ["base64", "zstd", "enc:k1"]}),
            b"\xff",
            "zstd,enc:k1",
            Some(json!(["base64", "zstd", "enc:k1"])),
        ),
        (
            json!({"data": "eA==", "encoding": ["base64", "rot13"]}),
            b"x",
            "rot13",
            Some(json!(["rot13"])),
        ),
        (json!({"data": "x", "encoding": "rot13"}), b"x", "rot13", Some(json!(["rot13"]))),
        (
            json!({"data": "x", "encoding": ["zstd", "base64"]}),
            b"x",
            "zstd,base64",
            Some(json!(["zstd", "base64"])),
        ),
        (
            json!({"data": "L3c9PQ==", "encoding": ["base64", "base64"]}),
            b"\xff",
            "",
            Some(json!("base64")),
        ),
    ] {
        let value = read(given.clone()).unwrap();
        assert_eq!((value.data().unwrap(), &*names(&value)), (data, kept), "{given}");
        assert_eq!(written(&value).get("encoding").cloned(), back, "{given}");
        assert_eq!(read(written(&value)).unwrap(), value, "{given}");
        assert_eq!(carried(&value), value, "{given}");
    }
    let mut zipped = value(blob(7));
    zipped.encoding = ["zstd".into()].into_iter().collect();
    assert_eq!(written(&zipped)["encoding"], json!(["zstd"]));
    assert_eq!(read(written(&zipped)).unwrap(), zipped);
    for given in [
        json!({"data": "?", "encoding": "base64"}),
        json!({"ref": "a", "encoding": "base64"}),
        json!({"data": "x", "encoding": 1}),
    ] {
        assert!(read(given.clone()).is_err(), "{given}");
    }
}

/// VALUE-03, P30: the inline limit counts the bytes below base64; of encodings there are few, with
/// short names.
#[test]
fn limits_count_the_bytes_below_base64() {
    let limits = Limits { value_bytes_max: 3, ..Limits::default() };
    let with = |input: Json| {
        let mut given = create_input("a");
        given.steps[0].input = Some(read(input).unwrap());
        Fixture::try_create(given, Policy::Auto, limits.clone())
    };
    assert!(with(json!({"data": "////", "encoding": "base64"})).is_ok(), "three bytes");
    assert!(with(json!({"data": "/////w==", "encoding": "base64"})).is_err(), "four");
    assert!(with(json!({"data": "x", "encoding": vec!["e".repeat(64); 8]})).is_ok());
    for wrong in [vec!["e".repeat(65)], vec!["e".into(); 9], vec![String::new()]] {
        let refused = with(json!({"data": "x", "encoding": wrong})).unwrap_err();
        assert_eq!(refused.code, Code::ValidationError);
        assert_eq!(refused.details["field"], "steps[0].input.encoding");
    }
}

/// VALUE-01: a completion or a fact with too large a value is refused as a report is.
#[test]
fn a_value_too_large_is_refused_wherever_it_stands() {
    let blob = |size_bytes: u64| {
        let hash = "0".repeat(64);
        json!({"content_type": "text/plain", "ref": format!("blob:sha256:{hash}"),
               "digest": format!("sha256:{hash}"), "size_bytes": size_bytes})
    };
    let mut t = Fixture::manual("a");
    for size in [16 * MIB + 1, u64::MAX] {
        let output = serde_json::from_value(blob(size)).unwrap();
        let complete = Complete { output: Some(output), ..Complete::default() };
        t.refuse(Command::TaskComplete(complete), Code::ValueTooLarge);
    }
}

/// VALUE-05: what is said to be JSON and is no text is refused, with its field and the first byte that is wrong.
#[test]
fn what_is_said_to_be_json_is_text() {
    let mut t = with_policy("a", json!({"max_attempts": 2}), Policy::Manual);
    let held = t.claim("a");
    let bytes = b"{\"a\": \"\xff\"}".to_vec();
    for content_type in ["application/json", "application/json; charset=utf-8"] {
        let output = Value::inline(content_type, bytes.clone());
        let refused = t.refuse_as(&held.caller(), completes(&held, output), Code::ValidationError);
        assert_eq!(refused.details["field"], "output.data", "{refused:?}");
        assert!(refused.message.contains("byte 7"), "{refused:?}");
        assert!(refused.message.contains("application/octet-stream"), "{refused:?}");
    }
    let mut packed = Value::json(bytes.clone());
    packed.encoding = ["zstd".into()].into_iter().collect();
    let held_bytes = Value::inline("application/octet-stream", bytes);
    t.ok_as(&held.caller(), completes(&held, held_bytes));
    assert_eq!(t.status("a"), StepStatus::Completed);
    let mut other = with_policy("a", json!({"max_attempts": 2}), Policy::Manual);
    let held = other.claim("a");
    other.ok_as(&held.caller(), completes(&held, packed));
}
