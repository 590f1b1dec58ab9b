//! One route for programs of ours: `POST /v1/sessions/{session}/call` takes a request of the bus, as
//! MessagePack, and gives the answer of the bus ([`tenure_wire::bus::call`]).
//!
//! The gateway asks all partitions at once where the bus asks one. The status is 200 for every answer
//! of the port, refusals too; only what the gateway itself refuses is a [`HttpProblem`].

use std::sync::Arc;

use axum::extract::{RawPathParams, Request as HttpRequest, State};
use axum::http::header::{CONTENT_TYPE, HeaderMap};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use axum::routing::post;
use axum::{Extension, Router};
use serde::Serialize;
use tenure_core::command::Write;
use tenure_core::command::create::Parent;
use tenure_core::id::{CommandId, TaskId};
use tenure_core::view::board::template;
use tenure_core::view::{Board, ListInput, TaskPage, TemplateInput, WriteSummary};
use tenure_core::{Code, Query, Rejection, TraceParent};
use tenure_ports::ClientPort as _;
use tenure_ports::journal::Entry as IndexEntry;
use tenure_sdk::client::Client;
use tenure_wire::bus::call::{CALL_MAX, CallAnswer, MEDIA_TYPE, PAGE_BYTES};
use tenure_wire::bus::encode_within;
use tenure_wire::bus::operate::{LeasePage, ListLeases};
use tenure_wire::bus::output::{OutputPage, ReadOutput};
use tenure_wire::bus::request::{
    Ask, Entries, Entry, LeaseLeft, List, LogPage, RawBytes, ReadLog, ReadParent, Request,
    RequestHead, ViewPage, Views,
};
use tenure_wire::stored;
use uuid::Uuid;

use super::bytes_reply;
use super::read::{Place, whole_body};
use crate::identity::Identity;
use crate::problem::HttpProblem;
use crate::{Backend, Gateway};

/// How many leases an answer has at most.
const LEASES_MAX: usize = 10_000;

/// What is answered, and the partitions that did not answer.
type Heard<T> = Result<(T, Vec<u32>), Rejection>;

/// The route.
pub(super) fn routes<B: Backend>() -> Router<Arc<Gateway<B>>> {
    Router::new().route("/v1/sessions/{session}/call", post(call::<B>))
}

async fn call<B: Backend>(
    State(gateway): State<Arc<Gateway<B>>>,
    Extension(who): Extension<Identity>,
    path: RawPathParams,
    request: HttpRequest,
) -> Result<Response, HttpProblem> {
    let place = Place::read(&path)?;
    let (parts, body) = request.into_parts();
    check_media_type(&parts.headers)?;
    let client = place.client(&gateway, &who).await?;
    let body = whole_body(&parts.headers, body, CALL_MAX).await?;
    let answer = match Request::read_within(CALL_MAX, &body) {
        Ok(request) => {
            drop(body); // It may be long, and the answer may take its time.
            let client = match request.head.max_bytes {
                Some(most) => client.within(most),
                None => client,
            };
            let backend = &gateway.backend;
            Box::pin(BusCall { backend, who: &who, client, place: &place }.answer(request)).await
        }
        Err(refused) => written(CallAnswer::<()>::of(Err(refused)), |()| false),
    };
    Ok(bytes_reply(StatusCode::OK, HeaderValue::from_static(MEDIA_TYPE), answer))
}

fn check_media_type(headers: &HeaderMap) -> Result<(), HttpProblem> {
    if headers.get(CONTENT_TYPE).is_some_and(|given| given.as_bytes() == MEDIA_TYPE.as_bytes()) {
        return Ok(());
    }
    let message = format!("the body is a request of the bus: send `Content-Type: {MEDIA_TYPE}`");
    Err(HttpProblem::of_http(StatusCode::UNSUPPORTED_MEDIA_TYPE, message))
}

/// A request of the bus, and who carries it out.
struct BusCall<'a, B: Backend> {
    backend: &'a B,
    who: &'a Identity,
    client: Client<B::Client>,
    place: &'a Place,
}

