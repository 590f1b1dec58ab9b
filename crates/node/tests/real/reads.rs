//! What is read beside how a Task stands: one suite, in one process and in a cluster, for
//! orchestrators and observers.

use std::cmp::Reverse;

use serde_json::json;
use tenure_core::Context;
use tenure_core::command::{AppendProgress, Complete};
use tenure_core::eligibility::Obstacle;
use tenure_core::id::TaskId;
use tenure_core::patch::Operation;
use tenure_core::record::RetryPolicy;
use tenure_core::retry_policy::Limit;
use tenure_core::status::{
    DeliveryState, EdgeKind, Outcome, Policy, StepStatus, TaskStatus, Visibility,
};
use tenure_core::view::snapshot::GraphEdge;
use tenure_core::view::write::TaskHeader;
use tenure_core::view::{
    BoardInput, InspectInput, ListInput, Normal, QueryInput, TaskPage, TaskSummary, ViewName,
    ViewsInput,
};
use tenure_core::{Code, Command};
use tenure_ports::ClientPort;
use tenure_sdk::client::{Client, Step, Task};
use tenure_wire::bus::answer_bytes;

use crate::verbs::{facts, id, once, until_step};

/// What nodes of the suite are configured with: more than if nothing were set.
pub(crate) const BOARD_TOKENS: usize = 5_000;

pub(crate) async fn reads<P: ClientPort>(client: &Client<P>, observer: &Client<P>) {
    lists(client).await;
    let task = explains(client).await;
    tells_what_was(client, &task).await;
    board_keeps_to_what_is_configured(client, &task).await;

    assert_eq!(
        observer.tasks(ListInput::default()).await,
        client.tasks(ListInput::default()).await
    );
    assert_eq!(observer.explain(&task, id("b")).await, client.explain(&task, id("b")).await);
    assert_eq!(observer.inspect(&task, 1..=3).await, client.inspect(&task, 1..=3).await);
    assert_eq!(observer.replay(&task, 3).await, client.replay(&task, 3).await);
    let board = observer.board(std::slice::from_ref(&task), BoardInput::default()).await;
    assert_eq!(board.unwrap_err().code, Code::ToolNotAvailable);
    keeps_to_budgets(client).await;
}

/// CTRL-06: what fits the caller's budget is whole; what is longer gives up what can be read elsewhere.
async fn keeps_to_budgets<P: ClientPort>(client: &Client<P>) {
    let steps = ["a", "b", "c"].map(|name| Step::new(name).handler("complete"));
    let task = client.create(Task::new("budget").id("budget").draft().steps(steps)).await.unwrap();
    let add: Operation = serde_json::from_value(json!({"op": "add_step", "step":
        {"step_id": "d", "title": "d", "summary": "", "depends_on_step_ids": []}}))
    .unwrap();
    let context = Context::new("budget-1".parse().unwrap());
    let write = async |client: Client<P>| {
        let command = Command::TaskUpdate { operations: vec![add.clone()] };
        client.command_as(&task, context.clone(), command).await.unwrap()
    };
    write(client.clone()).await;
    let full = write(client.clone()).await; // As it is answered from now on (IDEM-01).
    let size = answer_bytes(&full);
    assert_eq!(write(client.within(size)).await, full);
    let short = write(client.within(size - 1)).await;
    assert!(answer_bytes(&short) < size && short.steps.is_empty(), "{short:?}");
    let least = write(client.within(1)).await;
    assert!(matches!(least.task, TaskHeader::Reference(_)), "{least:?}");
    assert_eq!((least.version, least.event_ids), (full.version, full.event_ids));

    let full = client.get(&task).await.unwrap();
    let size = answer_bytes(&full);
    assert_eq!(client.within(size).get(&task).await.unwrap(), full);
    let short = client.within(size - 1).get(&task).await.unwrap();
    assert_eq!((short.steps.len(), &short.task), (0, &full.task));
    let at = short.left_out.unwrap();
    assert_eq!((at.operation.as_str(), at.version), ("agent.task_get", full.task.version));
    let was = client.replay(&task, 1).await.unwrap();
    assert!(was.task.version < full.task.version);
    let short = client.within(1).replay(&task, 1).await.unwrap();
    let at = short.left_out.unwrap();
    assert_eq!((short.steps.len(), at.operation.as_str()), (0, "replay_task"));
    assert_eq!(client.replay(&at.task_id, at.version).await.unwrap(), was);

    let page = client.steps(&task, QueryInput::default()).await.unwrap();
    let size = answer_bytes(&page);
    assert_eq!(client.within(size).steps(&task, QueryInput::default()).await.unwrap(), page);
    let half = client.within(size - 1).steps(&task, QueryInput::default()).await.unwrap();
    assert_eq!((&half.steps[..], half.next_offset), (&page.steps[..2], Some(2)));

    let history = client.inspect(&task, 0..=u64::MAX).await.unwrap();
    assert_eq!(history.timeline.len(), 2);
    let size = answer_bytes(&history);
    let part = client.within(size - 1).port().ask(&task, InspectInput::default()).await.unwrap();
    assert_eq!((&part.timeline[..], part.next_seq), (&history.timeline[..1], Some(2)));
    let listed = client.within(1).tasks(ListInput::default()).await.unwrap();
    assert_eq!((listed.tasks.len(), listed.next_offset, listed.truncated), (1, Some(1), true));
    client.cancel(&task, "enough").await.unwrap();
}

