//! VALUE: values that are too large for a log go as blobs, from those who publish them to handlers, and
//! from handlers to whoever reads.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::Code;
use tenure_core::command::{Complete, RetryEnded};
use tenure_core::id::TaskId;
use tenure_core::patch::ReasonInput;
use tenure_core::record::{Blob, RetryPolicy, Value, ValueBody};
use tenure_core::retry_policy::Limit;
use tenure_core::status::{Role, StepStatus, TaskStatus};
use tenure_core::{Command, Context};
use tenure_ports::blobs::{BlobStore as _, every_task};
use tenure_ports::journal::TaskKey;
use tenure_scheduler::{Config, Scheduler};
use tenure_sdk::client::{get_blob, put_blob, write_with_blobs};
use tenure_sdk::worker::StepContext;
use tenure_testkit::{Faulty, MemoryBlobs, MemoryJournal};

use crate::common::{self, Node, POOL, create, dag, envelope, key, session, status, until};

async fn node_with(blobs: &MemoryBlobs) -> Node {
    let mut config = Config::embedded(POOL.parse().unwrap());
    config.blobs = Some(Arc::new(blobs.clone()));
    let journal = Arc::new(Faulty::new(MemoryJournal::default()));
    Scheduler::start(journal, Arc::default(), config).await.unwrap()
}

fn store() -> MemoryBlobs {
    MemoryBlobs::of_quota(1 << 30)
}

fn text(byte: u8, bytes: usize) -> Value {
    Value::inline("text/plain", vec![byte; bytes])
}

fn client(node: &Node) -> impl tenure_ports::ClientPort {
    node.client(Role::Orchestrator, "o".parse().unwrap(), session())
}

fn context() -> Context {
    Context::new(uuid::Uuid::now_v7().to_string().parse().unwrap())
}

/// The reason of a Step's status: its code, and the worker's copy.
async fn reason_of(node: &Node, key: &TaskKey, step: &str) -> (String, Option<String>) {
    let id = common::step_id(step);
    let look = move |task: &common::View<'_>| {
        let reason = task.step(&id).unwrap().state.facts().status_reason.clone().unwrap();
        let copy = reason.details.and_then(|all| Some(all.get("copy")?.as_str()?.to_owned()));
        (reason.code.to_string(), copy)
    };
    node.read(key, look).await.unwrap()
}

/// Completes with 70,000 bytes, once.
async fn large(ctx: StepContext) -> Result<(), tenure_sdk::worker::HandlerError> {
    Ok(ctx.complete(Some(text(b'x', 70_000)))?)
}

fn ended(task: &common::View<'_>) -> bool {
    task.status().is_terminal()
}

/// VALUE-01: a handler completes with more than fits into the log, and the next one gets it; neither knows
/// of blobs. The log names the blob and does not have the bytes.
#[tokio::test(start_paused = true)]
async fn outputs_and_inputs_over_the_limit_come_and_go_by_themselves() {
    let (blobs, seen) = (store(), Arc::new(parking_lot::Mutex::new(Vec::new())));
    let node = node_with(&blobs).await;
    let into = Arc::clone(&seen);
    let _workers = common::workers(&node, 1, move |ctx| {
        let into = Arc::clone(&into);
        async move {
            let length = |value: Option<&Value>| value.and_then(Value::data).map(<[u8]>::len);
            let output = ctx.dependencies().first().and_then(|it| it.output.as_ref());
            into.lock().push((length(ctx.input()), length(output)));
            large(ctx).await
        }
    });
    let mut task = dag("t", "a b<-a");
    task.steps[0].input = Some(text(b'i', 2_000_000));
    let id = task.task_id.clone().unwrap();
    write_with_blobs(&client(&node), &id, context(), task).await.unwrap();
    let key = key("t");
    until(&node, &key, ended).await;
    assert_eq!(status(&node, &key).await, TaskStatus::Completed);
    assert_eq!(*seen.lock(), [(Some(2_000_000), None), (None, Some(70_000))]);
    let commits = node.commits(&key).await.unwrap();
    let events = commits.iter().flat_map(|commit| &commit.events);
    let named: Vec<Blob> = events.flat_map(|event| event.body.blobs()).collect();
    let output = Blob::of(&[b'x'; 70_000]);
    assert_eq!(named, [Blob::of(&vec![b'i'; 2_000_000]), output, output]);
    let read = get_blob(&client(&node), &id, output.hash).await.unwrap();
    assert_eq!(*read, [b'x'; 70_000]);
    assert_eq!(
        blobs.list(None, every_task()).await.unwrap().len(),
        2,
        "the same bytes are the same blob"
    );
}

