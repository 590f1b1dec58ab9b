//! Commands: what callers may ask of a Task, who may ask it, and in which order it is checked (5.1).
//!
//! [`Task::decide`] judges a command by the state. It answers with a commit, which the state then already contains,
//! or refuses and has changed nothing. Each command has its own file. Step 5 of the walk in docs/architecture.md.

mod absent;
mod again;
pub mod blobs;
pub mod claim;
pub mod close;
pub mod create;
mod deadline;
pub mod dispatch;
pub mod due;
pub mod edition;
mod family;
mod follow;
mod growth;
mod guard;
mod input;
mod inputs;
pub(crate) mod labels;
mod late_input;
pub mod lifecycle;
mod name;
mod operator;
pub mod policy;
pub mod pools;
pub mod progress;
mod recreate;
pub mod references;
mod refusals;
pub mod relate;
pub mod report;
pub mod retry;
pub mod run_end;
mod settle;
mod topology;
mod tx;
pub mod update;
pub(crate) mod validate;
mod write;

use alloc::format;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::event::{Commit, LeaseEnd, ReleaseReason};
use crate::id::{
    AgentId, AttemptId, CommandId, CommitId, Digest, Millis, PoolId, RunId, SessionId, StepId,
};
use crate::limits::Limits;
use crate::patch::Operation;
use crate::record::WorkerOrigin;
use crate::reject::{Code, Rejection};
use crate::runtime::RuntimeEvent;
use crate::status::Role;
use crate::table::Pos;
use crate::task::Unfinished;
use crate::task::{Made, Task, Written};

pub use absent::not_its_runs;
pub use input::{
    AppendProgress, Close, Complete, Dispatch, EndRun, Grant, KeepFact, Link, NextStepNeeds,
    OnBehalf, RetryEnded, RetrySteps, RunAndWhy, RunOutcome, RunTtl, StepReport, Unlimited, Unlink,
    Why,
};
pub use operator::{Operator, check_principal, check_session, check_tool};
pub use run_end::GiveBack;
pub(crate) use tx::Tx;
pub use write::{Context, Write};

/// The caller, as the transport authenticated it (U12).
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
    /// Where it runs and what it is, for workers that said so (ATT-12).
    pub origin: Option<Arc<WorkerOrigin>>,
}

impl Caller {
    /// The scheduler itself (U4).
    pub fn system(session_id: SessionId) -> Self {
        let agent = crate::id::system_agent();
        Self {
            agent,
            role: Role::System,
            session_id,
            run_id: None,
            worker_pool_id: None,
            origin: None,
        }
    }
}

/// What a decision needs from outside: time, ids and randomness come in as values (WAL-13).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The owner's clock: the time stamp of events, and the time by which deadlines are judged.
    pub now: Millis,
    /// The same moment on the Task's steady line, on which waits are counted. The line begins, when
    /// the scheduler reads the Task, at the later of the clock and the Task's last event; from then
    /// on it advances with the time that passes, even if somebody sets the clock (mechanisms 17).
    pub steady: Millis,
    /// Id of the commit, if there will be one.
    pub commit_id: CommitId,
    /// Id of the Run, if one will be made.
    pub run_id: RunId,
    /// Id of the Attempt, if one will be made.
    pub attempt_id: AttemptId,
    /// For jitter.
    pub random: u64,
}

/// The context of a command.
#[derive(Debug, Clone, Copy)]
pub struct Cx<'a> {
    /// The caller.
    pub caller: &'a Caller,
    /// Time, ids, randomness.
    pub stamp: Stamp,
    /// The caller's id for the command; absent for timers.
    pub command_id: Option<&'a CommandId>,
    /// The digest of the command, computed where the request arrived, in the form that the Task asks for
    /// ([`Task::digest_form`]). A digest of the second form is of the content alone.
    pub digest: Option<Digest>,
    /// Carry the command out only if the Task is at this version (OCC-02).
    pub expected_version: Option<u64>,
    /// Carry the command out only if orchestrators have last changed the Task at this version (OCC-07).
    pub expected_spec_version: Option<u64>,
    /// W3C traceparent.
    pub trace: Option<&'a SmolStr>,
    /// Ownership epoch of this node, 0 when embedded.
    pub epoch: u64,
    /// The limits in force.
    pub limits: &'a Limits,
}

/// The result of a command that was carried out.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The commit to append; absent for replays and documented no-ops.
    pub commit: Option<Commit>,
    /// What to answer once it is durable.
    pub reply: Reply,
    /// Runtime events to report once the commit is durable; they change no Task (EVENT-07).
    pub told: Vec<RuntimeEvent>,
}