fn names(page: &TaskPage) -> Vec<&str> {
    page.tasks.iter().map(|task| task.task_id.as_str()).collect()
}

/// LIST-01 to LIST-07, LIST-09, VIEW-08, VIEW-10
async fn lists<P: ClientPort>(client: &Client<P>) {
    for name in ["read-0", "read-1", "read-2", "read-3", "read-4"] {
        let task = Task::new(name).id(name).draft().step(Step::new("a").handler("complete"));
        let is_for_users = name == "read-2";
        let task =
            task.with(|input| input.visibility = is_for_users.then_some(Visibility::Foreground));
        client.create(task).await.unwrap();
    }
    let all = ListInput::default;
    let live = client.tasks(all()).await.unwrap();
    assert_eq!(names(&live), ["read-0", "read-1", "read-2", "read-3", "read-4"]);
    assert_eq!((live.next_offset, live.truncated), (None, false));
    let draft = (Normal::Draft, TaskStatus::Draft);
    assert!(live.tasks.iter().all(|task| (task.status, task.native_status) == draft));
    let second = ListInput { limit: Some(2), offset: 2, ..all() };
    let second = client.tasks(second).await.unwrap();
    assert_eq!((names(&second), second.next_offset), (vec!["read-2", "read-3"], Some(4)));
    let shown = client.tasks(ListInput { user_facing: true, ..all() }).await.unwrap();
    assert_eq!(names(&shown), ["read-2"]);
    let paused = ListInput { statuses: Some(vec![TaskStatus::Paused]), ..all() };
    assert_eq!(names(&client.tasks(paused).await.unwrap()), [""; 0]);
    let none = client.tasks(ListInput { limit: Some(0), ..all() }).await.unwrap_err();
    assert_eq!(none.code, Code::ValidationError);

    for name in ["read-0", "read-1"] {
        let task = TaskId::new(name).unwrap();
        client.cancel(&task, "enough").await.unwrap();
        client.wait_for_end(&task).await.unwrap();
    }
    let ended = ListInput { include_terminal: true, limit: Some(500), ..all() };
    let whole = client.tasks(ended.clone()).await.unwrap();
    assert_eq!(names(&whole)[..3], ["read-2", "read-3", "read-4"], "live ones first");
    let newest = |at: usize| (Reverse(whole.tasks[at].updated_at), &whole.tasks[at].task_id);
    assert!((3..whole.tasks.len()).is_sorted_by_key(newest), "{:?}", names(&whole));
    assert!(names(&whole).contains(&"words") && !names(&whole).contains(&"stops"), "archived");
    let archived = ListInput { include_archived: true, ..ended.clone() };
    assert!(names(&client.tasks(archived).await.unwrap()).contains(&"stops"));
    let failed = ListInput { statuses: Some(vec![TaskStatus::Failed]), ..ended.clone() };
    let mut failed = client.tasks(failed).await.unwrap().tasks;
    failed.sort_by(|a, b| a.task_id.cmp(&b.task_id));
    let of: Vec<_> = failed.iter().map(|it| (it.task_id.as_str(), it.status)).collect();
    let expected = [("failed", Normal::Failed), ("late", Normal::TimedOut), ("lost", Normal::Lost)];
    assert_eq!(of, expected);

    let (mut found, mut offset) = (Vec::new(), Some(0));
    while let Some(from) = offset {
        let page = ListInput { offset: from, limit: Some(4), ..ended.clone() };
        let page = client.tasks(page).await.unwrap();
        found.extend(page.tasks);
        offset = page.next_offset;
    }
    assert_eq!(found, whole.tasks, "page by page");
}

