//! What handlers may say, and what an orchestrator may do: one suite, in one process and in a cluster.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use serde_json::json;
use tenure_core::Code;
use tenure_core::Context;
use tenure_core::command::{Complete, Dispatch, RetryEnded, StepReport};
use tenure_core::id::{CommandId, StepId, TaskId};
use tenure_core::patch::{Operation, ReasonInput};
use tenure_core::record::{Backoff, EdgeReason, Reason, RetryPolicy, Value};
use tenure_core::retry_policy::Limit;
use tenure_core::status::{
    EdgeKind, EndReason, Outcome, ReplyKind, Role, RunState, StepStatus, WaitKind,
};
use tenure_core::task::StepFacts;
use tenure_core::view::{BoardInput, RunEnd, StepView, TaskView, ViewName};
use tenure_ports::ClientPort;
use tenure_sdk::client::{Client, Step, Task};
use tenure_sdk::nats::PoolMember;
use tenure_sdk::worker::{Options, WorkerPool};
use tenure_wire::bus::event::{ReadEvents, TaskEvent};

use crate::common::{Servers, until};
use crate::handlers::{Stage, handlers};
use crate::orders::orders;
use crate::reads::{BOARD_TOKENS, counts, reads, shows};

fn step_of<'v>(view: &'v TaskView, step: &str) -> &'v StepView {
    view.steps.iter().find(|it| it.spec.step_id.as_str() == step).unwrap()
}

pub(crate) async fn step<P: ClientPort>(client: &Client<P>, task: &TaskId, step: &str) -> StepView {
    step_of(&client.get(task).await.unwrap(), step).clone()
}

pub(crate) async fn until_step<P: ClientPort>(
    client: &Client<P>,
    task: &TaskId,
    id: &str,
    status: StepStatus,
) {
    until(async || step(client, task, id).await.status == status).await;
}

/// What was reported of a Step.
pub(crate) fn facts(view: &TaskView, step: &str) -> StepFacts {
    step_of(view, step).facts.as_deref().cloned().unwrap_or_default()
}

/// Once, so that no failure is tried again.
pub(crate) fn once() -> RetryPolicy {
    let backoff = Backoff { initial_ms: 1, factor: 1.0, max_ms: 1, jitter: 0.0 };
    let backoff = Some(backoff.into());
    RetryPolicy { max_attempts: Some(Limit::Of(1)), backoff, ..RetryPolicy::default() }
}

pub(crate) fn id(step: &str) -> StepId {
    step.parse().unwrap()
}

