//! Commands: what may be asked of a Task, who may ask, and in which order it is checked (5.1).
//!
//! [`Task::decide`] runs a command against the state: it answers with a commit, which the state
//! already contains, or refuses and has changed nothing. One command, one file.

pub mod claim;
pub mod close;
pub mod create;
pub mod dispatch;
pub mod due;
pub mod lifecycle;
pub mod policy;
pub mod progress;
pub mod references;
pub mod relate;
pub mod report;
pub mod retry;
pub mod run_end;
mod topology;
mod tx;
pub mod update;
mod validate;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::event::{Bindings, Commit, LeaseEnd};
use crate::id::{
    AgentId, ArtifactId, AttemptId, CommandId, CommitId, Digest, EdgeId, HandlerName, Millis, PoolId,
    Ref, RunId, SessionId, StepId,
};
use crate::limits::Limits;
use crate::patch::{Operation, ReasonInput};
use crate::record::{Acceptance, ArtifactInput, Progress, RemoteRef, Value};
use crate::reject::{Code, Rejection};
use crate::status::{
    DeliveryState, EdgeKind, ReplyKind, Role, RunState, StepStatus, WaitKind, names,
};
use crate::table::Pos;
use crate::task::{Made, Task, Written};
use crate::view::Stage;

pub(crate) use tx::Tx;

/// Who asks, as the transport authenticated it (U12).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The principal.
    pub agent: AgentId,
    /// Its role.
    pub role: Role,
    /// The session it may act in.
    pub session_id: SessionId,
    /// The Run of its envelope, for workers (PERM-02).
    pub run_id: Option<RunId>,
    /// The pool it is a member of, for workers.
    pub worker_pool_id: Option<PoolId>,
}

impl Caller {
    /// The scheduler itself (U4).
    pub fn system(session_id: SessionId) -> Self {
        let agent = crate::id::system_agent();
        Self { agent, role: Role::System, session_id, run_id: None, worker_pool_id: None }
    }

    /// Orchestrator rights: its own, or the scheduler's.
    pub fn is_orchestrator(&self) -> bool {
        matches!(self.role, Role::Orchestrator | Role::System)
    }
}

/// What a decision needs from outside: time, ids and randomness are values (WAL-13).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The owner's clock.
    pub now: Millis,
    /// Id of the commit, if there will be one.
    pub commit_id: CommitId,
    /// Id of the Run, if one will be made.
    pub run_id: RunId,
    /// Id of the Attempt, if one will be made.
    pub attempt_id: AttemptId,
    /// For jitter.
    pub random: u64,
}

/// One command with everything around it.
#[derive(Debug, Clone, Copy)]
pub struct Cx<'a> {
    /// Who asks.
    pub caller: &'a Caller,
    /// Time, ids, randomness.
    pub stamp: Stamp,
    /// The caller's id of the command; none for timers.
    pub command_id: Option<&'a CommandId>,
    /// Its digest, made at the edge.
    pub digest: Option<Digest>,
    /// Judge only if the Task is at this version (OCC-02).
    pub expected_version: Option<u64>,
    /// W3C traceparent.
    pub trace: Option<&'a SmolStr>,
    /// Ownership epoch of this node, 0 when embedded.
    pub epoch: u64,
    /// Numbers in force.
    pub limits: &'a Limits,
}

/// A command that was carried out.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// What to append; none for replays and documented no-ops.
    pub commit: Option<Commit>,
    /// What to answer once it is durable.
    pub reply: Reply,
    /// The Task after each event of the commit: what its public events say (7.1).
    pub stages: Vec<Stage>,
}

impl Outcome {
    /// Nothing was written.
    pub const fn unchanged(reply: Reply) -> Self {
        Self { commit: None, reply, stages: Vec::new() }
    }
}

