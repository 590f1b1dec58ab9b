//! Parts of a Task that have a path of their own: one of its Steps, its Attempts, Runs and artifacts.
//!
//! They are cut out of the Task as `task_get` shows it. The gateway folds the log of a Task that is too
//! long for that.

use std::fmt::Display;
use std::mem::take;
use std::str::FromStr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use schemars::JsonSchema;
use serde::Serialize;
use tenure_core::id::{AttemptId, RunId, StepId, TaskId};
use tenure_core::view::artifact::ArtifactView;
use tenure_core::view::{AttemptView, QueryInput, RunView, StepView, TaskView};
use tenure_core::{Code, Rejection};
use tenure_ports::ClientPort;
use tenure_sdk::client::Client;

use super::fold::LogReplica;
use super::page::{Filter, PAGE_TOKEN};
use super::read::{Inquiry, Place, check_accept};
use super::reply::json_bytes;
use super::routes::SESSION;
use super::{FoldTurn, json_reply};
use crate::described::{DescribedRoute, Parameter, ParameterForm, json_of};
use crate::identity::Identity;
use crate::problem::HttpProblem;
use crate::{Backend, Gateway};

/// How many parts a page has, by default and at most.
pub(crate) const PAGE_MAX: usize = 500;

/// How many bytes the parts of a page have at most, about. A page has at least one part all the same.
const PAGE_BYTES_MAX: usize = 16 << 20;

/// The routes.
pub(super) fn routes<B: Backend>() -> Router<Arc<Gateway<B>>> {
    let task = format!("{SESSION}/tasks/{{task_id}}");
    Router::new()
        .route(&format!("{task}/steps/{{step_id}}"), get(step))
        .route(&format!("{task}/steps/{{step_id}}/attempts/{{ordinal}}"), get(attempt_of_step))
        .route(&format!("{task}/attempts"), get(attempts))
        .route(&format!("{task}/attempts/{{attempt_id}}"), get(attempt))
        .route(&format!("{task}/runs"), get(runs))
        .route(&format!("{task}/runs/{{run_id}}"), get(run))
        .route(&format!("{task}/artifacts"), get(artifacts))
}

/// How many entries a page may have.
const LIMIT: ParameterForm = ParameterForm::Number(1, PAGE_MAX as u64);

/// Which page.
const PAGES: [Parameter; 2] = [
    Parameter::query("limit", LIMIT, "How many at most. A page of long parts has fewer."),
    Parameter::query(PAGE_TOKEN, ParameterForm::Text, "The `next_page_token` of the page before."),
];

const STEP_ID: Parameter =
    Parameter::query("step_id", ParameterForm::NAME, "Only those of this Step.");

/// These resources, for the document.
pub(super) const DESCRIBED: [DescribedRoute; 7] = [
    DescribedRoute::read(
        "/v1/sessions/{session}/tasks/{task_id}/steps/{step_id}",
        "get_step",
        "Reads a Step.",
        &[],
        &[(200, Some(json_of::<StepView>()))],
    ),
    DescribedRoute::read(
        "/v1/sessions/{session}/tasks/{task_id}/steps/{step_id}/attempts/{ordinal}",
        "get_attempt_of_step",
        "Reads an Attempt by its number among those of its Step, from 1.",
        &[],
        &[(200, Some(json_of::<AttemptView>()))],
    ),
    DescribedRoute::read(
        "/v1/sessions/{session}/tasks/{task_id}/attempts",
        "list_attempts",
        "Lists the Attempts of a Task, oldest first.",
        &[STEP_ID, PAGES[0], PAGES[1]],
        &[(200, Some(json_of::<PartPage<AttemptList>>()))],
    ),
    DescribedRoute::read(
        "/v1/sessions/{session}/tasks/{task_id}/attempts/{attempt_id}",
        "get_attempt",
        "Reads an Attempt.",
        &[],
        &[(200, Some(json_of::<AttemptView>()))],
    ),
    DescribedRoute::read(
        "/v1/sessions/{session}/tasks/{task_id}/runs",
        "list_runs",
        "Lists the Runs of a Task, oldest first.",
        &PAGES,
        &[(200, Some(json_of::<PartPage<RunList>>()))],
    ),
    DescribedRoute::read(
        "/v1/sessions/{session}/tasks/{task_id}/runs/{run_id}",
        "get_run",
        "Reads a Run.",
        &[],
        &[(200, Some(json_of::<RunView>()))],
    ),
    DescribedRoute::read(
        "/v1/sessions/{session}/tasks/{task_id}/artifacts",
        "list_artifacts",
        "Lists the artifacts of a Task, oldest first.",
        &PAGES,
        &[(200, Some(json_of::<PartPage<ArtifactList>>()))],
    ),
];

