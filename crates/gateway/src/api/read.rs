//! Reads an HTTP request as a request of the bus.

use axum::body::Body;
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use smol_str::SmolStr;
use tenure_core::id::{CommandId, SessionId, TaskId};
use tenure_core::trace::TraceParent;
use tenure_core::{Code, Rejection};
use tenure_sdk::client::Client;
use tenure_wire::bus::VERSION;
use tenure_wire::bus::call::CALL_MAX;
use tenure_wire::bus::request::Request;

use super::etag;
use super::header::idempotency_key;
use super::pack::{Fields, PackedRequest};
use super::page::{self, Filter, PAGE_TOKEN};
use super::query::Parameters;
use super::routes::OperationRoute;
use crate::guard::AnswerShare;
use crate::identity::Identity;
use crate::problem::HttpProblem;
use crate::{Backend, Gateway};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Parameters that every operation has beside its own, or every write.
pub(super) const MAX_BYTES: &str = "max_bytes";
pub(super) const EXPECTED_VERSION: &str = "expected_version";
pub(super) const EXPECTED_SPEC_VERSION: &str = "expected_spec_version";

/// What a path below that of a session names.
#[derive(Debug)]
pub(crate) struct Place {
    /// The session.
    pub(crate) session: SessionId,
    /// The Task, if the path names one.
    task: Option<TaskId>,
    /// Its other parameters, by their names.
    others: Fields,
}

impl Place {
    /// Reads the parameters of a path.
    ///
    /// # Errors
    /// 422: a name has another form.
    pub(crate) fn read(path: &RawPathParams) -> Result<Self, HttpProblem> {
        let (mut session, mut task, mut others) = (None, None, Fields::new());
        for (name, value) in path {
            match name {
                "session" => session = Some(SessionId::new(value)?),
                "task_id" => task = Some(TaskId::new(value)?),
                _ => others.push((name.into(), value.into())),
            }
        }
        let session = session.ok_or_else(|| HttpProblem::not_found("the path names no session"))?;
        Ok(Self { session, task, others })
    }

    /// The client of the caller. In a session that the caller is not let into there is no Task, as far as it
    /// is told.
    ///
    /// # Errors
    /// 403 or, about a Task, 404; those of [`Backend::client`].
    pub(crate) async fn client<B: Backend>(
        &self,
        gateway: &Gateway<B>,
        who: &Identity,
    ) -> Result<Client<B::Client>, HttpProblem> {
        self.check(who)?;
        Ok(gateway.backend.client(who, &self.session).await?)
    }

    /// Refuses a session that the caller is not let into.
    ///
    /// # Errors
    /// 403 or, about a Task, 404.
    pub(crate) fn check(&self, who: &Identity) -> Result<(), HttpProblem> {
        match &self.task {
            _ if who.sessions.admits(&self.session) => Ok(()),
            None => {
                let message = format!("this login is not let into session {}", self.session);
                Err(HttpProblem::forbidden(message))
            }
            Some(task) => {
                // In the words in which the scheduler says it of a Task that is not there.
                let message = format!("task {task} does not exist in session {}", self.session);
                let absent = Rejection::new(Code::TaskNotFound, message);
                Err(absent.with("task_id", task.as_str()).into())
            }
        }
    }

    /// The Task.
    ///
    /// # Errors
    /// 404: the path names none.
    pub(crate) fn task(&self) -> Result<&TaskId, HttpProblem> {
        self.task.as_ref().ok_or_else(|| HttpProblem::not_found("the path names no task"))
    }

    /// A parameter of the path.
    ///
    /// # Errors
    /// 404: the path has none of this name.
    pub(crate) fn named(&self, name: &str) -> Result<&str, HttpProblem> {
        let found = self.others.iter().find(|(it, _)| it == name);
        let text = found.and_then(|(_, value)| value.as_str());
        text.ok_or_else(|| HttpProblem::not_found(format!("the path names no {name}")))
    }
}

/// A request that is no operation of the table: who asks, about what, and how.
#[derive(Debug)]
pub(crate) struct Inquiry {
    /// Who asks.
    pub(crate) who: Identity,
    /// The parameters of the path.
    pub(crate) path: RawPathParams,
    /// Those of the query string.
    pub(crate) query: Parameters,
    /// The path, with the session and all it names.
    pub(super) whole_path: String,
    /// The headers.
    pub(crate) headers: HeaderMap,
    /// Where the answer takes its bytes.
    pub(crate) answers: AnswerShare,
}

impl<S: Send + Sync> FromRequestParts<S> for Inquiry {
    type Rejection = HttpProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, HttpProblem> {
        let who = parts.extensions.get::<Identity>().cloned();
        let who = who.ok_or_else(HttpProblem::unauthenticated)?;
        let path = RawPathParams::from_request_parts(parts, state).await;
        let path = path.map_err(|error| HttpProblem::malformed(error.body_text()))?;
        let query = Parameters::read(parts.uri.query())?;
        let (whole_path, headers) = (parts.uri.path().to_owned(), parts.headers.clone());
        let answers = AnswerShare::of(&parts.extensions);
        Ok(Self { who, path, query, whole_path, headers, answers })
    }
}

