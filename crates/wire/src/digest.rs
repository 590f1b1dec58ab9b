//! The digest of a command, computed where the request arrives (P38), in one canonical form.
//!
//! It is the SHA-256 of a MessagePack map `{input, operation}`, in which the keys of every map are sorted
//! bytewise. The input has the fields that were given: a null is dropped where it says the same as an absent
//! field; in the fields of a patch, where it clears, and in opaque maps it stays (EVOLVE-04). `command_id`
//! and the expected versions are not part of an input, so a repeated command has the digest of the first.
//! The core adds who asks, except to what belongs to a create (IDEM-02).
//!
//! In the first form the map has `actor`, too. Such digests stand in older logs, and are made again to be
//! compared with those.

use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tenure_core::Command;
use tenure_core::command::Operator;
use tenure_core::command::create::CreateTask;
use tenure_core::id::{AgentId, Digest, DigestForm, StepId};

/// The input of a command cannot be serialized.
#[derive(Debug, thiserror::Error)]
#[error("the input of a command cannot be written as MessagePack: {0}")]
pub struct DigestError(#[from] rmp_serde::encode::Error);

/// The digest of a create in a form, asked for by `actor`.
pub fn digest_create(
    form: DigestForm,
    actor: &AgentId,
    input: &CreateTask,
) -> Result<Digest, DigestError> {
    #[derive(Serialize)]
    struct Create<'a> {
        input: &'a CreateTask,
        operation: Operator,
        /// What is taken over is no field of the input, and yet a part of what the caller asks for.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        taken_over: Vec<&'a StepId>,
    }
    let taken_over = input.taken_over.iter().map(|(step, _)| step).collect();
    digest_of(form, actor, Create { input, operation: Operator::TaskCreate, taken_over })
}

/// The digest of a command on an existing Task in a form, asked for by `actor`.
pub fn digest_command(
    form: DigestForm,
    actor: &AgentId,
    command: &Command,
) -> Result<Digest, DigestError> {
    digest_of(form, actor, command) // As `input` and `operation`.
}

fn digest_of(
    form: DigestForm,
    actor: &AgentId,
    what: impl Serialize,
) -> Result<Digest, DigestError> {
    #[derive(Serialize)]
    struct Asked<'a, T> {
        actor: &'a AgentId,
        #[serde(flatten)]
        what: T,
    }
    let bytes = match form {
        DigestForm::First => canonical(&Asked { actor, what })?,
        DigestForm::Second => canonical(&what)?,
    };
    Ok(Digest { form, sha256: Sha256::digest(bytes).into() })
}

/// MessagePack with the keys of every map sorted.
fn canonical(value: &impl Serialize) -> Result<Vec<u8>, DigestError> {
    let mut written = Vec::with_capacity(512);
    value.serialize(&mut rmp_serde::Serializer::new(&mut written).with_struct_map())?;
    let mut out = Vec::with_capacity(written.len());
    Sorter { input: &written, at: 0, out: &mut out }.value();
    debug_assert_eq!(out.len(), written.len(), "sorting only moves bytes");
    Ok(out)
}

/// Copies one MessagePack value, with its maps sorted by key.
///
/// It works on bytes, not on types, so the order in which records, enum tags and flattened fields
/// are declared does not matter. It trusts its input, which rmp-serde has just written.
struct Sorter<'a> {
    input: &'a [u8],
    at: usize,
    out: &'a mut Vec<u8>,
}

impl Sorter<'_> {
    fn value(&mut self) {
        let marker = self.input[self.at];
        match marker {
            0x80..=0x8f => self.map(1, usize::from(marker & 0x0f)),
            0x90..=0x9f => self.array(1, usize::from(marker & 0x0f)),
            0xa0..=0xbf => self.copy(1 + usize::from(marker & 0x1f)),
            0xc4 | 0xd9 => self.copy(2 + self.length(1)),
            0xc5 | 0xda => self.copy(3 + self.length(2)),
            0xc6 | 0xdb => self.copy(5 + self.length(4)),
            0xcc | 0xd0 => self.copy(2),
            0xcd | 0xd1 => self.copy(3),
            0xca | 0xce | 0xd2 => self.copy(5),
            0xcb | 0xcf | 0xd3 => self.copy(9),
            0xdc => self.array(3, self.length(2)),
            0xdd => self.array(5, self.length(4)),
            0xde => self.map(3, self.length(2)),
            0xdf => self.map(5, self.length(4)),
            // Small integers, nil and booleans. rmp-serde never writes extension types here.
            _ => self.copy(1),
        }
    }

    /// The big-endian length of `bytes` bytes that follows a marker.
    fn length(&self, bytes: usize) -> usize {
        let digits = &self.input[self.at + 1..self.at + 1 + bytes];
        digits.iter().fold(0, |length, byte| length << 8 | usize::from(*byte))
    }

    fn copy(&mut self, len: usize) {
        self.out.extend_from_slice(&self.input[self.at..self.at + len]);
        self.at += len;
    }

    fn array(&mut self, head: usize, len: usize) {
        self.copy(head);
        for _ in 0..len {
            self.value();
        }
    }

    fn map(&mut self, head: usize, len: usize) {
        self.copy(head);
        let start = self.out.len();
        let mut entries = Vec::with_capacity(len);
        for _ in 0..len {
            let from = self.out.len();
            self.value();
            let key_end = self.out.len();
            self.value();
            entries.push(OutputEntry { from, key_end, to: self.out.len() });
        }
        self.sort(start, &mut entries);
    }

    /// Sorts the entries written from `start` on by their keys.
    fn sort(&mut self, start: usize, entries: &mut [OutputEntry]) {
        let out = &*self.out;
        if entries.is_sorted_by_key(|entry| entry.key(out)) {
            return;
        }
        entries.sort_by(|a, b| a.key(out).cmp(b.key(out)));
        let sorted: Vec<u8> =
            entries.iter().flat_map(|entry| &out[entry.from..entry.to]).copied().collect();
        self.out.truncate(start);
        self.out.extend_from_slice(&sorted);
    }
}

