//! ART: artifacts and references to them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use crate::views;
use common::*;
use serde_json::Value as Json;
use tenure_core::Rules;
use tenure_core::command::create::CreateTask;
use tenure_core::command::references::Target;
use tenure_core::command::{AppendProgress, Complete, StepReport};
use tenure_core::id::Ref;
use tenure_core::record::{ArtifactInput, Progress};
use tenure_core::status::{ArtifactState, Policy, StepStatus};
use tenure_core::view::TaskView;
use tenure_core::{Code, Command, Limits};
use views::*;

fn given(fields: Json) -> ArtifactInput {
    let mut artifact =
        json!({"artifact_id": "x", "name": "n", "kind": "file", "state": "available"});
    artifact.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    serde_json::from_value(artifact).unwrap()
}

fn reports(held: &Held, artifacts: Vec<ArtifactInput>) -> Command {
    Command::TaskUpdateStep(StepReport { artifacts, ..held.says() })
}

fn shown(t: &Fixture) -> Json {
    as_json(&TaskView::of(&t.task.durable(), &known()).artifacts)
}

/// ART-01: an artifact belongs to one Task, and if a worker made it to one Step and Attempt; its id
/// joins the Step's.
#[test]
fn an_artifact_belongs_to_task_step_and_attempt() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    t.ok_as(&held.caller(), reports(&held, vec![given(json!({"size_bytes": 3, "uri": "mem:x"}))]));
    let one = &shown(&t)[0];
    for (field, expected) in [
        ("artifact_id", json!("x")),
        ("task_id", json!("t")),
        ("step_id", json!("a")),
        ("attempt_id", json!(held.attempt_id.to_string())),
        ("created_at", json!(t.now)),
        ("size_bytes", json!(3)),
        ("uri", json!("mem:x")),
    ] {
        assert_eq!(one[field], expected, "{field}");
    }
    assert_eq!(t.step("a").state.facts().artifact_ids[0].as_str(), "x");
}

/// ART-01: an artifact of the orchestrator belongs to the Task alone.
#[test]
fn an_artifact_of_the_task_has_no_step() {
    let mut t = Fixture::manual("a");
    let artifacts = vec![given(json!({}))];
    t.ok(Command::AppendTaskProgress(AppendProgress { artifacts, ..Default::default() }));
    assert!(shown(&t)[0].get("step_id").is_none() && shown(&t)[0].get("attempt_id").is_none());
}

/// ART-01: a bare id makes a record of kind external that can be read; a known one just joins.
#[test]
fn a_bare_id_makes_an_external_record() {
    let mut t = Fixture::manual("a b");
    let held = t.claim("a");
    let artifact_ids = vec!["far".parse().unwrap()];
    let report = StepReport { artifact_ids, ..held.says() };
    t.ok_as(&held.caller(), Command::TaskUpdateStep(report.clone()));
    assert_eq!(
        (&shown(&t)[0]["kind"], &shown(&t)[0]["state"]),
        (&json!("external"), &json!("available"))
    );
    t.ok_as(&held.caller(), Command::TaskUpdateStep(report));
    let b = t.claim("b");
    let artifact_ids = vec!["far".parse().unwrap()];
    t.ok_as(&b.caller(), Command::TaskUpdateStep(StepReport { artifact_ids, ..b.says() }));
    assert_eq!(shown(&t).as_array().unwrap().len(), 1);
    assert_eq!(shown(&t)[0]["step_id"], "a", "it stays the one of its maker");
    for step in ["a", "b"] {
        assert_eq!(t.step(step).state.facts().artifact_ids.len(), 1);
    }
}

/// ART-01: the same id again changes state, place, size and digest; what is left out stays.
#[test]
fn the_same_id_changes_state_place_size_and_digest() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    let first = given(json!({"state": "pending", "media_type": "text/plain", "size_bytes": 1}));
    t.ok_as(&held.caller(), reports(&held, vec![first]));
    let created = t.now;
    let second = given(json!({"uri": "mem:y", "digest": "sha256:1"}));
    t.ok_as(&held.caller(), reports(&held, vec![second]));
    let one = &shown(&t)[0];
    assert_eq!((&one["state"], &one["uri"]), (&json!("available"), &json!("mem:y")));
    assert_eq!((&one["digest"], &one["size_bytes"]), (&json!("sha256:1"), &json!(1)));
    assert_eq!((&one["media_type"], &one["created_at"]), (&json!("text/plain"), &json!(created)));
}

