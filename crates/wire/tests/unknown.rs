//! What a newer sender says and an older reader does not know.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use rmpv::Value as Msg;
use serde_json::json;
use tenure_core::command::StepReport;
use tenure_core::status::StepStatus;
use tenure_core::{Code, Rejection};
use tenure_wire::bus::request::Request;
use tenure_wire::bus::worker::{Deliveries, Hello, Looking, Reports, Word};
use tenure_wire::bus::{decode, encode};
use uuid::Uuid;

fn map<const N: usize>(fields: [(&str, Msg); N]) -> Msg {
    Msg::Map(fields.map(|(name, value)| (Msg::from(name), value)).into())
}

/// With a field that nobody knows in front of the others and one behind them.
fn newer<const N: usize>(fields: [(&str, Msg); N]) -> Msg {
    let Msg::Map(mut all) = map(fields) else { unreachable!() };
    let deep = map([("deeper", Msg::Array(vec![Msg::Binary(vec![1, 2]), Msg::Nil]))]);
    all.insert(0, (Msg::from("newer"), deep));
    all.push((Msg::from("newest"), Msg::from(true)));
    Msg::Map(all)
}

fn bytes(message: &Msg) -> Vec<u8> {
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, message).unwrap();
    bytes
}

fn id() -> Msg {
    Msg::from(Uuid::from_u128(7).to_string())
}

fn words(word: Msg) -> Vec<Word> {
    let report = newer([
        ("session_id", Msg::from("s")),
        ("task_id", Msg::from("t")),
        ("run_id", id()),
        ("word", word),
    ]);
    let reports = newer([("v", Msg::from(1)), ("reports", Msg::Array(vec![report]))]);
    let reports: Reports = decode(&bytes(&reports)).unwrap();
    reports.reports.into_iter().map(|report| report.word).collect()
}

/// Mechanisms 17: a report of a newer worker does not fail its Step, wherever it says more, and in
/// whatever order.
#[test]
fn a_report_may_say_more_than_is_known() {
    let value = newer([("content_type", Msg::from("text/plain")), ("data", Msg::from("x"))]);
    let input = newer([
        ("step_id", Msg::from("a")),
        ("status", Msg::from("completed")),
        ("output", value),
        ("progress", newer([("phase", Msg::from("late"))])),
    ]);
    let operation = ("operation", Msg::from("task_update_step"));
    let orders = [
        newer([operation.clone(), ("input", input.clone())]),
        newer([("input", input), operation]),
    ];
    for word in orders {
        let said = words(word);
        let [Word::TaskUpdateStep(report)] = &said[..] else { panic!("{said:?}") };
        assert_eq!(report.status, Some(StepStatus::Completed));
        let output = report.output.as_ref().unwrap();
        assert_eq!((&*output.content_type, output.data()), ("text/plain", Some(&b"x"[..])));
        assert_eq!(report.progress.as_ref().unwrap().phase.as_deref(), Some("late"));
        let rest = StepReport {
            status: report.status,
            output: report.output.clone(),
            progress: report.progress.clone(),
            ..StepReport::on("a".parse().unwrap())
        };
        assert_eq!(*report, rest, "nothing else was said");
    }
    let why = newer([("code", Msg::from("no")), ("message", Msg::from("not mine"))]);
    let input = newer([("reason", why)]);
    let declined = map([("input", input), ("operation", Msg::from("decline_run"))]);
    let said = words(declined);
    let [Word::DeclineRun { reason: Some(reason) }] = &said[..] else { panic!("{said:?}") };
    assert_eq!(reason.code.as_deref(), Some("no"));
}

/// REPORT-04: content of a Step is known, and no worker's to change: it is left to be refused.
#[test]
fn content_in_a_report_is_noted() {
    for field in StepReport::CONTENT {
        let input = newer([("step_id", Msg::from("a")), (field, newer([]))]);
        let operation = ("operation", Msg::from("task_update_step"));
        let said = words(map([operation, ("input", input)]));
        let content_fields = vec![field.into()];
        let noted = StepReport { content_fields, ..StepReport::on("a".parse().unwrap()) };
        assert_eq!(said, [Word::TaskUpdateStep(noted)], "{field}");
    }
}