/// How one kind of query is answered.
trait AnswersCall<Q: Query> {
    fn heard(&self, head: &RequestHead, query: Q) -> impl Future<Output = Heard<Q::Output>> + Send;
}

macro_rules! answers {
    (
        task { $($task:ident($asks:ty))* }
        history { $($history:ident($reads:ty))* }
        parts { $($part:ident($brings:ty))* }
        other { $($other:ident($_query:ty))* }
    ) => {
        impl<B: Backend> BusCall<'_, B> {
            /// Carries out the request. The answer is as the bus sends it.
            async fn answer(self, Request { head, ask }: Request) -> Vec<u8> {
                match ask {
                    Ask::Create(input) => self.write(head, Write::Create(input)).await,
                    Ask::RetryEnded(input) => self.write(head, Write::RetryEnded(input)).await,
                    Ask::Command(command) => self.write(head, Write::Command(command)).await,
                    $(Ask::$task(query) => self.show(&head, query).await,)*
                    $(Ask::$history(query) => self.show(&head, query).await,)*
                    $(Ask::$part(query) => self.show(&head, query).await,)*
                    $(Ask::$other(query) => self.show(&head, query).await,)*
                }
            }
        }

        $(answers!($asks);)*
        $(answers!($reads);)*
        $(answers!($brings);)*
    };
    ($query:ty) => {
        impl<B: Backend> AnswersCall<$query> for BusCall<'_, B> {
            async fn heard(
                &self,
                head: &RequestHead,
                query: $query,
            ) -> Heard<<$query as Query>::Output> {
                of_one(self.client.ask(&task(head)?, query).await)
            }
        }
    };
}

tenure_wire::queries!(answers);

impl<B: Backend> BusCall<'_, B> {
    async fn write(&self, head: RequestHead, what: Write) -> Vec<u8> {
        let summary = self.carried_out(head, what).await;
        written(CallAnswer::of(summary), WriteSummary::shorten)
    }

    async fn carried_out(
        &self,
        mut head: RequestHead,
        what: Write,
    ) -> Result<WriteSummary, Rejection> {
        let task = match &what {
            Write::Create(input) => input.task_id()?.clone(),
            Write::RetryEnded(_) | Write::Command(_) => task(&head)?,
        };
        head.trace = head.trace.filter(|it| TraceParent::parse(it).is_some());
        let context = head.context(|| CommandId::new(Uuid::now_v7().to_string()))?;
        Box::pin(self.client.port().write(&task, context, what)).await
    }

    async fn show<Q: Query>(&self, head: &RequestHead, query: Q) -> Vec<u8>
    where
        Self: AnswersCall<Q>,
    {
        let answer = match Box::pin(self.heard(head, query.clone())).await {
            Ok((ok, missing_partitions)) => {
                CallAnswer { missing_partitions, ..CallAnswer::of(Ok(ok)) }
            }
            Err(refused) => CallAnswer::of(Err(refused)),
        };
        written(answer, |answer| query.shorten(answer))
    }
}

impl<B: Backend> AnswersCall<ListInput> for BusCall<'_, B> {
    async fn heard(&self, _: &RequestHead, input: ListInput) -> Heard<TaskPage> {
        of_one(self.client.port().tasks(input).await)
    }
}

impl<B: Backend> AnswersCall<TemplateInput> for BusCall<'_, B> {
    async fn heard(&self, _: &RequestHead, _: TemplateInput) -> Heard<Board> {
        let (tool, role) = (TemplateInput::TOOL, self.who.role);
        if tool.is_open_to(role) {
            return of_one(Ok(template()));
        }
        Err(Rejection::new(Code::ToolNotAvailable, format!("{tool} is not a tool of a {role}")))
    }
}

