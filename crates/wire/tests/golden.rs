//! Lines of record version 1 that were once written are read for ever (contract 2.5, P02).
//!
//! A file holds the log of an event type: a commit with every field of envelope and payload, a
//! commit with as few as there can be, and a commit of both. Files are never written again: a
//! change of the form is a new record version, with files of its own.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod samples;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use samples::{commit, event, full, least, session, task};
use serde_json::json;
use tenure_core::Rules;
use tenure_core::creation::Creation;
use tenure_core::event::{
    Body, Commit, Ended, LeaseEnd, ReleaseReason, ReportFacts, RunDispatched, RunEnded,
    StepCompleted, StepLeaseExpired, StepSnapshot, TaskUpdated,
};
use tenure_core::id::Digest;
use tenure_core::patch::{Change, Operation, StepFields, StepInput, TaskFields};
use tenure_core::record::{Blob, RetryPolicy, StepSpec, TaskSpec, Value, ValueBody};
use tenure_core::status::{EndReason, LeaseDoubt, OnFailure, ParentClose};
use tenure_wire::stored::{Assembler, decode_line, encode};

fn dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1")
}

/// The log of each event type.
fn logs() -> Vec<(&'static str, Vec<Commit>)> {
    let pairs = full().into_iter().zip(least());
    let log = |(full, least): (Body, Body)| {
        let name = full.event_type();
        let mut bare = event(least);
        bare.run = None;
        bare.actor = tenure_core::id::system_agent();
        let full = event(full);
        let commits = vec![
            commit(1, vec![full.clone()], true),
            commit(2, vec![bare.clone()], false),
            commit(3, vec![full, bare], true),
        ];
        (name, commits)
    };
    pairs.map(log).collect()
}

fn written(commits: &[Commit]) -> Vec<u8> {
    let mut out = Vec::new();
    for commit in commits {
        encode(commit, &session(), &task(), &mut out).unwrap();
    }
    out
}

fn read(text: &[u8]) -> Vec<Commit> {
    let mut assembler = Assembler::new(session(), task());
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    let commits = lines.filter_map(|line| {
        let line = decode_line(line.strip_suffix(b"\n").unwrap()).unwrap();
        assembler.push(line).unwrap()
    });
    commits.collect()
}

/// WAL-03, WAL-12, WAL-13
#[test]
fn every_event_type_reads_and_writes_as_it_once_did() {
    for (name, commits) in logs() {
        let text = fs::read(dir().join(format!("{name}.jsonl"))).unwrap();
        let read = read(&text);
        assert_eq!(read, commits, "{name}");
        assert_eq!(String::from_utf8(written(&read)), String::from_utf8(text), "{name}");
    }
}

/// IDEM-07, WAL-12: what a creation in parts adds to its `task_created`.
#[test]
fn a_creation_in_parts_reads_and_writes_as_it_once_did() {
    let mut created = full().remove(0);
    let Body::TaskCreated(made) = &mut created else { panic!("{created:?}") };
    made.creation = Some(Creation { digest: Digest::first([0xab; 32]), draft: true, steps: 6_000 });
    let commits = vec![commit(1, vec![event(created)], true)];
    let text = fs::read(dir().join("../created-in-parts-v1.jsonl")).unwrap();
    assert_eq!(String::from_utf8(written(&commits)), String::from_utf8(text.clone()));
    assert_eq!(read(&text), commits);
}

/// What a worker's reason, and the wait that follows, add to the end of a lease.
fn given_back() -> Vec<Commit> {
    let mut bodies = full();
    let at = bodies.iter().position(|body| matches!(body, Body::StepLeaseExpired(_))).unwrap();
    let Body::StepLeaseExpired(end) = bodies.swap_remove(at) else { panic!("it was just found") };
    let ends = ReleaseReason::ALL.iter().map(|&why| {
        let (release_reason, reason) = (Some(why), LeaseEnd::Released);
        let not_before = why.is_unsaid().then_some(samples::TIME + 1_000);
        let end = StepLeaseExpired { reason, release_reason, not_before, ..end.clone() };
        event(Body::StepLeaseExpired(end))
    });
    vec![commit(1, ends.collect(), true)]
}

fn given_back_file() -> PathBuf {
    dir().join("../given-back-v1.jsonl")
}

/// LEASE-18, WAL-12
#[test]
fn a_step_given_back_reads_and_writes_as_it_once_did() {
    let text = fs::read(given_back_file()).unwrap();
    assert_eq!(String::from_utf8(written(&given_back())), String::from_utf8(text.clone()));
    assert_eq!(read(&text), given_back());
}