async fn words<P: ClientPort>(client: &Client<P>, stage: &Stage) {
    let all = ["complete", "respond", "direct", "fail", "reject", "panic", "silent", "auth", "ask"];
    let mut task = Task::new("words").id("words").retry(once());
    for name in all.into_iter().chain(["twice", "told"]) {
        let step = Step::new(name).handler(name).optional();
        // A rejection is none to be tried again, whatever the policy says.
        task = task.step(if name == "reject" { step.retry(RetryPolicy::default()) } else { step });
    }
    // It waits for the rest, so that failures do not end the Task.
    task = task.step(Step::new("last").handler("complete").after("told"));
    let task = client.create(task).await.unwrap();

    until(async || {
        let view = client.get(&task).await.unwrap();
        facts(&view, "told").artifact_ids.len() == 2
    })
    .await;
    let view = client.get(&task).await.unwrap();
    assert_eq!(step_of(&view, "told").status, StepStatus::Running);
    assert_eq!(facts(&view, "told").progress.unwrap().percent, Some(50.0));
    for (name, status) in [
        ("complete", StepStatus::Completed),
        ("respond", StepStatus::Completed),
        ("direct", StepStatus::Completed),
        ("twice", StepStatus::Completed),
        ("fail", StepStatus::Failed),
        ("reject", StepStatus::Failed),
        ("panic", StepStatus::Failed),
        ("silent", StepStatus::Failed),
        ("auth", StepStatus::Blocked),
        ("ask", StepStatus::Blocked),
    ] {
        until_step(client, &task, name, status).await;
    }
    let view = client.get(&task).await.unwrap();
    let output = |name| facts(&view, name).output.unwrap().data().unwrap().to_vec();
    assert_eq!(output("complete"), b"42");
    assert_eq!(output("twice"), b"1");
    assert_eq!(stage.seen("words/twice"), ["stale_attempt"; 13]);
    assert_eq!(facts(&view, "respond").reply, Some(ReplyKind::Message));
    assert_eq!(facts(&view, "direct").reply, Some(ReplyKind::Direct));
    let why = |name| facts(&view, name).status_reason.unwrap();
    assert_eq!((why("fail").code.as_str(), why("fail").message.as_str()), ("no_luck", "it rained"));
    assert_eq!((why("reject").code.as_str(), why("reject").retryable), ("rejected", Some(false)));
    assert_eq!(step_of(&view, "reject").attempt_count, 1);
    assert_eq!(why("panic").code, "unhandled_exception");
    assert_eq!(why("silent").code, "worker_finished_without_terminal_step_status");
    assert_eq!(step_of(&view, "auth").wait_kind, Some(WaitKind::Permission));
    assert_eq!(why("auth").details.unwrap()["scope"], "repo");
    assert_eq!(step_of(&view, "ask").wait_kind, Some(WaitKind::Input));
    assert_eq!(why("ask").message, "which colour?");

    let (views, missing) = client.views(&[ViewName::BlockedTasks]).await.unwrap();
    assert!(missing.is_empty());
    let blocked = views.blocked_tasks.unwrap();
    assert_eq!(blocked.len(), 1);
    let waits: Vec<&str> = blocked[0].blockers.iter().map(|one| one.step_id.as_str()).collect();
    assert!(waits.contains(&"ask") && waits.contains(&"auth"), "{waits:?}");

    client.answer(&task, id("ask"), "blue, über alles").await.unwrap();
    until_step(client, &task, "ask", StepStatus::Completed).await;
    let answered = facts(&client.get(&task).await.unwrap(), "ask").output.unwrap();
    assert_eq!(answered.data(), Some("\"blue, über alles\"".as_bytes()));
    let again = client.answer(&task, id("ask"), "red").await.unwrap_err();
    assert_eq!(again.code, Code::InvalidTransition, "it has its answer");

    let blocked = client.cancel_step(&task, id("auth"), "never").await.unwrap_err();
    assert_eq!(blocked.code, Code::InvalidTransition);
    let (reason, step_id, input_refs) = (None, id("auth"), Vec::new());
    let reopen = Operation::ReopenStep { reason: None, step_id: step_id.clone(), input_refs };
    client.update(&task, vec![reopen, Operation::CancelStep { reason, step_id }]).await.unwrap();
    stage.go.notify_one();
    assert_eq!(client.wait_for_end(&task).await.unwrap().status.as_str(), "completed");
}

/// CTX-09: a handler that stops by itself ends as it says; one that does not is ended at the wait limit.
async fn stops<P: ClientPort>(client: &Client<P>, stage: &Stage) {
    let steps = ["until_told", "deaf"].map(|name| Step::new(name).handler(name));
    let task = client.create(Task::new("stops").id("stops").steps(steps)).await.unwrap();
    for name in ["until_told", "deaf"] {
        until(async || step(client, &task, name).await.holder.is_some()).await;
    }
    client.cancel(&task, "enough").await.unwrap();
    let ended = client.wait_for_end(&task).await.unwrap();
    assert_eq!(ended.status.as_str(), "cancelled");
    assert_eq!(stage.seen("stops/until_told"), ["false", "true"]);
    let view = client.get(&task).await.unwrap();
    let of = |name| {
        let attempt = view.attempts.iter().find(|one| one.step_id == id(name)).unwrap();
        let why = facts(&view, name).status_reason.unwrap().code;
        (step_of(&view, name).status, why.to_string(), attempt.outcome.unwrap())
    };
    assert_eq!(of("until_told"), (StepStatus::Failed, "stopped".into(), Outcome::Failed));
    assert_eq!(of("deaf"), (StepStatus::Cancelled, "task_cancelled".into(), Outcome::Cancelled));
    client.archive(&task).await.unwrap();
}