/// The answer to a command, to be completed with a summary of the Task (CTRL-04).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Its events, of now or of the first time.
    pub written: Option<Written>,
    /// Version after them.
    pub version: u64,
    /// The Attempt or Run it made.
    pub made: Made,
    /// Steps it changed, at most 50, by position.
    pub changed: Vec<Pos>,
    /// What the caller asked to wait for before the answer.
    pub waits: Option<Wait>,
}

/// What an answer may wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// The Task to end.
    TaskEnd,
    /// A Run to end, by position.
    RunEnd(Pos),
}

names! {
    /// Operations, by the names callers use (5.2 to 5.4).
    Operator {
        /// `agent.task_create`, `create_task`.
        TaskCreate = "task_create",
        /// `agent.task_update`, `update_task`.
        TaskUpdate = "task_update",
        /// `agent.task_claim_step`.
        TaskClaimStep = "task_claim_step",
        /// `agent.task_update_step`.
        TaskUpdateStep = "task_update_step",
        /// `agent.task_complete`.
        TaskComplete = "task_complete",
        /// `agent.task_fail`.
        TaskFail = "task_fail",
        /// `agent.task_cancel`.
        TaskCancel = "task_cancel",
        /// `agent.dispatch_worker`, `start_task`.
        DispatchWorker = "dispatch_worker",
        /// T03.
        SubmitTask = "submit_task",
        /// T07.
        PauseTask = "pause_task",
        /// T08.
        ResumeTask = "resume_task",
        /// T05.
        BlockTask = "block_task",
        /// T06.
        ReopenTask = "reopen_task",
        /// Progress, artifacts, delivery of the Task or the held Step.
        AppendTaskProgress = "append_task_progress",
        /// RETRY-11.
        RetryTask = "retry_task",
        /// REL-03.
        LinkTasks = "link_tasks",
        /// REL-03.
        UnlinkTasks = "unlink_tasks",
        /// T14.
        ArchiveTask = "archive_task",
        /// RUN-03, RUN-09.
        EndRun = "end_run",
        /// RUN-12.
        DeclineRun = "decline_run",
        /// RUN-02.
        CancelRun = "cancel_run",
        /// S26.
        ReleaseStep = "release_step",
        /// Internal: a ready Step goes to a worker that asked for work (DISP-14).
        GrantStep = "grant_step",
        /// Internal: leases that ended without a word (LEASE-07).
        ExpireLeases = "expire_leases",
        /// Internal: something fell due (RECOVER-09).
        Due = "due",
        /// `agent.task_get`.
        TaskGet = "task_get",
        /// `agent.task_list`.
        TaskList = "task_list",
        /// `agent.task_query_steps`.
        TaskQuerySteps = "task_query_steps",
        /// `take_run`.
        TakeRun = "take_run",
        /// `heartbeat`.
        Heartbeat = "heartbeat",
        /// `inspect_task`, `replay_task`.
        InspectTask = "inspect_task",
        /// `task_views`.
        TaskViews = "task_views",
        /// `task_board_summary`.
        TaskBoardSummary = "task_board_summary",
        /// `agent.task_template`.
        TaskTemplate = "task_template",
    }
}

impl Operator {
    /// Whether a role has the operation in its tool set (PERM-04 to PERM-08, PERM-15).
    pub const fn is_open_to(self, role: Role) -> bool {
        use Operator as O;
        match role {
            Role::System => true,
            Role::SubAgent => false,
            Role::Observer => matches!(
                self,
                O::TaskGet | O::TaskList | O::TaskQuerySteps | O::InspectTask | O::TaskViews
            ),
            Role::Worker => matches!(
                self,
                O::TaskGet
                    | O::TaskList
                    | O::TaskQuerySteps
                    | O::TaskBoardSummary
                    | O::TaskClaimStep
                    | O::TaskUpdateStep
                    | O::AppendTaskProgress
                    | O::TakeRun
                    | O::Heartbeat
                    | O::EndRun
                    | O::DeclineRun
                    | O::ReleaseStep
            ),
            Role::Orchestrator => !matches!(
                self,
                O::TaskClaimStep
                    | O::TakeRun
                    | O::Heartbeat
                    | O::EndRun
                    | O::DeclineRun
                    | O::ReleaseStep
                    | O::GrantStep
                    | O::ExpireLeases
                    | O::Due
            ),
        }
    }
}

