//! What a command says of its Step, as its worker passes it on.

use serde::Serialize;
use tenure_core::command::{Caller, StepReport};
use tenure_core::id::{AttemptId, CommandId, CommitId, RunId, StepId, TaskId};
use tenure_core::status::{Role, StepStatus};
use tenure_core::view::{ClaimResult, Look, Looked};
use tenure_core::{Code, Command, Cx, Limits, Rejection, Stamp};
use uuid::Uuid;

use crate::worker::context::{Refused, StepContext};
use crate::worker::values::large_output;

/// What becomes of a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct RelayedReport {
    /// Whether it is in the log. A report that ends the Step is recorded when the command has ended.
    recorded: bool,
    /// The version of the Task, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
    /// Whether the command is to stop (CANCEL-07).
    cancel_requested: bool,
    /// How long it then has left, in milliseconds (POL-12).
    #[serde(skip_serializing_if = "Option::is_none")]
    time_left_ms: Option<u64>,
    /// What comes next.
    #[serde(skip_serializing_if = "Option::is_none")]
    more: Option<&'static str>,
}

/// Whether a report ends its Attempt (REPORT-07).
const fn is_final(status: Option<StepStatus>) -> bool {
    matches!(
        status,
        Some(
            StepStatus::Completed
                | StepStatus::Failed
                | StepStatus::Blocked
                | StepStatus::Cancelled
        )
    )
}

impl StepContext {
    /// Passes a report of the command on. One that ends the Step is held until the command has ended, after which no
    /// other counts (CTX-10). Whatever the report says of its Attempt, it is that of this context (PERM-02).
    ///
    /// # Errors
    /// Its form is wrong, or it is of a Step that the Run has not claimed, or content of the Step.
    pub(super) async fn relay(
        &self,
        task: &TaskId,
        mut report: StepReport,
    ) -> Result<RelayedReport, Refused> {
        let claim = self.claim();
        report.attempt_id = Some(claim.attempt_id);
        report.fencing_token = Some(claim.fencing_token);
        report.input_seen = None;
        let is_own = *task == claim.task_id && report.step_id == claim.step.step_id;
        let is_content = !report.content_fields.is_empty();
        if is_own && !is_content && is_final(report.status) {
            self.check_form(&report)?;
            self.say_for_command(report)?;
            let (recorded, version) = (false, None);
            return Ok(RelayedReport {
                more: Some("it is recorded when this command has ended: end it now"),
                ..self.relayed(recorded, version)
            });
        }
        // The scheduler says why it takes no report on another Step, or on content.
        let said = self.send_for_command(task, report).await?;
        let told = self.relayed(true, Some(said.version));
        Ok(RelayedReport {
            cancel_requested: told.cancel_requested || said.cancel_requested,
            time_left_ms: said.time_left_ms.or(told.time_left_ms),
            ..told
        })
    }

    fn relayed(&self, recorded: bool, version: Option<u64>) -> RelayedReport {
        let left = self.time_left().map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
        RelayedReport {
            recorded,
            version,
            cancel_requested: self.is_cancelled(),
            time_left_ms: left,
            more: None,
        }
    }

    /// Reads a Task, as far as the Run may.
    ///
    /// # Errors
    /// It is not the Task of the Run, the input is wrong, or no scheduler answers.
    pub(super) async fn look_at(&self, task: &TaskId, look: Look) -> Result<Looked, Refused> {
        self.reporter().look(&self.on(task), look).await
    }

    /// Asks for another Step under the same Run, which claims one in its life (CLAIM-03): the scheduler says so.
    ///
    /// # Errors
    /// As the contract says, always.
    pub(in crate::worker) async fn claim_another(
        &self,
        task: &TaskId,
        step: StepId,
    ) -> Result<ClaimResult, Refused> {
        let command = CommandId::new(Uuid::now_v7().to_string())?;
        self.reporter().claim(&self.on(task), step, command).await
    }

    /// K3: what the scheduler would refuse in any Task, but only when the command has ended.
    fn check_form(&self, report: &StepReport) -> Result<(), Refused> {
        let claim = self.claim();
        let mut report = report.clone();
        if large_output(&report).is_some() {
            report.output = None; // It goes as a blob.
        }
        let caller = Caller {
            agent: tenure_core::id::AgentId::new("command")?,
            role: Role::Worker,
            session_id: claim.session_id.clone(),
            run_id: Some(claim.run_id),
            worker_pool_id: Some(claim.step.worker_pool_id.clone()),
            origin: None,
        };
        let none = Uuid::nil();
        let stamp = Stamp {
            now: 0,
            steady: 0,
            commit_id: CommitId(none),
            run_id: RunId(none),
            attempt_id: AttemptId(none),
            random: 0,
        };
        let cx = Cx {
            caller: &caller,
            stamp,
            command_id: None,
            digest: None,
            expected_version: None,
            expected_spec_version: None,
            trace: None,
            epoch: 0,
            limits: &Limits::default(),
        };
        let refused: Rejection = Command::TaskUpdateStep(report).refused_without_task(&cx);
        match refused.code {
            Code::PermissionDenied => Ok(()), // There is no Task here; the form is right.
            _ => Err(refused),
        }
    }
}
