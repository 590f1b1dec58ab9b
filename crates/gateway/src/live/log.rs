//! `GET …/tasks/{task_id}/log`: the log of a Task, as the lines that a log file has.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use futures::{Stream, stream};
use tenure_core::id::TaskId;
use tenure_core::{Code, Commit, Rejection};
use tenure_ports::ClientPort;
use tenure_ports::client::LogPage;
use tenure_sdk::client::{Client, check_after};
use tenure_wire::stored::encode;

use super::call::LiveCall;
use super::stream::set_live;
use crate::Gateway;
use crate::api::bytes_reply;
use crate::backend::Backend;
use crate::problem::HttpProblem;

/// The media type of lines of JSON.
pub(super) const MEDIA_TYPE: &str = "application/jsonl";

/// How many bytes of a log an answer has at a time, about: those of a page, and its lines.
const HELD_BYTES: usize = 1 << 20;

/// The log as it is now, behind event `after`.
pub(super) async fn log<B: Backend>(
    State(gateway): State<Arc<Gateway<B>>>,
    mut call: LiveCall,
) -> Result<Response, HttpProblem> {
    let after = call.take("after")?.unwrap_or(0);
    call.query.end()?;
    let task = call.task()?;
    let client = call.client(&gateway).await?;
    let taken = call.answers.take(HELD_BYTES)?;
    let page = client.port().log(&task, after).await?;
    check_after(after, page.version)?;
    check_start(after, &page)?;
    let lines =
        Body::from_stream(lines(LogReader { client, task, after, until: page.version }, page));
    let mut response = bytes_reply(StatusCode::OK, HeaderValue::from_static(MEDIA_TYPE), lines);
    set_live(response.headers_mut());
    response.extensions_mut().insert(taken);
    Ok(response)
}

/// Refuses a start within a commit: the commits of a log are read whole.
fn check_start(after: u64, page: &LogPage) -> Result<(), Rejection> {
    match page.commits.first() {
        Some(first) if first.first_seq <= after => {
            let (from, to) = (first.first_seq, first.last_seq());
            let message = format!("event {after} is within a commit, which has {from} to {to}");
            Err(Rejection::invalid("after", message))
        }
        _ => Ok(()),
    }
}

/// Reads a log page by page.
struct LogReader<P> {
    client: Client<P>,
    task: TaskId,
    /// The last event that was read.
    after: u64,
    /// The last event of the log when the request came. A busy Task writes on, and the answer would not end.
    until: u64,
}

/// The lines of a first page, and of those that follow. An error, as the last item, breaks the answer off.
fn lines<P: ClientPort>(
    reader: LogReader<P>,
    first: LogPage,
) -> impl Stream<Item = Result<Bytes, Rejection>> + Send {
    stream::unfold((Some(reader), Some(first)), async |(reader, page)| {
        let mut reader = reader?;
        let read = reader.next(page).await.transpose()?;
        let reader = read.is_ok().then_some(reader);
        Some((read, (reader, None)))
    })
}

impl<P: ClientPort> LogReader<P> {
    /// The lines of the next page, which may have been read before; none at the end.
    async fn next(&mut self, read: Option<LogPage>) -> Result<Option<Bytes>, Rejection> {
        if self.after >= self.until {
            return Ok(None);
        }
        let page = match read {
            Some(page) => page,
            None => self.client.port().log(&self.task, self.after).await?,
        };
        let shorter = || Rejection::new(Code::StorageError, "the log has become shorter");
        self.after = page.commits.last().map(Commit::last_seq).ok_or_else(shorter)?;
        self.written(&page.commits).map(Some)
    }

    fn written(&self, commits: &[Commit]) -> Result<Bytes, Rejection> {
        let mut out = Vec::new();
        for commit in commits {
            encode(commit, self.client.port().session(), &self.task, &mut out).map_err(
                |error| {
                    Rejection::new(
                        Code::StorageError,
                        format!("a commit cannot be written: {error}"),
                    )
                },
            )?;
        }
        Ok(out.into())
    }
}