/// VALUE-01: nothing that names a blob is recorded before the blob is there with its size.
#[tokio::test(start_paused = true)]
async fn what_names_a_blob_that_is_not_there_is_refused() {
    let blobs = store();
    let node = node_with(&blobs).await;
    let key = create(&node, dag("t", "a")).await.unwrap();
    let blob = Blob::of(&[7; 70_000]);
    let patch = |size_bytes| {
        let input = Value::of("text/plain", ValueBody::Blob(Blob { size_bytes, ..blob }));
        let input = serde_json::to_value(input).unwrap();
        let fields = serde_json::json!({"input": input});
        let operation = serde_json::json!({"op": "update_step", "step_id": "a", "fields": fields});
        Command::TaskUpdate { operations: vec![serde_json::from_value(operation).unwrap()] }
    };
    let version = node.read(&key, |task| task.version()).await.unwrap();
    let refused = node.command(&key, envelope(), patch(70_000)).await.unwrap_err();
    assert_eq!(refused.code, Code::BlobMissing);
    put_blob(&client(&node), &key.task_id, &[7; 70_000]).await.unwrap();
    let refused = node.command(&key, envelope(), patch(69_999)).await.unwrap_err();
    assert_eq!(refused.code, Code::BlobMissing, "it has another size");
    let refused = node.command(&key, envelope(), patch((16 << 20) + 1)).await.unwrap_err();
    assert_eq!(refused.code, Code::ValueTooLarge);
    blobs.set_away(true);
    let refused = node.command(&key, envelope(), patch(70_000)).await.unwrap_err();
    assert_eq!((refused.code, refused.code.is_retryable()), (Code::StorageUnavailable, true));
    assert_eq!(node.read(&key, |task| task.version()).await.unwrap(), version);
    blobs.set_away(false);
    node.command(&key, envelope(), patch(70_000)).await.unwrap();
}

/// VALUE-01: without a store of blobs, whatever would need one is refused with that reason, and is not
/// tried for ever.
#[tokio::test(start_paused = true)]
async fn without_a_store_large_values_are_refused_clearly() {
    let node = common::node().await;
    let _workers = common::workers(&node, 1, large);
    let key = create(&node, dag("t", "a")).await.unwrap();
    until(&node, &key, ended).await;
    let (code, copy) = reason_of(&node, &key, "a").await;
    assert_eq!(code, "tool_not_available");
    assert_eq!(std::fs::read(copy.unwrap()).unwrap().len(), 70_000);
    let refused = put_blob(&client(&node), &key.task_id, &[1]).await.unwrap_err();
    assert_eq!(refused.code, Code::ToolNotAvailable);
    assert!(refused.message.contains("stores no blobs"), "{refused}");
}