/// One entry of a map in the output.
struct OutputEntry {
    from: usize,
    key_end: usize,
    to: usize,
}

impl OutputEntry {
    /// The text of the key, without its MessagePack marker.
    fn key<'a>(&self, out: &'a [u8]) -> &'a [u8] {
        let key = &out[self.from..self.key_end];
        let head = match key[0] {
            0xd9 => 2,
            0xda => 3,
            0xdb => 5,
            _ => 1,
        };
        &key[head..]
    }
}

#[cfg(test)]
#[path = "../tests/samples/mod.rs"]
mod samples;

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A test that cannot go on has failed.
mod tests {
    use std::collections::BTreeSet;

    use rmpv::Value;
    use tenure_core::command::{
        AppendProgress, Close, Complete, Dispatch, EndRun, KeepFact, Link, RetrySteps, RunAndWhy,
        RunOutcome, RunTtl, StepReport, Unlink, Why,
    };
    use tenure_core::event::{Bindings, ReleaseReason};
    use tenure_core::id::{ArtifactId, EdgeId, PoolId, Ref, TaskId, WalName};
    use tenure_core::status::{
        DeliveryState, EdgeKind, FactKind, OnFailure, ParentClose, Policy, ReplyKind, StepStatus,
        Visibility, WaitKind,
    };

    use super::samples::*;
    use super::*;

    fn why() -> Why {
        Why { reason: Some(reason_input()) }
    }

    fn close() -> Close {
        Close { grace_ms: None, reason: Some(reason_input()), wait: Some(true) }
    }

    fn refs() -> Vec<Ref> {
        vec![Ref::new("s3://bucket/1").unwrap()]
    }

    fn run_and_why() -> RunAndWhy {
        RunAndWhy { reason: Some(reason_input()), run_id: run() }
    }

    fn report() -> StepReport {
        StepReport {
            artifact_ids: vec![ArtifactId::new("report.v1").unwrap()],
            artifacts: vec![artifact()],
            attempt_id: Some(attempt()),
            checkpoint_refs: refs(),
            content_fields: vec!["title".into()],
            fencing_token: Some(12),
            input_refs: refs(),
            input_seen: Some(3),
            output: Some(tenure_core::record::Value::inline("text/plain", *b"\xff\0")),
            output_refs: refs(),
            progress: Some(progress()),
            reason: Some(reason_input()),
            remote: Some(remote()),
            reply: Some(ReplyKind::Message),
            result_summary: Some("done".into()),
            retry_after_ms: Some(9),
            run_result: Some("so it is".into()),
            status: Some(StepStatus::Blocked),
            step_id: step("write"),
            wait_kind: Some(WaitKind::Input),
        }
    }

    fn fact(then: Vec<Command>) -> KeepFact {
        let payload = tenure_core::record::Value::inline("text/plain", *b"\xff\0");
        KeepFact { key: "k".into(), kind: FactKind::MacpEnvelope, payload, then }
    }