/// K1: nobody but the scheduler bears its name, and it bears no other (U12).
pub fn check_principal(caller: &Caller) -> Result<(), Rejection> {
    if (caller.agent == crate::id::system_agent()) == (caller.role == Role::System) {
        return Ok(());
    }
    Err(Rejection::new(Code::Unauthenticated, "the name `system` is the scheduler's own"))
}

/// K2: the operation is in the caller's tool set.
pub fn check_tool(caller: &Caller, operation: Operator) -> Result<(), Rejection> {
    if operation.is_open_to(caller.role) {
        return Ok(());
    }
    let message = format!("{operation} is not a tool of a {}", caller.role);
    Err(Rejection::new(Code::ToolNotAvailable, message).with("operation", operation.as_str()))
}

/// Ends a Task well.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Complete {
    /// The criteria as they stand now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acceptance: Option<Vec<Acceptance>>,
    /// Artifacts of the Task.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<ArtifactInput>,
    /// Evidence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence_refs: Vec<Ref>,
    /// In prose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_summary: Option<String>,
}

/// Fails or cancels a Task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Close {
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReasonInput>,
    /// Whether to answer only when the Task has ended; default true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<bool>,
}

impl Close {
    fn waits(&self) -> Option<Wait> {
        self.wait.unwrap_or(true).then_some(Wait::TaskEnd)
    }
}

/// A reason alone.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Why {
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReasonInput>,
}

/// `agent.task_update_step`: status and results of a Step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepReport {
    /// Artifacts by id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifact_ids: Vec<ArtifactId>,
    /// Artifacts with their records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<ArtifactInput>,
    /// The caller's Attempt, for workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_id: Option<AttemptId>,
    /// Checkpoints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checkpoint_refs: Vec<Ref>,
    /// Names of content fields that came with it and are refused (REPORT-04).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub content_fields: Vec<SmolStr>,
    /// The caller's token, for workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fencing_token: Option<u64>,
    /// What comes with a reopening, orchestrators only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub input_refs: Vec<Ref>,
    /// The result, with `completed` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Outputs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output_refs: Vec<Ref>,
    /// Delta.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReasonInput>,
    /// The peer that does the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteRef>,
    /// How the output answers, with `completed` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<ReplyKind>,
    /// In prose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_summary: Option<String>,
    /// The new status; none: results and progress only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<StepStatus>,
    /// The Step.
    pub step_id: StepId,
    /// What a blocked Step waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_kind: Option<WaitKind>,
}

impl StepReport {
    /// A report that says nothing yet.
    pub fn on(step_id: StepId) -> Self {
        Self {
            artifact_ids: Vec::new(),
            artifacts: Vec::new(),
            attempt_id: None,
            checkpoint_refs: Vec::new(),
            content_fields: Vec::new(),
            fencing_token: None,
            input_refs: Vec::new(),
            output: None,
            output_refs: Vec::new(),
            progress: None,
            reason: None,
            remote: None,
            reply: None,
            result_summary: None,
            status: None,
            step_id,
            wait_kind: None,
        }
    }
}

/// `agent.dispatch_worker`: makes a Run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dispatch {
    /// The hard scope (DISP-10).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_step_ids: Option<Vec<StepId>>,
    /// Thread and environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bindings: Option<Bindings>,
    /// For the worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// Whether to answer only when the Run has ended; default false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<bool>,
    /// The pool.
    pub worker_pool_id: PoolId,
}

