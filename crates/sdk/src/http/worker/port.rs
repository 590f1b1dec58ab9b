//! [`HttpWorker`] as a worker port: the request that each call makes.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use hyper::Method;
use serde::Serialize;
use tenure_core::Rejection;
use tenure_core::command::{GiveBack, RunOutcome, StepReport};
use tenure_core::id::{AgentId, CommandId, RunId, SessionId, StepId, TaskId};
use tenure_core::patch::ReasonInput;
use tenure_core::view::{ClaimResult, Look, Looked, RunOffer, StepPage};
use tenure_ports::bus::{Credit, Holding, Pulse, Recorded, WorkerPort};
use tenure_ports::erased::ErasedWorker;
use tenure_ports::journal::TaskKey;
use tenure_wire::bus::blob::{BlobGet, BlobPart, BlobPut, BlobTaken};
use tenure_wire::bus::request::RawBytes;
use tenure_wire::bus::worker::Word;

use super::link::{get_bytes, json, put_bytes, read};
use super::report::SaidReport;
use super::{BLOB_PATIENCE, HttpWorker, PATIENCE, beat};
use crate::http::link::HttpRequest;

fn task_of(run: &RunOffer) -> TaskKey {
    TaskKey { session_id: run.session_id.clone(), task_id: run.task_id.clone() }
}

/// What is asked under a Run, beside its Task.
#[derive(Serialize)]
struct UnderRun<'a, T> {
    session_id: &'a SessionId,
    task_id: &'a TaskId,
    #[serde(flatten)]
    asked: T,
}

#[derive(Serialize)]
struct FromOffset {
    offset: usize,
}

#[derive(Serialize)]
struct StepToClaim<'a> {
    step_id: &'a StepId,
    command_id: &'a CommandId,
}

fn under(
    task: &TaskKey,
    run: RunId,
    what: &str,
    asked: impl Serialize,
) -> Result<HttpRequest, Rejection> {
    let TaskKey { session_id, task_id } = task;
    let asked = UnderRun { session_id, task_id, asked };
    json(Method::POST, format!("/runs/{run}/{what}"), &asked)
}

/// The path of a blob for an Attempt, with the ids in its query string.
fn blob_path(held: &Holding, digest: &str) -> String {
    let Holding { task, run_id, attempt_id, fencing_token, .. } = held;
    let TaskKey { session_id, task_id } = task;
    format!(
        "/attempts/{attempt_id}/blobs/{digest}?session_id={session_id}&task_id={task_id}\
         &run_id={run_id}&fencing_token={fencing_token}"
    )
}

/// The bytes of a blob from an offset on. A gateway sends all of them at once.
fn rest_of(whole: &Bytes, offset: u64) -> BlobPart {
    let from = usize::try_from(offset).unwrap_or(usize::MAX).min(whole.len());
    let data = RawBytes(whole.slice(from..).to_vec());
    BlobPart { data, size_bytes: whole.len() as u64, next_offset: None }
}

impl WorkerPort for HttpWorker {
    type Answer = BoxFuture<'static, Result<Recorded, Rejection>>;

    fn is_remote(&self) -> bool {
        true
    }

    fn erased(self: Arc<Self>) -> ErasedWorker {
        ErasedWorker::of(self)
    }

    fn id(&self) -> &AgentId {
        &self.shared.agent
    }

    fn credit(&self, credit: Credit) {
        self.shared.note(credit);
        self.shared.room_changed.notify_one();
    }

    fn query(
        &self,
        run: &RunOffer,
        offset: usize,
    ) -> impl Future<Output = Result<StepPage, Rejection>> + Send + 'static {
        self.ask(under(&task_of(run), run.run_id, "query", FromOffset { offset }))
    }

    fn look(
        &self,
        task: &TaskKey,
        run_id: RunId,
        look: Look,
    ) -> impl Future<Output = Result<Looked, Rejection>> + Send + 'static {
        let (shared, request) = (Arc::clone(&self.shared), under(task, run_id, "look", &look));
        async move {
            let answer = shared.ask(&request?, PATIENCE).await?;
            Ok(match look {
                Look::TaskGet => Looked::Task(read(&answer)?),
                Look::TaskList(_) => Looked::List(read(&answer)?),
                Look::TaskQuerySteps(_) => Looked::Steps(read(&answer)?),
                Look::TaskBoardSummary(_) => Looked::Board(read(&answer)?),
            })
        }
    }

    fn blob_get(
        &self,
        held: &Holding,
        asked: BlobGet,
    ) -> impl Future<Output = Result<BlobPart, Rejection>> + Send + 'static {
        let digest = asked.reference.as_str().strip_prefix("blob:").unwrap_or_default();
        let (shared, request) = (Arc::clone(&self.shared), get_bytes(blob_path(held, digest)));
        async move { Ok(rest_of(&shared.ask(&request, BLOB_PATIENCE).await?, asked.offset)) }
    }

    fn blob_put(
        &self,
        held: &Holding,
        part: BlobPut,
    ) -> impl Future<Output = Result<BlobTaken, Rejection>> + Send + 'static {
        let BlobPut { data, digest, offset, size_bytes } = part;
        let path = blob_path(held, &digest);
        let path = format!("{path}&offset={offset}&size_bytes={size_bytes}");
        self.ask(Ok(put_bytes(path, data.0)))
    }

    fn claim(
        &self,
        run: &RunOffer,
        step_id: &StepId,
        command_id: &CommandId,
    ) -> impl Future<Output = Result<ClaimResult, Rejection>> + Send + 'static {
        self.ask(under(&task_of(run), run.run_id, "claim", StepToClaim { step_id, command_id }))
    }

    fn leave(
        &self,
        run: &RunOffer,
        declined: Option<ReasonInput>,
        room: Option<Credit>,
    ) -> Self::Answer {
        let word = match declined {
            None => Word::EndRun { outcome: RunOutcome::Finished, result: None },
            reason => Word::DeclineRun { reason },
        };
        self.tell(run.run_id, SaidReport::on_run(&task_of(run), run.run_id, &word), room)
    }

    fn report(&self, held: &Holding, report: StepReport, room: Option<Credit>) -> Self::Answer {
        let word = Word::TaskUpdateStep(report);
        self.tell(held.run_id, SaidReport::on_attempt(held, &word), room)
    }

    fn end_run(
        &self,
        held: &Holding,
        outcome: RunOutcome,
        result: Option<String>,
        room: Option<Credit>,
    ) -> Self::Answer {
        let word = Word::EndRun { outcome, result };
        self.tell(held.run_id, SaidReport::on_attempt(held, &word), room)
    }

    fn release(&self, held: &Holding, how: GiveBack, room: Option<Credit>) -> Self::Answer {
        let (attempt_id, fencing_token) = (held.attempt_id, held.fencing_token);
        let GiveBack { reason, retry_after_ms } = how;
        let word = Word::ReleaseStep { attempt_id, fencing_token, reason, retry_after_ms };
        self.tell(held.run_id, SaidReport::on_attempt(held, &word), room)
    }

    async fn heartbeat(&self, holdings: &[Holding]) -> Vec<Pulse> {
        beat::heartbeat(&self.shared, holdings).await
    }
}