/// A request that was read.
#[derive(Debug)]
pub(super) struct ReadRequest {
    /// The request of the bus.
    pub(super) request: Request,
    /// The key that the caller gave, which a create may take over.
    pub(super) key: Option<CommandId>,
    /// With what a list is asked.
    pub(super) filter: Filter,
}

/// Reads a request for an operation.
///
/// # Errors
/// 400, 413, 415 or 422: what is wrong with it.
pub(super) async fn read(
    route: &OperationRoute,
    place: &Place,
    parts: &Parts,
    mut query: Parameters,
    body: Body,
) -> Result<ReadRequest, HttpProblem> {
    let mut head = RequestFields::read(parts, &mut query, route)?;
    let token = query.take(PAGE_TOKEN)?;
    let filter = Filter::of(parts.uri.path(), &query);
    let mut fields = place.others.clone();
    if let Some(token) = token {
        fields.push(begin_of_page(route, filter.position(&token)?)?);
    }
    let text = if route.has_input_in_query() {
        fields.extend(query.fields(&route.input()));
        Bytes::new()
    } else {
        query.end()?;
        json_body(&parts.headers, body, route.body_max()).await?
    };
    let message = head.message(route.operation, place.task.as_ref(), &fields, &text)?;
    let request = Request::read_within(CALL_MAX, &message).map_err(|no| placed(no, route))?;
    Ok(ReadRequest { request, key: head.key.take(), filter })
}

/// A refusal of the input as a whole, which says where a caller of HTTP sends it.
fn placed(refused: Rejection, route: &OperationRoute) -> Rejection {
    if !refused.names_field("input") {
        return refused;
    }
    let (field, place) = match route.has_input_in_query() {
        true => ("query", "query string"),
        false => ("body", "body"),
    };
    let why =
        refused.message.split_once("`input`: ").map_or(refused.message.as_str(), |(_, why)| why);
    Rejection::invalid(field, format!("the {place} cannot be read: {why}"))
}

/// The field at which a page begins.
fn begin_of_page(
    route: &OperationRoute,
    position: u64,
) -> Result<(SmolStr, serde_json::Value), HttpProblem> {
    let field = page::position_in(&route.input());
    let no_pages = || {
        let message = "this answer does not come in pages";
        Rejection::invalid(PAGE_TOKEN, message)
    };
    Ok((field.ok_or_else(no_pages)?, position.into()))
}

/// The fields around the input.
#[derive(Debug)]
struct RequestFields {
    key: Option<CommandId>,
    max_bytes: Option<u64>,
    expected_version: Option<u64>,
    expected_spec_version: Option<u64>,
    trace: Option<String>,
}

impl RequestFields {
    fn read(
        parts: &Parts,
        query: &mut Parameters,
        route: &OperationRoute,
    ) -> Result<Self, HttpProblem> {
        let headers = &parts.headers;
        let max_bytes = query.take_number(MAX_BYTES)?;
        let trace = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok());
        // As on the bus, one that is not well formed is passed over.
        let trace = trace.filter(|trace| TraceParent::parse(trace).is_some()).map(String::from);
        let mut head = Self {
            key: None,
            max_bytes,
            expected_version: None,
            expected_spec_version: None,
            trace,
        };
        if route.entry().is_some_and(|(entry, _)| entry.writes) {
            head.key = idempotency_key(headers)?;
            head.expected_version = query.take_number(EXPECTED_VERSION)?;
            let expected = query.take_number(EXPECTED_SPEC_VERSION)?;
            head.expected_spec_version = expected.or(etag::expected_spec_version(headers)?);
        }
        Ok(head)
    }

    /// The message that a client of the bus would send.
    fn message(
        &self,
        operation: &str,
        task: Option<&TaskId>,
        fields: &Fields,
        text: &[u8],
    ) -> Result<Vec<u8>, HttpProblem> {
        let mut packed = PackedRequest::default();
        let mut map = packed.map();
        let numbers = [
            ("v", Some(u64::from(VERSION))),
            ("max_bytes", self.max_bytes),
            ("expected_version", self.expected_version),
            ("expected_spec_version", self.expected_spec_version),
        ];
        for (name, number) in numbers {
            let Some(number) = number else { continue };
            packed.text(name);
            packed.unsigned(number);
            map.add();
        }
        let texts = [
            ("operation", Some(operation)),
            ("task_id", task.map(TaskId::as_str)),
            ("command_id", self.key.as_ref().map(CommandId::as_str)),
            ("trace", self.trace.as_deref()),
        ];
        for (name, text) in texts {
            let Some(text) = text else { continue };
            packed.text(name);
            packed.text(text);
            map.add();
        }
        packed.text("input");
        let written = packed.input(fields, text);
        written.map_err(|error| HttpProblem::malformed(format!("the body is no JSON: {error}")))?;
        map.add();
        packed.close(&map);
        Ok(packed.into_bytes())
    }
}

