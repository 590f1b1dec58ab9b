//! Races, forced: an append is held while the other side speaks, so that each comes first once, and
//! once the first one's append fails after the other has spoken.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use futures::StreamExt as _;
use futures::channel::mpsc::UnboundedReceiver;
use tenure_core::command::{Close, Complete, Dispatch, StepReport};
use tenure_core::id::{AgentId, CommandId, PoolId};
use tenure_core::record::RetryPolicy;
use tenure_core::retry_policy::Limit;
use tenure_core::status::{Outcome, Policy, Role, StepStatus, TaskStatus};
use tenure_core::view::{ClaimResult, RunOffer};
use tenure_core::{Code, Command, Rejection};
use tenure_ports::bus::{Credit, Delivery, Holding, Pulse, Recorded, WorkerPort as _};
use tenure_ports::journal::TaskKey;
use tenure_scheduler::{WorkerLink, WriteAnswer};
use tenure_testkit::faulty::{Fault, Gate};
use tenure_testkit::{Faulty, MemoryJournal};
use tokio::task::JoinHandle;

type Link = WorkerLink<Faulty<MemoryJournal>, tenure_local::MemoryLeases>;
type Answered = JoinHandle<Result<WriteAnswer, Rejection>>;

/// How an append that is held ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeldEnd {
    Written,
    Fails,
}

impl HeldEnd {
    const BOTH: [Self; 2] = [Self::Written, Self::Fails];

    fn hold_next(self, node: &Node) -> Gate {
        match self {
            Self::Written => node.journal().hold_next(),
            Self::Fails => node.journal().hold_next_to_fail(),
        }
    }
}

/// Lets everything go on that can go on without time passing.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Waits until the append that is to be held is on its way.
async fn in_flight(node: &Node) {
    while !node.journal().is_spent() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Something that is asked now, and answered later.
async fn asked<T: Send + 'static>(ask: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    let asked = tokio::spawn(ask);
    settle().await;
    asked
}

async fn command(node: &Node, key: &TaskKey, command: Command) -> Answered {
    let (node, key) = (node.clone(), key.clone());
    asked(async move { node.command(&key, envelope(), command).await }).await
}

/// What is asked from now on, until the gate is opened, is decided for one append.
async fn gathering(node: &Node, key: &TaskKey) -> Gate {
    let gate = node.journal().hold_next();
    let title = r#"[{"op": "update_task", "title": "meanwhile"}]"#;
    let operations = serde_json::from_str(title).unwrap();
    command(node, key, Command::TaskUpdate { operations }).await;
    in_flight(node).await;
    gate
}

fn join(node: &Node, who: &str) -> (Link, UnboundedReceiver<Delivery>) {
    node.join(AgentId::new(who).unwrap(), PoolId::new(POOL).unwrap(), None).unwrap()
}

fn code<T: std::fmt::Debug>(answer: Result<T, Rejection>) -> Code {
    answer.unwrap_err().code
}

fn count(events: &[&str], name: &str) -> usize {
    events.iter().filter(|event| **event == name).count()
}

/// The live Task is what its log says.
async fn is_replayed(node: &Node, key: &TaskKey) {
    let live = node.read(key, |task| task.to_task()).await.unwrap();
    assert_eq!(replayed(node, key).await, live);
}

/// A Run for each of so many workers, each with its offer.
async fn runs(node: &Node, key: &TaskKey, workers: usize) -> Vec<(Arc<Link>, RunOffer)> {
    let mut all = Vec::new();
    for n in 0..workers {
        let (link, mut inbox) = join(node, &format!("ant-{n}"));
        link.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
        let dispatch = Dispatch::to(PoolId::new(POOL).unwrap());
        let dispatch = Command::DispatchWorker(dispatch);
        node.command(key, envelope(), dispatch).await.unwrap();
        let Some(Delivery::Run(offer)) = inbox.next().await else { panic!("an offer comes") };
        all.push((Arc::new(link), *offer));
    }
    all
}