impl<B: Backend> AnswersCall<Views> for BusCall<'_, B> {
    /// The views of all Tasks: the port gives them at once.
    async fn heard(&self, _: &RequestHead, which: Views) -> Heard<ViewPage> {
        let (input, _) = which.into_input();
        let (snapshot, missing) = self.client.port().views(input).await?;
        Ok((ViewPage { snapshot, next: None }, missing))
    }
}

impl<B: Backend> AnswersCall<List> for BusCall<'_, B> {
    async fn heard(&self, _: &RequestHead, which: List) -> Heard<Entries> {
        let listing = self.client.port().list(which.include_terminal).await?;
        Ok((entries(listing.entries, &which), listing.missing_partitions))
    }
}

impl<B: Backend> AnswersCall<ReadLog> for BusCall<'_, B> {
    /// A page of commits as lines. Of a commit that is too long for an answer it is a part.
    async fn heard(&self, head: &RequestHead, which: ReadLog) -> Heard<LogPage> {
        let (task, port) = (task(head)?, self.client.port());
        let page = port.log(&task, ReadLog { from: 0, ..which }).await?;
        let mut commits = Vec::with_capacity(page.commits.len());
        for commit in &page.commits {
            let mut lines = Vec::new();
            stored::encode(commit, port.session(), &task, &mut lines)
                .map_err(|error| Rejection::invalid("log", error.to_string()))?;
            commits.push(RawBytes(lines));
        }
        let cut = cut(&mut commits, which.from);
        let left = |(attempt_id, left_ms)| LeaseLeft { attempt_id, left_ms };
        of_one(Ok(LogPage {
            commits,
            cut,
            more: page.more,
            version: page.version,
            status: page.status,
            now: page.now,
            leases: page.leases.into_iter().map(left).collect(),
            wal_path: page.wal_path,
            steps_max: page.steps_max,
        }))
    }
}

impl<B: Backend> AnswersCall<ReadParent> for BusCall<'_, B> {
    async fn heard(&self, _: &RequestHead, _: ReadParent) -> Heard<Parent> {
        Err(Rejection::new(Code::ToolNotAvailable, "nodes ask each other this"))
    }
}

impl<B: Backend> AnswersCall<ListLeases> for BusCall<'_, B> {
    /// Leases and open Attempts behind the one that is named; the oldest are those with the least ids.
    async fn heard(&self, _: &RequestHead, which: ListLeases) -> Heard<LeasePage> {
        let mut leases = self.backend.leases(self.who, &self.place.session).await?;
        leases.retain(|row| which.after.is_none_or(|after| row.attempt_id > after));
        let most = which.oldest.unwrap_or(LEASES_MAX).min(LEASES_MAX);
        let more = leases.len() > most;
        leases.truncate(most);
        of_one(Ok(LeasePage { leases, more }))
    }
}

impl<B: Backend> AnswersCall<ReadOutput> for BusCall<'_, B> {
    async fn heard(&self, head: &RequestHead, asked: ReadOutput) -> Heard<OutputPage> {
        let session = &self.place.session;
        of_one(self.backend.read_output(self.who, session, &task(head)?, asked).await)
    }
}

/// An answer of one Task's owner, or of all partitions.
fn of_one<T>(answer: Result<T, Rejection>) -> Heard<T> {
    answer.map(|answer| (answer, Vec::new()))
}

/// The Task that a request is on.
fn task(head: &RequestHead) -> Result<TaskId, Rejection> {
    head.task_id.clone().ok_or_else(|| Rejection::invalid("task_id", "task_id is missing"))
}

