//! [`HttpClient`]: a client's end of the bus over HTTP, an orchestrator or an observer in its session.
//!
//! The gateway knows from the token who the caller is, and which role it has. A Task is created in
//! one request, however long it is, up to what HTTP carries.

mod operate;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use hyper::Method;
use serde::de::DeserializeOwned;
use tenure_core::command::Write;
use tenure_core::id::{SessionId, TaskId};
use tenure_core::view::{
    Board, ListInput, RuntimeEvent, Snapshot, TaskPage, ViewsInput, WriteSummary,
};
use tenure_core::{Code, Context, Query, Rejection};
use tenure_ports::ClientPort;
use tenure_ports::client::{Answers, Changed, Listing, LogPage};
use tenure_ports::erased::ErasedClient;
use tenure_ports::journal::Entry;
use tenure_wire::bus::call::{CALL_MAX, MEDIA_TYPE};
use tenure_wire::bus::event::Published;
use tenure_wire::bus::request::{
    Ask, Entries, List, ReadLog, Request, TemplateInput, ViewPage, Views,
};

use super::connect::{HttpConnectError, HttpSettings};
use super::gateways::GatewayLinks;
use super::link::HttpRequest;
use super::streams::{SessionFeeds, published};
use crate::client::Client;
use crate::pages;
use crate::patience::Patience;

/// How much longer a request waits for its answer for each MiB of its body: it takes a while on a
/// slow network.
const FOR_A_MIB: Duration = Duration::from_secs(2);

/// A client of a gateway, or of whichever of several answers. Cheap to clone; all clones share their
/// connections.
#[derive(Clone)]
pub struct HttpClient(Arc<HttpShared>);

#[derive(Clone)]
struct HttpShared {
    gateways: Arc<GatewayLinks>,
    session: SessionId,
    /// The path of all requests.
    path: String,
    request_timeout: Duration,
    patience: Duration,
    /// Longest answer that is wanted (CTRL-06).
    max_bytes: Option<usize>,
    feeds: Arc<SessionFeeds>,
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient")
            .field("gateways", &self.0.gateways)
            .field("session", &self.0.session)
            .finish_non_exhaustive()
    }
}

impl Client<HttpClient> {
    /// A client of a gateway in a session, at an address or with [`HttpSettings`].
    ///
    /// # Errors
    /// As [`HttpClient::connect`]; a session with a malformed name.
    pub async fn over_http(
        to: impl Into<HttpSettings>,
        session: &str,
    ) -> Result<Self, HttpConnectError> {
        let session = session.parse().map_err(Rejection::from)?;
        Ok(Self::new(HttpClient::connect(&to.into(), session).await?))
    }
}

impl HttpClient {
    /// A client in a session. It asks the gateway for the template of a Task, so a wrong address, token or
    /// session is found out now.
    ///
    /// # Errors
    /// The settings cannot be used, no gateway answers before `first_wait` is over, or the gateway
    /// does not let this caller in.
    pub async fn connect(
        settings: &HttpSettings,
        session: SessionId,
    ) -> Result<Self, HttpConnectError> {
        let gateways = Arc::new(GatewayLinks::of(settings).await?);
        let shared = HttpShared {
            path: format!("/v1/sessions/{session}/call"),
            feeds: Arc::new(SessionFeeds::new(&gateways, &session, settings.request_timeout)),
            gateways,
            session,
            request_timeout: settings.request_timeout,
            patience: settings.patience,
            max_bytes: None,
        };
        let template = Request::new(None, None, TemplateInput {});
        match shared.ask::<Board>(&template, settings.first_wait).await {
            // An observer has no use for the template. It is let in all the same.
            Err(refused) if refused.code != Code::ToolNotAvailable => Err(refused.into()),
            _ => Ok(Self(Arc::new(shared))),
        }
    }
}

impl HttpShared {
    /// Repeats a request until there is a final answer, or patience runs out. Returns the answer, and
    /// the partitions that gave none.
    async fn ask<T: DeserializeOwned>(
        &self,
        request: &Request,
        patience: Duration,
    ) -> Result<(T, Vec<u32>), Rejection> {
        let body = Bytes::from(request.write_within(CALL_MAX)?);
        let within = self.request_timeout + time_for(body.len());
        let path = self.path.clone();
        let bare = HttpRequest::bare(Method::POST, path, MEDIA_TYPE);
        let request = HttpRequest { body, ..bare };
        let _turn = self.gateways.turn().await?;
        let mut patience = Patience::of(patience);
        loop {
            let within = patience.for_a_try(within);
            match self.gateways.call(&request, within).await {
                Err(refused) if patience.outlasts(&refused).await => {}
                answer => return patience.conclude(answer),
            }
        }
    }