impl Outcome {
    /// An outcome without a commit.
    pub const fn unchanged(reply: Reply) -> Self {
        Self { commit: None, reply, told: Vec::new() }
    }
}

/// The answer to a command, to be completed with a summary of the Task (CTRL-04).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Where its events stand: those of now, or in a replay those of the first time.
    pub written: Option<Written>,
    /// Version after them.
    pub version: u64,
    /// `spec_version` at that version (OCC-07); a replay does not know it.
    pub spec_version: Option<u64>,
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

/// A command on an existing Task, under any of its operation's names ([`Operator::called`]).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "operation", content = "input", rename_all = "snake_case")]
pub enum Command {
    /// `agent.task_update`.
    #[serde(alias = "agent.task_update")]
    TaskUpdate {
        /// The operations, applied in this order (PATCH-14).
        operations: Vec<Operation>,
    },
    /// `agent.task_claim_step`.
    #[serde(alias = "agent.task_claim_step")]
    TaskClaimStep {
        /// The Run, as the envelope carries it.
        run_id: RunId,
        /// The Step.
        step_id: StepId,
    },
    /// `agent.task_update_step`.
    #[serde(alias = "agent.task_update_step")]
    TaskUpdateStep(StepReport),
    /// `agent.task_complete`.
    #[serde(alias = "agent.task_complete", alias = "complete_task")]
    TaskComplete(Complete),
    /// `agent.task_fail`.
    #[serde(alias = "agent.task_fail", alias = "fail_task")]
    TaskFail(Close),
    /// `agent.task_cancel`.
    #[serde(alias = "agent.task_cancel", alias = "cancel_task")]
    TaskCancel(Close),
    /// `agent.dispatch_worker`.
    #[serde(alias = "agent.dispatch_worker", alias = "start_task")]
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
    /// `task_fact`.
    TaskFact(KeepFact),
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
        /// Why (LEASE-18).
        #[serde(
            default = "ReleaseReason::unsaid",
            skip_serializing_if = "ReleaseReason::is_unsaid"
        )]
        reason: ReleaseReason,
        /// How many milliseconds must pass before the Step is given out again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u64>,
    },
    /// Internal: gives the oldest fitting ready Step to a worker.
    #[serde(skip)]
    GrantStep(Grant),
    /// Internal: ends Attempts whose leases ended without a final report.
    #[serde(skip)]
    ExpireLeases {
        /// The Attempts; those that are no longer open are skipped.
        attempt_ids: Vec<AttemptId>,
        /// Why.
        reason: LeaseEnd,
    },
    /// Internal: ends Attempts whose grants the workers have not acknowledged.
    #[serde(skip)]
    Unacknowledged {
        /// The Attempts; those that are no longer open are skipped.
        attempt_ids: Vec<AttemptId>,
    },
    /// Internal: judges the first thing that is due.
    #[serde(skip)]
    Due,
}

impl Command {
    /// Whether its answer may wait for the end of the Task or of a Run.
    pub fn may_wait(&self) -> bool {
        match self {
            Self::TaskFail(close) | Self::TaskCancel(close) => close.waits().is_some(),
            Self::DispatchWorker(dispatch) => dispatch.wait == Some(true),
            Self::CancelRun(_) => true,
            _ => false,
        }
    }

    /// Whether it is a holder's command, which skips K9 and K10 (5.1).
    fn is_holders(&self, caller: &Caller) -> bool {
        match self {
            Self::EndRun(_) | Self::ReleaseStep { .. } => true,
            Self::TaskUpdateStep(_) => caller.role == Role::Worker,
            _ => false,
        }
    }

    /// Whether the command is accepted while the Task is closing (K9).
    fn passes_closing(&self, caller: &Caller) -> bool {
        self.is_holders(caller)
            || matches!(
                self,
                Self::DeclineRun(_)
                    | Self::CancelRun(_)
                    | Self::TaskFail(_)
                    | Self::TaskCancel(_)
                    | Self::ExpireLeases { .. }
                    | Self::Unacknowledged { .. }
                    | Self::Due
            )
    }

