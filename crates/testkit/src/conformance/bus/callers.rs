//! Checks what a bus does for callers.

use std::fmt::Debug;

use futures::{Stream, StreamExt as _};
use tenure_core::command::create::CreateTask;
use tenure_core::command::{Close, Complete, Why};
use tenure_core::record::Value;
use tenure_core::status::{Role, StepStatus, TaskStatus};
use tenure_core::view::{GetInput, ReplayInput};
use tenure_core::{Code, Command, Context, Rejection};
use tenure_ports::ClientPort as _;
use tenure_wire::bus::event::ReadEvents;
use tokio::time::timeout;

use super::{Bus, Caller, SOON, context, step, task_id};

fn pause() -> Command {
    Command::PauseTask(Why::default())
}

fn resume() -> Command {
    Command::ResumeTask(Why::default())
}

fn cancel() -> Command {
    Command::TaskCancel(Close::default())
}

fn code<T: Debug>(refused: Result<T, Rejection>) -> Code {
    refused.unwrap_err().code
}

async fn next<S: Stream + Unpin>(told: &mut S) -> S::Item {
    timeout(SOON, told.next()).await.expect("something is told").expect("there is more")
}

/// IDEM-01, IDEM-03: a repeated command gets the first answer, and is carried out once.
pub(super) async fn a_command_is_carried_out_once<B: Bus>(bus: &B) {
    let caller = Caller::of(bus, "s").await;
    let client = &caller.client;
    let task = task_id("t");
    let create = || client.write(&task, context("create"), caller.task(&task, &["a"]));
    let (made, again) = (create().await.unwrap(), create().await.unwrap());
    assert_eq!((&made.event_ids, made.version), (&again.event_ids, again.version));
    assert_eq!(made.event_ids.len() as u64, made.version);
    let other = client.write(&task, context("create"), caller.task(&task, &["b"])).await;
    assert_eq!(code(other), Code::IdempotencyConflict);
    let same = client.write(&task, context("another"), caller.task(&task, &["a"])).await.unwrap();
    assert_eq!((&made.event_ids, made.version), (&same.event_ids, same.version));
    let other = client.write(&task, context("a third"), caller.task(&task, &["b"])).await;
    assert_eq!(code(other), Code::TaskIdConflict);

    let first = caller.say(&task, "c1", pause()).await;
    let again = caller.say(&task, "c1", pause()).await;
    assert_eq!((&first.event_ids, first.version), (&again.event_ids, again.version));
    assert_eq!(code(client.write(&task, context("c1"), resume()).await), Code::IdempotencyConflict);
    assert_eq!(caller.get(&task).await.task.version, first.version);
}

/// CTRL-09, OCC-02, PERM: a refusal has the code that the scheduler gave it, and changes nothing.
pub(super) async fn refusals_name_their_reason<B: Bus>(bus: &B) {
    let caller = Caller::of(bus, "s").await;
    let (client, observer) = (&caller.client, bus.client(Role::Observer, "s").await);
    let stranger = bus.client(Role::Orchestrator, "elsewhere").await;
    let task = caller.create("t", &["a"]).await;
    let before = caller.get(&task).await;
    let early = Context { expected_version: Some(1), ..context("early") };
    let complete = Command::TaskComplete(Complete::default());
    let nobody = task_id("nobody");
    for (refused, why) in [
        (client.write(&task, early, pause()).await, Code::VersionConflict),
        (client.write(&nobody, context("x"), pause()).await, Code::TaskNotFound),
        (client.write(&task, context("y"), complete).await, Code::RequiredStepsIncomplete),
        (observer.write(&task, context("z"), pause()).await, Code::ToolNotAvailable),
        (stranger.write(&task, context("z"), pause()).await, Code::TaskNotFound),
    ] {
        assert_eq!(code(refused), why);
    }
    let create = observer.write(&nobody, context("create"), caller.task(&nobody, &["a"]));
    assert_eq!(code(create.await), Code::ToolNotAvailable);
    assert_eq!(code(client.ask(&nobody, GetInput {}).await), Code::TaskNotFound);
    assert_eq!(code(stranger.ask(&task, GetInput {}).await), Code::TaskNotFound);
    assert_eq!(observer.ask(&task, GetInput {}).await.unwrap().task.version, before.task.version);
    caller.say(&task, "end", cancel()).await;
    assert_eq!(code(client.write(&task, context("w"), pause()).await), Code::TaskTerminal);
}