/// ART-01, ART-02: any other change of a known id is refused, also within one report; a new version
/// takes a new id and may keep the name.
#[test]
fn a_new_version_takes_a_new_id() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    let first = given(json!({"description": "d", "media_type": "text/plain", "data": "1"}));
    t.ok_as(&held.caller(), reports(&held, vec![first]));
    for (field, value) in [
        ("name", json!("other")),
        ("kind", json!("report")),
        ("description", json!("e")),
        ("media_type", json!("text/html")),
        ("data", json!("2")),
    ] {
        let changed = given(json!({ field: value }));
        let no = t.refuse_as(&held.caller(), reports(&held, vec![changed]), Code::ValidationError);
        assert_eq!(
            (&no.details["changed"], &no.details["artifact_id"]),
            (&json!(field), &json!("x"))
        );
    }
    let twice =
        vec![given(json!({"artifact_id": "y"})), given(json!({"artifact_id": "y", "name": "m"}))];
    t.refuse_as(&held.caller(), reports(&held, twice), Code::ValidationError);
    t.ok_as(&held.caller(), reports(&held, vec![given(json!({"artifact_id": "x2", "data": "2"}))]));
    let names: Vec<_> = shown(&t).as_array().unwrap().iter().map(|a| a["name"].clone()).collect();
    assert_eq!(names, ["n", "n"]);
}

/// ART-01, PERM-13: a worker changes artifacts of its own Step only; the orchestrator any.
#[test]
fn a_worker_leaves_other_steps_artifacts_alone() {
    let mut t = Fixture::manual("a b");
    let a = t.claim("a");
    t.ok_as(&a.caller(), reports(&a, vec![given(json!({}))]));
    let b = t.claim("b");
    let missing = given(json!({"state": "missing"}));
    t.refuse_as(&b.caller(), reports(&b, vec![missing.clone()]), Code::PermissionDenied);
    let artifacts = vec![missing];
    t.ok(Command::AppendTaskProgress(AppendProgress { artifacts, ..Default::default() }));
    assert_eq!(shown(&t)[0]["state"], "missing");
}

/// ART-03: no version is named the latest, nothing links versions of a name.
#[test]
fn nothing_names_the_latest_version() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    for id in ["v1", "v2"] {
        t.ok_as(&held.caller(), reports(&held, vec![given(json!({"artifact_id": id}))]));
    }
    let text = as_json(&TaskView::of(&t.task.durable(), &known())).to_string();
    assert!(!text.contains("latest") && !text.contains("version_of"), "{text}");
}

/// ART-04: an artifact of another Task in an input is consumed by the claim.
#[test]
fn an_artifact_of_another_task_can_be_an_input() {
    let input = serde_json::from_value(json!({"ref": "other/report"})).unwrap();
    let mut given = create_input("a");
    given.steps[0].input = Some(input);
    assert_eq!(
        given.foreign_artifacts(&"t".parse().unwrap()),
        [("other".parse().unwrap(), "report".parse().unwrap())]
    );
    let mut t = Fixture::create(given, Policy::Manual);
    let held = t.claim("a");
    assert_eq!(t.attempt_of(&held).input_refs[0].as_str(), "other/report");
    let edges = as_json(&TaskView::of(&t.task.durable(), &known()).relationships);
    assert_eq!(
        (&edges[0]["kind"], &edges[0]["to"]),
        (&json!("consumed_artifact"), &json!("other/report"))
    );
}

/// 2.7: the three forms of a reference, and what is none.
#[test]
fn a_reference_has_three_forms() {
    let target = |text: &str| Ref::new(text).unwrap().target();
    assert_eq!(target("x"), Ok(Target::Own("x".parse().unwrap())));
    assert_eq!(target("u/x"), Ok(Target::Of("u".parse().unwrap(), "x".parse().unwrap())));
    assert_eq!(target("https://example.org/a/b"), Ok(Target::Elsewhere));
    for wrong in ["U/x", "u/", "/x", "u/x/y"] {
        assert_eq!(target(wrong).unwrap_err().code, Code::ValidationError, "{wrong}");
    }
}

