//! What must be accepted: the rows of the tables of section 3 of the contract whose conditions hold. They are
//! written down anew here, so that a wrong refusal is seen too.

use tenure_core::Command;
use tenure_core::status::{AttemptStatus, Role, StepStatus, TaskStatus};
use tenure_core::task::Attempt;
use tenure_core::view::View;

use crate::world::{Input, World};

/// The row that allows the input, if there is one.
pub(crate) fn row(world: &World, input: &Input) -> Option<&'static str> {
    match input.caller.role {
        Role::Orchestrator => of_orchestrator(&world.task.durable(), &input.command),
        Role::Worker => of_holder(&world.task.durable(), input),
        _ => None,
    }
}

fn of_orchestrator(view: &View<'_>, command: &Command) -> Option<&'static str> {
    use TaskStatus::{Blocked, Draft, Paused, Pending, Running};
    if view.is_terminal() {
        let is_there = view.head().archived_at.is_none();
        return (is_there && matches!(command, Command::ArchiveTask(_))).then_some("T14");
    }
    if view.is_closing() {
        return None;
    }
    let status = view.status();
    let is_open = matches!(status, Pending | Running | Blocked | Paused);
    let found = match command {
        Command::SubmitTask(_) => (status == Draft, "T03"),
        Command::BlockTask(_) => (matches!(status, Pending | Running), "T05"),
        Command::ReopenTask(_) => (status == Blocked, "T06"),
        Command::PauseTask(_) => (matches!(status, Pending | Running), "T07"),
        Command::ResumeTask(_) => (status == Paused, "T08"),
        Command::TaskFail(_) => (is_open, "T10, T11"),
        Command::TaskCancel(_) => (true, "T12, T13"),
        Command::TaskUpdateStep(report) => {
            let step = view.step(&report.step_id)?;
            let to = report.status?;
            let newest = view.attempts_of(step).next();
            let waits = step.state.is_unreconciled() || newest.is_some_and(waits_for_peer);
            if to == StepStatus::Completed && waits {
                return None; // TERM-10
            }
            let is_free = || {
                let mut on = step.spec.depends_on_step_ids.iter();
                on.all(|id| view.step(id).is_some_and(|on| on.status() == StepStatus::Completed))
            };
            return of_step(step.status(), to, is_free);
        }
        _ => return None,
    };
    found.0.then_some(found.1)
}

/// What an orchestrator may write on a Step.
fn of_step(from: StepStatus, to: StepStatus, is_free: impl Fn() -> bool) -> Option<&'static str> {
    use StepStatus::{Blocked, Cancelled, Claimed, Completed, Failed, Pending, Ready, Running};
    match (from, to) {
        (Pending | Ready, Cancelled) => Some("S16"),
        (Blocked | Failed, Pending) => Some("S18"),
        (Pending | Ready, Blocked) => Some("S20"),
        (Ready, Completed | Failed) | (Pending | Blocked, Failed) => Some("S21"),
        (Claimed | Running, Completed | Failed | Blocked) => Some("S22"),
        (Blocked | Failed, Completed) if is_free() => Some("S29"),
        _ => None,
    }
}

fn waits_for_peer(attempt: &Attempt) -> bool {
    attempt.remote.as_ref().is_some_and(|remote| !remote.reconciled)
}

/// S05 to S10: whoever holds a Step reports on it. Nobody completes one whose peer's facts are not stored here
/// (TERM-10).
fn of_holder(view: &View<'_>, input: &Input) -> Option<&'static str> {
    let Command::TaskUpdateStep(report) = &input.command else { return None };
    let attempt = view.attempt(report.attempt_id?)?;
    let holds = attempt.status != AttemptStatus::Ended
        && Some(attempt.fencing_token) == report.fencing_token
        && attempt.worker_id == input.caller.agent
        && Some(attempt.run_id) == input.caller.run_id;
    use StepStatus::{Blocked, Cancelled, Completed, Failed, Running};
    let may = match report.status? {
        Completed => !waits_for_peer(attempt),
        to => matches!(to, Running | Blocked | Failed | Cancelled),
    };
    (holds && may).then_some("S05 to S10")
}
