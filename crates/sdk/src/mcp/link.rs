//! The way to a server, and the version that is spoken over it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value as Json, json};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::error::ToolError;
use super::http::HttpToolLink;
use super::message::{
    NEWEST, NEWEST_OF_SESSIONS, ProgressSender, ToolRequest, ToolVersion, initialize,
};
use super::settings::{ToolServerSettings, ToolServerWay};
use super::stdio::StdioLink;

/// How long a server may leave the first question of the newest version unanswered, before it is taken for an older
/// one. Some say nothing before `initialize`.
const DISCOVER_MAX: Duration = Duration::from_secs(5);

/// A server that has begun, and the version that it speaks. Dropping it ends the program, or the session.
#[derive(Debug)]
pub(super) struct ToolLink {
    way: ToolWay,
    version: ToolVersion,
}

#[derive(Debug)]
enum ToolWay {
    Stdio(StdioLink),
    Http(Arc<HttpToolLink>),
}

impl ToolLink {
    /// Reaches a server, and agrees with it on a version.
    pub(super) async fn open(
        server: &str,
        settings: &ToolServerSettings,
    ) -> Result<Self, ToolError> {
        let most = settings.start_timeout;
        let way = ToolWay::open(server, settings).await?;
        let asked = ToolRequest::new("server/discover", json!({}));
        let found = way.ask(ToolVersion::Newest, &asked, None);
        let error = match within(server, most.min(DISCOVER_MAX), found).await {
            Ok(found) if speaks_newest(&found) => {
                return Ok(Self { way, version: ToolVersion::Newest });
            }
            Ok(_) => None,
            Err(error) if error.is_of_older() => Some(error),
            Err(error) => return Err(error),
        };
        // A program that has ended, or has not answered, begins anew: nothing of before comes between.
        let way = match error.is_some_and(|it| it.ends_link()) {
            true => ToolWay::open(server, settings).await?,
            false => way,
        };
        let version = within(server, most, begin_session(server, &way)).await?;
        Ok(Self { way, version })
    }

    /// Asks for something. Whoever drops the future gives the request up.
    pub(super) async fn ask(
        &self,
        request: &ToolRequest,
        progress: Option<&ProgressSender>,
    ) -> Result<Json, ToolError> {
        self.way.ask(self.version, request, progress).await
    }

    /// Whether nothing more can be asked.
    pub(super) fn is_broken(&self) -> bool {
        matches!(&self.way, ToolWay::Stdio(link) if link.is_broken())
    }
}

impl Drop for ToolLink {
    fn drop(&mut self) {
        let ToolWay::Http(link) = &self.way else { return };
        let (link, version) = (Arc::clone(link), self.version);
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move { link.end_session(version).await });
        }
    }
}

impl ToolWay {
    async fn open(server: &str, settings: &ToolServerSettings) -> Result<Self, ToolError> {
        let bytes = settings.answer_bytes_max;
        match &settings.way {
            ToolServerWay::Program { command, env, cwd } => {
                let link = StdioLink::start(server, (command, env, cwd.as_ref()), bytes).await?;
                Ok(Self::Stdio(link))
            }
            ToolServerWay::Address { url, token, ca } => {
                let at = (url.as_str(), token.as_ref(), ca.as_ref());
                let link = HttpToolLink::new(server, at, (bytes, settings.start_timeout)).await?;
                Ok(Self::Http(Arc::new(link)))
            }
        }
    }

    async fn ask(
        &self,
        version: ToolVersion,
        request: &ToolRequest,
        progress: Option<&ProgressSender>,
    ) -> Result<Json, ToolError> {
        match self {
            Self::Stdio(link) => link.ask(version, request, progress).await,
            Self::Http(link) => link.ask(version, request, progress).await,
        }
    }

    async fn tell(&self, version: ToolVersion, method: &str) -> Result<(), ToolError> {
        match self {
            Self::Stdio(link) => link.tell(method).await,
            Self::Http(link) => link.tell(version, method, json!({})).await,
        }
    }
}

/// Whether an answer to the first question names the newest version.
fn speaks_newest(found: &Json) -> bool {
    let versions = found.get("supportedVersions").and_then(Json::as_array);
    versions.is_some_and(|all| all.iter().any(|it| it == NEWEST))
}

/// Begins as the older versions do.
async fn begin_session(server: &str, way: &ToolWay) -> Result<ToolVersion, ToolError> {
    let newest = ToolVersion::OfSessions(NEWEST_OF_SESSIONS);
    let begun = way.ask(newest, &ToolRequest::new("initialize", initialize()), None).await?;
    let named = begun.get("protocolVersion").and_then(Json::as_str).unwrap_or_default();
    let version = ToolVersion::of_sessions(named).ok_or_else(|| {
        let why = format!("it wants to speak the version {named:?}, which is not known here");
        ToolError::Malformed { server: server.to_owned(), why }
    })?;
    way.tell(version, "notifications/initialized").await?;
    Ok(version)
}

/// The answer, if it comes in this time.
pub(super) async fn within<T>(
    server: &str,
    most: Duration,
    asked: impl Future<Output = Result<T, ToolError>>,
) -> Result<T, ToolError> {
    let silent = || ToolError::Silent { server: server.to_owned(), seconds: most.as_secs() };
    timeout(most, asked).await.unwrap_or_else(|_| Err(silent()))
}