async fn claim(
    link: &Arc<Link>,
    offer: &RunOffer,
    id: &str,
) -> JoinHandle<Result<ClaimResult, Rejection>> {
    let (link, offer) = (Arc::clone(link), offer.clone());
    let id = CommandId::new(id).unwrap();
    asked(async move { link.claim(&offer, &step_id("a"), &id).await }).await
}

/// CLAIM-08, CLAIM-10, WAL-10: of many claims that are decided for one append the first that came has
/// the Step, whoever that is, and the others have lost it; nobody is told before it is durable.
#[tokio::test(start_paused = true)]
async fn of_claims_in_one_append_exactly_one_succeeds() {
    for first in [0, 7] {
        let node = node().await;
        node.create(envelope(), dag("t", "a"), Policy::Manual).await.unwrap();
        let key = key("t");
        let mut workers = runs(&node, &key, 8).await;
        workers.rotate_left(first);
        let gate = gathering(&node, &key).await;
        let mut claims = Vec::new();
        for (n, (link, offer)) in workers.iter().enumerate() {
            claims.push(claim(link, offer, &format!("c-{n}")).await);
        }
        let held = node.journal().hold_next();
        gate.open();
        in_flight(&node).await;
        settle().await;
        assert!(claims.iter().all(|claim| !claim.is_finished()), "told before it is durable");
        held.open();
        let mut answers = Vec::new();
        for claim in claims {
            answers.push(claim.await.unwrap());
        }
        let won = answers.remove(0).unwrap();
        assert_eq!(won.run_id, workers[0].1.run_id);
        assert!(answers.into_iter().all(|lost| code(lost) == Code::StepAlreadyClaimed));
        assert_eq!(count(&events(&node, &key).await, "task_step_claimed"), 1);
        is_replayed(&node, &key).await;
    }
}

/// CLAIM-08, WAL-07: where the winner's claim is not written nobody has lost either: all are told that
/// nothing is known of the log, and the Step is there for the next.
#[tokio::test(start_paused = true)]
async fn of_claims_whose_append_fails_none_succeeds_and_none_has_lost() {
    let node = node().await;
    node.create(envelope(), dag("t", "a"), Policy::Manual).await.unwrap();
    let key = key("t");
    let workers = runs(&node, &key, 4).await;
    let before = node.read(&key, |task| task.to_task()).await.unwrap();
    let gate = gathering(&node, &key).await;
    let mut claims = Vec::new();
    for (n, (link, offer)) in workers.iter().enumerate() {
        claims.push(claim(link, offer, &format!("c-{n}")).await);
    }
    let held = node.journal().hold_next_to_fail();
    gate.open();
    in_flight(&node).await;
    held.open();
    for claim in claims {
        assert_eq!(code(claim.await.unwrap()), Code::StorageError);
    }
    let after = node.read(&key, |task| task.to_task()).await.unwrap();
    assert_eq!(after.version(), before.version() + 1, "the other command alone");
    assert_eq!(after.open_attempts().count(), 0);
    is_replayed(&node, &key).await;
    let (link, offer) = &workers[3];
    let won = claim(link, offer, "again").await.await.unwrap().unwrap();
    assert_eq!((won.ordinal, won.run_id), (1, offer.run_id));
}

/// OCC-05, OCC-04, WAL-07: complete against cancel for one append, each first once: the first wins, and
/// the other is told so when that is durable; if it is not written, neither has happened.
#[tokio::test(start_paused = true)]
async fn of_complete_and_cancel_the_first_in_the_append_wins() {
    for (end, cancel_first) in
        [(HeldEnd::Written, false), (HeldEnd::Written, true), (HeldEnd::Fails, true)]
    {
        let node = node().await;
        let mut input = dag("t", "a");
        input.steps[0].required = Some(false);
        node.create(envelope(), input, Policy::Manual).await.unwrap();
        let key = key("t");
        let mut commands =
            [Command::TaskComplete(Complete::default()), Command::TaskCancel(Close::default())];
        commands.rotate_left(usize::from(cancel_first));
        let gate = gathering(&node, &key).await;
        let [first, second] = commands;
        let (first, second) =
            (command(&node, &key, first).await, command(&node, &key, second).await);
        let held = end.hold_next(&node);
        gate.open();
        in_flight(&node).await;
        settle().await;
        assert!(!first.is_finished() && !second.is_finished(), "told before it is durable");
        held.open();
        let (first, second) = (first.await.unwrap(), second.await.unwrap());
        let ended = match (end, cancel_first) {
            (HeldEnd::Fails, _) => {
                assert_eq!((code(first), code(second)), (Code::StorageError, Code::StorageError));
                TaskStatus::Running
            }
            (HeldEnd::Written, is_cancelled) => {
                first.unwrap();
                assert_eq!(code(second), Code::TaskTerminal);
                if is_cancelled { TaskStatus::Cancelled } else { TaskStatus::Completed }
            }
        };
        assert_eq!(status(&node, &key).await, ended);
        is_replayed(&node, &key).await;
    }
}