/// A page of the parts of a Task.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "{T}Page")]
struct PartPage<T> {
    #[serde(flatten)]
    parts: T,
    /// Version of the Task that was read.
    version: u64,
    spec_version: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_page_token: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct AttemptList {
    attempts: Vec<AttemptView>,
}

#[derive(Serialize, JsonSchema)]
struct RunList {
    runs: Vec<RunView>,
}

#[derive(Serialize, JsonSchema)]
struct ArtifactList {
    artifacts: Vec<ArtifactView>,
}

async fn step<B: Backend>(
    State(gateway): State<Arc<Gateway<B>>>,
    asked: Inquiry,
) -> Result<Response, HttpProblem> {
    let (place, client) = reach(&gateway, &asked).await?;
    asked.query.end()?;
    let id: StepId = StepId::new(place.named("step_id")?)?;
    Ok(json_reply(StatusCode::OK, &find_step(&client, place.task()?, &id).await?))
}

/// Looks for a Step page by page.
async fn find_step<P: ClientPort>(
    client: &Client<P>,
    task: &TaskId,
    id: &StepId,
) -> Result<StepView, Rejection> {
    let mut offset = 0;
    loop {
        let input = QueryInput {
            include_terminal_steps: true,
            limit: Some(PAGE_MAX),
            offset,
            ..QueryInput::default()
        };
        let page = client.steps(task, input).await?;
        if let Some(found) = page.steps.into_iter().find(|step| step.spec.step_id == *id) {
            return Ok(found);
        }
        match page.next_offset {
            Some(next) if next > offset => offset = next,
            _ => {
                let message = format!("step {id} does not exist");
                let absent = Rejection::new(Code::StepNotFound, message);
                return Err(absent.with("step_id", id.as_str()));
            }
        }
    }
}

async fn attempts<B: Backend>(
    State(gateway): State<Arc<Gateway<B>>>,
    mut asked: Inquiry,
) -> Result<Response, HttpProblem> {
    let of_step = asked.query.take("step_id")?.map(StepId::new).transpose()?;
    let (cut, mut read) = cut_out(&gateway, asked, of_step.as_ref()).await?;
    let task = &mut read.task;
    task.attempts.retain(|it| of_step.as_ref().is_none_or(|step| it.step_id == *step));
    let attempts = take(&mut task.attempts);
    Ok(cut.reply(versions(task), attempts, |attempts| AttemptList { attempts }))
}

async fn attempt<B: Backend>(
    State(gateway): State<Arc<Gateway<B>>>,
    asked: Inquiry,
) -> Result<Response, HttpProblem> {
    let (place, client) = reach(&gateway, &asked).await?;
    asked.query.end()?;
    let id: AttemptId = named(&place, "attempt_id")?;
    let WholeTask { task, _turn } = whole(&gateway, &asked.who, &client, place.task()?).await?;
    let found = task.attempts.iter().find(|attempt| attempt.attempt_id == id);
    let absent = || HttpProblem::not_found(format!("attempt {id} does not exist"));
    Ok(json_reply(StatusCode::OK, found.ok_or_else(absent)?))
}

async fn attempt_of_step<B: Backend>(
    State(gateway): State<Arc<Gateway<B>>>,
    asked: Inquiry,
) -> Result<Response, HttpProblem> {
    let (place, client) = reach(&gateway, &asked).await?;
    asked.query.end()?;
    let (step, ordinal): (StepId, u32) = (named(&place, "step_id")?, named(&place, "ordinal")?);
    let WholeTask { task, _turn } = whole(&gateway, &asked.who, &client, place.task()?).await?;
    let found = task.attempts.iter().find(|it| it.step_id == step && it.ordinal == ordinal);
    let absent = || HttpProblem::not_found(format!("step {step} has no attempt {ordinal}"));
    Ok(json_reply(StatusCode::OK, found.ok_or_else(absent)?))
}

async fn runs<B: Backend>(
    State(gateway): State<Arc<Gateway<B>>>,
    asked: Inquiry,
) -> Result<Response, HttpProblem> {
    let (cut, mut read) = cut_out(&gateway, asked, None).await?;
    let runs = take(&mut read.task.runs);
    Ok(cut.reply(versions(&read.task), runs, |runs| RunList { runs }))
}

async fn run<B: Backend>(
    State(gateway): State<Arc<Gateway<B>>>,
    asked: Inquiry,
) -> Result<Response, HttpProblem> {
    let (place, client) = reach(&gateway, &asked).await?;
    asked.query.end()?;
    let id: RunId = named(&place, "run_id")?;
    let WholeTask { task, _turn } = whole(&gateway, &asked.who, &client, place.task()?).await?;
    let absent = || {
        let refused = Rejection::new(Code::RunNotFound, format!("run {id} does not exist"));
        HttpProblem::from(refused.with("run_id", id.to_string()))
    };
    let found = task.runs.iter().find(|run| run.run_id == id);
    Ok(json_reply(StatusCode::OK, found.ok_or_else(absent)?))
}

async fn artifacts<B: Backend>(
    State(gateway): State<Arc<Gateway<B>>>,
    asked: Inquiry,
) -> Result<Response, HttpProblem> {
    let (cut, mut read) = cut_out(&gateway, asked, None).await?;
    let artifacts = take(&mut read.task.artifacts);
    Ok(cut.reply(versions(&read.task), artifacts, |artifacts| ArtifactList { artifacts }))
}

/// The version and the `spec_version` of a Task.
fn versions(task: &TaskView) -> (u64, u64) {
    (task.task.version, task.task.spec_version)
}

/// Which page of a list is asked for.
#[derive(Debug)]
struct PageCut {
    filter: Filter,
    offset: usize,
    limit: usize,
}

impl PageCut {
    /// The page of these parts.
    fn reply<T: Serialize, L: Serialize>(
        &self,
        of: (u64, u64),
        mut all: Vec<T>,
        list: impl FnOnce(Vec<T>) -> L,
    ) -> Response {
        let begin = self.offset.min(all.len());
        let end = begin + self.fits(all.get(begin..).unwrap_or_default());
        let next = (end < all.len()).then_some(end as u64);
        all.truncate(end);
        let (version, spec_version) = of;
        let page = PartPage {
            parts: list(all.split_off(begin)),
            version,
            spec_version,
            next_page_token: next.map(|position| self.filter.token(position)),
        };
        json_reply(StatusCode::OK, &page)
    }