    fn create() -> CreateTask {
        CreateTask {
            acceptance: acceptance(),
            assignee: Some(agent("a")),
            claim_only_by: Some(agent("e")),
            completion: Some(Policy::Auto),
            constraints: Some(object()),
            creation: None,
            cwd: Some("/here".into()),
            default_worker_pool_id: Some(PoolId::new("p").unwrap()),
            dispatch: Some(Policy::Auto),
            draft: Some(true),
            ext: Some(object()),
            facts: vec![fact(vec![])],
            idempotency_key: Some("key".into()),
            job_id: Some("job".into()),
            labels: [("k".into(), "v".into())].into(),
            metadata: Some(object()),
            native_protocol: Some("a2a".into()),
            objective: Some("all of it".into()),
            on_failure: Some(OnFailure::Finish),
            optional_wait_ms: Some(60_000),
            output_from: Some(step("write")),
            owner: Some(agent("o")),
            parent_close: Some(ParentClose::Cancel),
            parent_task_id: Some(task()),
            priority: Some(1),
            requested_by: Some(agent("r")),
            retry_of: Some(task()),
            retry_policy: Some(retry_policy()),
            retry_reason: None, // Not part of an input.
            scope: Some(object()),
            steps: vec![step_input(), step_input()],
            summary: "s".into(),
            taken_over: Vec::new(), // As above.
            task_family: Some("f".into()),
            task_id: Some(TaskId::new("t").unwrap()),
            task_kind: Some("k".into()),
            task_profile: Some(object()),
            thread_id: Some("th".into()),
            title: "t".into(),
            turn_id: Some("tu".into()),
            visibility: Some(Visibility::Hidden),
            wal_filename: Some(WalName::new("w").unwrap()),
            wal_name: Some(WalName::new("w").unwrap()),
        }
    }

    /// Every command that has a digest, with every field.
    fn commands() -> Vec<Command> {
        let progress = AppendProgress {
            artifacts: vec![artifact()],
            delivery_state: Some(DeliveryState::Queued),
            evidence_refs: refs(),
            input_refs: refs(),
            progress: Some(progress()),
            target_ref: Some(refs().swap_remove(0)),
        };
        let complete = Complete {
            acceptance: Some(acceptance()),
            artifacts: vec![artifact()],
            evidence_refs: refs(),
            output: Some(tenure_core::record::Value::inline("text/plain", *b"\xff\0")),
            result_summary: Some("done".into()),
        };
        let dispatch = Dispatch {
            allowed_step_ids: Some(vec![step("write")]),
            bindings: Some(Bindings {
                thread_id: Some("t".into()),
                environment_ref: Some("e".into()),
            }),
            instructions: Some("be brief".into()),
            on_behalf: None,
            ttl_ms: Some(RunTtl::Ms(60_000)),
            wait: Some(true),
            worker_pool_id: PoolId::new("p").unwrap(),
        };
        let link = Link {
            kind: EdgeKind::Evidence,
            reason: Some("seen".into()),
            to: refs().swap_remove(0),
        };
        let end_run =
            EndRun { outcome: RunOutcome::Error, result: Some("r".into()), run_id: run() };
        let edge_id = EdgeId::new("e").unwrap();
        vec![
            Command::TaskUpdate { operations: operations() },
            Command::TaskClaimStep { run_id: run(), step_id: step("write") },
            Command::TaskUpdateStep(report()),
            Command::TaskComplete(complete),
            Command::TaskFail(close()),
            Command::TaskCancel(close()),
            Command::DispatchWorker(dispatch),
            Command::SubmitTask(why()),
            Command::PauseTask(why()),
            Command::ResumeTask(why()),
            Command::BlockTask(why()),
            Command::ReopenTask(why()),
            Command::AppendTaskProgress(progress),
            Command::TaskFact(fact(vec![Command::PauseTask(why())])),
            Command::RetryTask(RetrySteps {
                reason: reason_input(),
                step_ids: Some(vec![step("write")]),
            }),
            Command::LinkTasks(link),
            Command::UnlinkTasks(Unlink { edge_id, reason: Some("no more".into()) }),
            Command::ArchiveTask(why()),
            Command::EndRun(end_run),
            Command::DeclineRun(run_and_why()),
            Command::CancelRun(run_and_why()),
            Command::ReleaseStep {
                attempt_id: attempt(),
                fencing_token: 12,
                reason: ReleaseReason::Surplus,
                retry_after_ms: Some(5),
            },
        ]
    }

    fn decode(bytes: &[u8]) -> Value {
        let mut rest = bytes;
        let value = rmpv::decode::read_value(&mut rest).unwrap();
        assert!(rest.is_empty());
        value
    }

