//! The routes of workers: each reads its request, and passes it to the link.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use smol_str::SmolStr;
use tenure_core::command::GiveBack;
use tenure_core::id::CommandId;
use tenure_core::patch::ReasonInput;
use tenure_core::sessions::Abilities;
use tenure_core::view::RunOffer;
use tenure_core::{Code, Rejection};
use tenure_ports::bus::{Holding, Recorded, WorkerPort};
use tenure_wire::bus::subject::Token;
use tenure_wire::bus::worker::{HANDLERS_MAX, Word};
use uuid::Uuid;

use super::account::SILENCE;
use super::asked::{AtLink, AtPool, JsonBody};
use super::bodies::{
    Body, ChangeBody, ClaimBody, HOLDINGS_MAX, HeartbeatBody, HolderBody, HoldingBody, JoinBody,
    JoinedWorker, QueryBody, RunBody, read, read_all, read_look, read_word, take_room,
};
use super::link::HttpLink;
use super::table::JoiningWorker;
use super::{CONCURRENCY_MAX, FETCH_GAP};
use crate::Gateway;
use crate::api::{idempotency_key, json_reply};
use crate::backend::Backend;
use crate::problem::HttpProblem;

/// What a handler answers.
type Answer = Result<Response, HttpProblem>;

/// `POST /v1/pools/{pool}/workers`
pub(super) async fn join<B: Backend>(
    State(gateway): State<Arc<Gateway<B>>>,
    at: AtPool,
    JsonBody(body): JsonBody,
) -> Answer {
    let JoinBody { concurrency, handlers, sessions, boot } = read_all(&body)?;
    check_concurrency(concurrency)?;
    let count = handlers.as_ref().map_or(0, Vec::len);
    if count > HANDLERS_MAX {
        return Err(too_many("handlers", count, HANDLERS_MAX).into());
    }
    let boot = boot.map_or_else(new_boot, |boot| Token::new(&boot));
    let boot = boot.map_err(|bad| Rejection::invalid("boot", bad.to_string()))?;
    let (pool, abilities) = (at.pool.clone(), Abilities { handlers, sessions });
    let joining = JoiningWorker { pool, boot, abilities, concurrency };
    let joined = gateway.workers.join(&gateway.backend, at.who(), joining).await?;
    let (link, is_new) = joined;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let mut response = json_reply(status, &facts(&link));
    let place = format!("/v1/pools/{}/workers/{}", at.pool, link.id);
    if let Ok(place) = HeaderValue::try_from(place) {
        response.headers_mut().insert(LOCATION, place);
    }
    Ok(response)
}

/// A name that no other start of a worker has.
fn new_boot() -> Result<Token, tenure_core::id::BadId> {
    Token::new(Uuid::now_v7().simple().to_string().split_off(20)) // The random part.
}

fn check_concurrency(concurrency: usize) -> Result<(), Rejection> {
    match concurrency <= CONCURRENCY_MAX {
        true => Ok(()),
        false => Err(too_many("concurrency", concurrency, CONCURRENCY_MAX)),
    }
}

fn too_many(field: &str, count: usize, limit: usize) -> Rejection {
    Rejection::invalid(field, format!("it is {count}; at most {limit}")).with("limit", limit)
}

fn facts<W: WorkerPort>(link: &HttpLink<W>) -> JoinedWorker {
    let (concurrency, after, drain) = link.facts();
    let ms =
        |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    JoinedWorker {
        link: link.id.clone(),
        worker_id: link.port().id().clone(),
        worker_pool_id: link.owner.pool.clone(),
        boot: SmolStr::new(link.owner.boot.as_str()),
        concurrency,
        after,
        drain,
        fetch_within_ms: ms(FETCH_GAP),
        silent_after_ms: ms(SILENCE),
    }
}

/// `GET /v1/pools/{pool}/workers/{link}`
pub(super) async fn show<B: Backend>(at: AtLink<B>) -> Response {
    json_reply(StatusCode::OK, &facts(&at.link))
}

/// `PATCH /v1/pools/{pool}/workers/{link}`
pub(super) async fn change<B: Backend>(at: AtLink<B>, JsonBody(body): JsonBody) -> Answer {
    let ChangeBody { concurrency, room } = read_all(&body)?;
    if let Some(concurrency) = concurrency {
        check_concurrency(concurrency)?;
        at.link.set_concurrency(concurrency);
    }
    if let Some(room) = room {
        at.link.note_room(room.into());
        at.link.touch();
    }
    Ok(json_reply(StatusCode::OK, &facts(&at.link)))
}