/// Why Steps do not run: one waits for another, one for a worker.
async fn explains<P: ClientPort>(client: &Client<P>) -> TaskId {
    let task = Task::new("why").id("why");
    let task = task.step(Step::new("a").handler("ask")).step(Step::new("b").after("a"));
    let task = client.create(task.step(Step::new("c").pool("nowhere"))).await.unwrap();
    until_step(client, &task, "a", StepStatus::Blocked).await;
    let why = client.explain(&task, id("b")).await.unwrap();
    assert_eq!((why.status, why.headline), (StepStatus::Pending, Obstacle::DependencyPending));
    let remedy = &why.reasons[0].remedies[0];
    assert_eq!((remedy.operation.as_str(), &remedy.step_id), ("reopen_step", &Some(id("a"))));
    let why = client.explain(&task, id("c")).await.unwrap();
    assert_eq!(why.headline, Obstacle::NoWorkerInPool);
    let refused = client.explain(&task, id("nothing")).await.unwrap_err();
    assert_eq!(refused.code, Code::StepNotFound);
    task
}

/// VIEW-12, STEP-28: the history of a Task, all of it or a part, and the Task as it was.
async fn tells_what_was<P: ClientPort>(client: &Client<P>, task: &TaskId) {
    let now = client.get(task).await.unwrap();
    let history = client.inspect(task, 0..=u64::MAX).await.unwrap();
    let seqs: Vec<u64> = history.timeline.iter().map(|event| event.wal_seq).collect();
    assert_eq!(seqs, (1..=now.task.version).collect::<Vec<_>>());
    assert_eq!((history.timeline[0].event_type.as_str(), history.next_seq), ("task_created", None));
    assert!(history.timeline[0].payload["task"]["steps"].is_array());
    let asked = history.steps.iter().find(|step| step.step_id == id("a")).unwrap();
    assert_eq!(asked.dispatched.len(), 1);
    let part = client.inspect(task, 2..=3).await.unwrap();
    assert_eq!(part.timeline[..], history.timeline[1..3]);

    let made = client.replay(task, 1).await.unwrap();
    assert!(made.attempts.is_empty() && made.task.version < now.task.version);
    let last = client.replay(task, u64::MAX).await.unwrap();
    assert_eq!((last.steps, last.task.counts), (now.steps, now.task.counts));
    let nothing = client.replay(task, 0).await.unwrap_err();
    assert_eq!(nothing.code, Code::ValidationError);
    let nobody = TaskId::new("nothing").unwrap();
    let refused = [
        client.inspect(&nobody, 0..=u64::MAX).await.unwrap_err().code,
        client.replay(&nobody, 1).await.unwrap_err().code,
    ];
    assert_eq!(refused, [Code::TaskNotFound; 2]);

    client.cancel(task, "enough").await.unwrap();
    client.wait_for_end(task).await.unwrap();
    let ended = client.inspect(task, 0..=u64::MAX).await.unwrap();
    assert_eq!(ended.timeline[..seqs.len()], history.timeline[..]);
    assert_eq!(ended.timeline.last().unwrap().event_type, "task_cancelled");
}

