//! [`AnyClient`]: a client of a cluster, over NATS or through a gateway. Commands need not know which.

use std::fmt;
use std::ops::Deref;

use tenure_core::Rejection;
use tenure_core::id::TaskId;
use tenure_ports::erased::ErasedClient;
use tenure_sdk::client::Client;
use tenure_sdk::http::HttpClient;
use tenure_sdk::nats::NatsClient;
use tenure_sdk::nats::client::Gather;
use tenure_wire::bus::operate::{LeaseRow, NodeFacts};
use tenure_wire::bus::output::{OutputPage, ReadOutput};

/// A client over NATS or over HTTP. What every client can do is called on it as on a [`Client`], for which commands
/// are compiled once.
#[derive(Clone)]
pub(crate) struct AnyClient {
    client: Client<ErasedClient>,
    /// What these two can do that other clients cannot.
    way: ClientWay,
}

#[derive(Clone)]
enum ClientWay {
    /// To the nodes themselves.
    Nats(NatsClient),
    /// Through a gateway, or to the process that is at work on a directory.
    Http(HttpClient),
}

impl From<NatsClient> for AnyClient {
    fn from(client: NatsClient) -> Self {
        Self { client: Client::new(client.clone()).erased(), way: ClientWay::Nats(client) }
    }
}

impl From<HttpClient> for AnyClient {
    fn from(client: HttpClient) -> Self {
        Self { client: Client::new(client.clone()).erased(), way: ClientWay::Http(client) }
    }
}

/// Calls the client, whichever it is.
macro_rules! either {
    ($any:expr, $client:ident => $asked:expr) => {
        match &$any.way {
            ClientWay::Nats($client) => $asked,
            ClientWay::Http($client) => $asked,
        }
    };
}

impl fmt::Debug for AnyClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        either!(self, client => client.fmt(f))
    }
}

impl Deref for AnyClient {
    type Target = Client<ErasedClient>;

    fn deref(&self) -> &Client<ErasedClient> {
        &self.client
    }
}

impl AnyClient {
    /// What every client can do, alone.
    pub(crate) fn erased(self) -> Client<ErasedClient> {
        self.client
    }

    /// The facts of every node about itself, its workers and its pools.
    pub(crate) async fn nodes(&self) -> Result<Gather<NodeFacts>, Rejection> {
        either!(self, client => client.nodes().await)
    }

    /// Leases and open Attempts of the session, in the order of the Attempts.
    pub(crate) async fn leases(&self) -> Result<Vec<LeaseRow>, Rejection> {
        either!(self, client => client.leases().await)
    }

    /// A page of what the command of an Attempt wrote (ART-09).
    pub(crate) async fn read_output(
        &self,
        task: &TaskId,
        asked: ReadOutput,
    ) -> Result<OutputPage, Rejection> {
        either!(self, client => client.read_output(task, asked).await)
    }
}