/// OCC-05, STEP-09: two answers to one blocked Step for one append: one reopens it, the other is told,
/// with the version that it was asked at or without.
#[tokio::test(start_paused = true)]
async fn of_two_answers_in_one_append_the_first_reopens() {
    for is_versioned in [false, true] {
        let node = node().await;
        node.create(envelope(), dag("t", "a"), Policy::Manual).await.unwrap();
        let key = key("t");
        let write = |status| {
            let report = StepReport { status: Some(status), ..StepReport::on(step_id("a")) };
            Command::TaskUpdateStep(report)
        };
        node.command(&key, envelope(), write(StepStatus::Blocked)).await.unwrap();
        let gate = gathering(&node, &key).await;
        // What is read is durable: the command whose append is under way writes the next event.
        let version = node.read(&key, |task| task.version()).await.unwrap() + 1;
        let mut answers = Vec::new();
        for _ in 0..2 {
            let (node, key, answer) = (node.clone(), key.clone(), write(StepStatus::Pending));
            let mut envelope = envelope();
            let context = envelope.context.as_mut().unwrap();
            context.expected_version = is_versioned.then_some(version);
            answers.push(asked(async move { node.command(&key, envelope, answer).await }).await);
        }
        gate.open();
        let [first, second] = answers.try_into().unwrap();
        first.await.unwrap().unwrap();
        let told = if is_versioned { Code::VersionConflict } else { Code::InvalidTransition };
        assert_eq!(code(second.await.unwrap()), told);
        assert_eq!(count(&events(&node, &key).await, "task_step_reopened"), 1);
    }
}

/// A Task whose Step is held by a worker that says nothing by itself. Leases end between two ticks.
async fn held(node: &Node) -> (TaskKey, Arc<Link>, Holding, UnboundedReceiver<Delivery>) {
    let (link, mut inbox) = join(node, "ant");
    link.credit(Credit { free: 1, seen: 0, lost: 0, number: 1 });
    let once = RetryPolicy { max_attempts: Some(Limit::Of(1)), ..RetryPolicy::default() };
    let lease = RetryPolicy { heartbeat_ms: Some(LEASE_MS), ..once };
    let mut input = with_policy(dag("t", "a"), lease);
    input.completion = Some(Policy::Manual);
    let key = create(node, input).await.unwrap();
    let Some(Delivery::Grant(claim)) = inbox.next().await else { panic!("a grant comes") };
    (key, Arc::new(link), Holding::of(&claim), inbox)
}

const LEASE_MS: u64 = 30_500;

/// The other side of a race with the end of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Completed,
    EndOfRun,
}

impl Word {
    async fn say(
        self,
        link: &Arc<Link>,
        held: &Holding,
    ) -> JoinHandle<Result<Recorded, Rejection>> {
        let (link, held) = (Arc::clone(link), held.clone());
        let answer = async move {
            let said = match self {
                Self::EndOfRun => link.end_run(&held, FINISHED, None, None),
                Self::Completed => {
                    let report = StepReport {
                        attempt_id: Some(held.attempt_id),
                        fencing_token: Some(held.fencing_token),
                        status: Some(StepStatus::Completed),
                        ..StepReport::on(step_id("a"))
                    };
                    link.report(&held, report, None)
                }
            };
            said.await
        };
        asked(answer).await
    }