impl Dispatch {
    fn waits(&self, run: Pos) -> Option<Wait> {
        self.wait.unwrap_or(false).then_some(Wait::RunEnd(run))
    }
}

/// `append_task_progress` on the Task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AppendProgress {
    /// Artifacts of the Task.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<ArtifactInput>,
    /// Whether the result reached who waits for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_state: Option<DeliveryState>,
    /// Evidence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence_refs: Vec<Ref>,
    /// Late input.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub input_refs: Vec<Ref>,
    /// Delta.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// To whom it is delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<Ref>,
}

/// `retry_task` on a live Task (RETRY-11).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetrySteps {
    /// Why.
    pub reason: ReasonInput,
    /// Which failed Steps; none: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_ids: Option<Vec<StepId>>,
}

/// `link_tasks`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// What it means.
    pub kind: EdgeKind,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The other end.
    pub to: Ref,
}

/// `unlink_tasks`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unlink {
    /// Which relation.
    pub edge_id: EdgeId,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

names! {
    /// How a worker says its Run went (5.4).
    RunOutcome {
        /// It came to its end.
        Finished = "finished",
        /// It broke.
        Error = "error",
        /// It was stopped.
        Cancelled = "cancelled",
        /// It took too long.
        TimedOut = "timed_out",
    }
}

/// `end_run`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndRun {
    /// How it went.
    pub outcome: RunOutcome,
    /// Its own final output: handed on, never stored (DISP-13).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The Run.
    pub run_id: RunId,
}

/// `decline_run` and `cancel_run`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunAndWhy {
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReasonInput>,
    /// The Run.
    pub run_id: RunId,
}

/// A worker that asked for work (DISP-14).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The worker.
    pub worker_id: AgentId,
    /// Its pool.
    pub worker_pool_id: PoolId,
    /// What it can run; none: everything.
    pub handlers: Option<Vec<HandlerName>>,
}

/// A command on an existing Task.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "operation", content = "input", rename_all = "snake_case")]
pub enum Command {
    /// `agent.task_update`.
    TaskUpdate {
        /// In the given order (PATCH-14).
        operations: Vec<Operation>,
    },
    /// `agent.task_claim_step`.
    TaskClaimStep {
        /// The Run, as the envelope carries it.
        run_id: RunId,
        /// The Step.
        step_id: StepId,
    },
    /// `agent.task_update_step`.
    TaskUpdateStep(StepReport),
    /// `agent.task_complete`.
    TaskComplete(Complete),
    /// `agent.task_fail`.
    TaskFail(Close),
    /// `agent.task_cancel`.
    TaskCancel(Close),
    /// `agent.dispatch_worker`.
    DispatchWorker(Dispatch),
    /// `submit_task`.
    SubmitTask(Why),
    /// `pause_task`.
    PauseTask(Why),
    /// `resume_task`.
    ResumeTask(Why),
    /// `block_task`.
    BlockTask(Why),
    /// `reopen_task`.
    ReopenTask(Why),
    /// `append_task_progress` on the Task.
    AppendTaskProgress(AppendProgress),
    /// `retry_task` on a live Task.
    RetryTask(RetrySteps),
    /// `link_tasks`.
    LinkTasks(Link),
    /// `unlink_tasks`.
    UnlinkTasks(Unlink),
    /// `archive_task`.
    ArchiveTask(Why),
    /// `end_run`.
    EndRun(EndRun),
    /// `decline_run`.
    DeclineRun(RunAndWhy),
    /// `cancel_run`.
    CancelRun(RunAndWhy),
    /// `release_step`.
    ReleaseStep {
        /// The Attempt.
        attempt_id: AttemptId,
        /// Its token.
        fencing_token: u64,
    },
    /// Internal: the oldest fitting ready Step goes to a worker.
    #[serde(skip)]
    GrantStep(Grant),
    /// Internal: Attempts whose lease ended without a word.
    #[serde(skip)]
    ExpireLeases {
        /// The Attempts; those that are not open any more are passed over.
        attempt_ids: Vec<AttemptId>,
        /// Why.
        reason: LeaseEnd,
    },
    /// Internal: judges the first thing that is due.
    #[serde(skip)]
    Due,
}