/// A page of entries: those behind the one that is named, in the order of their ids or, if the oldest are
/// asked for, of their creation.
fn entries(mut all: Vec<IndexEntry>, which: &List) -> Entries {
    let age = |entry: &IndexEntry| (entry.created_at, entry.key.task_id.clone());
    match (which.oldest, which.after_created_at, which.after.as_ref()) {
        (None, _, Some(after)) => all.retain(|entry| entry.key.task_id > *after),
        (Some(_), Some(created_at), Some(after)) => {
            all.retain(|entry| age(entry) > (created_at, after.clone()));
        }
        _ => {}
    }
    if which.oldest.is_some() {
        all.retain(|entry| entry.ended.is_none());
        all.sort_by_cached_key(age);
    }
    let (count, most) = (all.len(), which.oldest.unwrap_or(usize::MAX));
    let (mut page, mut bytes) = (Vec::new(), 0);
    for entry in all.into_iter().take(most).map(Entry::from) {
        bytes += encode_within(PAGE_BYTES, &entry).map_or(PAGE_BYTES, |written| written.len());
        if bytes > PAGE_BYTES && !page.is_empty() {
            break;
        }
        page.push(entry);
    }
    Entries { more: page.len() < count, entries: page }
}

/// Leaves out of the first commit what the caller has had. If the rest is still too long, only its next
/// part stays; then this answers where the one after that begins.
fn cut(commits: &mut Vec<RawBytes>, from: u64) -> Option<u64> {
    let RawBytes(lines) = commits.first_mut()?;
    let had = usize::try_from(from).unwrap_or(usize::MAX).min(lines.len());
    lines.drain(..had);
    if lines.len() <= PAGE_BYTES {
        return None;
    }
    lines.truncate(PAGE_BYTES);
    commits.truncate(1);
    Some((had + PAGE_BYTES) as u64)
}

/// The answer as bytes. One that is too long is shortened, or refused if that is not possible.
fn written<T: Serialize>(
    mut answer: CallAnswer<T>,
    mut shorten: impl FnMut(&mut T) -> bool,
) -> Vec<u8> {
    loop {
        match encode_within(CALL_MAX, &answer) {
            Ok(bytes) => return bytes,
            Err(_) if answer.ok.as_mut().is_some_and(&mut shorten) => {}
            Err(bad) => {
                let refused = Rejection::invalid("answer", bad.why);
                let answer = CallAnswer::<()>::of(Err(refused));
                return encode_within(CALL_MAX, &answer).unwrap_or_default(); // It is short.
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure_wire::bus::decode_within;

    use super::*;

    /// A commit comes in parts that make it up, and what follows it comes with its last part.
    #[test]
    fn a_long_commit_comes_in_parts() {
        let long: Vec<u8> = (0..=250).cycle().take(2 * PAGE_BYTES + 1).collect();
        let (mut from, mut parts, mut whole) = (0, 0, Vec::new());
        loop {
            let mut commits = vec![RawBytes(long.clone()), RawBytes(b"next".to_vec())];
            let cut = cut(&mut commits, from);
            whole.extend_from_slice(&commits[0].0);
            parts += 1;
            assert_eq!(commits.len(), if cut.is_some() { 1 } else { 2 });
            match cut {
                Some(next) => from = next,
                None => break,
            }
        }
        assert_eq!((parts, whole == long), (3, true));
        let mut exact = vec![RawBytes(vec![0; PAGE_BYTES])];
        assert_eq!(cut(&mut exact, 0), None);
        assert_eq!(cut(&mut exact, u64::MAX), None, "a place behind the end leaves nothing");
        assert!(exact[0].0.is_empty());
    }

    #[test]
    fn an_answer_is_shortened_until_it_fits() {
        let answer = |bytes| CallAnswer::of(Ok(RawBytes(vec![0; bytes])));
        let halve = |it: &mut RawBytes| {
            it.0.truncate(it.0.len() / 2);
            true
        };
        let bytes = written(answer(3 * CALL_MAX), halve);
        let (ok, _) =
            decode_within::<CallAnswer<RawBytes>>(CALL_MAX, &bytes).unwrap().into_result().unwrap();
        assert_eq!(ok.0.len(), 3 * CALL_MAX / 4);
        let bytes = written(answer(CALL_MAX), |_| false);
        let refused = decode_within::<CallAnswer<()>>(CALL_MAX, &bytes).unwrap().into_result();
        assert_eq!(refused.unwrap_err().details["field"], "answer");
    }
}
