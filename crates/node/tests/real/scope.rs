//! What reaches a worker of a Step outside its scope, byte by byte: nothing.

use futures::StreamExt as _;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tenure_core::command::create::CreateTask;
use tenure_core::command::{Command, RunOutcome};
use tenure_core::event::ReleaseReason;
use tenure_core::id::RunId;
use tenure_core::status::StepStatus;
use tenure_core::view::{
    BoardInput, ClaimResult, ListInput, Look, QueryInput, RunOffer, StepPage, TaskLines, TaskPage,
    WorkerTask, WriteSummary,
};
use tenure_core::{Code, Rejection};
use tenure_wire::bus::V;
use tenure_wire::bus::request::Ask;
use tenure_wire::bus::worker::{
    Claim, Heartbeat, Holding, Looking, Pulses, QuerySteps, Report, Reported, Reports, Word,
};

use crate::common::{Caller, Hand, PARTITIONS, Servers};

/// In all that is written of the hidden Step.
const SECRET: &str = "secretword";

fn steps() -> Json {
    let step = |id: &str, text: &str, on: &[&str]| {
        json!({"step_id": id, "title": text, "summary": text, "depends_on_step_ids": on,
               "input": {"data": format!("\"{text}\"")}})
    };
    json!({"task_id": "t", "title": "t", "summary": "", "dispatch": "manual", "completion": "manual",
           "objective": SECRET, "metadata": {"why": SECRET},
           "steps": [step("dep", SECRET, &[]), step("seen", "open", &["dep"]),
                     step("hidden", SECRET, &[]), step("spare", SECRET, &[])]})
}

async fn command(bob: &Caller, id: &str, operation: &str, input: Json) -> WriteSummary {
    let command: Command =
        serde_json::from_value(json!({"operation": operation, "input": input})).unwrap();
    bob.ask("t", id, Ask::Command(Box::new(command))).await.unwrap()
}

async fn dispatch(bob: &Caller, id: &str, scope: &str) -> RunId {
    let input = json!({"worker_pool_id": "default", "allowed_step_ids": [scope]});
    command(bob, id, "dispatch_worker", input).await.run_id.unwrap()
}

async fn offer(hand: &mut Hand) -> RunOffer {
    let mut deliveries = hand.take().await;
    *deliveries.remove(0).run.expect("a run")
}

/// A worker that asks under Runs of one Task.
struct Asks<'h>(&'h Hand, u32);

impl Asks<'_> {
    async fn to<T: serde::de::DeserializeOwned>(
        &self,
        verb: &str,
        message: &impl Serialize,
    ) -> Result<T, Rejection> {
        self.0.ask(&format!("{verb}.{}", self.1), message).await
    }

    async fn claim(
        &self,
        run: &RunOffer,
        run_id: RunId,
        step: &str,
    ) -> Result<ClaimResult, Rejection> {
        let command_id = format!("{step}-{run_id}").parse().unwrap();
        let (session_id, task_id) = (run.session_id.clone(), run.task_id.clone());
        let step_id = step.parse().unwrap();
        self.to("claim", &Claim { v: V, command_id, session_id, task_id, run_id, step_id }).await
    }

    async fn query(&self, run: &RunOffer, run_id: RunId) -> Result<StepPage, Rejection> {
        let (session_id, task_id) = (run.session_id.clone(), run.task_id.clone());
        self.to("query", &QuerySteps { v: V, session_id, task_id, run_id, offset: 0 }).await
    }

    async fn looks<T: serde::de::DeserializeOwned>(
        &self,
        run: &RunOffer,
        run_id: RunId,
        look: Look,
    ) -> Result<T, Rejection> {
        let (session_id, task_id) = (run.session_id.clone(), run.task_id.clone());
        self.to("look", &Looking { v: V, session_id, task_id, run_id, look }).await
    }

    async fn says(&self, run: &RunOffer, run_id: RunId, word: Word) -> Result<(), Rejection> {
        let (session_id, task_id) = (run.session_id.clone(), run.task_id.clone());
        let reports = vec![Report { session_id, task_id, run_id, word }];
        let message = Reports { v: V, room: None, reports };
        let mut said: Reported = self.to("report", &message).await.unwrap();
        said.results.remove(0).error.map_or(Ok(()), Err)
    }
}

fn report(step: &str, of: &ClaimResult, status: StepStatus, text: &str) -> Word {
    let report = json!({
        "step_id": step, "attempt_id": of.attempt_id, "fencing_token": of.fencing_token,
        "status": status, "result_summary": text, "progress": {"summary": text},
    });
    Word::TaskUpdateStep(serde_json::from_value(report).unwrap())
}