/// VALUE-02: an output that cannot be put for now waits with its worker, and is recorded when it can.
/// Meanwhile the lease is renewed, however long it takes.
#[tokio::test(start_paused = true)]
async fn an_output_waits_until_it_can_be_put() {
    let blobs = store();
    let node = node_with(&blobs).await;
    blobs.set_away(true);
    let _workers = common::workers(&node, 1, large);
    let key = create(&node, dag("t", "a")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(common::step_status(&node, &key, "a").await, StepStatus::Claimed);
    blobs.set_away(false);
    until(&node, &key, ended).await;
    assert_eq!(status(&node, &key).await, TaskStatus::Completed);
    assert_eq!(node.read(&key, |task| task.attempts().count()).await.unwrap(), 1);
}

/// VALUE-02: when the time of the Step is almost over, it fails as its output could not be stored, and may
/// be retried. The worker keeps a copy.
#[tokio::test(start_paused = true)]
async fn an_output_that_cannot_be_put_in_time_fails_its_step() {
    let blobs = store();
    let node = node_with(&blobs).await;
    blobs.set_away(true);
    let _workers = common::workers(&node, 1, large);
    let policy = RetryPolicy {
        max_attempts: Some(Limit::Of(2)),
        start_to_close_ms: Some(Limit::Of(60_000)),
        ..RetryPolicy::automatic()
    };
    let key = create(&node, common::with_policy(dag("t", "a"), policy)).await.unwrap();
    until(&node, &key, ended).await;
    let (code, copy) = reason_of(&node, &key, "a").await;
    assert_eq!(code, "storage_unavailable");
    assert_eq!(std::fs::read(copy.unwrap()).unwrap(), [b'x'; 70_000]);
    assert_eq!(node.read(&key, |task| task.attempts().count()).await.unwrap(), 2, "it was retried");
}

/// VALUE-02: so it does at the end of the worker's drain.
#[tokio::test(start_paused = true)]
async fn an_output_that_cannot_be_put_before_the_worker_ends_fails_its_step() {
    let blobs = store();
    let node = node_with(&blobs).await;
    blobs.set_away(true);
    let workers = common::workers(&node, 1, large);
    let policy = RetryPolicy { max_attempts: Some(Limit::Of(1)), ..RetryPolicy::automatic() };
    let key = create(&node, common::with_policy(dag("t", "a"), policy)).await.unwrap();
    until(&node, &key, |task| task.open_attempts().count() == 1).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    workers.interrupt().await;
    assert_eq!(reason_of(&node, &key, "a").await.0, "storage_unavailable");
}

/// VALUE-02: more than 16 MiB are no value. The Step fails at once, is not retried, and the worker keeps
/// the bytes.
#[tokio::test(start_paused = true)]
async fn an_output_that_is_too_large_fails_its_step_for_good() {
    let node = node_with(&store()).await;
    let _workers = common::workers(&node, 1, |ctx| async move {
        Ok(ctx.complete(Some(text(b'x', (16 << 20) + 1)))?)
    });
    let key = create(&node, dag("t", "a")).await.unwrap();
    until(&node, &key, ended).await;
    let (code, copy) = reason_of(&node, &key, "a").await;
    assert_eq!(code, "value_too_large");
    let copy = copy.unwrap();
    assert_eq!(std::fs::metadata(&copy).unwrap().len(), (16 << 20) + 1);
    std::fs::remove_file(copy).unwrap();
    assert_eq!(node.read(&key, |task| task.attempts().count()).await.unwrap(), 1);
}

/// VALUE-01: over its session's quota an output fails its Step, and is not tried for ever.
#[tokio::test(start_paused = true)]
async fn an_output_over_the_quota_fails_its_step() {
    let node = node_with(&MemoryBlobs::of_quota(100_000)).await;
    let _workers = common::workers(&node, 1, |ctx| async move {
        let byte = ctx.step_id().as_str().as_bytes()[0];
        Ok(ctx.complete(Some(text(byte, 70_000)))?)
    });
    let key = create(&node, dag("t", "a b<-a")).await.unwrap();
    until(&node, &key, ended).await;
    assert_eq!(common::step_status(&node, &key, "a").await, StepStatus::Completed);
    assert_eq!(reason_of(&node, &key, "b").await.0, "quota_exceeded");
}

/// VALUE-01, RETRY-05: an input that cannot be read fails the Attempt before its handler begins, and is
/// not retried by itself. It waits for a store that does not answer.
#[tokio::test(start_paused = true)]
async fn an_input_that_is_lost_fails_its_step_and_one_that_is_late_does_not() {
    let blobs = store();
    let node = node_with(&blobs).await;
    for (task, is_lost) in [("lost", true), ("late", false)] {
        let mut input = dag(task, "a");
        input.steps[0].input = Some(text(b'i', 70_000));
        let id = input.task_id.clone().unwrap();
        write_with_blobs(&client(&node), &id, context(), input).await.unwrap();
        match is_lost {
            true => blobs.lose_all(),
            false => blobs.set_away(true),
        }
        let _workers = common::workers(&node, 1, |ctx| async move {
            assert!(ctx.input().and_then(Value::data).is_some());
            Ok(ctx.complete(None)?)
        });
        let key = key(task);
        if !is_lost {
            tokio::time::sleep(Duration::from_secs(90)).await;
            assert_eq!(common::step_status(&node, &key, "a").await, StepStatus::Claimed);
            blobs.set_away(false);
        }
        until(&node, &key, ended).await;
        match is_lost {
            true => assert_eq!(reason_of(&node, &key, "a").await.0, "blob_missing"),
            false => assert_eq!(status(&node, &key).await, TaskStatus::Completed),
        }
        assert_eq!(node.read(&key, |task| task.attempts().count()).await.unwrap(), 1);
    }
}

/// VALUE-01, RETRY-12: a blob belongs to one Task, so a Task that is made again gets its own.
#[tokio::test(start_paused = true)]
async fn a_task_that_is_made_again_has_its_own_blobs() {
    let blobs = store();
    let node = node_with(&blobs).await;
    let mut input = dag("old", "a");
    input.steps[0].input = Some(text(b'i', 70_000));
    let id = input.task_id.clone().unwrap();
    write_with_blobs(&client(&node), &id, context(), input).await.unwrap();
    common::cancel(&node, &key("old")).await.unwrap();
    let reason =
        ReasonInput { code: None, details: None, message: "again".into(), retryable: None };
    let new: TaskId = "new".parse().unwrap();
    let (deadline_at, deadline_ms, wal_name) = (None, None, None);
    let how = RetryEnded {
        retry_of: id,
        deadline_at,
        deadline_ms,
        keep_completed: false,
        reason,
        wal_name,
    };
    node.retry(envelope(), new, how).await.unwrap();
    let blob = Blob::of(&[b'i'; 70_000]);
    assert_eq!(blobs.stat(&key("new"), blob.hash).await, Ok(Some(70_000)));
    blobs.delete(&key("old"), blob.hash).await.unwrap();
    let _workers = common::completing(&node, 1);
    until(&node, &key("new"), ended).await;
    assert_eq!(status(&node, &key("new")).await, TaskStatus::Completed);
}

/// VALUE-01: only such blobs are deleted as the log of an ended Task does not name, and such as are of no
/// Task a day after they were put.
#[tokio::test(start_paused = true)]
async fn blobs_that_nobody_needs_are_swept_and_no_others() {
    let blobs = store();
    let node = node_with(&blobs).await;
    let day = 24 * 60 * 60 * 1_000;
    let now = node.now();
    let put = async |task: &str, byte: u8| {
        let bytes: Arc<[u8]> = vec![byte; 70_000].into();
        blobs.put(&key(task), Blob::of(&bytes), Arc::clone(&bytes)).await.unwrap();
    };
    let left = async || {
        let mut all: Vec<(String, u8)> = Vec::new();
        for stored in blobs.list(None, every_task()).await.unwrap() {
            let bytes = blobs.get(&stored.task, stored.blob.hash).await.unwrap().unwrap();
            all.push((stored.task.task_id.to_string(), bytes[0]));
        }
        all.sort();
        all
    };
    blobs.set_now(now - day - 1);
    put("nobody", 1).await;
    put("live", 2).await;
    blobs.set_now(now);
    put("nobody", 3).await;
    let mut live = dag("live", "a");
    live.steps[0].worker_pool_id = Some("elsewhere".parse().unwrap());
    create(&node, live).await.unwrap();
    let _workers = common::workers(&node, 1, large);
    let ended_key = create(&node, dag("ended", "a")).await.unwrap();
    until(&node, &ended_key, ended).await;
    put("ended", 4).await;
    assert_eq!(node.sweep_blobs().await.unwrap(), 2);
    let named = |task: &str, byte| (task.to_owned(), byte);
    let kept = [named("ended", b'x'), named("live", 2), named("nobody", 3)];
    assert_eq!(left().await, kept);
    assert_eq!(node.sweep_blobs().await.unwrap(), 0);
    let complete = Command::TaskComplete(Complete::default());
    assert!(node.command(&ended_key, envelope(), complete).await.is_err(), "it has ended");
    assert_eq!(left().await, kept);
}

/// VALUE-01: a node reads no blobs of Tasks that another node owns when it sweeps, and deletes none of them.
#[tokio::test(start_paused = true)]
async fn a_sweep_reads_no_blobs_of_other_nodes() {
    let blobs = store();
    let node = node_with(&blobs).await;
    blobs.set_now(node.now() - 2 * 24 * 60 * 60 * 1_000);
    for task in ["here", "there"] {
        let bytes: Arc<[u8]> = vec![1; 70_000].into();
        blobs.put(&key(task), Blob::of(&bytes), bytes).await.unwrap();
    }
    node.journal().give_away(&key("there"));
    blobs.take_listed();
    assert_eq!(node.sweep_blobs().await.unwrap(), 1);
    assert_eq!(blobs.take_listed(), 1);
    let left = blobs.list(None, every_task()).await.unwrap();
    assert_eq!(left.into_iter().map(|one| one.task).collect::<Vec<_>>(), [key("there")]);
}
