//! What to do about a refusal: one line for each code, word for word the column of docs/errors.md.

use tenure_core::Code;

/// What to do about a refusal: a sentence without capital letter and full stop.
pub(crate) const fn advice(code: Code) -> &'static str {
    use Code as C;
    match code {
        C::ValidationError => "mend what the message and `details.field` name",
        C::PathConflict => "choose another `wal_name`",
        C::StorageError => {
            "make room or mend the disk, then go on: nothing that was recorded is lost; of a damaged \
             log `tenure wal verify` names the place"
        }
        C::DependencyCycle => "take one of the named edges out",
        C::StepHasDependents => "delete or change those in the same patch",
        C::TaskTerminal => {
            "what has ended stays as it is; `tenure task retry TASK_ID --as NEW_ID` makes it again, with \
             --keep-completed only what is not done; `tenure run FILE --retry-failed` does that for a file"
        }
        C::StepAlreadyClaimed => "ask for another Step",
        C::StepAlreadyClaimedByRun => "ask for a new Run",
        C::ToolNotAvailable => "leave it to who may, or call as who may",
        C::PermissionDenied => "check ids, scope and session",
        C::VersionConflict => "read the Task (`tenure task get TASK_ID`) and decide again",
        C::IdempotencyConflict => "use a fresh id for a different command",
        C::TaskNotFound => {
            "check id, session and data directory: `tenure task list --all` shows what there is"
        }
        C::StepNotFound => {
            "check the id: `tenure step list TASK_ID --all` shows the Steps; it may have been deleted"
        }
        C::RunNotFound => "check the id: `tenure runs list TASK_ID --all` shows the Runs",
        C::TaskIdConflict => "go on with that Task (`--resume`), or choose another id (`--new`)",
        C::CreationUnfinished => {
            "hand the same Task in again, which goes on with it, or another, which replaces it; or cancel \
             it: `tenure task cancel TASK_ID`"
        }
        C::TaskNotDispatchable => {
            "let it go on first: `tenure task submit` a draft, `reopen` a blocked Task, `resume` a \
             paused one"
        }
        C::TaskCancelling => "wait for its end: `tenure task wait TASK_ID`",
        C::StepNotReady => "wait until it is ready; `tenure task explain` says for what it waits",
        C::StepOutOfScope => "ask for a Run with that scope",
        C::StepInProgress => {
            "wait, or stop its Run (`tenure runs cancel`), or settle it in its worker's place \
             (`tenure step block`, `complete`, `fail`)"
        }
        C::StepHistoryImmutable => "add a new Step: `tenure task patch`",
        C::InvalidTransition => {
            "read the Task or Step (`tenure task get`, `step get`): it does not stand as was thought"
        }
        C::StaleAttempt => "stop the work: its result no longer counts",
        C::RunEnded => "ask for a new Run",
        C::RequiredStepsIncomplete => {
            "complete them (`tenure dispatch`, `tenure step complete`), make them optional \
             (`tenure task patch`), or fail the Task"
        }
        C::StepsInProgress => {
            "wait for them, or stop them: `tenure runs cancel`, `tenure step block`"
        }
        C::FactsUnreconciled => {
            "say how they stand: `tenure task complete --artifact`, `tenure step settle --peer`; a worker ends \
             its Step as blocked meanwhile"
        }
        C::AcceptanceUnmet => {
            "record it with the completion: `tenure task complete --met ID`, `--waived ID`"
        }
        C::BlobMissing => {
            "put it (again), and repeat the command. Clients of Tenure do so by themselves"
        }
        C::ValueTooLarge => "store it elsewhere, and give its address",
        C::StorageUnavailable => "repeat; see whether its disk is full, or its stream has a leader",
        C::QuotaExceeded => {
            "complete or cancel Tasks, use another session, or raise the setting: `--blob-quota`, `--session-tasks`, \
             `--session-bytes`, `--memory`"
        }
        C::WorkerGone => "look on the machine of that worker: its files are still there",
        C::NotOwner => "repeat; clients do so by themselves",
        C::Unauthenticated => {
            "connect with credentials, in the address of `--nats` or in `--nats-creds`; `--name` is the \
             user's"
        }
        C::Unavailable => "repeat with the same `command_id`",
    }
}