/// An orchestrator that gives out Steps one by one, and changes what is left. POL-01: as an agent, which
/// says nothing of policies, and nothing runs by itself.
async fn steers<P: ClientPort>(client: &Client<P>) {
    let task = Task::new("steers").id("steers").by_agent();
    let steps = ["a", "b"].map(|name| Step::new(name).handler("complete"));
    let task = client.create(task.steps(steps)).await.unwrap();
    let dispatch = |steps: &[&str], wait| Dispatch {
        allowed_step_ids: Some(steps.iter().map(|step| id(step)).collect()),
        bindings: None,
        instructions: Some("with care".into()),
        on_behalf: None,
        ttl_ms: None,
        wait: Some(wait),
        worker_pool_id: "default".parse().unwrap(),
    };
    let done = client.dispatch(&task, dispatch(&["a"], true)).await.unwrap();
    assert!(done.run_id.is_some());
    let (end_reason, no_step_claimed) = (EndReason::Completed, false);
    assert_eq!(done.run_end, Some(RunEnd { end_reason, no_step_claimed, result: None }));
    let view = client.get(&task).await.unwrap();
    assert_eq!(step_of(&view, "a").status, StepStatus::Completed);
    assert_eq!(step_of(&view, "b").status, StepStatus::Ready, "out of the scope");

    client.pause(&task, "lunch").await.unwrap();
    let refused = client.dispatch(&task, dispatch(&["b"], false)).await.unwrap_err();
    assert_eq!(refused.code, Code::TaskNotDispatchable);
    client.resume(&task, "").await.unwrap();
    client.block(&task, "which branch?").await.unwrap();
    client.reopen(&task, "main").await.unwrap();

    let patch: Vec<Operation> = serde_json::from_value(json!([
        {"op": "update_step", "step_id": "b", "fields": {"required": false}},
        {"op": "cancel_step", "step_id": "b"},
        {"op": "add_step", "step": {"step_id": "c", "title": "c", "summary": "", "handler": "reporting",
         "depends_on_step_ids": ["a"]}},
    ]))
    .unwrap();
    client.update(&task, patch).await.unwrap();
    let nowhere = client.dispatch(&task, dispatch(&["nothing"], false)).await.unwrap_err();
    assert_eq!(nowhere.code, Code::StepNotFound);
    let idle = client.dispatch(&task, dispatch(&["a"], true)).await.unwrap();
    assert!(idle.run_end.unwrap().no_step_claimed, "a success");
    let idle = idle.run_id.unwrap();
    let view = client.get(&task).await.unwrap();
    let idle = view.runs.iter().find(|run| run.run_id == idle).unwrap();
    assert_eq!((idle.state, idle.end_reason), (RunState::Ended, Some(EndReason::NoStepClaimed)));

    let board = client.board(std::slice::from_ref(&task), BoardInput::default()).await.unwrap();
    assert!(board.text.contains("ready: c (c)"), "{}", board.text);
    assert!(Client::<P>::template().text.contains("agent.task_create"));

    let early = client.complete(&task, Complete::default()).await.unwrap_err();
    assert_eq!(early.code, Code::RequiredStepsIncomplete);
    let done = client.dispatch(&task, dispatch(&["c"], true)).await.unwrap();
    assert_eq!(done.run_end.unwrap().result.as_deref(), Some("it took two tries"));
    let result = Complete { result_summary: Some("done".into()), ..Complete::default() };
    client.complete(&task, result).await.unwrap();
    assert_eq!(client.wait_for_end(&task).await.unwrap().status.as_str(), "completed");
    let late = client.pause(&task, "").await.unwrap_err();
    assert_eq!(late.code, Code::TaskTerminal);
}

/// Public events: those that were read at once, those that came while somebody looked on, and those
/// behind an event are the same.
async fn follows<P: ClientPort>(client: &Client<P>) {
    let steps = ["a", "b"].map(|name| Step::new(name).handler("complete"));
    let task = Task::new("follows").id("follows").with(|input| input.draft = Some(true));
    let task = client.create(task.steps(steps)).await.unwrap();
    let mut live = client.port().published(&task).await.unwrap();
    let known = client.ask(&task, ReadEvents { after: 0 }).await.unwrap();
    let following = client.events(&task, 0).map(Result::unwrap).collect::<Vec<_>>();
    let following = tokio::spawn(following);
    client.submit(&task).await.unwrap();
    let told = tokio::time::timeout(Duration::from_secs(4), live.next()).await;
    assert_eq!(told.expect("as it happens").unwrap().after, known.through);
    client.wait_for_end(&task).await.unwrap();
    let all = following.await.unwrap();

    let read: Vec<TaskEvent> = client.events(&task, 0).map(Result::unwrap).collect().await;
    assert_eq!(all, read);
    let behind: Vec<TaskEvent> = client.events(&task, 3).map(Result::unwrap).collect().await;
    assert_eq!(behind[..], read[read.iter().position(|it| it.wal_seq > 3).unwrap()..]);
    assert!(read.is_sorted_by_key(|event| event.wal_seq));
    let ids: BTreeSet<_> = read.iter().map(|event| &event.event_id).collect();
    assert_eq!(ids.len(), read.len());
    let count = |name: &str| read.iter().filter(|event| event.event.as_str() == name).count();
    assert_eq!((count("task.created"), count("task.started")), (1, 1));
    assert_eq!((count("task.attempt.started"), count("task.attempt.completed")), (2, 2));
    assert_eq!(read.iter().filter(|event| event.terminal).count(), 1);
    let last = read.last().unwrap();
    assert_eq!((last.event.as_str(), last.native_status.as_str()), ("task.completed", "completed"));
    let behind_all = client.ask(&task, ReadEvents { after: last.wal_seq }).await.unwrap();
    assert_eq!((behind_all.events, behind_all.through), (vec![], last.wal_seq));
}