/// Mechanisms 17: nor does a grant of a newer node keep a worker from its Steps.
#[test]
fn a_grant_may_say_more_than_is_known() {
    let policy = newer([("max_attempts", Msg::from(3)), ("backoff", newer([]))]);
    let step = newer([
        ("step_id", Msg::from("a")),
        ("title", Msg::from("A")),
        ("summary", Msg::from("")),
        ("depends_on_step_ids", Msg::Array(Vec::new())),
        ("required", Msg::from(true)),
        ("worker_pool_id", Msg::from("default")),
        ("handler", Msg::from("noop")),
        ("retry_policy", policy),
    ]);
    let claim = newer([
        ("session_id", Msg::from("s")),
        ("task_id", Msg::from("t")),
        ("run_id", id()),
        ("attempt_id", id()),
        ("ordinal", Msg::from(1)),
        ("fencing_token", Msg::from(4)),
        ("lease_expires_at", Msg::from(9)),
        ("lease_ms", Msg::from(30_000)),
        ("input_refs", Msg::Array(Vec::new())),
        ("step", step),
    ]);
    let message = newer([
        ("v", Msg::from(1)),
        ("node", Msg::from("n1")),
        ("link", Msg::from("n1-1")),
        ("first", Msg::from(1)),
        ("deliveries", Msg::Array(vec![newer([("grant", claim)])])),
    ]);
    let deliveries: Deliveries = decode(&bytes(&message)).unwrap();
    let claim = deliveries.deliveries[0].grant.as_ref().unwrap();
    let policy = claim.step.retry_policy.as_ref().unwrap();
    assert_eq!(
        (claim.fencing_token, policy.max_attempts),
        (4, Some(tenure_core::retry_policy::Limit::Of(3)))
    );
}

/// PATCH-09: in what somebody asks for a misspelt field is refused, by its name.
#[test]
fn a_misspelt_input_is_refused() {
    let misspelt = || map([("offfset", Msg::from(1))]);
    let look = map([("operation", Msg::from("task_query_steps")), ("input", misspelt())]);
    let looking = newer([
        ("v", Msg::from(1)),
        ("session_id", Msg::from("s")),
        ("task_id", Msg::from("t")),
        ("run_id", id()),
        ("look", look),
    ]);
    let refused = Looking::read(&bytes(&looking)).unwrap_err();
    assert!(refused.message.contains("offfset"), "{refused}");
    let request = newer([
        ("v", Msg::from(1)),
        ("task_id", Msg::from("t")),
        ("operation", Msg::from("task_query_steps")),
        ("input", misspelt()),
    ]);
    let refused = Request::read(&bytes(&request)).unwrap_err();
    assert_eq!(refused.code, Code::ValidationError);
    assert!(refused.message.contains("offfset"), "{refused}");
    let report = map([("step_id", Msg::from("a")), ("statuss", Msg::from("completed"))]);
    let request = newer([
        ("v", Msg::from(1)),
        ("task_id", Msg::from("t")),
        ("operation", Msg::from("task_update_step")),
        ("input", report),
    ]);
    let refused = Request::read(&bytes(&request)).unwrap_err();
    assert!(refused.message.contains("statuss"), "{refused}");
}

/// CTRL-01: a record is a map with text keys. Of a list, and of a map with numbers as keys, the fields would be
/// taken by position: whoever forgets one has the next taken for it.
#[test]
fn fields_are_taken_by_their_names_alone() {
    let list = |of: &[Msg]| Msg::Array(of.to_vec());
    let numbered = |of: &[Msg]| {
        Msg::Map(
            (0..).zip(of).map(|(at, value): (u64, _)| (Msg::from(at), value.clone())).collect(),
        )
    };
    let hello = [Msg::from(1), list(&[Msg::from("noop")])];
    let word = [Msg::from("end_run"), map([("outcome", Msg::from("finished"))])];
    for form in [&list as &dyn Fn(&[Msg]) -> Msg, &numbered] {
        let refused = decode::<Hello>(&bytes(&form(&hello))).unwrap_err();
        assert_eq!(refused.field, None, "{refused}");
        let report = map([
            ("session_id", Msg::from("s")),
            ("task_id", Msg::from("t")),
            ("run_id", id()),
            ("word", form(&word)),
        ]);
        let reports = map([("v", Msg::from(1)), ("reports", list(&[report]))]);
        let refused = decode::<Reports>(&bytes(&reports)).unwrap_err();
        assert_eq!(refused.field.as_deref(), Some("reports[0].word"), "{refused}");
        for (operation, input) in [
            ("task_query_steps", form(&[list(&[Msg::from("ready")])])),
            ("retry_task", form(&[map([("message", Msg::from("why"))])])),
        ] {
            let request = map([
                ("v", Msg::from(1)),
                ("task_id", Msg::from("t")),
                ("operation", Msg::from(operation)),
                ("input", input),
            ]);
            let refused = Request::read(&bytes(&request)).unwrap_err();
            assert_eq!(refused.details["field"], "input", "{refused}");
        }
    }
}

