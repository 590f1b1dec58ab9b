//! Checks what a bus does for workers.

use futures::StreamExt as _;
use futures::future::join;
use tenure_core::command::{
    AppendProgress, Close, Dispatch, GiveBack, RunOutcome, StepReport, Why,
};
use tenure_core::id::{AttemptId, CommandId, Ref, StepId};
use tenure_core::record::{Progress, Value};
use tenure_core::status::{StepStatus, TaskStatus};
use tenure_core::view::{GetInput, Look, Looked, RuntimeName};
use tenure_core::{Code, Command, Limits};
use tenure_ports::ClientPort as _;
use tenure_ports::bus::{Credit, Delivery, Holding, Pulse, WorkerPort as _};
use tokio::time::timeout;
use uuid::Uuid;

use super::{Bus, Caller, Hand, QUIET, SOON, context, input_of, report_on, task_id};

fn cancel() -> Command {
    Command::TaskCancel(Close { grace_ms: None, reason: None, wait: Some(false) })
}

fn says_something(report: &mut StepReport) {
    let summary = Some("half of it".to_owned());
    report.progress = Some(Progress { summary, ..Progress::default() });
}

fn code(pulse: &Pulse) -> Option<Code> {
    match pulse {
        Pulse::Lost(refused) => Some(refused.code),
        Pulse::Renewed { .. } | Pulse::Unknown => None,
    }
}

/// CLAIM-14, mechanisms 7 and 15: a grant goes complete to the boot that has capacity, and to no
/// other. The bus says who speaks: another worker's report on the Attempt counts for nothing.
pub(super) async fn a_grant_is_for_one_boot_alone<B: Bus>(bus: &B) {
    let caller = Caller::of(bus, "s").await;
    let mut one = Hand::join(bus, "ant", "b1").await;
    let mut other = Hand::join(bus, "ant", "b2").await;
    one.room(1);
    let task = caller.create("t", &["a", "b"]).await;
    let claim = one.granted().await;
    assert_eq!((&claim.session_id, &claim.task_id), (caller.client.session(), &task));
    assert_eq!((claim.step.step_id.as_str(), claim.ordinal), ("a", 1));
    assert_eq!(claim.step.input, Some(input_of("a")));
    assert!(one.stays_quiet().await && other.stays_quiet().await, "nobody else has room");
    let holder = caller.step(&task, "a").await.holder.unwrap();
    assert_eq!(holder.claimed_by_agent_id, *one.port.id());
    let refused =
        other.port.release(&Holding::of(&claim), GiveBack::default(), None).await.unwrap_err();
    assert_eq!(refused.code, Code::PermissionDenied);
    other.room(1);
    assert_eq!(other.granted().await.step.step_id.as_str(), "b");
    one.complete(&claim).await;
}