/// A Task that has ended is made again, wherever the old one and the new one are kept.
async fn repeats<P: ClientPort>(client: &Client<P>) {
    let old = TaskId::new("stops").unwrap();
    let before = client.get(&old).await.unwrap();
    for name in ["again-1", "again-2", "again-3"] {
        let new = TaskId::new(name).unwrap();
        let context = Context::new(CommandId::new(format!("make {name}")).unwrap());
        let why: ReasonInput =
            serde_json::from_value(json!({"code": "flaky", "message": "once more"})).unwrap();
        for _ in 0..2 {
            // IDEM-01: once.
            let (context, reason, retry_of) = (context.clone(), why.clone(), old.clone());
            let (deadline_at, deadline_ms, wal_name) = (None, None, None);
            let keep_completed = false;
            let how =
                RetryEnded { deadline_at, deadline_ms, keep_completed, reason, retry_of, wal_name };
            client.retry_ended_as(new.clone(), context, how).await.unwrap();
        }
        client.cancel(&new, "enough").await.unwrap();
        client.wait_for_end(&new).await.unwrap();
        let view = client.get(&new).await.unwrap();
        assert_eq!(view.steps.len(), before.steps.len());
        assert_eq!(view.retry_of.as_ref(), Some(&old));
        let edge = view.relationships.iter().find(|edge| edge.kind == EdgeKind::RetryOf).unwrap();
        let whole = Reason::new("flaky", "once more");
        assert_eq!(edge.reason, Some(EdgeReason::Whole(whole.into())));
    }
    assert_eq!(client.get(&old).await.unwrap(), before);
    let live = Task::new("live").id("live").with(|input| input.draft = Some(true));
    let live = client.create(live.step(Step::new("a").handler("complete"))).await.unwrap();
    let code = async |old: &TaskId, new: &str| {
        client.retry_ended(old, TaskId::new(new).unwrap(), "why").await.unwrap_err().code
    };
    assert_eq!(code(&live, "too-early").await, Code::InvalidTransition);
    assert_eq!(code(&old, "live").await, Code::TaskIdConflict);
    assert_eq!(code(&TaskId::new("nothing").unwrap(), "new").await, Code::TaskNotFound);
    let early = client.get(&TaskId::new("too-early").unwrap()).await.unwrap_err();
    assert_eq!(early.code, Code::TaskNotFound);
    client.cancel(&live, "enough").await.unwrap();
}

/// IDEM-03: a create without an id is known again by its key.
async fn keys<P: ClientPort>(client: &Client<P>) {
    let keyed = |title| {
        let task = Task::new(title).idempotency_key("nightly 7").draft();
        task.step(Step::new("a").handler("complete"))
    };
    let task = client.create(keyed("nightly")).await.unwrap();
    assert_eq!(task.as_str(), "e4be76e9-80a4-57fc-b7c9-3b93a700c1f1");
    let made = client.get(&task).await.unwrap();
    assert_eq!(client.create(keyed("nightly")).await.unwrap(), task);
    assert_eq!(client.get(&task).await.unwrap(), made, "nothing was written");
    let other = client.create(keyed("weekly")).await.unwrap_err();
    assert_eq!(other.code, Code::IdempotencyConflict);
    client.cancel(&task, "enough").await.unwrap();
    client.wait_for_end(&task).await.unwrap();
    assert_eq!(client.create(keyed("nightly")).await.unwrap(), task, "though it has ended");
}