    /// Counts the maps in the value.
    fn assert_sorted(value: &Value) -> usize {
        match value {
            Value::Map(entries) => {
                let keys: Vec<_> = entries.iter().map(|(key, _)| key.as_str().unwrap()).collect();
                assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "{keys:?}");
                1 + entries.iter().map(|(_, value)| assert_sorted(value)).sum::<usize>()
            }
            Value::Array(items) => items.iter().map(assert_sorted).sum(),
            _ => 0,
        }
    }

    /// The same value with its maps sorted, by other code.
    fn sorted(value: Value) -> Value {
        match value {
            Value::Map(entries) => {
                let entries = entries.into_iter().map(|(key, value)| (key, sorted(value)));
                let mut entries: Vec<_> = entries.collect();
                entries.sort_by(|a, b| a.0.as_str().cmp(&b.0.as_str()));
                Value::Map(entries)
            }
            Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
            other => other,
        }
    }

    fn check(value: &impl Serialize) -> usize {
        let canonical = decode(&canonical(value).unwrap());
        assert_eq!(canonical, sorted(decode(&rmp_serde::to_vec_named(value).unwrap())));
        assert_sorted(&canonical)
    }

    /// P38: the keys of every map are sorted, and nothing else changes.
    #[test]
    fn every_map_is_sorted() {
        assert!(check(&create()) > 10);
        for command in commands() {
            assert!(check(&command) >= 2, "{command:?}");
        }
    }

    /// P38: commands of every kind are among those checked.
    #[test]
    fn every_operation_of_callers_is_checked() {
        let seen: BTreeSet<&str> =
            commands().iter().map(|command| command.operation().as_str()).collect();
        assert_eq!(seen.len(), commands().len());
        assert_eq!(seen.len(), 22);
        for command in commands() {
            // A variant left out of serialisation would be no command of a caller.
            assert!(digest_command(DigestForm::NEWEST, &agent("a"), &command).is_ok());
        }
    }

    #[test]
    fn long_texts_lists_and_maps_are_sorted_too() {
        let long = |n: usize| "k".repeat(n);
        let mut map = tenure_core::record::Object::new();
        for n in [1, 31, 32, 255, 256, 65_535, 65_536] {
            let list: Vec<_> = (0..20).map(|i| serde_json::json!({"b": i, "a": -i})).collect();
            map.insert(long(n), list.into());
        }
        let numbers = [0, 127, 128, 255, 256, 65_535, 65_536, u64::from(u32::MAX) + 1, u64::MAX];
        for number in numbers {
            map.insert(format!("n{number}"), number.into());
        }
        for number in [-1, -32, -33, -129, -40_000, i64::from(i32::MIN) - 1] {
            map.insert(format!("m{number}"), number.into());
        }
        map.insert("f".into(), 0.1.into());
        map.insert("z".into(), (0..70_000).collect::<Vec<_>>().into());
        check(&CreateTask { metadata: Some(map), ..create() });
    }

    /// P38, EVOLVE-04: the digest is that of the bytes which the contract names, in each form.
    #[test]
    fn a_digest_is_the_hash_of_these_bytes() {
        let content =
            b"\xa5input\x81\xa6reason\x82\xa4code\xa1c\xa7message\xa1m\xa9operation\xaapause_task";
        let first = [b"\x83\xa5actor\xa5alice", &content[..]].concat();
        let second = [b"\x82", &content[..]].concat();
        let reason = tenure_core::patch::ReasonInput {
            code: Some("c".into()),
            details: None,
            message: "m".into(),
            retryable: None,
        };
        let command = Command::PauseTask(Why { reason: Some(reason) });
        for (form, bytes) in [(DigestForm::First, first), (DigestForm::Second, second)] {
            let digest = digest_command(form, &agent("alice"), &command).unwrap();
            assert_eq!((digest.form, digest.sha256), (form, Sha256::digest(bytes).into()));
        }
    }

    /// The tag of a patch's operations is sorted among their fields.
    #[test]
    fn an_operation_is_sorted_with_its_tag() {
        let operations = vec![tenure_core::patch::Operation::BlockTask { reason: None }];
        let bytes = canonical(&operations).unwrap();
        assert_eq!(bytes, b"\x91\x81\xa2op\xaablock_task");
        let operations = super::samples::operations();
        let text = canonical(&operations[1]).unwrap();
        let at = |key: &[u8]| text.windows(key.len()).position(|part| part == key).unwrap();
        assert!(at(b"\xa2op") < at(b"\xa6reason") && at(b"\xa6reason") < at(b"\xa4step\x8a"));
    }

    /// IDEM-02: who, what and with what all count; who is in the digest of the first form, and the core adds
    /// it to that of the second.
    #[test]
    fn a_different_command_has_a_different_digest() {
        for form in [DigestForm::First, DigestForm::Second] {
            let of = |actor: &str, command: Command| {
                digest_command(form, &agent(actor), &command).unwrap().asked_by(&agent(actor))
            };
            let first = of("a", Command::PauseTask(why()));
            assert_eq!(first, of("a", Command::PauseTask(why())));
            assert_ne!(first, of("b", Command::PauseTask(why())));
            assert_ne!(first, of("a", Command::ResumeTask(why())));
            assert_ne!(first, of("a", Command::PauseTask(Why { reason: None })));
        }
        let create =
            |actor: &str| digest_create(DigestForm::Second, &agent(actor), &create()).unwrap();
        assert_eq!(create("a"), create("b"), "a create is the same whoever asks for it");
    }
}
