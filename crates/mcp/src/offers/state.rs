//! [`CallState`]: what the Task of a call shows of itself.

use jiff::Timestamp;
use rmcp::model::{InputRequests, Task as McpTask, TaskStatus as McpTaskStatus};
use tenure_core::id::Millis;
use tenure_core::record::{Progress, Reason};
use tenure_core::status::{StepStatus, TaskStatus};
use tenure_core::view::{TaskSummary, TaskView};

use super::question::{AskingModes, StepQuestions, asked_in};

/// How often a client is asked to look at most, in milliseconds.
const POLL_MS: u64 = 1_000;

/// The most characters of what is said of a state.
const MESSAGE_CHARS: usize = 1_000;

/// What the Task of a call shows of itself.
#[derive(Debug, Clone)]
pub(super) enum CallState {
    /// It goes on by itself.
    Working,
    /// It goes on when somebody answers. At least one question is open.
    Asking(Vec<StepQuestions>),
    /// It has completed.
    Completed,
    /// It has failed.
    Failed(Reason),
    /// It was cancelled.
    Cancelled(Option<Reason>),
}

impl CallState {
    /// The state of a Task.
    pub(super) fn of(task: &TaskView) -> Self {
        match task.task.native_status {
            TaskStatus::Completed => Self::Completed,
            TaskStatus::Failed => Self::Failed(why_failed(task)),
            TaskStatus::Cancelled => Self::Cancelled(task.task.status_reason.clone()),
            _ => match asked_in(task) {
                asked if asked.iter().any(|step| !step.are_answered()) => Self::Asking(asked),
                _ => Self::Working,
            },
        }
    }

    /// Whether it goes on by itself.
    pub(super) const fn is_working(&self) -> bool {
        matches!(self, Self::Working)
    }

    /// The state as the extension Tasks names it. A Task that has failed has completed for it, with an error as the
    /// result.
    const fn status(&self) -> McpTaskStatus {
        match self {
            Self::Working => McpTaskStatus::Working,
            Self::Asking(_) => McpTaskStatus::InputRequired,
            Self::Completed | Self::Failed(_) => McpTaskStatus::Completed,
            Self::Cancelled(_) => McpTaskStatus::Cancelled,
        }
    }

    /// What it says in words.
    pub(super) fn message(&self, task: &TaskView) -> Option<String> {
        let said = match self {
            Self::Working => return working(task),
            Self::Asking(asked) => {
                let open = asked.iter().flat_map(StepQuestions::open);
                open.map(|question| question.prompt()).collect::<Vec<_>>().join("\n")
            }
            Self::Completed => return None, // The result says it.
            Self::Failed(reason) | Self::Cancelled(Some(reason)) => in_short(reason),
            Self::Cancelled(None) => return None,
        };
        Some(cut(&said))
    }
}

/// The Task as the extension Tasks shows it.
pub(super) fn shown(task: &TaskView, state: &CallState) -> McpTask {
    let about = with_times(&task.task, state.status());
    match state.message(task) {
        Some(said) => about.with_status_message(said),
        None => about,
    }
}

/// The Task of which no more is known than its summary.
pub(super) fn seed(task: &TaskSummary) -> McpTask {
    let status = match task.native_status {
        TaskStatus::Completed | TaskStatus::Failed => McpTaskStatus::Completed,
        TaskStatus::Cancelled => McpTaskStatus::Cancelled,
        _ => McpTaskStatus::Working,
    };
    with_times(task, status)
}

fn with_times(task: &TaskSummary, status: McpTaskStatus) -> McpTask {
    let (made, changed) = (to_timestamp(task.created_at), to_timestamp(task.updated_at));
    McpTask::new(task.task_id.as_str(), status, made, changed).with_poll_interval_ms(POLL_MS)
}

/// A time as ISO 8601 has it, with milliseconds.
fn to_timestamp(at: Millis) -> String {
    let time = Timestamp::from_millisecond(at).unwrap_or(Timestamp::UNIX_EPOCH);
    format!("{time:.3}")
}

/// The questions that nobody has answered, as far as a client can be asked them.
///
/// # Errors
/// There is no form for one of them.
pub(super) fn requests(
    asked: &[StepQuestions],
    modes: AskingModes,
) -> Result<InputRequests, String> {
    let open = asked.iter().flat_map(StepQuestions::open);
    let askable = open.filter(|question| question.is_askable(modes));
    askable.map(|question| Ok((question.key.clone(), question.request(modes.urls)?))).collect()
}

/// How somebody answers what the client of a task cannot ask its user; none: it can ask all of it.
pub(super) fn way_to_answer(asked: &[StepQuestions], modes: AskingModes) -> Option<String> {
    let is_left = |step: &&StepQuestions| step.open().any(|question| !question.is_askable(modes));
    let steps: Vec<&str> = asked.iter().filter(is_left).map(|step| step.step_id.as_str()).collect();
    (!steps.is_empty()).then(|| {
        let steps = steps.join(", ");
        format!("\nnext: this client asks nobody; call answer with this task and the step: {steps}")
    })
}

/// What is being done.
fn working(task: &TaskView) -> Option<String> {
    let about = &task.task;
    if about.cancel_requested.is_some() {
        return Some("it is being stopped".into());
    }
    let reason = about.status_reason.as_ref();
    match about.native_status {
        TaskStatus::Paused | TaskStatus::Blocked => {
            let word = about.native_status.as_str();
            let why = reason.map(|reason| reason.message.trim());
            let why = why.filter(|why| !why.is_empty() && *why != word);
            Some(cut(&why.map_or_else(|| word.to_owned(), |why| format!("{word}: {why}"))))
        }
        _ => progress(task).and_then(in_words).map(cut),
    }
}

/// The progress of the Step that is at work.
pub(super) fn progress(task: &TaskView) -> Option<&Progress> {
    let at_work = |status| matches!(status, StepStatus::Claimed | StepStatus::Running);
    let mut steps = task.steps.iter().filter(|step| at_work(step.status));
    steps.find_map(|step| step.facts.as_ref()?.progress.as_ref())
}

/// Progress in words.
pub(super) fn in_words(progress: &Progress) -> Option<&str> {
    progress.summary.as_deref().or(progress.current_step.as_deref())
}

/// The code of Steps that failed because their Task did.
const OF_TASK: &str = "task_failed";

/// Why a Task has failed: of a Step that has failed the worker says why, and of the Task no more than which Step it
/// was.
fn why_failed(task: &TaskView) -> Reason {
    let failed = task.steps.iter().filter(|step| step.status == StepStatus::Failed);
    let mut reasons = failed.filter_map(|step| step.facts.as_ref()?.status_reason.clone());
    let of_step = reasons.find(|reason| reason.code != OF_TASK);
    let of_task = || task.task.status_reason.clone();
    of_step.or_else(of_task).unwrap_or_else(|| Reason::code(OF_TASK))
}

/// A reason in words.
pub(super) fn in_short(reason: &Reason) -> String {
    match reason.message.trim() {
        "" => reason.code.to_string(),
        said if said == reason.code => said.to_owned(),
        said => format!("{said} ({})", reason.code),
    }
}

fn cut(text: &str) -> String {
    text.chars().take(MESSAGE_CHARS).collect()
}
