//! Operations that would change a reason. Each is tried on a copy of the Task, and is shown only if it
//! is accepted there (VIEW-16).

use alloc::boxed::Box;
use alloc::vec::Vec;

use uuid::Uuid;

use super::{Case, Evidence};
use crate::command::{Caller, Close, Command, Cx, Dispatch, RunAndWhy, Stamp, StepReport, Why};
use crate::eligibility::{NamedBy, Obstacle, named_claimer};
use crate::id::{AttemptId, CommitId, HandlerName, Millis, RunId, StepId};
use crate::limits::Limits;
use crate::patch::{Change, Operation, StepFields, StepInput, TaskFields};
use crate::reject::Rejection;
use crate::remedy::Remedy;
use crate::rules::Rules;
use crate::status::{Role, StepStatus};
use crate::task::Task;

/// The id of what a trial makes: of nothing that exists.
const NEW: Uuid = Uuid::max();

impl Remedy {
    /// With the command by which it can be tried.
    fn by(self, command: Command) -> Idea {
        Idea { remedy: self, command: Some(command) }
    }

    /// As an operation of a patch.
    fn by_patch(self, operation: Operation) -> Idea {
        self.by(Command::TaskUpdate { operations: Vec::from([operation]) })
    }

    /// Of a creation, which is not for the Task that is explained.
    const fn by_creation(self) -> Idea {
        Idea { remedy: self, command: None }
    }
}

/// How many remedies of one kind are tried at most.
const TRIED_MAX: usize = 20;

/// A remedy that was not tried yet.
struct Idea {
    remedy: Remedy,
    command: Option<Command>,
}

impl Case<'_, '_> {
    /// The operations that would change a reason and that the Task would accept now, best first.
    pub(super) fn remedies(&self, code: Obstacle, evidence: &Evidence) -> Vec<Remedy> {
        self.ideas(code, evidence).into_iter().filter_map(|idea| self.tried(idea)).collect()
    }

    fn ideas(&self, code: Obstacle, evidence: &Evidence) -> Vec<Idea> {
        use Obstacle as O;
        let (id, why) = (self.step.id(), Why::default());
        match code {
            O::TaskTerminal => Vec::from([Remedy::new("retry_task").by_creation()]),
            O::TaskDraft if self.view.unfinished().is_some() => Vec::from([
                Remedy::new("task_create").by_creation(),
                Remedy::new("agent.task_cancel").by(Command::TaskCancel(Close::default())),
            ]),
            O::TaskDraft => Vec::from([Remedy::new("submit_task").by(Command::SubmitTask(why))]),
            O::TaskBlocked => Vec::from([Remedy::new("reopen_task").by(Command::ReopenTask(why))]),
            O::TaskPaused => Vec::from([Remedy::new("resume_task").by(Command::ResumeTask(why))]),
            O::TaskFailing => {
                let failed = self.view.failing().filter(|s| s.status() == StepStatus::Failed);
                failed.take(TRIED_MAX).map(|step| reopening(step.id())).collect()
            }
            O::StepTerminal if self.step.status() == StepStatus::Cancelled => {
                let deletion = Operation::DeleteStep { step_id: id.clone(), reason: None };
                let deletion = Remedy::on_step("delete_step", id).by_patch(deletion);
                let required = Change::Set(false); // STEP-35
                let optional = StepFields { required, ..StepFields::default() };
                let is_required = self.step.spec.required;
                let optional = is_required.then(|| self.updating(optional));
                let failure =
                    Remedy::new("agent.task_fail").by(Command::TaskFail(Close::default()));
                let is_last = is_required && self.view.head().rules == Rules::First;
                let failure = is_last.then_some(failure);
                optional
                    .into_iter()
                    .chain(self.replacing())
                    .chain([deletion])
                    .chain(failure)
                    .collect()
            }
            O::StepFailed | O::StepBlocked => Vec::from([reopening(id), marking(id)]),
            O::AssignedElsewhere => Vec::from([self.reassigning()]),
            O::DependencyUnsatisfiable => self.unblocking(evidence),
            O::DependencyPending => self.answering(evidence),
            O::Held => {
                let run = self.view.current(self.step).map(|attempt| attempt.run_id);
                let cancel = |run_id| Command::CancelRun(RunAndWhy { run_id, reason: None });
                run.map(|id| Remedy::on_run("cancel_run", id).by(cancel(id))).into_iter().collect()
            }
            O::NoWorkerInPool | O::NoWorkerWithHandler => {
                let handler = Change::Set(HandlerName::default_handler());
                Vec::from([self.updating(StepFields { handler, ..StepFields::default() })])
            }
            O::ScopeExcludes | O::NeedsDispatch => {
                let allowed_step_ids = Some(Vec::from([id.clone()]));
                let dispatch = Dispatch::to(self.step.spec.worker_pool_id.clone());
                let dispatch = Command::DispatchWorker(Dispatch { allowed_step_ids, ..dispatch });
                Vec::from([Remedy::new("dispatch_worker").by(dispatch)])
            }
            O::TaskCancelling
            | O::StepTerminal
            | O::NotBefore
            | O::NoWorkerServesSession
            | O::LogUnavailable
            | O::LeasesUnavailable
            | O::PoolSaturated
            | O::RunnableNow => Vec::new(),
        }
    }