    /// What comes of it where it is first.
    const fn wins(self) -> (Outcome, StepStatus) {
        match self {
            Self::Completed => (Outcome::Completed, StepStatus::Completed),
            Self::EndOfRun => (Outcome::Abandoned, StepStatus::Failed),
        }
    }
}

async fn outcome(node: &Node, key: &TaskKey, held: &Holding) -> Option<Outcome> {
    let attempt = held.attempt_id;
    node.read(key, move |task| task.attempt(attempt).unwrap().outcome).await.unwrap()
}

/// RUN-09, REPORT-15, REPORT-14, LEASE-09: the end of the lease is decided first, and the worker speaks
/// while that is written. It is not answered before, nor told by a heartbeat that it has lost what the
/// log still gives it; then its report is stale and the end of its Run changes nothing. If the end of
/// the lease is not written, what the worker said counts.
#[tokio::test(start_paused = true)]
async fn who_speaks_while_the_end_of_the_lease_is_written_is_judged_by_the_log() {
    for word in [Word::Completed, Word::EndOfRun] {
        for end in HeldEnd::BOTH {
            let node = node().await;
            let (key, link, held, _inbox) = held(&node).await;
            let gate = end.hold_next(&node);
            tokio::time::sleep(Duration::from_millis(LEASE_MS + 1_000)).await;
            in_flight(&node).await;
            let said = word.say(&link, &held).await;
            let pulses = link.heartbeat(std::slice::from_ref(&held)).await;
            let renewed = Pulse::Renewed { cancel_requested: false, time_left_ms: None };
            assert_eq!(pulses, [renewed], "{word:?} {end:?}: the log has not ended it");
            assert!(!said.is_finished());
            gate.open();
            let said = said.await.unwrap();
            let (ended, status) = match (end, word) {
                (HeldEnd::Fails, _) => {
                    said.unwrap();
                    word.wins()
                }
                (HeldEnd::Written, Word::Completed) => {
                    assert_eq!(code(said), Code::StaleAttempt);
                    (Outcome::Lost, StepStatus::Ready)
                }
                (HeldEnd::Written, Word::EndOfRun) => {
                    said.unwrap();
                    (Outcome::Lost, StepStatus::Ready)
                }
            };
            tokio::time::sleep(Duration::from_secs(5)).await; // What failed is decided again.
            assert_eq!(outcome(&node, &key, &held).await, Some(ended), "{word:?} {end:?}");
            assert_eq!(step_status(&node, &key, "a").await, status, "{word:?} {end:?}");
            let expired = count(&events(&node, &key).await, "task_step_lease_expired");
            assert_eq!(expired, usize::from(end == HeldEnd::Written));
            is_replayed(&node, &key).await;
        }
    }
}

/// RUN-09, REPORT-15: the worker speaks first, and its lease ends while that is written: it counts, and
/// the end of the lease is passed over. If it is not written, the worker is told so, and has lost its
/// Step to the silence.
#[tokio::test(start_paused = true)]
async fn a_lease_that_ends_while_the_last_word_is_written_is_passed_over() {
    for word in [Word::Completed, Word::EndOfRun] {
        for end in HeldEnd::BOTH {
            let node = node().await;
            let (key, link, held, _inbox) = held(&node).await;
            // Where an append is held up for long, no lease is judged.
            tokio::time::sleep(Duration::from_millis(LEASE_MS - 500)).await;
            let gate = end.hold_next(&node);
            let said = word.say(&link, &held).await;
            in_flight(&node).await;
            tokio::time::sleep(Duration::from_millis(1_800)).await;
            assert!(!said.is_finished());
            gate.open();
            let said = said.await.unwrap();
            let (ended, status) = match end {
                HeldEnd::Written => {
                    said.unwrap();
                    word.wins()
                }
                HeldEnd::Fails => {
                    assert_eq!(code(said), Code::StorageError);
                    (Outcome::Lost, StepStatus::Ready)
                }
            };
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert_eq!(outcome(&node, &key, &held).await, Some(ended), "{word:?} {end:?}");
            assert_eq!(step_status(&node, &key, "a").await, status, "{word:?} {end:?}");
            let expired = count(&events(&node, &key).await, "task_step_lease_expired");
            assert_eq!(expired, usize::from(end == HeldEnd::Fails));
            is_replayed(&node, &key).await;
        }
    }
}

