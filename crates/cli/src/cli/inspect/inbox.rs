//! `tenure inbox`: what waits for somebody, with the command that answers it.

use clap::Args;
use serde::Serialize;
use tenure_core::id::{SessionId, StepId, TaskId};
use tenure_core::record::Reason;
use tenure_core::status::WaitKind;
use tenure_core::view::ViewName;
use tenure_core::view::snapshot::BlockedTask;

use super::args::{Format, Place, Shape};
use super::data::Data;
use super::human;
use super::sheet::{Sheet, text, toned};
use super::worker::warn_of_missing;
use crate::cli::exit::{Exit, Failure};
use crate::cli::output::{self, Tone};

/// Show what waits for somebody.
#[derive(Debug, Args)]
pub(crate) struct InboxArgs {
    #[command(flatten)]
    place: Place,
}

#[derive(Serialize)]
struct Inbox {
    waiting: Vec<Waiting>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_partitions: Vec<u32>,
}

/// Something that waits for somebody.
#[derive(Debug, Serialize)]
struct Waiting {
    task_id: TaskId,
    session_id: SessionId,
    /// None: the Task itself waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    step_id: Option<StepId>,
    /// None of a Step that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_kind: Option<WaitKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    /// What to type.
    answer: String,
}

pub(super) fn run(args: &InboxArgs) -> Result<Exit, Failure> {
    let place = &args.place;
    let data = Data::open(place)?;
    let (snapshot, missing_partitions) =
        data.snapshot(&place.session, &[ViewName::BlockedTasks])?;
    warn_of_missing(&missing_partitions);
    let blocked = snapshot.blocked_tasks.unwrap_or_default();
    let waiting = blocked.into_iter().flat_map(|task| waiting(task, place)).collect();
    let inbox = Inbox { waiting, missing_partitions };
    if place.output != Format::Table {
        let shape = Shape::many("waiting", "task_id");
        place.output.answer(&inbox, shape, || Ok::<_, Failure>(()))?;
        return Ok(Exit::Ok);
    }
    if inbox.waiting.is_empty() {
        output::say(format_args!("nothing in session {} waits for anybody", place.session));
        return Ok(Exit::Ok);
    }
    let mut sheet = Sheet::new(&["TASK", "STEP", "WAITS FOR", "WHY", "ANSWER WITH"]);
    for one in &inbox.waiting {
        let why = one.reason.as_ref().map(|reason| match reason.message.is_empty() {
            true => reason.code.to_string(),
            false => human::one_line(&reason.message),
        });
        let waits_for = match (one.wait_kind, &one.step_id) {
            (Some(kind), _) => kind.to_string(),
            (None, Some(_)) => "a decision".into(),
            (None, None) => "going on".into(),
        };
        sheet.row([
            toned(&one.task_id, Tone::Strong),
            text(one.step_id.as_ref().map_or("", |step| step.as_str())),
            text(waits_for),
            text(human::cut(&why.unwrap_or_default(), 80)),
            text(&one.answer),
        ]);
    }
    sheet.print()?;
    Ok(Exit::Ok)
}

/// The Task itself, if an operation on it would set it going, and each of its Steps that waits.
fn waiting(task: BlockedTask, place: &Place) -> Vec<Waiting> {
    let BlockedTask { task_id, reason, blockers, required_action_ids, .. } = task;
    let session_id = place.session.clone();
    let at = elsewhere(place);
    let mut all = Vec::new();
    for (action, verb) in [("reopen_task", "reopen"), ("resume_task", "resume")] {
        if required_action_ids.iter().any(|id| id == action) {
            let answer = format!("tenure task {verb} {task_id}{at}");
            let (task_id, session_id) = (task_id.clone(), session_id.clone());
            let (step_id, wait_kind, reason) = (None, None, reason.clone());
            all.push(Waiting { task_id, session_id, step_id, wait_kind, reason, answer });
        }
    }
    all.extend(blockers.into_iter().map(|blocker| {
        let step = &blocker.step_id;
        let operation = blocker.required_action_id.split(':').next().unwrap_or_default();
        let answer = match (blocker.wait_kind, operation) {
            (Some(WaitKind::Input | WaitKind::Permission), _) => {
                format!("tenure step answer {task_id} {step} TEXT{at}")
            }
            (_, "reopen_step") => format!("tenure step reopen {task_id} {step}{at}"),
            // It can only be taken out of the way.
            _ => format!("tenure task patch {task_id} FILE{at}"),
        };
        Waiting {
            task_id: task_id.clone(),
            session_id: session_id.clone(),
            step_id: Some(blocker.step_id),
            wait_kind: blocker.wait_kind,
            reason: blocker.reason,
            answer,
        }
    }));
    all
}

/// What makes a command go where this one looked.
fn elsewhere(place: &Place) -> String {
    let mut at = String::new();
    if let Some(data) = &place.data {
        at.push_str(&format!(" --data {}", data.display()));
    } else if place.is_cluster() && std::env::var_os("TENURE_NATS_URL").is_none() {
        at.push_str(" --nats URL"); // Whose address may hold a password.
    }
    if place.session.as_str() != "default" {
        at.push_str(&format!(" --session {}", place.session));
    }
    at
}