/// ART-05: a reference to an artifact that this Task does not have is refused wherever an input, an
/// output or evidence names one.
#[test]
fn a_reference_to_nothing_is_refused() {
    let mut t = Fixture::manual("a b c");
    let refs = |text: &str| vec![Ref::new(text).unwrap()];
    t.bring("b", StepStatus::Blocked);
    let reopen =
        |text: &str| patch(json!([{"op": "reopen_step", "step_id": "b", "input_refs": [text]}]));
    let answer = |text: &str| {
        let status = Some(StepStatus::Pending);
        Command::TaskUpdateStep(StepReport {
            status,
            input_refs: refs(text),
            ..StepReport::on(id("b"))
        })
    };
    let late = |text: &str| {
        Command::AppendTaskProgress(AppendProgress { input_refs: refs(text), ..Default::default() })
    };
    let proof = |text: &str| {
        let evidence_refs = refs(text);
        Command::AppendTaskProgress(AppendProgress { evidence_refs, ..Default::default() })
    };
    let edit = |text: &str| {
        patch(json!([{"op": "update_step", "step_id": "c", "fields": {"input": {"ref": text}}}]))
    };
    let add = |text: &str| {
        patch(json!([{"op": "add_step", "step": {"step_id": "n", "title": "", "summary": "",
            "depends_on_step_ids": [], "input": {"ref": text}}}]))
    };
    let commands: [&dyn Fn(&str) -> Command; 6] = [&reopen, &answer, &late, &proof, &edit, &add];
    for command in commands {
        for text in ["nothing", "t/nothing"] {
            let no = t.refuse(command(text), Code::ValidationError);
            assert_eq!(no.details["ref"], text);
        }
    }
    let indexed = t.refuse(reopen("nothing"), Code::ValidationError);
    assert_eq!(indexed.details["op_index"], 0);
    let held = t.claim("a");
    t.ok_as(&held.caller(), reports(&held, vec![given(json!({}))]));
    for text in ["x", "t/x", "mem:x", "other/x"] {
        t.ok(late(text));
        t.ok(proof(text));
        t.ok(edit(text));
    }
    t.ok(reopen("x"));
}

/// ART-05: an output may name an artifact that comes with the same report, and no unknown one.
#[test]
fn an_output_names_what_is_there() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    let output = serde_json::from_value(json!({"ref": "x"})).unwrap();
    let done =
        StepReport { status: Some(StepStatus::Completed), output: Some(output), ..held.says() };
    t.refuse_as(&held.caller(), Command::TaskUpdateStep(done.clone()), Code::ValidationError);
    let with_it = StepReport { artifacts: vec![given(json!({}))], ..done };
    t.ok_as(&held.caller(), Command::TaskUpdateStep(with_it));
}

/// ART-05: what a report made, where a later Attempt may go on, and what progress points at exist
/// as well; an artifact that comes with the same report does.
#[test]
fn what_a_report_made_is_there() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    let progress = |value| Some(serde_json::from_value::<Progress>(value).unwrap());
    let refs = |text: &str| vec![Ref::new(text).unwrap()];
    let reports: [&dyn Fn(&str) -> StepReport; 4] = [
        &|text| StepReport { output_refs: refs(text), ..held.says() },
        &|text| StepReport { checkpoint_refs: refs(text), ..held.says() },
        &|text| StepReport { progress: progress(json!({"output_refs": [text]})), ..held.says() },
        &|text| StepReport {
            progress: progress(json!({"output_offsets": {text: 1}})),
            ..held.says()
        },
    ];
    for report in &reports {
        for text in ["nothing", "t/nothing"] {
            let said = Command::TaskUpdateStep(report(text));
            let no = t.refuse_as(&held.caller(), said, Code::ValidationError);
            assert_eq!(no.details["ref"], text);
        }
        let of_another = Command::TaskUpdateStep(report("other/x"));
        let own = t.task.task_id();
        assert_eq!(of_another.foreign_artifacts(own).len(), 1, "the scheduler looks it up");
        let of_its_own = Command::TaskUpdateStep(report("t/x"));
        assert_eq!(of_its_own.foreign_artifacts(own), [], "it may come with the same report");
    }
    let with_it = StepReport { artifacts: vec![given(json!({}))], ..reports[0]("x") };
    t.ok_as(&held.caller(), Command::TaskUpdateStep(with_it));
    for report in &reports {
        for text in ["x", "t/x", "mem:x", "other/x"] {
            t.ok_as(&held.caller(), Command::TaskUpdateStep(report(text)));
        }
    }
    let late = progress(json!({"output_refs": ["nothing"]}));
    let late = AppendProgress { progress: late, ..Default::default() };
    t.refuse(Command::AppendTaskProgress(late), Code::ValidationError);
}