/// S22: Steps are settled while workers hold them, and one of them is given out again.
async fn settles<P: ClientPort>(client: &Client<P>) {
    let steps = ["a", "b", "c"].map(|name| Step::new(name).handler("until_told").optional());
    let board = Step::new("board").handler("board");
    let last = Step::new("last").handler("complete").after("a"); // So that the Task goes on.
    let task = Task::new("settles").id("settles").steps(steps).step(board).step(last);
    let task = client.create(task).await.unwrap();
    until_step(client, &task, "board", StepStatus::Completed).await;
    let text = facts(&client.get(&task).await.unwrap(), "board").output.unwrap();
    let text = String::from_utf8(text.data().unwrap().to_vec()).unwrap();
    assert!(text.contains("yours: board") && !text.contains("lost"), "{text}");

    for name in ["a", "b", "c"] {
        until(async || step(client, &task, name).await.holder.is_some()).await;
    }
    let mut block = StepReport::on(id("b"));
    (block.status, block.wait_kind) = (Some(StepStatus::Blocked), Some(WaitKind::Resource));
    client.report(&task, block).await.unwrap();
    let mut complete = StepReport::on(id("c"));
    complete.status = Some(StepStatus::Completed);
    complete.output = Some(Value::json(&b"7"[..]));
    client.report(&task, complete).await.unwrap();
    let view = client.get(&task).await.unwrap();
    let of = |name| (step_of(&view, name).status, step_of(&view, name).holder.is_none());
    assert_eq!([of("b"), of("c")], [(StepStatus::Blocked, true), (StepStatus::Completed, true)]);
    let first = step(client, &task, "a").await.holder.unwrap().current_attempt_id;
    let mut block = StepReport::on(id("a"));
    block.status = Some(StepStatus::Blocked);
    client.report(&task, block).await.unwrap();
    client.reopen_step(&task, id("a"), "it hung").await.unwrap();
    until(async || step(client, &task, "a").await.holder.is_some()).await;
    let again = step(client, &task, "a").await.holder.unwrap().current_attempt_id;
    assert_ne!(again, first, "it was given out again");
    client.cancel(&task, "enough").await.unwrap();
    client.wait_for_end(&task).await.unwrap();
}

/// Room for all, and little patience with handlers that do not stop.
fn options() -> Options {
    let mut options = Options::new(NonZeroUsize::new(16).unwrap());
    options.grace = Duration::from_millis(300);
    options
}

async fn suite<P: ClientPort>(client: Client<P>, observer: Client<P>, stage: Stage) {
    tokio::time::timeout(Duration::from_secs(120), async {
        words(&client, &stage).await;
        stops(&client, &stage).await;
        repeats(&client).await;
        keys(&client).await;
        steers(&client).await;
        follows(&client).await;
        settles(&client).await;
        counts(&client).await;
        shows(&client).await;
        reads(&client, &observer).await;
        orders(&client).await;
    })
    .await
    .expect("in time");
}

/// ATT-09, CTX-01 to CTX-10, CTX-12, CTRL-01, CTRL-08, DISP-12, DISP-13, EVENT-01 to EVENT-06, IDEM-03, LIST-01
/// to LIST-09, POL-01, PROG-05, PROMPT-03, REL-03, RETRY-11, RETRY-12, RUN-05, VIEW-01 to VIEW-06, VIEW-12:
/// in one process.
#[tokio::test(flavor = "multi_thread")]
async fn handlers_and_orchestrators_say_everything_in_one_process() {
    let mut config = tenure_scheduler::Config::embedded("default".parse().unwrap());
    config.limits.board_tokens = BOARD_TOKENS;
    let journal = Arc::new(tenure_testkit::MemoryJournal::default());
    let leases = Arc::new(tenure_local::MemoryLeases::default());
    let node = tenure_scheduler::Scheduler::start(journal, leases, config).await.unwrap();
    let stage = Stage::default();
    let pool = "default".parse().unwrap();
    let (link, deliveries) = node.join("ant".parse().unwrap(), pool, None).unwrap();
    let options = options();
    let _workers = WorkerPool::start(link, deliveries, handlers(&stage), options);
    let client = |role, name: &str| {
        Client::new(node.client(role, name.parse().unwrap(), "s1".parse().unwrap()))
    };
    suite(client(Role::Orchestrator, "boss"), client(Role::Observer, "eve"), stage).await;
}

/// ATT-09, CTX-01 to CTX-10, CTX-12, CTRL-01, CTRL-08, DISP-12, DISP-13, EVENT-01 to EVENT-06, IDEM-03, LIST-01
/// to LIST-09, POL-01, PROG-05, PROMPT-03, REL-03, RETRY-11, RETRY-12, RUN-05, VIEW-01 to VIEW-06, VIEW-12:
/// over NATS, with the same answers.
#[tokio::test(flavor = "multi_thread")]
async fn handlers_and_orchestrators_say_everything_over_nats() {
    let servers = Servers::start();
    let mut settings = servers.settings("n1");
    settings.scheduler.limits.board_tokens = BOARD_TOKENS;
    let _node = servers.node_of(settings).await;
    let stage = Stage::default();
    let (url, member) =
        (servers.url(), PoolMember { pool: "default", name: "ant", build: Some("ant-2") });
    let pool = WorkerPool::connect(url.clone(), member, handlers(&stage), options()).await.unwrap();
    let orchestrator = Client::connect(url.clone(), "s1", "boss").await.unwrap();
    suite(orchestrator, Client::observe(url, "s1", "eve").await.unwrap(), stage).await;
    pool.leave().await.unwrap();
}