/// Steps that were lost together.
fn lost_together() -> Vec<Commit> {
    let mut commits = given_back();
    let Body::StepLeaseExpired(end) = &mut commits[0].events[0].body else { panic!("as above") };
    let (lost_with, reason) =
        (vec![samples::step("read"), samples::step("check")], LeaseEnd::LeaseExpired);
    *end = StepLeaseExpired {
        lost_with,
        reason,
        release_reason: None,
        not_before: None,
        ..end.clone()
    };
    commits[0].events.truncate(1);
    commits
}

fn lost_together_file() -> PathBuf {
    dir().join("../lost-together-v1.jsonl")
}

/// LEASE-19, WAL-12
#[test]
fn steps_lost_together_read_and_write_as_they_once_did() {
    let text = fs::read(lost_together_file()).unwrap();
    assert_eq!(String::from_utf8(written(&lost_together())), String::from_utf8(text.clone()));
    assert_eq!(read(&text), lost_together());
}

/// What the second edition adds to the loss of an Attempt: who had the Step, an outage, and the late result.
fn outlived() -> Vec<Commit> {
    let events = full().into_iter().filter_map(|mut body| {
        match &mut body {
            Body::StepClaimed(claim) => {
                claim.worker_host = Some("rack-7".into());
                claim.worker_build = Some("tenure 0.1.0".into());
                let policy = claim.retry_policy.as_mut().map(Arc::make_mut).unwrap();
                policy.on_lease_doubt = Some(LeaseDoubt::Finish);
                policy.accept_late = Some(true);
            }
            Body::StepLeaseExpired(end) => end.reason = LeaseEnd::Outage,
            Body::StepCompleted(late) => (late.outcome, late.adopted) = (None, true),
            _ => return None,
        }
        Some(event(body))
    });
    vec![commit(1, events.collect(), true)]
}

fn outlived_file() -> PathBuf {
    dir().join("../outlived-v1.jsonl")
}

/// REPORT-14, LEASE-14, LEASE-17, ATT-12, WAL-12
#[test]
fn what_outlived_its_attempt_reads_and_writes_as_it_once_did() {
    let text = fs::read(outlived_file()).unwrap();
    assert_eq!(String::from_utf8(written(&outlived())), String::from_utf8(text.clone()));
    assert_eq!(read(&text), outlived());
}

/// A Run that waits for ever, and that found nothing in the end.
fn unlimited_run() -> Vec<Commit> {
    let bodies = full().into_iter().filter_map(|body| match body {
        Body::RunDispatched(run) => {
            Some(Body::RunDispatched(Box::new(RunDispatched { expires_at: None, ..*run })))
        }
        Body::RunEnded(run) => {
            let end_reason = EndReason::NoStepClaimed;
            Some(Body::RunEnded(RunEnded { end_reason, reason: None, ..run }))
        }
        _ => None,
    });
    vec![commit(1, bodies.map(event).collect(), true)]
}

fn unlimited_run_file() -> PathBuf {
    dir().join("../unlimited-run-v1.jsonl")
}

/// DISP-02, DISP-16, WAL-12
#[test]
fn an_unlimited_run_reads_and_writes_as_it_once_did() {
    let text = fs::read(unlimited_run_file()).unwrap();
    assert_eq!(String::from_utf8(written(&unlimited_run())), String::from_utf8(text.clone()));
    assert_eq!(read(&text), unlimited_run());
}

/// What the second edition says of policies: a Task's whole one, a Step's as it was given, what a failing
/// Task does, and how long a failed Step waits at least.
fn policies() -> Vec<Commit> {
    let policy = |json| Some(Arc::new(serde_json::from_value::<RetryPolicy>(json).unwrap()));
    let tasks = json!({
        "max_attempts": 5, "max_lost": "unlimited", "non_retryable": [],
        "backoff": {"initial_ms": 1_000, "factor": 4.0, "max_ms": 600_000, "jitter": 0.5},
        "start_to_close_ms": "unlimited", "schedule_to_close_ms": 9_000, "blocked_ms": 8_000,
        "cancel_grace_ms": 7_000
    });
    let mut bodies = full();
    let Body::TaskCreated(created) = &mut bodies[0] else { panic!("the first is a creation") };
    let mut task = TaskSpec::clone(&created.task);
    let mut step = StepSpec::clone(&task.steps[0]);
    step.retry_policy = policy(json!({"backoff": {"initial_ms": 5}, "max_lost": "unlimited"}));
    task.steps = [Arc::new(step)].into();
    task.retry_policy = policy(tasks.clone());
    (task.on_failure, task.optional_wait_ms) = (Some(OnFailure::Finish), Some(60_000));
    (created.task, created.rules) = (Arc::new(task), Rules::Second);
    let patch = json!([{"op": "update_task", "on_failure": null, "optional_wait_ms": 5,
        "retry_policy": tasks}]);
    let patched = Body::TaskUpdated(TaskUpdated {
        operations: serde_json::from_value::<Vec<Operation>>(patch).unwrap().into(),
        updated_after_dispatch: Vec::new(),
        demoted_step_ids: Vec::new(),
    });
    let failed = bodies.iter_mut().find_map(|body| match body {
        Body::StepFailed(failed) => Some(failed),
        _ => None,
    });
    failed.unwrap().retry_after_ms = Some(4_000);
    bodies.retain(|body| matches!(body, Body::TaskCreated(_) | Body::StepFailed(_)));
    bodies.push(patched);
    vec![commit(1, bodies.into_iter().map(event).collect(), true)]
}