impl Command {
    /// The operation's name.
    pub const fn operation(&self) -> Operator {
        match self {
            Self::TaskUpdate { .. } => Operator::TaskUpdate,
            Self::TaskClaimStep { .. } => Operator::TaskClaimStep,
            Self::TaskUpdateStep(_) => Operator::TaskUpdateStep,
            Self::TaskComplete(_) => Operator::TaskComplete,
            Self::TaskFail(_) => Operator::TaskFail,
            Self::TaskCancel(_) => Operator::TaskCancel,
            Self::DispatchWorker(_) => Operator::DispatchWorker,
            Self::SubmitTask(_) => Operator::SubmitTask,
            Self::PauseTask(_) => Operator::PauseTask,
            Self::ResumeTask(_) => Operator::ResumeTask,
            Self::BlockTask(_) => Operator::BlockTask,
            Self::ReopenTask(_) => Operator::ReopenTask,
            Self::AppendTaskProgress(_) => Operator::AppendTaskProgress,
            Self::RetryTask(_) => Operator::RetryTask,
            Self::LinkTasks(_) => Operator::LinkTasks,
            Self::UnlinkTasks(_) => Operator::UnlinkTasks,
            Self::ArchiveTask(_) => Operator::ArchiveTask,
            Self::EndRun(_) => Operator::EndRun,
            Self::DeclineRun(_) => Operator::DeclineRun,
            Self::CancelRun(_) => Operator::CancelRun,
            Self::ReleaseStep { .. } => Operator::ReleaseStep,
            Self::GrantStep(_) => Operator::GrantStep,
            Self::ExpireLeases { .. } => Operator::ExpireLeases,
            Self::Due => Operator::Due,
        }
    }

    /// Commands of a holder, which skip K9 and K10 (5.1).
    fn is_holders(&self, caller: &Caller) -> bool {
        match self {
            Self::EndRun(_) | Self::ReleaseStep { .. } => true,
            Self::TaskUpdateStep(_) => caller.role == Role::Worker,
            _ => false,
        }
    }

    /// Whether the command is judged although the Task is closing (K9).
    fn passes_closing(&self, caller: &Caller) -> bool {
        self.is_holders(caller)
            || matches!(
                self,
                Self::DeclineRun(_)
                    | Self::CancelRun(_)
                    | Self::TaskFail(_)
                    | Self::TaskCancel(_)
                    | Self::ExpireLeases { .. }
                    | Self::Due
            )
    }

    /// Whether the command is judged although the Task has ended (K8).
    fn passes_terminal(&self) -> bool {
        match self {
            Self::ArchiveTask(_)
            | Self::RetryTask(_)
            | Self::EndRun(_)
            | Self::DeclineRun(_)
            | Self::CancelRun(_) => true,
            Self::AppendTaskProgress(p) => p.is_delivery_only(),
            _ => false,
        }
    }
}

impl Task {
    /// Decides a command on this Task.
    ///
    /// On `Ok` the state contains the commit; the caller appends it, then calls
    /// [`settle`](Task::settle), or [`abort`](Task::abort) if it did not become durable. On `Err`
    /// nothing has changed (WAL-11).
    pub fn decide(&mut self, cx: &Cx<'_>, command: &Command) -> Result<Outcome, Rejection> {
        check_principal(cx.caller)?;
        check_tool(cx.caller, command.operation())?;
        command.validate(cx)?;
        self.check_session(cx.caller)?;
        self.check_content_fields(cx, command)?;
        if let Some(mut reply) = self.replayed(cx)? {
            reply.waits = self.waits_again(command, reply.made);
            return Ok(Outcome::unchanged(reply));
        }
        if let Some(reply) = self.repeated_report(cx, command) {
            return Ok(Outcome::unchanged(reply));
        }
        self.check_rights(cx, command)?;
        self.check_live(cx, command)?;
        let point = self.savepoint();
        let mut tx = Tx::begin(self, cx);
        let result = tx.run(command).and_then(|made| tx.finish(made));
        match result {
            Ok(outcome) => {
                if outcome.commit.is_none() {
                    self.keep_unwritten(point);
                }
                Ok(outcome)
            }
            Err(rejection) => {
                self.rollback(point);
                Err(rejection)
            }
        }
    }

