//! Who calls, and the client through which the caller's requests go.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use rmcp::model::Extensions;
use tenure_core::Rejection;
use tenure_core::id::{AgentId, SessionId};
use tenure_core::status::Role;
use tenure_ports::ClientPort;
use tenure_ports::erased::ErasedClient;
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

/// Any callers behind one pointer, so that the server is compiled once, in this crate, and not once for each kind of
/// caller in the crates that serve it.
#[derive(Clone)]
pub(crate) struct ErasedCallers(Arc<dyn ObjectCallers>);

impl ErasedCallers {
    /// Those callers.
    pub(crate) fn new(callers: impl McpCallers) -> Self {
        Self(Arc::new(callers))
    }

    /// As [`McpCallers::caller`].
    pub(crate) async fn caller(
        &self,
        about: &Extensions,
    ) -> Result<McpCaller<ErasedClient>, Rejection> {
        self.0.caller(about).await
    }
}

impl fmt::Debug for ErasedCallers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ErasedCallers").finish_non_exhaustive()
    }
}

/// [`McpCallers`], for a pointer.
trait ObjectCallers: Send + Sync {
    fn caller<'a>(
        &'a self,
        about: &'a Extensions,
    ) -> BoxFuture<'a, Result<McpCaller<ErasedClient>, Rejection>>;
}

impl<C: McpCallers> ObjectCallers for C {
    fn caller<'a>(
        &'a self,
        about: &'a Extensions,
    ) -> BoxFuture<'a, Result<McpCaller<ErasedClient>, Rejection>> {
        Box::pin(async move {
            let McpCaller { client, agent, role } = McpCallers::caller(self, about).await?;
            Ok(McpCaller { client: client.erased(), agent, role })
        })
    }
}