/// CTRL-09: whoever writes a client is told the field that is wrong, and what would be right.
#[test]
fn a_refusal_names_the_field_and_what_it_should_be() {
    let refusal = |message: Msg| Rejection::from(decode::<Hello>(&bytes(&message)).unwrap_err());
    let handlers = Msg::Array(vec![Msg::from("noop"), Msg::from("sendEmail")]);
    let refused = refusal(map([("v", Msg::from(1)), ("handlers", handlers)]));
    assert_eq!(
        (refused.code, &refused.details["field"]),
        (Code::ValidationError, &"handlers[1]".into())
    );
    for part in ["`handlers[1]`", "sendEmail", "1 to 128 characters a-z"] {
        assert!(refused.message.contains(part), "{refused}");
    }
    let refused = refusal(map([("v", Msg::from(2))]));
    assert_eq!(refused.details["field"], "v", "{refused}");
    assert!(refused.message.contains("only 1"), "{refused}");
    let refused = refusal(map([]));
    assert!(refused.message.contains("missing field `v`"), "{refused}");
    let refused = refusal(Msg::from("hello"));
    assert_eq!(refused.details["field"], "message", "{refused}");
    assert!(refused.message.contains("a map with named fields"), "{refused}");
}

/// Mechanisms 8: a statement of room beside reports that cannot be read is as if it were not there: the reports
/// are read, and no finished result is refused for it.
#[test]
fn a_statement_of_room_that_cannot_be_read_costs_no_report() {
    let good = || {
        vec![
            ("v", Msg::from(1)),
            ("link", Msg::from("l")),
            ("number", Msg::from(3)),
            ("free", Msg::from(4)),
            ("seen", Msg::from(5)),
            ("got", Msg::from(6)),
        ]
    };
    let as_map = |fields: Vec<(&str, Msg)>| {
        Msg::Map(fields.into_iter().map(|(name, value)| (Msg::from(name), value)).collect())
    };
    let read = |room: Msg| {
        let word = map([
            ("operation", Msg::from("end_run")),
            ("input", map([("outcome", Msg::from("finished"))])),
        ]);
        let report = map([
            ("session_id", Msg::from("s")),
            ("task_id", Msg::from("t")),
            ("run_id", id()),
            ("word", word),
        ]);
        let reports = Msg::Array(vec![report]);
        let message = map([("v", Msg::from(1)), ("room", room), ("reports", reports)]);
        let read: Reports = decode(&bytes(&message)).unwrap();
        assert_eq!(read.reports.len(), 1);
        read.room
    };
    let room = read(as_map(good())).unwrap();
    assert_eq!((room.link.as_str(), room.number, room.free), ("l", 3, 4));
    assert_eq!((room.seen, room.got, room.lost), (5, 6, 0));
    let with_lost = [good(), vec![("lost", Msg::from(7))]].concat();
    assert_eq!(read(as_map(with_lost)).map(|room| room.lost), Some(7));
    let mut more = good();
    more.insert(0, ("newer", map([("deep", Msg::Array(vec![Msg::Binary(vec![1])]))])));
    assert_eq!(read(as_map(more)), Some(room), "what is not known is passed over");
    let odd = [
        Msg::Nil,
        Msg::from(-1),
        Msg::from(0.5),
        Msg::from(true),
        Msg::from("x"),
        Msg::Binary(vec![1, 2]),
        Msg::Array(vec![Msg::from(1), Msg::from("l"), Msg::Nil]),
        Msg::Ext(7, vec![1, 2, 3]),
        Msg::Map(vec![(Msg::from(1), Msg::Array(Vec::new())), (Msg::Nil, Msg::from("x"))]),
    ];
    for odd in odd {
        assert_eq!(read(odd.clone()), None, "{odd}");
        for at in 0..good().len() {
            let mut fields = good();
            if at != 1 || !odd.is_str() {
                fields[at].1 = odd.clone();
                assert_eq!(read(as_map(fields.clone())), None, "{} is {odd}", fields[at].0);
            }
            fields.remove(at);
            assert_eq!(read(as_map(fields)), None, "one is missing");
        }
    }
    let mut other = good();
    other[0].1 = Msg::from(2);
    assert_eq!(read(as_map(other)), None, "of another version");
}

