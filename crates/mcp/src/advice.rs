//! What a model may do about a refusal.

use tenure_core::Code;

/// The next step after a refusal with this code, in the words of the tools.
pub(crate) const fn advice(code: Code) -> &'static str {
    match code {
        Code::ValidationError => "correct the named field and call the tool again",
        Code::PathConflict => "choose another wal_name, or leave it out",
        Code::StorageError => "nothing can be recorded now; tell the user, and try again later",
        Code::DependencyCycle => "remove one of the dependencies that close the circle",
        Code::StepHasDependents => "change or delete the steps that depend on it first",
        Code::TaskTerminal => "the task has ended and changes no more; create another task",
        Code::StepAlreadyClaimed => {
            "another worker has the step; query the steps for another one that is ready"
        }
        Code::StepAlreadyClaimedByRun => "this run has used its one claim; end it",
        Code::ToolNotAvailable => {
            "this login or server does not have the tool; use one of those that are listed"
        }
        Code::PermissionDenied => "this login may not do that; ask the user for another one",
        Code::VersionConflict => {
            "read the task again with task_get, check what changed, and repeat with its version"
        }
        Code::IdempotencyConflict => {
            "the same id was used for something else; repeat with a new command_id or key"
        }
        Code::TaskNotFound => {
            "look for the id with task_list, with include_terminal for tasks that have ended"
        }
        Code::StepNotFound => "look for the id with task_query_steps",
        Code::RunNotFound => "read the runs of the task with task_get",
        Code::TaskIdConflict => {
            "such a task exists: read it with task_get, or create one with another task_id"
        }
        Code::CreationUnfinished => "repeat the create that began it, or cancel the task",
        Code::TaskNotDispatchable => {
            "the task is a draft, blocked or paused; see explain for what lets it go on"
        }
        Code::TaskCancelling => "the task is being closed; call wait until it has ended",
        Code::StepNotReady => "see explain for what the step waits for",
        Code::StepOutOfScope => "this run may not touch that step",
        Code::StepInProgress => "a worker has the step; wait for it, or cancel its run",
        Code::StepHistoryImmutable => {
            "a completed step does not change; add another step with task_update"
        }
        Code::InvalidTransition => {
            "read the status with task_get, and see explain for what is possible"
        }
        Code::StaleAttempt => {
            "this attempt is over and its report does not count; stop working on the step"
        }
        Code::RunEnded => "this run has ended; stop working",
        Code::RequiredStepsIncomplete => {
            "wait for the required steps, or make them optional or cancel them first"
        }
        Code::StepsInProgress => "wait for the steps that run, or cancel the task",
        Code::FactsUnreconciled => "see inbox for the facts that are missing",
        Code::AcceptanceUnmet => "complete with the acceptance criteria met or waived",
        Code::BlobMissing => "put the blob first, or give the value itself",
        Code::ValueTooLarge => "put the value somewhere and give a reference to it",
        Code::StorageUnavailable | Code::NotOwner | Code::Unavailable => {
            "repeat the call in a few seconds, with the same command_id if it changes something"
        }
        Code::QuotaExceeded => "the session has no space for more values; tell the user",
        Code::WorkerGone => "the worker that has the output cannot be reached; try again later",
        Code::Unauthenticated => "the login is not valid any more; tell the user",
    }
}