    /// K4: the session is the Task's.
    fn check_session(&self, caller: &Caller) -> Result<(), Rejection> {
        if caller.session_id == self.head.spec.session_id {
            return Ok(());
        }
        Err(Rejection::new(Code::PermissionDenied, "the task is not of your session"))
    }

    /// K6: the answer of the first time, for a command that was carried out already.
    pub fn replayed(&self, cx: &Cx<'_>) -> Result<Option<Reply>, Rejection> {
        let Some(record) = cx.command_id.and_then(|id| self.commands.by_key(id)) else {
            return Ok(None);
        };
        if record.digest != cx.digest {
            let message = "this command_id was used for a different command";
            return Err(Rejection::new(Code::IdempotencyConflict, message)
                .with("command_id", record.command_id.as_str()));
        }
        let written = record.written;
        let changed = Vec::new();
        let version = written.version();
        Ok(Some(Reply { written: Some(written), version, made: record.made, changed, waits: None }))
    }

    /// What a replayed command still waits for: the first answer may not have been given yet.
    fn waits_again(&self, command: &Command, made: Made) -> Option<Wait> {
        match (command, made) {
            (Command::TaskFail(close) | Command::TaskCancel(close), _) => {
                close.waits().filter(|_| self.is_closing())
            }
            (Command::DispatchWorker(dispatch), Made::Run(run)) => {
                dispatch.waits(run).filter(|_| self.runs[run].state != RunState::Ended)
            }
            _ => None,
        }
    }

    /// K8, K9, K10.
    fn check_live(&self, cx: &Cx<'_>, command: &Command) -> Result<(), Rejection> {
        if self.is_terminal() && !command.passes_terminal() {
            let message = format!("the task is {}", self.head.status);
            return Err(Rejection::new(Code::TaskTerminal, message)
                .with("status", self.head.status.as_str()));
        }
        if self.is_closing() && !command.passes_closing(cx.caller) {
            let intent = self.head.cancel_requested.as_ref().map_or("", |c| c.intent.as_str());
            let message = "the task is being closed";
            return Err(Rejection::new(Code::TaskCancelling, message).with("intent", intent));
        }
        match cx.expected_version {
            Some(expected) if expected != self.mark.version && !command.is_holders(cx.caller) => {
                let message = format!("the task is at version {}", self.mark.version);
                Err(Rejection::new(Code::VersionConflict, message)
                    .with("current_version", self.mark.version)
                    .with("expected_version", expected))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn step_or_reject(&self, id: &StepId) -> Result<Pos, Rejection> {
        self.find_step(id).ok_or_else(|| {
            Rejection::new(Code::StepNotFound, format!("step {id} does not exist"))
                .with("step_id", id.as_str())
        })
    }

    pub(crate) fn run_or_reject(&self, id: RunId) -> Result<Pos, Rejection> {
        self.runs.find(&id).ok_or_else(|| {
            Rejection::new(Code::RunNotFound, format!("run {id} does not exist"))
                .with("run_id", id.to_string())
        })
    }
}

/// A move that section 3 does not have.
pub(crate) fn invalid_transition(from: &str, to: &str) -> Rejection {
    Rejection::new(Code::InvalidTransition, format!("{from} cannot become {to}"))
        .with("from", from)
        .with("to", to)
}
