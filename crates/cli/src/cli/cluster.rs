//! A cluster as somebody sees it who asks: where it is, and as whom to ask.

use std::path::PathBuf;

use clap::Args;
use tenure_core::Rejection;
use tenure_core::id::SessionId;
use tenure_core::status::Role;
use tenure_sdk::client::Client;
use tenure_sdk::nats::{ConnectError, Connection, NatsClient, Settings};
use tenure_wire::bus::subject::{ClientName, Token, inbox};
use uuid::Uuid;

use super::exit::{Exit, Failure};

/// Where NATS is.
#[derive(Debug, Clone, Args)]
pub(crate) struct NatsArgs {
    /// Where NATS is; several addresses separated by commas
    #[arg(
        long = "nats",
        value_name = "URL",
        env = "TENURE_NATS_URL",
        hide_env_values = true,
        default_value = "nats://127.0.0.1:4222"
    )]
    url: String,

    /// A credentials file for it
    #[arg(long = "nats-creds", value_name = "FILE", env = "TENURE_NATS_CREDS")]
    creds: Option<PathBuf>,

    /// The certificate of the authority that signed its own, in PEM
    #[arg(long = "nats-ca", value_name = "FILE", env = "TENURE_NATS_CA")]
    ca: Option<PathBuf>,
}

impl NatsArgs {
    /// How to connect.
    pub(crate) fn settings(&self, name: &str) -> Settings {
        let (credentials, ca, name) = (self.creds.clone(), self.ca.clone(), name.to_owned());
        Settings { credentials, ca, name, ..Settings::new(self.url.clone()) }
    }
}

/// A session of a cluster, and who asks.
#[derive(Debug, Clone, Args)]
pub(crate) struct ClusterArgs {
    #[command(flatten)]
    nats: NatsArgs,

    /// Session the task belongs to
    #[arg(long, value_name = "NAME", env = "TENURE_SESSION", default_value = "default")]
    pub(crate) session: SessionId,

    /// Who this is: what the server lets it in as
    #[arg(long, value_name = "NAME", env = "TENURE_PRINCIPAL", default_value = "cli")]
    name: Token,
}

impl ClusterArgs {
    /// Connects as an orchestrator.
    pub(crate) async fn connect(&self) -> Result<Client<NatsClient>, Failure> {
        let (role, session, principal) =
            (Role::Orchestrator, self.session.clone(), self.name.clone());
        let boot = Uuid::new_v4().simple().to_string();
        let boot = Token::new(&boot[..12]).map_err(Rejection::from)?;
        let settings = self.nats.settings(&format!("tenure-{}", self.name));
        let connection = Connection::open(&settings, inbox(role, &principal, &boot)).await?;
        let client = NatsClient::join(connection, &ClientName { role, session, principal }).await;
        let client = client.map_err(|refused| {
            Failure::from(refused).help("does a node serve the cluster? `tenure serve` runs one")
        });
        Ok(Client::new(client?))
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        let exit = match &error {
            ConnectError::Address { .. } => Exit::Usage,
            ConnectError::Credentials { .. } | ConnectError::Unreachable { .. } => {
                Exit::Unavailable
            }
        };
        Self::caused(exit, &error).help("--nats, or TENURE_NATS_URL, names the server")
    }
}