    /// Whether the command is accepted after the Task has ended (K8).
    fn passes_terminal(&self) -> bool {
        match self {
            Self::ArchiveTask(_)
            | Self::RetryTask(_)
            | Self::EndRun(_)
            | Self::DeclineRun(_)
            | Self::CancelRun(_) => true,
            Self::AppendTaskProgress(p) => p.is_delivery_only(),
            Self::TaskFact(fact) => fact.kind.passes_end(),
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
        let decided = self.judge(cx, command);
        command.check_refusal(&decided);
        decided
    }

    fn judge(&mut self, cx: &Cx<'_>, command: &Command) -> Result<Outcome, Rejection> {
        check_principal(cx.caller)?;
        check_tool(cx.caller, command.operation())?;
        command.validate(cx)?;
        self.check_session(cx.caller)?;
        let cx = &Cx { digest: self.signed_digest(cx, command), ..*cx };
        report::check_content_fields(cx, command)?;
        command.check_edition(cx)?;
        if let Some(mut reply) = self.replayed(cx)? {
            reply.waits = self.waits_again(command, reply.made);
            return Ok(Outcome::unchanged(reply));
        }
        if let Some(reply) = self.repeated_report(cx, command) {
            return Ok(Outcome::unchanged(reply));
        }
        self.check_rights(cx, command)?;
        self.check_live(cx, command)?;
        self.check_whole(cx, command)?;
        let point = self.savepoint();
        let mut tx = Tx::begin(self, cx);
        let result = tx.run(command).and_then(|made| tx.finish(made));
        match &result {
            Ok(outcome) if outcome.commit.is_none() => self.keep_unwritten(point),
            Ok(_) => {}
            Err(_) => self.rollback(point),
        }
        debug_assert_eq!(self.check_if_small(), Ok(()), "after {command:?}");
        result
    }

    /// K4: the session is the Task's.
    fn check_session(&self, caller: &Caller) -> Result<(), Rejection> {
        check_session(caller, &self.head.spec.session_id)
    }

    /// K6: the first answer to a command that was already carried out.
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
        let (written, made) = (Some(written), record.made);
        Ok(Some(Reply { written, version, spec_version: None, made, changed, waits: None }))
    }

    /// What a replayed command still waits for, as nobody may have got the first answer yet.
    fn waits_again(&self, command: &Command, made: Made) -> Option<Wait> {
        match (command, made) {
            (Command::TaskFail(close) | Command::TaskCancel(close), _) => {
                close.waits().filter(|_| self.is_closing())
            }
            (Command::DispatchWorker(dispatch), Made::Run(run)) => {
                dispatch.waits(run).filter(|_| !self.live().run_has_ended(run))
            }
            _ => None,
        }
    }

    /// K8, K9, K10: refuses a command on an ended or closing Task, or for another version.
    fn check_live(&self, cx: &Cx<'_>, command: &Command) -> Result<(), Rejection> {
        self.check_open(cx, command)?;
        match command.is_holders(cx.caller) {
            true => Ok(()),
            false => self.check_version(cx),
        }
    }

    /// K8, K9: refuses a command on an ended or closing Task.
    fn check_open(&self, cx: &Cx<'_>, command: &Command) -> Result<(), Rejection> {
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
        Ok(())
    }

    /// IDEM-09: until a creation in parts is whole, no other command may change its Task or begin anything.
    fn check_whole(&self, cx: &Cx<'_>, command: &Command) -> Result<(), Rejection> {
        let is_stray = || cx.command_id.is_some_and(|id| self.is_stray_part(id));
        let Some(Unfinished { creation, here }) = self.unfinished() else {
            if matches!(command, Command::TaskUpdate { .. }) && is_stray() {
                let message = "this is a part of a creation that another has replaced";
                return Err(Rejection::new(Code::CreationUnfinished, message));
            }
            return Ok(());
        };
        let is_part = || cx.command_id.is_some_and(|id| self.is_next_part(creation, id));
        let is_refused = match command {
            Command::SubmitTask(_) | Command::DispatchWorker(_) | Command::TaskClaimStep { .. } => {
                true
            }
            Command::TaskUpdate { .. } => !is_part(),
            _ => false,
        };
        if !is_refused {
            return Ok(());
        }
        let message = format!("{here} of {} steps of the task have come", creation.steps);
        Err(Rejection::new(Code::CreationUnfinished, message)
            .with("steps_here", here)
            .with("steps", creation.steps))
    }

    pub(crate) fn step_or_reject(&self, id: &StepId) -> Result<Pos, Rejection> {
        self.find_step(id).ok_or_else(|| {
            Rejection::new(Code::StepNotFound, format!("step {id} does not exist"))
                .with("step_id", id.as_str())
        })
    }

    pub(crate) fn run_or_reject(&self, id: RunId) -> Result<Pos, Rejection> {
        self.runs.find(&id).ok_or_else(|| no_such_run(id))
    }
}

fn no_such_run(id: RunId) -> Rejection {
    Rejection::new(Code::RunNotFound, format!("run {id} does not exist"))
        .with("run_id", id.to_string())
}

/// The refusal of a status change that section 3 does not have.
pub(crate) fn invalid_transition(from: &str, to: &str) -> Rejection {
    Rejection::new(Code::InvalidTransition, format!("{from} cannot become {to}"))
        .with("from", from)
        .with("to", to)
}