fn policies_file() -> PathBuf {
    dir().join("../policies-v1.jsonl")
}

/// RETRY-02, RETRY-14, POL-05, POL-06, POL-12, WAL-12
#[test]
fn policies_read_and_write_as_they_once_did() {
    let text = fs::read(policies_file()).unwrap();
    assert_eq!(String::from_utf8(written(&policies())), String::from_utf8(text.clone()));
    assert_eq!(read(&text), policies());
}

/// Values in blobs, and with encodings.
fn values() -> Vec<Commit> {
    let mut bodies = full();
    let at = bodies.iter().position(|body| matches!(body, Body::StepCompleted(_))).unwrap();
    let Body::StepCompleted(done) = bodies.swap_remove(at) else { panic!("it was just found") };
    let blob = ValueBody::Blob(Blob::of(b"some bytes"));
    let encoded = |body, names: &[&str]| Value {
        encoding: names.iter().map(|name| (*name).into()).collect(),
        ..Value::of("text/plain", body)
    };
    let values = [
        Value::of("text/plain", blob.clone()),
        encoded(blob, &["zstd", "enc:key-1"]),
        encoded(ValueBody::Data(vec![0xff, 0].into()), &["zstd"]),
        encoded(ValueBody::Data((*b"text").into()), &["rot13"]),
    ];
    let ends = values.into_iter().map(|output| {
        let output = Some(output);
        event(Body::StepCompleted(StepCompleted { output, ..done.clone() }))
    });
    vec![commit(1, ends.collect(), true)]
}

fn values_file() -> PathBuf {
    dir().join("../values-v1.jsonl")
}

/// VALUE-01, VALUE-03, WAL-12
#[test]
fn values_in_blobs_and_with_encodings_read_and_write_as_they_once_did() {
    let text = fs::read(values_file()).unwrap();
    assert_eq!(String::from_utf8(written(&values())), String::from_utf8(text.clone()));
    assert_eq!(read(&text), values());
    let names = Blob::hashes_in(&text);
    assert!(names.into_iter().eq([Blob::of(b"some bytes").hash]), "the log names it");
}

/// What a publisher may say since the second edition: labels, `ext`, who alone may claim, the working
/// directory; and a digest of the second form.
fn published() -> Vec<Commit> {
    let ext = || Some(samples::object());
    let by = samples::agent("alice");
    let mut spec = samples::least_task();
    let mut step = samples::least_step();
    (step.ext, step.claim_only_by) = (ext(), Some(by.clone()));
    (spec.ext, spec.claim_only_by, spec.steps) = (ext(), Some(by.clone()), [Arc::new(step)].into());
    spec.cwd = Some("/home/me".into());
    spec.labels = [("env".into(), "prod".into()), ("team".into(), "blue".into())].into();
    let mut bodies = samples::least();
    let updated = bodies.swap_remove(3);
    let created = bodies.swap_remove(0);
    let (Body::TaskCreated(mut made), Body::TaskUpdated(mut patch)) = (created, updated) else {
        panic!("these are their places")
    };
    (made.task, made.rules) = (Arc::new(spec), Rules::Second);
    let fields = StepFields {
        claim_only_by: Change::Set(by.clone()),
        ext: Change::Clear,
        ..StepFields::default()
    };
    let of_task = TaskFields {
        claim_only_by: Change::Clear,
        ext: Change::Set(samples::object()),
        ..TaskFields::default()
    };
    let added = StepInput { claim_only_by: Some(by), ext: ext(), ..samples::step_input() };
    patch.operations = [
        Operation::UpdateTask(Box::new(of_task)),
        Operation::UpdateStep { fields, reason: None, step_id: samples::step("write") },
        Operation::AddStep { reason: None, step: added },
    ]
    .into();
    let events = vec![event(Body::TaskCreated(made)), event(Body::TaskUpdated(patch))];
    let mut commit = commit(1, events, true);
    commit.command_digest = Some(Digest::second([0x5a; 32]));
    vec![commit]
}

fn published_file() -> PathBuf {
    dir().join("../published-v1.jsonl")
}

/// EVOLVE-03, EVOLVE-04, CLAIM-13, LABEL-01, STORE-17, WAL-12
#[test]
fn what_publishers_say_reads_and_writes_as_it_once_did() {
    let text = fs::read(published_file()).unwrap();
    assert_eq!(String::from_utf8(written(&published())), String::from_utf8(text.clone()));
    assert_eq!(read(&text), published());
}