/// The body of a request, which is JSON of at most so many bytes, or empty.
///
/// # Errors
/// 413 or 415.
pub(crate) async fn json_body(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
) -> Result<Bytes, HttpProblem> {
    let text = whole_body(headers, body, limit).await?;
    match headers.get(CONTENT_TYPE) {
        _ if text.is_empty() => Ok(text),
        Some(given) if is_json(given) => Ok(text),
        _ => Err(HttpProblem::of_http(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "a body is JSON here: send it with `Content-Type: application/json`",
        )),
    }
}

/// A whole body of at most so many bytes. A longer one that says so is not read.
///
/// # Errors
/// 413; 400 if the connection breaks.
pub(crate) async fn whole_body(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
) -> Result<Bytes, HttpProblem> {
    if announced(headers).is_some_and(|bytes| bytes > limit as u64) {
        return Err(HttpProblem::too_large(limit));
    }
    match Limited::new(body, limit).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.downcast_ref::<LengthLimitError>().is_some() => {
            Err(HttpProblem::too_large(limit))
        }
        Err(error) => Err(HttpProblem::malformed(format!("the body cannot be read: {error}"))),
    }
}

/// How many bytes the body has, as the request says.
pub(super) fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn is_json(media_type: &HeaderValue) -> bool {
    let name = media_type.to_str().ok().and_then(|text| text.split(';').next());
    let name = name.map(|name| name.trim().to_ascii_lowercase());
    name.is_some_and(|name| name == "application/json" || name.ends_with("+json"))
}

/// Refuses a request whose caller does not accept JSON.
///
/// # Errors
/// 406.
pub(crate) fn check_accept(headers: &HeaderMap) -> Result<(), HttpProblem> {
    let mut given = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let accepts = |text: &str| text.split(',').any(is_for_json);
    match headers.contains_key(ACCEPT) && !given.any(accepts) {
        true => {
            Err(HttpProblem::of_http(StatusCode::NOT_ACCEPTABLE, "the answer is application/json"))
        }
        false => Ok(()),
    }
}

/// Whether a range of media types, with its weight, has JSON in it.
fn is_for_json(range: &str) -> bool {
    let mut parts = range.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default().to_ascii_lowercase();
    let is_unwanted = |part: &str| {
        let weight = part.strip_prefix("q=").and_then(|text| text.parse::<f64>().ok());
        weight == Some(0.0)
    };
    matches!(name.as_str(), "*/*" | "application/*" | "application/json" | "")
        && !parts.any(is_unwanted)
}

#[cfg(test)]
mod tests {
    use super::super::routes::BODY_MAX;
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| (name.parse().unwrap(), value.parse().unwrap());
        pairs.iter().map(pair).collect::<HeaderMap<HeaderValue>>()
    }

    #[test]
    fn who_wants_something_else_than_json_is_told_so() {
        for accept in ["*/*", "application/json", "text/html, application/*;q=0.1", ""] {
            assert!(check_accept(&headers(&[("accept", accept)])).is_ok(), "{accept}");
        }
        assert!(check_accept(&headers(&[])).is_ok());
        for accept in ["text/html", "application/json;q=0", "text/event-stream"] {
            let refused = check_accept(&headers(&[("accept", accept)])).unwrap_err();
            assert_eq!(refused.status(), StatusCode::NOT_ACCEPTABLE, "{accept}");
        }
    }

    #[tokio::test]
    async fn a_body_has_a_type_and_a_limit() {
        let json = headers(&[("content-type", "application/json; charset=utf-8")]);
        let read = async |headers: &HeaderMap, body: Vec<u8>| {
            json_body(headers, Body::from(body), BODY_MAX).await.map_err(|it| it.status())
        };
        assert_eq!(read(&json, b"{}".to_vec()).await.unwrap(), "{}");
        assert_eq!(read(&headers(&[]), Vec::new()).await.unwrap(), "");
        let text = headers(&[("content-type", "text/plain")]);
        let unsupported = Err(StatusCode::UNSUPPORTED_MEDIA_TYPE);
        assert_eq!(read(&text, b"{}".to_vec()).await, unsupported);
        assert_eq!(read(&headers(&[]), b"{}".to_vec()).await, unsupported);
        assert_eq!(read(&json, vec![b' '; BODY_MAX]).await.unwrap().len(), BODY_MAX);
        let too_large = Err(StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(read(&json, vec![b' '; BODY_MAX + 1]).await, too_large);
        let says_so =
            headers(&[("content-type", "application/json"), ("content-length", "1048577")]);
        assert_eq!(read(&says_so, Vec::new()).await, too_large, "it is not even read");
    }
}
