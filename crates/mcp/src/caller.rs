//! Who calls, and the client through which the caller's requests go.

use rmcp::model::Extensions;
use tenure_core::Rejection;
use tenure_core::id::{AgentId, SessionId};
use tenure_core::status::Role;
use tenure_ports::ClientPort;
use tenure_sdk::client::Client;

/// The caller of a request, in one session.
#[derive(Debug, Clone)]
pub struct McpCaller<P> {
    /// Its way to the scheduler.
    pub client: Client<P>,
    /// The name under which it acts.
    pub agent: AgentId,
    /// What kind of caller it is.
    pub role: Role,
}

impl<P: ClientPort> McpCaller<P> {
    /// The session in which it acts.
    pub fn session(&self) -> &SessionId {
        self.client.port().session()
    }
}

/// Says who the caller of a request is. Every request is asked for anew, so that a login that has ended counts for
/// nothing, also in a session of MCP that it has begun.
pub trait McpCallers: Clone + Send + Sync + 'static {
    /// The way of a caller to the scheduler.
    type Port: ClientPort;

    /// The caller of a request that has these extensions: over HTTP, the parts of the request are among them.
    ///
    /// # Errors
    /// Nobody says who it is, it may not be here, or there is no way to the scheduler now.
    fn caller(
        &self,
        about: &Extensions,
    ) -> impl Future<Output = Result<McpCaller<Self::Port>, Rejection>> + Send;
}

/// The same caller for every request: the user of a process that speaks MCP on its standard streams.
#[derive(Debug, Clone)]
pub struct OneCaller<P>(pub McpCaller<P>);

impl<P: ClientPort> McpCallers for OneCaller<P> {
    type Port = P;

    async fn caller(&self, _: &Extensions) -> Result<McpCaller<P>, Rejection> {
        Ok(self.0.clone())
    }
}