    /// How many of these parts, from the first on, the page has.
    fn fits<T: Serialize>(&self, parts: &[T]) -> usize {
        let ends = parts.iter().take(self.limit).scan(0, |end, part| {
            *end += json_bytes(part);
            Some(*end)
        });
        let count = ends.take_while(|end| *end <= PAGE_BYTES_MAX).count();
        count.max(1).min(parts.len())
    }
}

/// Reads which page is asked for, and the Task.
async fn cut_out<B: Backend>(
    gateway: &Gateway<B>,
    mut asked: Inquiry,
    of_step: Option<&StepId>,
) -> Result<(PageCut, WholeTask), HttpProblem> {
    let (place, client) = reach(gateway, &asked).await?;
    let token = asked.query.take(PAGE_TOKEN)?;
    let limit = asked.query.take_number("limit")?;
    asked.query.end()?;
    let list = format!("{}?{}", asked.whole_path, of_step.map_or("", StepId::as_str));
    let filter = Filter::of(&list, &asked.query);
    let position = token.map(|token| filter.position(&token)).transpose()?.unwrap_or(0);
    let offset = usize::try_from(position).unwrap_or(usize::MAX);
    let cut = PageCut { filter, offset, limit: checked_limit(limit)? };
    let task = whole(gateway, &asked.who, &client, place.task()?).await?;
    Ok((cut, task))
}

/// The length of a page.
fn checked_limit(given: Option<u64>) -> Result<usize, Rejection> {
    let limit = given.map_or(PAGE_MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    if (1..=PAGE_MAX).contains(&limit) {
        return Ok(limit);
    }
    let message = format!("a page has 1 to {PAGE_MAX} entries");
    Err(Rejection::invalid("limit", message).with("limit", PAGE_MAX))
}

/// What a request is about, and the client of its caller.
async fn reach<B: Backend>(
    gateway: &Gateway<B>,
    asked: &Inquiry,
) -> Result<(Place, Client<B::Client>), HttpProblem> {
    check_accept(&asked.headers)?;
    let place = Place::read(&asked.path)?;
    let client = place.client(gateway, &asked.who).await?;
    Ok((place, client))
}

/// An id in the path.
fn named<T: FromStr<Err: Display>>(place: &Place, name: &str) -> Result<T, HttpProblem> {
    let read = place.named(name)?.parse();
    Ok(read.map_err(|error: T::Err| Rejection::invalid(name, error.to_string()))?)
}

/// A Task with all its lists, and the turn of its caller if the log was folded for it: it lasts until the answer is
/// written.
struct WholeTask {
    task: TaskView,
    _turn: Option<FoldTurn>,
}

/// The Task with all its lists.
async fn whole<B: Backend>(
    gateway: &Gateway<B>,
    who: &Identity,
    client: &Client<B::Client>,
    id: &TaskId,
) -> Result<WholeTask, HttpProblem> {
    let task = client.get(id).await?;
    if task.left_out.is_none() {
        return Ok(WholeTask { task, _turn: None });
    }
    drop(task); // It waits for its turn without what it has read.
    let turn = gateway.folds.take(who.principal.as_str()).await?;
    let task = LogReplica::read(client, id).await?.view();
    Ok(WholeTask { task, _turn: Some(turn) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_a_limit() {
        assert_eq!(checked_limit(None), Ok(PAGE_MAX));
        for (given, is_good) in
            [(0, false), (1, true), (500, true), (501, false), (u64::MAX, false)]
        {
            assert_eq!(checked_limit(Some(given)).is_ok(), is_good, "{given}");
        }
    }

    #[test]
    fn a_page_of_long_parts_has_fewer() {
        let cut = PageCut { filter: Filter::of("", &Default::default()), offset: 0, limit: 4 };
        let of = |bytes: &[usize]| {
            let parts: Vec<_> = bytes.iter().map(|bytes| "x".repeat(*bytes)).collect();
            cut.fits(&parts)
        };
        assert_eq!((of(&[]), of(&[1, 1]), of(&[1; 9])), (0, 2, 4));
        assert_eq!(of(&[PAGE_BYTES_MAX / 2, PAGE_BYTES_MAX / 4, PAGE_BYTES_MAX / 2]), 2);
        assert_eq!(of(&[2 * PAGE_BYTES_MAX, 1]), 1, "one comes all the same");
    }
}