/// `DELETE /v1/pools/{pool}/workers/{link}`
pub(super) async fn leave<B: Backend>(
    State(gateway): State<Arc<Gateway<B>>>,
    mut at: AtLink<B>,
) -> Answer {
    let after = at.query().take_number("after")?;
    at.query().end()?;
    gateway.workers.end(&at.link, after).await;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `GET …/deliveries`
pub(super) async fn fetch<B: Backend>(
    State(gateway): State<Arc<Gateway<B>>>,
    mut at: AtLink<B>,
) -> Answer {
    let query = at.query();
    let (after, wait) = (query.take_number("after")?, query.take_time("wait")?);
    query.end()?;
    let wait = wait.unwrap_or_default().min(gateway.settings.wait_max);
    let page = at.link.fetch(after, wait).await?;
    Ok(json_reply(StatusCode::OK, &page))
}

/// `POST …/heartbeat`
pub(super) async fn heartbeat<B: Backend>(at: AtLink<B>, JsonBody(body): JsonBody) -> Answer {
    let HeartbeatBody { holdings } = read(&body)?;
    if holdings.len() > HOLDINGS_MAX {
        return Err(too_many("holdings", holdings.len(), HOLDINGS_MAX).into());
    }
    let held = holdings.into_iter().map(HoldingBody::of).collect();
    Ok(json_reply(StatusCode::OK, &at.link.heartbeat(held).await?))
}

/// The Attempt that a report is about, and what the report says. Notes the capacity beside it.
fn said<B: Backend>(
    at: &AtLink<B>,
    operation: &str,
    mut body: Body,
) -> Result<(Holding, Word), Rejection> {
    note_room(at, &mut body);
    let attempt_id = at.attempt_id()?;
    let held = read::<HolderBody>(&body)?.of(attempt_id);
    body.insert("attempt_id".into(), attempt_id.to_string().into());
    Ok((held, read_word(operation, &body)?))
}

fn note_room<B: Backend>(at: &AtLink<B>, body: &mut Body) {
    take_room(body).into_iter().for_each(|room| at.link.note_room(room));
}

fn recorded(answer: Result<Recorded, Rejection>) -> Answer {
    Ok(json_reply(StatusCode::OK, &Recorded::said(Ok(answer?))))
}

/// The refusal of a report that was read as another one, which does not happen.
fn misread() -> Rejection {
    Rejection::new(Code::ValidationError, "the report was read as another one")
}

/// `POST …/attempts/{attempt_id}/report`
pub(super) async fn report<B: Backend>(at: AtLink<B>, JsonBody(body): JsonBody) -> Answer {
    match said(&at, "task_update_step", body)? {
        (held, Word::TaskUpdateStep(report)) => recorded(at.link.report(&held, report).await),
        _ => Err(misread().into()),
    }
}

/// `POST …/attempts/{attempt_id}/end`
pub(super) async fn end_run<B: Backend>(at: AtLink<B>, JsonBody(body): JsonBody) -> Answer {
    match said(&at, "end_run", body)? {
        (held, Word::EndRun { outcome, result }) => {
            recorded(at.link.end_run(&held, outcome, result).await)
        }
        _ => Err(misread().into()),
    }
}

/// `POST …/attempts/{attempt_id}/release`
pub(super) async fn release<B: Backend>(at: AtLink<B>, JsonBody(body): JsonBody) -> Answer {
    match said(&at, "release_step", body)? {
        (held, Word::ReleaseStep { reason, retry_after_ms, .. }) => {
            recorded(at.link.release(&held, GiveBack { reason, retry_after_ms }).await)
        }
        _ => Err(misread().into()),
    }
}

/// The Run that a request is about.
fn run_of<B: Backend>(at: &AtLink<B>, body: &Body) -> Result<RunOffer, Rejection> {
    Ok(read::<RunBody>(body)?.of(at.pool().clone(), at.run_id()?))
}

/// `POST …/runs/{run_id}/query`
pub(super) async fn query<B: Backend>(at: AtLink<B>, JsonBody(body): JsonBody) -> Answer {
    let (run, QueryBody { offset }) = (run_of(&at, &body)?, read(&body)?);
    Ok(json_reply(StatusCode::OK, &at.link.query(&run, offset).await?))
}

/// `POST …/runs/{run_id}/claim`
pub(super) async fn claim<B: Backend>(at: AtLink<B>, JsonBody(body): JsonBody) -> Answer {
    let (run, ClaimBody { step_id, command_id }) = (run_of(&at, &body)?, read(&body)?);
    let command = match command_id {
        Some(given) => given,
        None => command_of(at.headers())?,
    };
    Ok(json_reply(StatusCode::OK, &at.link.claim(&run, &step_id, &command).await?))
}

/// The id of a command that the body does not name.
fn command_of(headers: &HeaderMap) -> Result<CommandId, HttpProblem> {
    match idempotency_key(headers)? {
        Some(given) => Ok(given),
        None => Ok(CommandId::new(Uuid::now_v7().to_string())?),
    }
}

/// `POST …/runs/{run_id}/look`
pub(super) async fn look<B: Backend>(at: AtLink<B>, JsonBody(body): JsonBody) -> Answer {
    let run = run_of(&at, &body)?;
    let look = read_look(&body, run.run_id)?;
    Ok(json_reply(StatusCode::OK, &at.link.look(&run, look).await?))
}

/// `POST …/runs/{run_id}/decline`
pub(super) async fn decline<B: Backend>(at: AtLink<B>, JsonBody(mut body): JsonBody) -> Answer {
    note_room(&at, &mut body);
    let run = run_of(&at, &body)?;
    let Word::DeclineRun { reason } = read_word("decline_run", &body)? else {
        return Err(misread().into());
    };
    recorded(at.link.leave(&run, Some(reason.unwrap_or_else(unsaid))).await)
}

/// The reason of a worker that gives none.
fn unsaid() -> ReasonInput {
    let message = "the worker gave no reason".into();
    ReasonInput { code: None, details: None, message, retryable: None }
}

/// `POST …/runs/{run_id}/end`
pub(super) async fn end_unused<B: Backend>(at: AtLink<B>, JsonBody(mut body): JsonBody) -> Answer {
    note_room(&at, &mut body);
    recorded(at.link.leave(&run_of(&at, &body)?, None).await)
}

/// `DELETE …/runs/{run_id}`
pub(super) async fn let_go<B: Backend>(at: AtLink<B>) -> Answer {
    at.link.let_go(at.run_id()?);
    Ok(StatusCode::NO_CONTENT.into_response())
}
