//! Answers to the questions of Steps: each becomes the command that any other client would send.
//!
//! A Step that asks one question is reopened with the answer. Of several questions at once, each answer is kept as late
//! input of the Task until all are there. Every command has an id that is made of the Task and the question, so an
//! answer that comes twice, or to two gateways at once, counts once.

use rmcp::model::InputResponses;
use serde_json::Value as Json;
use tenure_core::command::{AppendProgress, Close};
use tenure_core::id::{CommandId, Ref, StepId, TaskId};
use tenure_core::patch::{Operation, ReasonInput};
use tenure_core::view::TaskView;
use tenure_core::{Code, Command, Context, Rejection};
use tenure_ports::ClientPort;
use tenure_sdk::client::{Client, put_blob};

use super::load::load;
use super::question::{
    AnswerPlace, GivenAnswer, Question, StepQuestions, answer_place, asked_in, kept_answer,
    kept_in_blob, kept_place,
};
use super::start::hash_of;

/// The code of a reopening that brings an answer (A2A-10).
const INPUT_RECEIVED: &str = "input_received";

/// The code of a Task whose caller does not want to answer.
const INPUT_DECLINED: &str = "input_declined";

/// How often a command is sent that others came before. Each time somebody else has got on.
const TRIES_MAX: usize = 32;

/// Why answers were not taken.
#[derive(Debug)]
pub(super) enum AnswerError {
    /// One of them is not what was asked for.
    Invalid(String),
    /// Tenure refuses it.
    Refused(Rejection),
}

impl From<Rejection> for AnswerError {
    fn from(refused: Rejection) -> Self {
        Self::Refused(refused)
    }
}

/// The next thing to do for a Step.
enum AnswerStep<'a> {
    /// All its questions are answered: these are the references that it gets.
    Reopen(StepId, String, Vec<Ref>),
    /// An answer is to be kept.
    Keep(&'a Question, String),
    /// The caller declines, so the Task cannot reach its end (POL-07).
    Decline(String),
}

/// Takes answers to questions that are open, and says whether one of them was dismissed. Answers to other questions
/// count for nothing: they have been answered, or were never asked.
///
/// # Errors
/// An answer does not have the form of its question; then none was taken. Or Tenure refuses one.
pub(super) async fn take_answers<P: ClientPort>(
    client: &Client<P>,
    task: &TaskId,
    responses: &InputResponses,
) -> Result<bool, AnswerError> {
    let mut was_dismissed = false;
    // Each answer is kept once, and reopens its Step at most: what is more was overtaken.
    for _ in 0..TRIES_MAX + 2 * responses.len() {
        let view = load(client, task).await?;
        let asked = asked_in(&view);
        let given = read_all(&asked, responses).map_err(AnswerError::Invalid)?;
        was_dismissed |= given.iter().any(|(_, answer)| *answer == GivenAnswer::Dismissed);
        let next = asked.iter().find_map(|step| next_for(task, step, &given));
        let Some(next) = next else { return Ok(was_dismissed) };
        match carry_out(client, &view, next).await {
            Ok(()) => {}
            Err(refused) if is_overtaken(refused.code) => {}
            Err(refused) => return Err(refused.into()),
        }
    }
    Err(Rejection::new(Code::Unavailable, "the task changes too fast: send the answers again")
        .into())
}

/// Reopens Steps all of whose answers are there: whoever brought the last of them may have gone before it could.
///
/// # Errors
/// Tenure refuses it.
pub(super) async fn reopen_answered<P: ClientPort>(
    client: &Client<P>,
    view: &TaskView,
) -> Result<(), Rejection> {
    let task = &view.task.task_id;
    for step in asked_in(view).iter().filter(|step| step.are_answered()) {
        let Some(reopen) = next_for(task, step, &[]) else { continue };
        match carry_out(client, view, reopen).await {
            Err(refused) if !is_overtaken(refused.code) => return Err(refused),
            _ => {}
        }
    }
    Ok(())
}

/// Whether somebody else has answered, or the Task goes on in another way.
const fn is_overtaken(code: Code) -> bool {
    matches!(
        code,
        Code::VersionConflict
            | Code::IdempotencyConflict
            | Code::InvalidTransition
            | Code::TaskCancelling
            | Code::TaskTerminal
    )
}