/// PERM-16, PERM-13, PROMPT-06, GET-04, LIST-08, QUERY-04, CLAIM-05, CLAIM-14, DISP-10, over NATS: whatever
/// a worker asks, of Steps that it does not see and with the names of another's Run and Attempt, no byte
/// that is sent to it is of a hidden Step, but the output of its dependency; and nothing of the hidden
/// Step changes.
#[tokio::test(flavor = "multi_thread")]
async fn no_byte_of_a_hidden_step_reaches_a_worker() {
    let servers = Servers::start();
    let _node = servers.node().await;
    let bob = Caller::new(&servers).await;
    let input: CreateTask = serde_json::from_value(steps()).unwrap();
    let _: WriteSummary = bob.ask("t", "create", Ask::Create(Box::new(input))).await.unwrap();
    let partition = bob.key("t").partition(PARTITIONS);
    let done =
        json!({"step_id": "dep", "status": "completed", "output": {"data": "\"handed on\""}});
    command(&bob, "dep", "task_update_step", done).await;

    let mut eve = Hand::join(&servers, "eve").await;
    eve.room(1).await;
    let eves_run = dispatch(&bob, "for-eve", "hidden").await;
    let eves = offer(&mut eve).await;
    let eves_claim = Asks(&eve, partition).claim(&eves, eves_run, "hidden").await.unwrap();
    let word = report("hidden", &eves_claim, StepStatus::Running, SECRET);
    Asks(&eve, partition).says(&eves, eves_run, word).await.unwrap();
    eve.room(0).await;

    let spy = servers.client().await;
    let mut alice = Hand::unheard(&servers, "alice").await;
    let mut heard = spy.subscribe(format!("{}.>", alice.name.inbox())).await.unwrap();
    spy.flush().await.unwrap();
    alice.hello().await;
    alice.room(1).await;
    let run = dispatch(&bob, "for-alice", "seen").await;
    let offered = offer(&mut alice).await;
    assert_eq!(offered.run_id, run);
    let asks = Asks(&alice, partition);
    let denied = |answer: Result<(), Rejection>, code| assert_eq!(answer.unwrap_err().code, code);

    let page = asks.query(&offered, run).await.unwrap();
    assert_eq!(page.steps.len(), 1);
    denied(asks.query(&offered, eves_run).await.map(drop), Code::PermissionDenied);
    let board = Look::TaskBoardSummary(BoardInput::default());
    let lines = asks.looks::<TaskLines>(&offered, run, board.clone()).await.unwrap().lines;
    assert!(!lines.is_empty() && lines.iter().all(|(_, line)| line.contains("seen")), "{lines:?}");
    let all = QueryInput { include_terminal_steps: true, ..QueryInput::default() };
    let (query, list) = (Look::TaskQuerySteps(all), Look::TaskList(ListInput::default()));
    let page: StepPage = asks.looks(&offered, run, query.clone()).await.unwrap();
    assert_eq!(page.steps.len(), 1);
    let task: WorkerTask = asks.looks(&offered, run, Look::TaskGet).await.unwrap();
    assert_eq!((task.steps.unwrap().len(), task.run.run_id), (1, run));
    let own: TaskPage<WorkerTask> = asks.looks(&offered, run, list.clone()).await.unwrap();
    assert_eq!((own.tasks.len(), &own.tasks[0].steps), (1, &None));
    for look in [board, query, list, Look::TaskGet] {
        let foreign: Result<Json, _> = asks.looks(&offered, eves_run, look).await;
        denied(foreign.map(drop), Code::PermissionDenied);
    }
    let hidden = asks.claim(&offered, run, "hidden").await.unwrap_err();
    let nowhere = asks.claim(&offered, run, "nowhere").await.unwrap_err();
    let alike = serde_json::to_string(&hidden).unwrap().replace("hidden", "nowhere");
    assert_eq!(alike, serde_json::to_string(&nowhere).unwrap());
    assert_eq!(hidden.code, Code::StepOutOfScope);
    denied(asks.claim(&offered, eves_run, "seen").await.map(drop), Code::StepAlreadyClaimedByRun);
    let claim = asks.claim(&offered, run, "seen").await.unwrap();
    assert_eq!(claim.dependencies.len(), 1, "and its output");

    for status in [StepStatus::Completed, StepStatus::Failed, StepStatus::Running] {
        for of in [&claim, &eves_claim] {
            let word = report("hidden", of, status, "mine");
            denied(asks.says(&offered, run, word.clone()).await, Code::PermissionDenied);
            denied(asks.says(&offered, eves_run, word).await, Code::PermissionDenied);
        }
    }
    let (attempt_id, fencing_token) = (eves_claim.attempt_id, eves_claim.fencing_token);
    let (reason, retry_after_ms) = (ReleaseReason::Unfit, None);
    for word in [
        Word::ReleaseStep { attempt_id, fencing_token, reason, retry_after_ms },
        Word::EndRun { outcome: RunOutcome::Finished, result: None },
        Word::DeclineRun { reason: None },
    ] {
        denied(asks.says(&offered, eves_run, word).await, Code::PermissionDenied);
    }
    let (session_id, task_id) = (offered.session_id.clone(), offered.task_id.clone());
    let held = Holding {
        session_id,
        task_id,
        run_id: eves_run,
        attempt_id,
        fencing_token,
        input_seen: None,
    };
    let beat = Heartbeat { v: V, holdings: vec![held] };
    let pulses: Pulses = alice.ask("hb", &beat).await.unwrap();
    assert_eq!(pulses.pulses, [], "it keeps nothing alive for another, and learns nothing of it");
    let word = report("seen", &claim, StepStatus::Completed, "done");
    asks.says(&offered, run, word).await.unwrap();

    let word = report("hidden", &eves_claim, StepStatus::Completed, "done");
    Asks(&eve, partition).says(&eves, eves_run, word).await.unwrap();
    spy.flush().await.unwrap();
    let mut messages = 0;
    let quiet = std::time::Duration::from_millis(300);
    while let Ok(Some(message)) = tokio::time::timeout(quiet, heard.next()).await {
        messages += 1;
        let shows =
            |word: &str| message.payload.windows(word.len()).any(|bytes| bytes == word.as_bytes());
        assert!(!shows(SECRET), "{}", String::from_utf8_lossy(&message.payload));
    }
    assert!(messages > 20, "{messages} messages were seen");
}