/// PROMPT-03: the budget is that of the nodes, also where it is above the usual one.
async fn board_keeps_to_what_is_configured<P: ClientPort>(client: &Client<P>, task: &TaskId) {
    let within = |tokens| BoardInput { token_budget: Some(tokens) };
    let lines = client.port().ask(task, BoardInput::default()).await.unwrap();
    assert_eq!(lines.token_budget, Some(BOARD_TOKENS));
    let tasks = std::slice::from_ref(task);
    assert!(client.board(tasks, within(BOARD_TOKENS)).await.is_ok());
    let refused = client.board(tasks, within(BOARD_TOKENS + 1)).await.unwrap_err();
    assert_eq!(
        (refused.code, &refused.details["field"]),
        (Code::ValidationError, &"token_budget".into())
    );
}

/// VIEW-01: the Tasks of all parts of the suite, as they have ended.
pub(crate) async fn counts<P: ClientPort>(client: &Client<P>) {
    let task = |name| Task::new(name).id(name).step(Step::new("a").handler("ask"));
    let waits = client.create(task("waits")).await.unwrap();
    until_step(client, &waits, "a", StepStatus::Blocked).await;
    for (name, code) in [("lost", "lost"), ("late", "timed_out"), ("failed", "no_luck")] {
        let failed = client.create(task(name)).await.unwrap();
        let close = json!({"operation": "task_fail", "input": {"reason": {"code": code}}});
        client.command(&failed, serde_json::from_value(close).unwrap()).await.unwrap();
        client.wait_for_end(&failed).await.unwrap();
    }
    let (views, missing) = client.views(&[]).await.unwrap();
    assert!(missing.is_empty());
    let totals = views.task_summary.unwrap();
    let counts = [totals.active, totals.waiting, totals.terminal, totals.failed, totals.lost];
    assert_eq!((counts, totals.unknown), ([1, 1, 13, 3, 1], 0));
    // Newest first; Tasks that ended in the same millisecond by their ids.
    let order = |it: &TaskSummary| (Reverse(it.updated_at), it.task_id.clone());
    assert!(totals.recent_terminal.is_sorted_by_key(order), "{:?}", totals.recent_terminal);
    let place = |name| totals.recent_terminal.iter().position(|it| it.task_id.as_str() == name);
    assert!(place("failed").unwrap() < place("words").unwrap(), "{:?}", totals.recent_terminal);
    assert_eq!(totals.recent_terminal.len(), 13);
    let of = |name: &str| {
        let found = totals.recent_terminal.iter().find(|it| it.task_id.as_str() == name);
        found.unwrap().status.as_str()
    };
    assert_eq!(["lost", "late", "failed"].map(of), ["lost", "timed_out", "failed"]);
    assert_eq!(["words", "stops", "live"].map(of), ["completed", "archived", "cancelled"]);
    assert_eq!(views.tasks.unwrap().len(), 14, "the live one, and the newest ended ones");
    let live = ViewsInput {
        views: vec![ViewName::Tasks],
        statuses: Some(vec![TaskStatus::Running]),
        user_facing: false,
    };
    let (views, _) = client.views_of(live).await.unwrap();
    let live: Vec<TaskId> = views.tasks.unwrap().into_iter().map(|it| it.task_id).collect();
    assert_eq!((live.as_slice(), views.task_summary), (std::slice::from_ref(&waits), None));
    client.cancel(&waits, "enough").await.unwrap();
    client.wait_for_end(&waits).await.unwrap();
}