/// The answers to open questions, each in the form of its question.
fn read_all<'a>(
    asked: &'a [StepQuestions],
    responses: &InputResponses,
) -> Result<Vec<(&'a Question, GivenAnswer)>, String> {
    let open = asked.iter().flat_map(StepQuestions::open);
    let answered = open.filter_map(|question| Some((question, responses.get(&question.key)?)));
    let read =
        |(question, response): (&'a Question, &Json)| Ok((question, question.read(response)?));
    answered.map(read).collect()
}

/// What is to be done first for a Step; none if there is nothing.
fn next_for<'a>(
    task: &TaskId,
    step: &'a StepQuestions,
    given: &[(&'a Question, GivenAnswer)],
) -> Option<AnswerStep<'a>> {
    let answer = |question: &Question| {
        given.iter().find(|(asked, _)| asked.key == question.key).map(|(_, answer)| answer)
    };
    let first = step.questions.first()?.key.clone();
    if step.open().any(|question| answer(question) == Some(&GivenAnswer::Declined)) {
        return Some(AnswerStep::Decline(first));
    }
    if let [question] = &step.questions[..]
        && let Some(GivenAnswer::Text(text)) = answer(question)
    {
        // The only answer need not be kept before it is given.
        return match answer_place(task, &question.key, text) {
            AnswerPlace::Inline(reference) => {
                Some(AnswerStep::Reopen(step.step_id.clone(), first, vec![reference]))
            }
            AnswerPlace::Blob(_) => Some(AnswerStep::Keep(question, text.clone())),
        };
    }
    if step.are_answered() {
        let kept = step
            .questions
            .iter()
            .filter_map(|question| kept_answer(task, &question.key, question.kept.as_ref()?));
        return Some(AnswerStep::Reopen(step.step_id.clone(), first, kept.collect()));
    }
    step.open().find_map(|question| match answer(question)? {
        GivenAnswer::Text(text) => Some(AnswerStep::Keep(question, text.clone())),
        GivenAnswer::Declined | GivenAnswer::Dismissed => None,
    })
}

/// Sends the command for it.
async fn carry_out<P: ClientPort>(
    client: &Client<P>,
    view: &TaskView,
    step: AnswerStep<'_>,
) -> Result<(), Rejection> {
    let task = &view.task.task_id;
    let (what, key, command) = match step {
        AnswerStep::Reopen(step_id, key, input_refs) => {
            let reason = Some(reason(INPUT_RECEIVED, ""));
            let operations = vec![Operation::ReopenStep { input_refs, reason, step_id }];
            ("reopen", key, Command::TaskUpdate { operations })
        }
        AnswerStep::Keep(question, text) => {
            let reference = keep(client, task, &question.key, &text).await?;
            let late = AppendProgress { input_refs: vec![reference], ..Default::default() };
            ("keep", question.key.clone(), Command::AppendTaskProgress(late))
        }
        AnswerStep::Decline(key) => {
            let reason = Some(reason(INPUT_DECLINED, "the caller does not want to answer"));
            let close = Close { grace_ms: None, reason, wait: Some(false) };
            ("decline", key, Command::TaskFail(close))
        }
    };
    // A2A-11: it counts only as long as the question is the one that was read.
    let id = CommandId::new(format!("mcp-{}", hash_of(&[what, task.as_str(), &key])))?;
    let context =
        Context { expected_spec_version: Some(view.task.spec_version), ..Context::new(id) };
    client.command_as(task, context, command).await.map(drop)
}

/// Keeps an answer with its Task, and returns where it is.
async fn keep<P: ClientPort>(
    client: &Client<P>,
    task: &TaskId,
    key: &str,
    text: &str,
) -> Result<Ref, Rejection> {
    match kept_place(task, key, text) {
        AnswerPlace::Inline(reference) => Ok(reference),
        AnswerPlace::Blob(bytes) => {
            let blob = put_blob(client.port(), task, &bytes).await?;
            let long = || Rejection::invalid("inputResponses", "the key is too long");
            kept_in_blob(key, &blob.reference()).ok_or_else(long)
        }
    }
}

fn reason(code: &str, message: &str) -> ReasonInput {
    let (code, message) = (Some(code.into()), message.to_owned());
    ReasonInput { code, details: None, message, retryable: None }
}