    /// Operations that make a dead dependency possible again, or that remove it.
    fn unblocking(&self, evidence: &Evidence) -> Vec<Idea> {
        let Evidence::Dependencies { unmet, roots, .. } = evidence else { return Vec::new() };
        let failed = roots.iter().filter(|r| r.status == StepStatus::Failed);
        let reopen = failed.map(|r| reopening(&r.step_id));
        let id = self.step.id();
        let detach = unmet.iter().filter(|d| d.dead).map(|d| {
            let depends_on_step_id = d.step_id.clone();
            let (step_id, reason) = (id.clone(), None);
            let removal = Operation::RemoveDependency { step_id, depends_on_step_id, reason };
            let depends_on_step_id = Some(d.step_id.clone());
            let remedy = Remedy::on_step("remove_dependency", id);
            Remedy { depends_on_step_id, ..remedy }.by_patch(removal)
        });
        reopen.chain(detach).collect()
    }

    /// Operations for the blocked Steps that a waiting Step depends on.
    fn answering(&self, evidence: &Evidence) -> Vec<Idea> {
        let Evidence::Dependencies { roots, .. } = evidence else { return Vec::new() };
        let blocked = roots.iter().filter(|r| r.status == StepStatus::Blocked);
        blocked.map(|r| reopening(&r.step_id)).collect()
    }

    /// Clears the name that keeps others away (CLAIM-13).
    fn reassigning(&self) -> Idea {
        let head = self.view.head();
        let (claim_only_by, assignee) = match head.rules {
            Rules::First => (Change::Clear, Change::Clear),
            Rules::Second => (Change::Clear, Change::Keep),
        };
        if let Some((_, NamedBy::Step)) = named_claimer(head, self.step.spec) {
            return self.updating(StepFields { assignee, claim_only_by, ..StepFields::default() });
        }
        let fields = TaskFields { assignee, claim_only_by, ..TaskFields::default() };
        Remedy::new("update_task").by_patch(Operation::UpdateTask(Box::new(fields)))
    }

    fn updating(&self, fields: StepFields) -> Idea {
        let step_id = self.step.id().clone();
        let update = Operation::UpdateStep { step_id, fields, reason: None };
        Remedy::on_step("update_step", self.step.id()).by_patch(update)
    }

    /// A Step in place of this one.
    fn replacing(&self) -> Option<Idea> {
        let spec = self.step.spec;
        let id = NEW.hyphenated().encode_lower(&mut Uuid::encode_buffer()).parse().ok()?;
        let step = StepInput {
            required: Some(spec.required),
            title: spec.title.clone(),
            worker_pool_id: Some(spec.worker_pool_id.clone()),
            ..StepInput::bare(id)
        };
        Some(Remedy::new("add_step").by_patch(Operation::AddStep { step, reason: None }))
    }

    /// The remedy, if the Task accepts its command now.
    fn tried(&self, idea: Idea) -> Option<Remedy> {
        let Idea { remedy, command } = idea;
        let Some(command) = command else { return Some(remedy) };
        let mut facts = self.facts.borrow_mut();
        let task = facts.copy.get_or_insert_with(|| self.view.to_task());
        let closes = task.is_closing();
        let is_accepted = try_out(task, self.known.now, &command).is_ok();
        let ends_task = task.is_terminal() || (task.is_closing() && !closes);
        task.abort();
        is_accepted.then_some(Remedy { ends_task, ..remedy })
    }
}

/// STEP-36: the orchestrator completes the Step itself.
fn marking(id: &StepId) -> Idea {
    let status = Some(StepStatus::Completed);
    let report = StepReport { status, ..StepReport::on(id.clone()) };
    Remedy::on_step("agent.task_update_step", id).by(Command::TaskUpdateStep(report))
}

fn reopening(id: &StepId) -> Idea {
    let (step_id, input_refs, reason) = (id.clone(), Vec::new(), None);
    let reopening = Operation::ReopenStep { step_id, input_refs, reason };
    Remedy::on_step("reopen_step", id).by_patch(reopening)
}

/// Carries out a command of an orchestrator.
fn try_out(task: &mut Task, now: Millis, command: &Command) -> Result<(), Rejection> {
    let caller = Caller {
        agent: task.head.created_by_agent_id.clone(),
        role: Role::Orchestrator,
        session_id: task.head.spec.session_id.clone(),
        run_id: None,
        worker_pool_id: None,
        origin: None,
    };
    let (commit_id, run_id, attempt_id) = (CommitId(NEW), RunId(NEW), AttemptId(NEW));
    let now = now.max(task.updated_at());
    let steady = now.saturating_add(task.volatile.steady_ahead);
    let cx = Cx {
        caller: &caller,
        stamp: Stamp { now, steady, commit_id, run_id, attempt_id, random: 0 },
        command_id: None,
        digest: None,
        expected_version: None,
        expected_spec_version: None,
        trace: None,
        epoch: 0,
        limits: &Limits::default(),
    };
    task.decide(&cx, command).map(drop)
}