    async fn ask_on<Q: Query + Into<Ask>>(
        &self,
        task: &TaskId,
        query: Q,
    ) -> Result<Q::Output, Rejection> {
        let request = self.limited(Request::new(Some(task.clone()), None, query));
        Ok(self.ask(&request, self.patience).await?.0)
    }

    /// Asks all partitions. Returns those that did not answer, too.
    async fn ask_all<Q: Query + Into<Ask>>(
        &self,
        query: Q,
    ) -> Result<(Q::Output, Vec<u32>), Rejection> {
        let request = self.limited(Request::new(None, None, query));
        self.ask(&request, self.patience).await
    }

    /// The request with this client's limit for the length of the answer.
    fn limited(&self, mut request: Request) -> Request {
        request.head.max_bytes = self.max_bytes;
        request
    }
}

/// The time for a body of so many bytes, beyond that for a short one.
fn time_for(bytes: usize) -> Duration {
    let mib = u32::try_from(bytes >> 20).unwrap_or(u32::MAX);
    FOR_A_MIB.saturating_mul(mib)
}

macro_rules! answers {
    (
        task { $($task:ident($asks:ty))* }
        history { $($history:ident($reads:ty))* }
        parts { $($part:ident($brings:ty))* }
        other { $($other:ident($_query:ty))* }
    ) => {
        $(answers!($asks);)*
        $(answers!($reads);)*
        $(answers!($brings);)*
    };
    ($query:ty) => {
        impl Answers<$query> for HttpClient {
            async fn answer(
                &self,
                task: &TaskId,
                query: $query,
            ) -> Result<<$query as Query>::Output, Rejection> {
                self.0.ask_on(task, query).await
            }
        }
    };
}

tenure_wire::queries!(answers);

impl ClientPort for HttpClient {
    fn session(&self) -> &SessionId {
        &self.0.session
    }

    fn erased(self) -> ErasedClient {
        ErasedClient::new(self)
    }

    fn within(&self, max_bytes: usize) -> Self {
        Self(Arc::new(HttpShared { max_bytes: Some(max_bytes), ..HttpShared::clone(&self.0) }))
    }

    async fn write(
        &self,
        task: &TaskId,
        context: Context,
        what: impl Into<Write> + Send,
    ) -> Result<WriteSummary, Rejection> {
        let request = self.0.limited(Request::command(task, context, what.into()));
        Ok(self.0.ask(&request, self.0.patience).await?.0)
    }

    async fn tasks(&self, input: ListInput) -> Result<TaskPage, Rejection> {
        Ok(self.0.ask_all(input).await?.0)
    }

    async fn views(&self, input: ViewsInput) -> Result<(Snapshot, Vec<u32>), Rejection> {
        let (page, missing) = self.0.ask_all(Views::page(input, None)).await?;
        let ViewPage { snapshot, next: _ } = page; // The gateway answers all of it at once.
        Ok((snapshot, missing))
    }

    async fn log(
        &self,
        task: &TaskId,
        which: impl Into<ReadLog> + Send,
    ) -> Result<LogPage, Rejection> {
        pages::read(&self.0.session, task, which.into(), |which| self.0.ask_on(task, which)).await
    }

    async fn published(&self, task: &TaskId) -> Result<BoxStream<'static, Published>, Rejection> {
        published(self, task).await
    }

    async fn runtime(
        &self,
        task: Option<&TaskId>,
    ) -> Result<BoxStream<'static, RuntimeEvent>, Rejection> {
        self.0.feeds.runtime(task, self.0.patience).await
    }

    async fn list(&self, include_terminal: bool) -> Result<Listing, Rejection> {
        let mut listing = Listing::default();
        loop {
            let after = listing.entries.last().map(|entry| entry.key.task_id.clone());
            let list = List { after, include_terminal, ..List::default() };
            let (page, missing): (Entries, _) = self.0.ask_all(list).await?;
            let is_last = !page.more || page.entries.is_empty();
            listing.entries.extend(page.entries.into_iter().map(Entry::from));
            listing.missing_partitions.extend(missing);
            if is_last {
                break;
            }
        }
        listing.missing_partitions.sort_unstable();
        listing.missing_partitions.dedup();
        Ok(listing)
    }

    async fn changes(
        &self,
        task: Option<&TaskId>,
    ) -> Result<BoxStream<'static, Changed>, Rejection> {
        self.0.feeds.changes(task, self.0.patience).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_body_has_more_time() {
        assert_eq!(time_for(1000), Duration::ZERO);
        assert_eq!(time_for(CALL_MAX), Duration::from_secs(32));
    }
}