/// VIEW-02, VIEW-03, VIEW-04, VIEW-06, VIEW-10: a Task, its child, and what came of them, while they run
/// and when they have ended.
pub(crate) async fn shows<P: ClientPort>(client: &Client<P>) {
    let mother = Task::new("mother").id("mother").draft().step(Step::new("a").handler("complete"));
    let mother = client.create(mother).await.unwrap();
    let child = Task::new("child").id("child").parent(&mother).with(|input| {
        input.owner = Some("ann".parse().unwrap());
        input.visibility = Some(Visibility::Foreground);
        input.scope = serde_json::from_value(json!({"project": "p"})).unwrap();
        input.completion = Some(Policy::Manual);
    });
    let twice = RetryPolicy { max_attempts: Some(Limit::Of(2)), ..once() };
    let keeps = Step::new("a").handler("keeps").retry(twice);
    let child = client.create(child.step(keeps)).await.unwrap();
    until_step(client, &child, "a", StepStatus::Completed).await;
    let seen = async |user_facing| {
        let asked = ViewsInput { user_facing, ..ViewsInput::default() };
        let (views, missing) = client.views_of(asked).await.unwrap();
        assert!(missing.is_empty());
        views
    };
    for (status, delivery) in [
        (TaskStatus::Running, DeliveryState::Pending),
        (TaskStatus::Completed, DeliveryState::Pending),
        (TaskStatus::Completed, DeliveryState::Delivered),
    ] {
        let views = seen(true).await;
        let tasks = views.tasks.unwrap();
        let record = tasks.iter().find(|it| it.task_id == child).unwrap();
        assert_eq!(
            (record.native_status, record.owner.as_ref().map(|it| it.as_str())),
            (status, Some("ann"))
        );
        assert_eq!(
            (&record.scope.as_ref().unwrap()["project"], record.current_run_id),
            (&json!("p"), None)
        );
        assert_eq!(record.progress.counters["steps"].done, 1);
        assert_eq!(record.relationships[0].kind, EdgeKind::Parent);
        assert!(tasks.iter().all(|it| it.task_id != mother), "it is internal");
        let recent = views.attempts.unwrap().recent;
        let tries: Vec<_> = recent.iter().filter(|it| it.task_id == child).collect();
        let [last, first] = tries[..] else { panic!("{tries:?}") };
        assert_eq!(
            (first.outcome, last.outcome),
            (Some(Outcome::Failed), Some(Outcome::Completed))
        );
        assert_eq!(first.output_refs[0].as_str(), "mem:out");
        assert_eq!(first.checkpoint_refs[0].as_str(), "mem:half");
        assert_eq!(last.input_refs.iter().map(|it| it.as_str()).collect::<Vec<_>>(), ["mem:half"]);
        let output = facts(&client.get(&child).await.unwrap(), "a").output.unwrap();
        assert_eq!(output.data(), Some(&b"[\"mem:half\"]"[..]), "ATT-09");
        assert_eq!(views.delivery_state.unwrap()[&child], delivery);

        let graph = seen(false).await.task_graph.unwrap();
        let joins = |kind, from: &TaskId, to: &TaskId| {
            let is_it = |it: &GraphEdge| {
                let ends = (it.edge.from.as_str(), it.edge.to.as_str());
                it.edge.kind == kind && ends == (from.as_str(), to.as_str())
            };
            graph.iter().filter(|it| is_it(it)).count()
        };
        assert_eq!(joins(EdgeKind::Parent, &child, &mother), 1);
        assert_eq!(joins(EdgeKind::Child, &mother, &child), 1);
        match status {
            TaskStatus::Running => {
                drop(client.complete(&child, Complete::default()).await.unwrap())
            }
            _ => {
                let delivery_state = Some(DeliveryState::Delivered);
                let told = AppendProgress { delivery_state, ..AppendProgress::default() };
                client.note(&child, told).await.unwrap(); // TERM-21: it has ended.
            }
        }
    }
    client.cancel(&mother, "enough").await.unwrap();
    client.wait_for_end(&mother).await.unwrap();
}