/// Mechanisms 10: the scheduler limits how long a Task may be, and not the bus.
pub(super) async fn a_long_task_comes_whole<B: Bus>(bus: &B) {
    const STEPS: usize = 15;
    let caller = Caller::of(bus, "s").await;
    let task = task_id("t");
    let ids: Vec<String> = (0..STEPS).map(|number| format!("a{number}")).collect();
    let value = Value::inline("application/octet-stream", vec![0xf0; 40 << 10]);
    let steps = ids.iter().map(|id| {
        let mut step = step(id);
        step.input = Some(value.clone());
        step
    });
    let input = CreateTask { steps: steps.collect(), ..caller.task(&task, &[]) };
    caller.client.write(&task, context("create"), input).await.unwrap();
    let view = caller.get(&task).await;
    assert_eq!(view.task.native_status, TaskStatus::Running);
    assert!(view.steps.iter().map(|step| step.spec.step_id.as_str()).eq(ids));
    assert!(view.steps.iter().all(|step| step.status == StepStatus::Ready));
    assert!(view.steps.iter().all(|step| step.spec.input.as_ref() == Some(&value)));
    let was = caller.client.ask(&task, ReplayInput::default()).await.unwrap();
    assert_eq!((was.steps.len(), was.left_out), (STEPS, None), "no more is left out than must be");
}

/// EVENT, mechanisms 11: a follower of a Task gets its public events, and no other Task's, each
/// once and in order. It reads what got lost on the way.
pub(super) async fn public_events_are_of_one_task_and_in_order<B: Bus>(bus: &B) {
    let caller = Caller::of(bus, "s").await;
    let client = &caller.client;
    let (task, other) = (caller.create("t1", &["a"]).await, caller.create("t2", &["a"]).await);
    let mut published = client.published(&task).await.unwrap();
    let mut page = client.ask(&task, ReadEvents { after: 0 }).await.unwrap();
    let mut events = std::mem::take(&mut page.events);
    for number in 0..3 {
        for task in [&other, &task] {
            caller.say(task, &format!("pause {number}"), pause()).await;
            caller.say(task, &format!("resume {number}"), resume()).await;
        }
    }
    for task in [&other, &task] {
        caller.say(task, "cancel", cancel()).await;
    }
    let (mut through, mut told) = (page.through, 0);
    while !page.status.is_terminal() || through < page.version {
        let next = next(&mut published).await;
        told += next.page.events.len();
        assert!(next.page.events.iter().all(|event| event.task_id == task), "{next:?}");
        assert!(next.page.events.iter().all(|event| event.wal_seq > next.after), "{next:?}");
        page = match next.after <= through {
            true => next.page,
            false => client.ask(&task, ReadEvents { after: through }).await.unwrap(),
        };
        events.extend(page.events.drain(..).filter(|event| event.wal_seq > through));
        through = through.max(page.through);
    }
    assert!(told > 0, "it was followed");
    assert!(events.is_sorted_by_key(|event| event.wal_seq));
    assert_eq!(events, client.ask(&task, ReadEvents { after: 0 }).await.unwrap().events);
}

/// Mechanisms 11: a hint of the end of a Task reaches those who listen in its session.
pub(super) async fn hints_stay_in_their_session<B: Bus>(bus: &B) {
    let caller = Caller::of(bus, "s").await;
    let elsewhere = Caller::of(bus, "elsewhere").await;
    let mut of_other = elsewhere.client.changes(None).await.unwrap();
    let mut of_all = caller.client.changes(None).await.unwrap();
    let (first, second) = (task_id("t1"), task_id("t2"));
    let mut of_one = caller.client.changes(Some(&second)).await.unwrap();
    for (caller, task) in [(&caller, "t1"), (&caller, "t2"), (&elsewhere, "t3")] {
        let task = caller.create(task, &["a"]).await;
        caller.say(&task, "cancel", cancel()).await;
    }
    let mut open = vec![first, second.clone()];
    while !open.is_empty() {
        let hint = next(&mut of_all).await;
        assert!(hint.task_id.as_str() != "t3", "{hint:?}");
        open.retain(|task| *task != hint.task_id || hint.ended.is_none());
    }
    loop {
        let hint = next(&mut of_one).await;
        assert_eq!(hint.task_id, second);
        if let Some(ended) = hint.ended {
            let version = caller.get(&second).await.task.version;
            assert_eq!((ended, hint.version), (TaskStatus::Cancelled, version));
            break;
        }
    }
    let hint = next(&mut of_other).await;
    assert_eq!(hint.task_id, task_id("t3"), "nothing was heard of another session before");
}