/// What a Task says of whose results its Steps get, of its own result, and of its parent's end.
fn inputs_and_outputs() -> Vec<Commit> {
    let inputs_from = || Some(vec![samples::step("read")]);
    let step = StepSpec { inputs_from: inputs_from(), ..samples::step_spec() };
    let mut events = Vec::new();
    for mut body in full() {
        match &mut body {
            Body::TaskCreated(made) => {
                let task = TaskSpec {
                    parent_close: ParentClose::Cancel,
                    output_from: Some(samples::step("write")),
                    steps: [Arc::new(step.clone())].into(),
                    ..samples::task_spec()
                };
                (made.task, made.rules) = (Arc::new(task), Rules::Second);
            }
            Body::TaskUpdated(made) => {
                let add = StepInput { inputs_from: Some(Vec::new()), ..samples::step_input() };
                let clear = StepFields { inputs_from: Change::Clear, ..StepFields::default() };
                let set = Change::Set(vec![samples::step("read")]);
                let set = StepFields { inputs_from: set, ..StepFields::default() };
                let update = |fields| Operation::UpdateStep {
                    fields,
                    reason: None,
                    step_id: samples::step("write"),
                };
                let add = Operation::AddStep { reason: None, step: add };
                made.operations = [add, update(clear), update(set)].into();
            }
            Body::StepClaimed(claim) => claim.step_snapshot = StepSnapshot::of(&step, 11),
            Body::TaskCompleted(end) => end.output = Some(Value::json(b"9".to_vec())),
            _ => continue,
        }
        events.push(event(body));
    }
    let from = Ended { output_from: Some(samples::step("write")), ..Ended::default() };
    events.push(event(Body::TaskCompleted(Box::new(from))));
    vec![commit(1, events, true)]
}

fn inputs_and_outputs_file() -> PathBuf {
    dir().join("../inputs-and-outputs-v1.jsonl")
}

/// STEP-37, TASK-22, REL-09, WAL-12
#[test]
fn inputs_and_outputs_read_and_write_as_they_once_did() {
    let text = fs::read(inputs_and_outputs_file()).unwrap();
    assert_eq!(String::from_utf8(written(&inputs_and_outputs())), String::from_utf8(text.clone()));
    assert_eq!(read(&text), inputs_and_outputs());
}

/// What is written of input that comes while Steps are at work.
fn late_input() -> Vec<Commit> {
    let mut events = Vec::new();
    for mut body in full() {
        let seen = Some(Box::new(ReportFacts { input_seen: Some(3), ..ReportFacts::default() }));
        match &mut body {
            Body::StepStarted(made) => made.report = seen,
            Body::StepUpdated(made) => made.report = seen,
            Body::StepCompleted(made) => made.report = seen,
            Body::TaskCompleted(end) => end.unread_input_refs = vec![samples::reference("late")],
            _ => continue,
        }
        events.push(event(body));
    }
    vec![commit(1, events, true)]
}

fn late_input_file() -> PathBuf {
    dir().join("../late-input-v1.jsonl")
}

/// CTRL-12, WAL-12
#[test]
fn late_input_reads_and_writes_as_it_once_did() {
    let text = fs::read(late_input_file()).unwrap();
    assert_eq!(String::from_utf8(written(&late_input())), String::from_utf8(text.clone()));
    assert_eq!(read(&text), late_input());
}

/// WAL-12: there is a file for each event type and for nothing else.
#[test]
fn every_event_type_has_its_file() {
    let types: BTreeSet<String> = Body::TYPES.iter().map(|name| format!("{name}.jsonl")).collect();
    let files = fs::read_dir(dir()).unwrap();
    let files = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(types, files);
    assert_eq!(types.len(), 31);
    assert_eq!(logs().len(), 31);
}

/// Writes the files that are missing; those that are there stay as they are.
#[test]
#[ignore = "run by hand when an event type is added"]
fn write_missing_files() {
    fs::create_dir_all(dir()).unwrap();
    for (name, commits) in logs() {
        let path = dir().join(format!("{name}.jsonl"));
        if !path.exists() {
            fs::write(path, written(&commits)).unwrap();
        }
    }
    let others = [
        (given_back_file(), given_back()),
        (lost_together_file(), lost_together()),
        (outlived_file(), outlived()),
        (unlimited_run_file(), unlimited_run()),
        (policies_file(), policies()),
        (values_file(), values()),
        (published_file(), published()),
        (inputs_and_outputs_file(), inputs_and_outputs()),
        (late_input_file(), late_input()),
    ];
    for (path, commits) in others.iter().filter(|(path, _)| !path.exists()) {
        fs::write(path, written(commits)).unwrap();
    }
}