/// Mechanisms 8: the Steps of a Task come in the order in which they were made, and a signal comes
/// behind its grant.
pub(super) async fn deliveries_come_in_their_order<B: Bus>(bus: &B) {
    let caller = Caller::of(bus, "s").await;
    let ids: Vec<String> = (0..20).map(|number| format!("a{number}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let mut hand = Hand::join(bus, "ant", "b1").await;
    hand.room(ids.len() as u64);
    let task = caller.create("t", &ids).await;
    let mut claims = Vec::new();
    while claims.len() < ids.len() {
        claims.push(hand.granted().await);
    }
    assert!(claims.iter().map(|claim| claim.step.step_id.as_str()).eq(ids), "{claims:#?}");
    caller.say(&task, "cancel", cancel()).await;
    let mut asked = Vec::new();
    while asked.len() < claims.len() {
        match hand.next().await {
            Delivery::CancelRequested(attempt, _) => asked.push(attempt),
            other => panic!("no signal: {other:?}"),
        }
    }
    asked.sort_unstable();
    let mut held: Vec<_> = claims.iter().map(|claim| claim.attempt_id).collect();
    held.sort_unstable();
    assert_eq!(asked, held, "each is told of once");
}

/// Mechanisms 8: statements of capacity are absolute. A repeated one, or an older one that comes
/// late, changes nothing; what was sent and not seen yet uses capacity.
pub(super) async fn room_is_what_was_said_last<B: Bus>(bus: &B) {
    let caller = Caller::of(bus, "s").await;
    let mut hand = Hand::join(bus, "ant", "b1").await;
    for (free, number) in [(1, 2), (1, 3), (9, 1)] {
        hand.port.credit(Credit { free, seen: 0, lost: 0, number });
    }
    caller.create("t", &["a", "b", "c"]).await;
    assert_eq!(hand.granted().await.step.step_id.as_str(), "a");
    hand.port.credit(Credit { free: 1, seen: 0, lost: 0, number: 4 });
    assert!(hand.stays_quiet().await, "there was room for one");
    hand.port.credit(Credit { free: 1, seen: 1, lost: 0, number: 5 });
    assert_eq!(hand.granted().await.step.step_id.as_str(), "b");
    assert!(hand.stays_quiet().await, "there was room for one more");
}

/// REPORT-14: workers that report at the same time each get the answer to their own report, and a
/// repeated report gets the first answer.
pub(super) async fn a_report_is_answered_to_whoever_made_it<B: Bus>(bus: &B) {
    let caller = Caller::of(bus, "s").await;
    let mut one = Hand::join(bus, "ant", "b1").await;
    let mut other = Hand::join(bus, "bee", "b1").await;
    one.room(1);
    let first = caller.create("t1", &["a"]).await;
    let of_first = one.granted().await;
    other.room(1);
    let second = caller.create("t2", &["a"]).await;
    let of_second = other.granted().await;
    assert_eq!((&of_first.task_id, &of_second.task_id), (&first, &second));
    let begins = |report: &mut StepReport| report.status = Some(StepStatus::Running);
    let before = other.report(&of_second, begins).await.unwrap();
    assert!(!before.cancel_requested);

    let (done, said) =
        join(one.report(&of_first, says_something), other.report(&of_second, says_something)).await;
    let (done, said) = (done.unwrap(), said.unwrap());
    assert_eq!(done.version, caller.get(&first).await.task.version);
    assert_eq!(said.version, caller.get(&second).await.task.version);
    assert!(said.version > done.version, "the second task has said more");
    let done = one.complete(&of_first).await.version;
    let again = one.complete(&of_first).await.version;
    assert_eq!(again, done, "said twice, it is recorded once");
    let late = one.report(&of_first, says_something).await.unwrap_err();
    assert_eq!(late.code, Code::TaskTerminal);
}

/// LEASE-04, LEASE-13, PERM-16, mechanisms 4: every Attempt gets its answer in its place. An unknown Attempt gets none,
/// nor does one of another worker: only what the log says is over is lost, and only its holder learns that.
pub(super) async fn a_heartbeat_is_answered_in_its_order<B: Bus>(bus: &B) {
    let caller = Caller::of(bus, "s").await;
    let mut one = Hand::join(bus, "ant", "b1").await;
    let other = Hand::join(bus, "bee", "b1").await;
    one.room(4);
    caller.create("t1", &["a", "b", "c"]).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(Holding::of(&one.granted().await));
    }
    caller.create("t2", &["a"]).await;
    let over = one.granted().await;
    one.pulses(&[Holding::of(&over)]).await;
    one.complete(&over).await;

    let mut unknown = Holding { attempt_id: AttemptId(Uuid::from_u128(1)), ..held[0].clone() };
    unknown.task.task_id = task_id("t3");
    held[1].fencing_token += 1;
    let [first, stale, third] = <[Holding; 3]>::try_from(held).unwrap();
    let all = [stale, third, Holding::of(&over), unknown, first.clone()];
    let pulses = one.pulses(&all).await;
    let renewed = Pulse::Renewed { cancel_requested: false, time_left_ms: None };
    assert_eq!(pulses.len(), 5);
    assert_eq!(code(&pulses[0]), Some(Code::StaleAttempt));
    assert_eq!(code(&pulses[2]), Some(Code::TaskTerminal));
    assert_eq!((&pulses[1], &pulses[3], &pulses[4]), (&renewed, &Pulse::Unknown, &renewed));
    let of_others = [first, Holding::of(&over)];
    let pulses = other.port.heartbeat(&of_others).await;
    assert_eq!(pulses, [Pulse::Unknown, Pulse::Unknown], "nobody keeps a step for another");
    assert_eq!(one.port.heartbeat(&[]).await, []);
}

/// CANCEL-07: a holder that is to stop gets a signal at once, and the request with every answer. A
/// caller that waits for the end gets its answer when the last holder has stopped.
pub(super) async fn whoever_is_to_stop_is_told<B: Bus>(bus: &B) {
    let caller = Caller::of(bus, "s").await;
    let mut hand = Hand::join(bus, "ant", "b1").await;
    hand.room(1);
    let task = caller.create("t", &["a", "b"]).await;
    let claim = hand.granted().await;
    let held = [Holding::of(&claim)];
    let stops = async {
        let told = hand.next().await;
        assert!(
            matches!(told, Delivery::CancelRequested(id, _) if id == claim.attempt_id),
            "{told:?}"
        );
        let pulses = hand.pulses(&held).await;
        let asked = Pulse::Renewed { cancel_requested: true, time_left_ms: Some(10_000) };
        assert!(
            matches!(
                pulses[..],
                [Pulse::Renewed { cancel_requested: true, time_left_ms: Some(1..) }]
            ),
            "{pulses:?} is not as {asked:?}"
        );
        assert!(hand.report(&claim, says_something).await.unwrap().cancel_requested);
        hand.port.end_run(&held[0], RunOutcome::Cancelled, None, None).await.unwrap();
    };
    join(caller.say(&task, "cancel", Command::TaskCancel(Close::default())), stops).await;
    assert_eq!(caller.get(&task).await.task.native_status, TaskStatus::Cancelled);
    assert_eq!(code(&hand.pulses(&held).await[0]), Some(Code::TaskTerminal));
}

/// CTRL-12: input that comes to the Task of an open Attempt goes to its holder. What its heartbeat says that it
/// has seen counts with its final report; what nobody has seen is listed at the end.
pub(super) async fn late_input_comes_to_the_holder<B: Bus>(bus: &B) {
    let caller = Caller::of(bus, "s").await;
    let mut hand = Hand::join(bus, "ant", "b1").await;
    hand.room(1);
    let task = caller.create("t", &["a"]).await;
    let claim = hand.granted().await;
    assert_eq!(claim.input_seen, 0);
    let given = |names: &[&str]| {
        let input_refs = names.iter().filter_map(|name| Ref::new(name).ok()).collect();
        Command::AppendTaskProgress(AppendProgress { input_refs, ..AppendProgress::default() })
    };
    for (number, names) in [&["mem:x"][..], &["mem:x", "mem:y"], &["mem:z"]].iter().enumerate() {
        caller.say(&task, &format!("add-{number}"), given(names)).await;
    }
    let mut got = Vec::new();
    while got.len() < 4 {
        match hand.next().await {
            Delivery::Input(input) => {
                assert_eq!((input.attempt_id, input.after as usize), (claim.attempt_id, got.len()));
                got.extend(input.input_refs.iter().map(|it| it.as_str().to_owned()));
            }
            other => panic!("no input: {other:?}"),
        }
    }
    assert_eq!(got, ["mem:x", "mem:x", "mem:y", "mem:z"], "a repeat is an entry");
    let held = Holding { input_seen: Some(3), ..Holding::of(&claim) };
    let renewed = Pulse::Renewed { cancel_requested: false, time_left_ms: None };
    assert_eq!(hand.pulses(&[held]).await, [renewed]);
    match hand.next().await {
        Delivery::Input(input) => assert_eq!((input.after, input.input_refs.len()), (3, 1)),
        other => panic!("what was not seen does not come again: {other:?}"),
    }
    // The heartbeat and the report may go to the Task by different ways.
    tokio::time::sleep(QUIET).await;
    hand.complete(&claim).await;
    let unread = caller.get(&task).await.unread_input_refs.expect("something is unread");
    assert_eq!(unread.iter().map(Ref::as_str).collect::<Vec<_>>(), ["mem:z"]);
}

/// S26, LEASE-13: a Step that a worker gives back goes to another worker with capacity, as another
/// Attempt. Reports of the former holder no longer count.
pub(super) async fn a_released_step_goes_to_another<B: Bus>(bus: &B) {
    let caller = Caller::of(bus, "s").await;
    let mut one = Hand::join(bus, "ant", "b1").await;
    let mut other = Hand::join(bus, "bee", "b1").await;
    one.room(1);
    caller.create("t", &["a"]).await;
    let first = one.granted().await;
    other.room(1);
    one.port.release(&Holding::of(&first), GiveBack::default(), None).await.unwrap();
    let second = other.granted().await;
    assert_eq!(second.ordinal, 2);
    assert!(second.fencing_token > first.fencing_token);
    let late = one.report(&first, says_something).await.unwrap_err();
    assert_eq!(late.code, Code::StaleAttempt);
    other.complete(&second).await;
}

/// A worker that has left gets nothing more; what was being sent to it goes to another.
pub(super) async fn a_worker_that_has_left_gets_nothing<B: Bus>(bus: &B) {
    let caller = Caller::of(bus, "s").await;
    let mut one = Hand::join(bus, "ant", "b1").await;
    one.room(5);
    let Hand { port, mut deliveries, .. } = one;
    drop(port);
    let mut other = Hand::join(bus, "bee", "b1").await;
    other.room(1);
    caller.create("t", &["a"]).await;
    let claim = other.granted().await;
    other.complete(&claim).await;
    while let Ok(Some(late)) = timeout(QUIET, deliveries.next()).await {
        assert!(matches!(late, Delivery::Lost(_)), "{late:?}");
    }
}

/// 5.4 `take_run`, CLAIM-15, QUERY-12, EVENT-07: a worker is offered a Run, reads its Steps and
/// claims under it. A repeated claim gets the first answer, and the session gets the event.
pub(super) async fn a_run_is_offered_and_claimed_under_once<B: Bus>(bus: &B) {
    let caller = Caller::of(bus, "s").await;
    let mut hand = Hand::join(bus, "ant", "b1").await;
    let task = caller.create_manual("t", &["a", "b", "c"]).await;
    let mut told = caller.client.runtime(Some(&task)).await.unwrap();
    let allowed = ["a", "c"].map(|id| StepId::new(id).unwrap());
    let dispatch = |wait| {
        Command::DispatchWorker(Dispatch {
            allowed_step_ids: Some(allowed.to_vec()),
            bindings: None,
            instructions: Some("with care".into()),
            on_behalf: None,
            ttl_ms: None,
            wait,
            worker_pool_id: caller.pool.clone(),
        })
    };
    let run_id = caller.say(&task, "first", dispatch(None)).await.run_id;
    hand.room(1);
    let offer = hand.offered().await;
    assert_eq!((Some(offer.run_id), &offer.task_id), (run_id, &task));
    let page = hand.port.query(&offer, 0).await.unwrap();
    assert!(page.steps.iter().map(|step| &step.spec.step_id).eq(&allowed), "{page:?}");
    let claim_as =
        async |id: &str| hand.port.claim(&offer, &allowed[0], &CommandId::new(id).unwrap()).await;
    let claim = claim_as("claim").await.unwrap();
    assert_eq!(claim.instructions.as_deref(), Some("with care"));
    assert_eq!(claim_as("claim").await.unwrap().attempt_id, claim.attempt_id);
    let second = claim_as("another").await.unwrap_err();
    assert_eq!(second.code, Code::StepAlreadyClaimedByRun);
    let key = Holding::of(&claim).task;
    let looked = hand.port.look(&key, offer.run_id, Look::TaskGet).await.unwrap();
    let Looked::Task(seen) = looked else { panic!("it was asked for: {looked:?}") };
    assert_eq!(seen.task_id, task);
    hand.complete(&claim).await;
    let event = timeout(SOON, told.next()).await.expect("it is told").unwrap();
    assert_eq!((event.event, Some(event.run_id)), (RuntimeName::RunTaken, run_id));
    assert_eq!(event.worker_id.as_ref(), Some(hand.port.id()));

    // VIEW-16, TASK-13: while its Task stands still the Run shows nothing, and it is not over for that.
    caller.say(&task, "dispatch", dispatch(None)).await;
    hand.room(1);
    let offer = hand.offered().await;
    caller.say(&task, "pause", Command::PauseTask(Why::default())).await;
    let page = hand.port.query(&offer, 0).await.unwrap();
    assert_eq!((page.steps.len(), page.no_step_available), (0, Some(false)));
    assert_eq!(page.task_status, Some(TaskStatus::Paused));
    caller.say(&task, "resume", Command::ResumeTask(Why::default())).await;
    let page = hand.port.query(&offer, 0).await.unwrap();
    assert!(page.steps.iter().map(|step| &step.spec.step_id).eq(&allowed[1..]), "{page:?}");
    hand.port.leave(&offer, None, None).await.unwrap();

    // A caller that waits for a Run gets its answer when its worker leaves it.
    let leaves = async {
        hand.room(1);
        let offer = hand.offered().await;
        hand.port.leave(&offer, None, None).await.unwrap();
    };
    let waits = caller.client.write(&task, context("second"), dispatch(Some(true)));
    let (ended, ()) = join(waits, leaves).await;
    assert!(ended.unwrap().run_end.unwrap().no_step_claimed);
}

/// P30: a value of the greatest allowed length is carried unchanged. A longer one is refused,
/// whether it fits into a message or not, and the Attempt goes on.
pub(super) async fn a_value_up_to_the_limit_is_carried<B: Bus>(bus: &B) {
    let caller = Caller::of(bus, "s").await;
    let mut hand = Hand::join(bus, "ant", "b1").await;
    hand.room(1);
    let task = caller.create("t", &["a"]).await;
    let claim = hand.granted().await;
    let most = Limits::default().value_bytes_max;
    let of = |bytes: usize| Value::inline("application/octet-stream", vec![0xf0; bytes]);
    let done = |bytes: usize| {
        report_on(&claim, |report| {
            (report.status, report.output) = (Some(StepStatus::Completed), Some(of(bytes)));
        })
    };
    let held = Holding::of(&claim);
    for too_long in [most + 1, 4 << 20] {
        let refused = hand.port.report(&held, done(too_long), None).await.unwrap_err();
        assert_eq!(refused.code, Code::ValidationError, "{refused:?}");
        assert!(refused.message.contains("bytes"), "it says what is too long: {refused:?}");
    }
    hand.port.report(&held, done(most), None).await.unwrap();
    let output = caller.step(&task, "a").await.facts.unwrap().output.clone();
    assert_eq!(output, Some(of(most)));
}

/// Mechanisms 7 and 13: a request to a scheduler that is not there gets an answer that allows to
/// repeat it. That answer says nothing of Attempts.
pub(super) async fn whoever_speaks_to_nobody_is_told<B: Bus>(bus: &B) {
    let caller = Caller::of(bus, "s").await;
    let mut hand = Hand::join(bus, "ant", "b1").await;
    hand.room(1);
    let task = caller.create("t", &["a"]).await;
    let claim = hand.granted().await;
    bus.stop().await;
    let refused = hand.report(&claim, says_something).await.unwrap_err();
    assert!(refused.code.is_retryable(), "{refused:?}");
    assert_eq!(hand.port.heartbeat(&[Holding::of(&claim)]).await, [Pulse::Unknown]);
    let refused = caller.client.ask(&task, GetInput {}).await.unwrap_err();
    assert!(refused.code.is_retryable(), "{refused:?}");
    let refused = caller.client.write(&task, context("cancel"), cancel()).await.unwrap_err();
    assert!(refused.code.is_retryable(), "{refused:?}");
}
