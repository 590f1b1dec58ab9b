//! Who calls over HTTP: the guard has put that among the parts of each request.

use axum::http::request::Parts;
use tenure_core::id::{AgentId, SessionId};
use tenure_core::{Code, Rejection};
use tenure_mcp::rmcp::model::Extensions;
use tenure_mcp::{McpCaller, McpCallers};

use crate::Backend;
use crate::identity::Identity;

/// The session of Tenure of a request, among its extensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct McpSession(pub(super) SessionId);

/// The callers of a gateway.
#[derive(Debug, Clone)]
pub(crate) struct HttpCallers<B> {
    backend: B,
}

impl<B: Backend> HttpCallers<B> {
    pub(super) fn new(backend: B) -> Self {
        Self { backend }
    }
}

impl<B: Backend> McpCallers for HttpCallers<B> {
    type Port = B::Client;

    async fn caller(&self, about: &Extensions) -> Result<McpCaller<B::Client>, Rejection> {
        let parts = about.get::<Parts>().map(|parts| &parts.extensions);
        let found = parts.and_then(|it| Some((it.get::<Identity>()?, it.get::<McpSession>()?)));
        let nobody = || Rejection::new(Code::Unauthenticated, "nobody says who sends this request");
        let (who, McpSession(session)) = found.ok_or_else(nobody)?;
        let client = self.backend.client(who, session).await?;
        let agent = AgentId::new(who.principal.as_str())?;
        Ok(McpCaller { client, agent, role: who.role })
    }
}