/// REPORT-15, LEASE-04: the lease has ended and nobody has looked yet: the log decides, not the clock. A
/// final word counts; a heartbeat takes the lease anew, and the next look finds it in force.
#[tokio::test(start_paused = true)]
async fn a_word_between_the_end_of_the_lease_and_the_look_counts() {
    for is_final in [true, false] {
        let node = node().await;
        let (key, link, held, _inbox) = held(&node).await;
        tokio::time::sleep(Duration::from_millis(LEASE_MS + 200)).await;
        assert_eq!(node.lease_left_ms(held.attempt_id), Some(0), "it has ended");
        if is_final {
            Word::Completed.say(&link, &held).await.await.unwrap().unwrap();
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert_eq!(step_status(&node, &key, "a").await, StepStatus::Completed);
        } else {
            let pulses = link.heartbeat(std::slice::from_ref(&held)).await;
            assert_eq!(pulses, [Pulse::Renewed { cancel_requested: false, time_left_ms: None }]);
            tokio::time::sleep(Duration::from_secs(25)).await;
            assert_eq!(step_status(&node, &key, "a").await, StepStatus::Claimed);
        }
        assert_eq!(count(&events(&node, &key).await, "task_step_lease_expired"), 0);
    }
}

/// OWN-03, WAL-14, U6: an owner's append is held while another takes the Task: whichever the log has
/// first stands. One that comes after the new owner's record is refused as `not_owner`, has changed
/// nothing, and the old owner judges nothing of the Task any more; one that came before is what the new
/// owner goes on from.
#[tokio::test(start_paused = true)]
async fn of_two_owners_the_log_has_the_word_of_one() {
    for is_late in [false, true] {
        let journal = Arc::new(Faulty::new(MemoryJournal::default()));
        let old = node_on(Arc::clone(&journal)).await;
        let key = create(&old, dag("t", "a")).await.unwrap();
        let gate = journal.hold_next();
        let paused = command(&old, &key, Command::PauseTask(Default::default())).await;
        in_flight(&old).await;
        if !is_late {
            gate.open();
            settle().await;
        }
        journal.set_epoch(Some(7));
        let new = node_on(Arc::clone(&journal)).await;
        let cancelled = command(&new, &key, Command::TaskCancel(Close::default())).await;
        cancelled.await.unwrap().unwrap();
        gate.open();
        let paused = paused.await.unwrap();
        if is_late {
            assert_eq!(code(paused), Code::NotOwner);
        } else {
            paused.unwrap();
        }
        let events = events(&new, &key).await;
        assert_eq!(count(&events, "task_paused"), usize::from(!is_late), "{events:?}");
        assert_eq!(events.last(), Some(&"task_cancelled"));
        assert_eq!(status(&new, &key).await, TaskStatus::Cancelled);
        is_replayed(&new, &key).await;
        let late = command(&old, &key, Command::ResumeTask(Default::default())).await;
        let late = code(late.await.unwrap());
        assert!(matches!(late, Code::NotOwner | Code::TaskTerminal), "{late}");
    }
}

/// RECOVER-08, EVENT-08: the end of a Task is written, and whoever wrote it dies before it could tell
/// anybody: those who wait find it in the log.
#[tokio::test(start_paused = true)]
async fn an_end_that_nobody_could_publish_is_found() {
    let node = node().await;
    let key = create(&node, dag("t", "a")).await.unwrap();
    let port = node.client(Role::Orchestrator, AgentId::new("boss").unwrap(), session());
    let (client, task) = (tenure_sdk::client::Client::new(port), key.task_id.clone());
    let far = asked(async move { client.wait_for_end(&task).await }).await;
    let (waiting, waited) = (node.clone(), key.clone());
    let near = asked(async move { waiting.wait_for_end(&waited).await }).await;
    node.journal().next(Fault::UnknownKept);
    assert_eq!(code(cancel(&node, &key).await), Code::StorageError);
    near.await.unwrap().unwrap();
    assert_eq!(far.await.unwrap().unwrap().status, TaskStatus::Cancelled);
}
