//! `tenure inbox`: lists what waits for a person, with the command that answers it.

use clap::Args;
use serde::Serialize;
use tenure_core::id::{AgentId, SessionId, StepId, TaskId};
use tenure_core::record::Reason;
use tenure_core::status::WaitKind;
use tenure_core::view::snapshot::BlockedTask;
use tenure_core::view::{ViewName, ViewsInput};

use crate::answer::{Exit, Failure, Shape, Sheet, Tone, human, output, text, toned};
use crate::place::{PlaceArgs, TaskReader, ViewArgs, exit_without};

/// Show what waits for somebody.
#[derive(Debug, Args)]
pub(crate) struct InboxArgs {
    /// Only what waits for this one: owner of the task, who asked for it, or assignee of the step
    #[arg(long = "for", value_name = "WHOM")]
    whom: Option<AgentId>,

    #[command(flatten)]
    look: ViewArgs,
}

#[derive(Serialize)]
struct InboxList {
    waiting: Vec<InboxItem>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_partitions: Vec<u32>,
}

/// A Task or Step that waits for a person.
#[derive(Debug, Serialize)]
struct InboxItem {
    task_id: TaskId,
    session_id: SessionId,
    /// None if the Task itself waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    step_id: Option<StepId>,
    /// None for a Step that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_kind: Option<WaitKind>,
    /// The owner of the Task, and who asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<AgentId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requested_by: Option<AgentId>,
    /// The only principal that may claim the Step.
    #[serde(skip_serializing_if = "Option::is_none")]
    assignee: Option<AgentId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    /// The operation that the Task itself waits for, if it does.
    #[serde(skip)]
    action: &'static str,
    /// The command to type.
    answer: String,
}

impl InboxItem {
    fn is_for(&self, whom: &AgentId) -> bool {
        [&self.owner, &self.requested_by, &self.assignee].into_iter().flatten().any(|it| it == whom)
    }
}

/// For a Task that waits itself: the action, the verb of the command that does it, and the words
/// for people.
const OF_TASKS: [(&str, &str, &str); 5] = [
    ("task_create", "cancel", "the rest of it"),
    ("reopen_task", "reopen", "going on"),
    ("resume_task", "resume", "going on"),
    ("submit_task", "submit", "its beginning"),
    ("agent.task_complete", "complete", "its end"),
];

pub(crate) fn run(args: &InboxArgs) -> Result<Exit, Failure> {
    let place = &args.look.at;
    let data = TaskReader::open(place)?;
    let (snapshot, missing_partitions) =
        data.snapshot(&place.session, ViewsInput::of(&[ViewName::BlockedTasks]))?;
    let exit = exit_without(&missing_partitions);
    let blocked = snapshot.blocked_tasks.unwrap_or_default();
    let all = blocked.into_iter().flat_map(|task| waiting(task, place));
    let waiting =
        all.filter(|one| args.whom.as_ref().is_none_or(|whom| one.is_for(whom))).collect();
    let inbox = InboxList { waiting, missing_partitions };
    args.look
        .output
        .answer(&inbox, Shape::many("waiting", "task_id step_id"), || print(args, &inbox))?;
    Ok(exit)
}

fn print(args: &InboxArgs, inbox: &InboxList) -> Result<(), Failure> {
    if inbox.waiting.is_empty() {
        if inbox.missing_partitions.is_empty() {
            let whom = args.whom.as_ref().map_or("anybody", |whom| whom.as_str());
            let session = &args.look.at.session;
            output::say(format_args!("nothing in session {session} waits for {whom}"));
        }
        return Ok(());
    }
    let mut sheet = Sheet::new(&["TASK", "STEP", "WAITS FOR", "WHOSE", "WHY", "ANSWER WITH"]);
    for one in &inbox.waiting {
        let why = one.reason.as_ref().map(|reason| match reason.message.is_empty() {
            true => reason.code.to_string(),
            false => human::one_line(&reason.message),
        });
        let waits_for = match (one.wait_kind, &one.step_id) {
            (Some(kind), _) => kind.to_string(),
            (None, Some(_)) => "a decision".into(),
            (None, None) => one.action.into(),
        };
        let whose = one.owner.as_ref().or(one.requested_by.as_ref());
        sheet.row([
            toned(&one.task_id, Tone::Strong),
            text(one.step_id.as_ref().map_or("", |step| step.as_str())),
            text(waits_for),
            text(whose.map_or("", |agent| agent.as_str())),
            text(human::cut(&why.unwrap_or_default(), 80)),
            text(&one.answer),
        ]);
    }
    sheet.print()
}

/// The items of a Task: the Task itself, if it waits for an operation on it, and each of its Steps
/// that waits.
fn waiting(task: BlockedTask, place: &PlaceArgs) -> Vec<InboxItem> {
    let BlockedTask { task_id, owner, requested_by, reason, .. } = task;
    let at = place.told();
    let of_task = |action, answer: String| InboxItem {
        task_id: task_id.clone(),
        session_id: place.session.clone(),
        step_id: None,
        wait_kind: None,
        owner: owner.clone(),
        requested_by: requested_by.clone(),
        assignee: None,
        reason: reason.clone(),
        action,
        answer,
    };
    let mut all = Vec::new();
    for (action, verb, name) in OF_TASKS {
        if task.required_action_ids.iter().any(|id| id == action) {
            // To complete an unfinished creation, repeat the command that began it.
            let again = if action == "task_create" { "the same `tenure submit`, or " } else { "" };
            all.push(of_task(name, format!("{again}tenure task {verb} {task_id}{at}")));
        }
    }
    all.extend(task.required_action_ids.iter().filter_map(|id| {
        let (operation, on) = id.split_once(':')?;
        let answer = match operation {
            "append_task_progress" => format!("tenure task complete {task_id} --artifact JSON{at}"),
            "agent.task_update_step" => format!("tenure step settle {task_id} {on} --peer{at}"),
            _ => return None,
        };
        Some(of_task("the facts of its work", answer))
    }));
    all.extend(task.blockers.into_iter().map(|blocker| {
        let step = &blocker.step_id;
        let operation = blocker.required_action_id.split(':').next().unwrap_or_default();
        let answer = match (blocker.wait_kind, operation) {
            (Some(WaitKind::Input | WaitKind::Permission), _) => {
                format!("tenure step answer {task_id} {step} TEXT{at}")
            }
            (_, "reopen_step") => format!("tenure step reopen {task_id} {step}{at}"),
            (_, "agent.task_fail") => format!("tenure task fail {task_id}{at}"),
            // It becomes optional, or is removed.
            _ => format!("tenure task patch {task_id} FILE{at}"),
        };
        InboxItem {
            step_id: Some(blocker.step_id),
            wait_kind: blocker.wait_kind,
            assignee: blocker.assignee,
            reason: blocker.reason,
            ..of_task("", answer)
        }
    }));
    all
}