/// ART-05: a new Task has no artifacts, so its inputs cannot name any of its own; a Task that
/// starts an ended one again names that one's.
#[test]
fn inputs_of_a_new_task_name_no_artifact_of_its_own() {
    let mut given = create_input("a b");
    given.steps[1].input = serde_json::from_value(json!({"ref": "x"})).unwrap();
    let no = Fixture::try_create(given, Policy::Manual, Limits::default()).unwrap_err();
    assert_eq!(
        (no.code, &no.details["field"]),
        (Code::ValidationError, &json!("steps[1].input.ref"))
    );
    let mut t = Fixture::manual("a b");
    let artifacts = vec![artifact("x", "n")];
    t.ok(Command::AppendTaskProgress(AppendProgress { artifacts, ..Default::default() }));
    t.ok(t.patch(json!([{"op": "update_step", "step_id": "b", "fields": {"input": {"ref": "x"}}}])));
    t.ok(Command::TaskCancel(Default::default()));
    let reason = serde_json::from_value(json!({"message": "again"})).unwrap();
    let again: CreateTask = t
        .task
        .durable()
        .retry_input("t2".parse().unwrap(), &made_again(&reason), Rules::NEWEST)
        .unwrap();
    let text = as_json(&again.steps[1].input).to_string();
    assert!(text.contains("t/x"), "{text}");
    Fixture::create(again, Policy::Manual);
}

/// ART-06, TERM-21: artifacts of an ended Task do not change.
#[test]
fn artifacts_of_an_ended_task_do_not_change() {
    let mut t = Fixture::manual("a?");
    let artifacts = vec![given(json!({}))];
    t.ok(Command::TaskComplete(Complete { artifacts, ..Default::default() }));
    assert_eq!(shown(&t).as_array().unwrap().len(), 1);
    let artifacts = vec![given(json!({"state": "missing"}))];
    let late = AppendProgress { artifacts, ..Default::default() };
    t.refuse(Command::AppendTaskProgress(late), Code::TaskTerminal);
}

/// ART-01, TERM-10: a completion is held to the same, and its own artifacts count.
#[test]
fn a_completion_changes_no_known_artifact() {
    let mut t = Fixture::manual("a?");
    let artifacts = vec![given(json!({"state": "pending"}))];
    t.ok(Command::AppendTaskProgress(AppendProgress { artifacts, ..Default::default() }));
    let with = |artifact| {
        Command::TaskComplete(Complete { artifacts: vec![artifact], ..Default::default() })
    };
    t.refuse(with(given(json!({"name": "other"}))), Code::ValidationError);
    t.ok(with(given(json!({}))));
    let view = t.task.durable();
    assert_eq!(view.artifacts().next().unwrap().given.state, ArtifactState::Available);
}

/// ART-07: the ids of a Step grow by its holder's reports while it is held, and are cleared from
/// the current view when it is reopened (STEP-33).
#[test]
fn a_steps_artifacts_grow_while_it_is_held() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    for id in ["1", "2", "1"] {
        t.ok_as(&held.caller(), reports(&held, vec![given(json!({"artifact_id": id}))]));
    }
    assert_eq!(t.step("a").state.facts().artifact_ids.len(), 2);
    t.report(&held, StepStatus::Blocked);
    t.refuse_as(&held.caller(), reports(&held, vec![given(json!({}))]), Code::StaleAttempt);
    t.write("a", StepStatus::Pending);
    assert!(t.step("a").state.facts().artifact_ids.is_empty());
    assert_eq!(shown(&t).as_array().unwrap().len(), 2, "the task keeps them");
}