/// CTRL-09: the refusal of an input names its field by all that it stands in, wherever that is.
#[test]
fn a_refusal_names_the_field_with_all_that_it_stands_in() {
    for (operation, input, field) in [
        (
            "task_create",
            json!({"steps": [{"step_id": "a", "title": "A"}, {"step_id": "b", "title": 7}]}),
            "steps[1].title",
        ),
        (
            "task_create",
            json!({"steps": [{"step_id": "a", "title": "A", "summry": ""}]}),
            "steps[0].summry",
        ),
        (
            "task_create",
            json!({"retry_policy": {"backoff": {"factor": "2"}}}),
            "retry_policy.backoff.factor",
        ),
        (
            "task_update",
            json!({"operations": [{"op": "add_step", "step": {"depends_on_step_ids": "a"}}]}),
            "operations[0].step.depends_on_step_ids",
        ),
        (
            "task_update",
            json!({"operations": [{"step": {"input": {"size_bytes": "7"}}, "op": "add_step"}]}),
            "operations[0].step.input.size_bytes",
        ),
        (
            "task_update",
            json!({"operations": [{"op": "update_step", "fields": {"required": 1}}]}),
            "operations[0].fields.required",
        ),
        (
            "task_update",
            json!({"operations": [{"op": "block_task"}, {"op": "update_task", "priority": "high"}]}),
            "operations[1].priority",
        ),
        (
            "task_update",
            json!({"operations": [{"op": "cancel_step", "step": 7}]}),
            "operations[0].step",
        ),
        ("update_task", json!({"metadata": 7}), "metadata"),
        ("task_complete", json!({"artifacts": [{"artifact_id": 1}]}), "artifacts[0].artifact_id"),
        (
            "append_task_progress",
            json!({"progress": {"counters": {"files": {"done": "3"}}}}),
            "progress.counters.files.done",
        ),
        ("explain", json!({"step_id": "A"}), "step_id"),
    ] {
        let request = json!({"v": 1, "task_id": "t", "operation": operation, "input": input});
        let refused = Request::read(&encode(&request).unwrap()).unwrap_err();
        assert_eq!(refused.code, Code::ValidationError, "{operation}: {refused}");
        assert_eq!(refused.details["field"], field, "{operation}: {refused}");
    }
    // Serde puts what stands before the name of its operation aside: then no more is known than the report.
    let (step_id, operation) =
        (("step_id", Msg::from("a")), ("operation", "task_update_step".into()));
    let percent = map([("percent", Msg::from("half"))]);
    let input = ("input", map([step_id, ("progress", percent)]));
    for (word, field) in [
        (map([operation.clone(), input.clone()]), "reports[1].word.input.progress.percent"),
        (map([input, operation]), "reports[1].word"),
    ] {
        let good = map([
            ("operation", "end_run".into()),
            ("input", map([("outcome", "finished".into())])),
        ]);
        let reports = [good, word].map(|word| {
            map([
                ("session_id", "s".into()),
                ("task_id", "t".into()),
                ("run_id", id()),
                ("word", word),
            ])
        });
        let reports = map([("v", 1.into()), ("reports", Msg::Array(reports.into()))]);
        let refused = decode::<Reports>(&bytes(&reports)).unwrap_err();
        assert_eq!(refused.field.as_deref(), Some(field), "{refused}");
    }
}
