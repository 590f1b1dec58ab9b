//! The options that name a cluster and the login for it, and the connection that they make.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tenure_core::id::SessionId;
use tenure_core::status::Role;
use tenure_core::{Code, Rejection};
use tenure_sdk::client::Client;
use tenure_sdk::nats::{ConnectError, Connection, NatsClient, NatsSettings, boot, without_secrets};
use tenure_wire::bus::subject::{ClientName, ClusterName, Token, inbox};

use crate::cli::answer::{Exit, Failure};

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

    #[command(flatten)]
    options: NatsOptions,
}

/// What NATS is shown and has to show, and which cluster there is meant.
#[derive(Debug, Clone, Args)]
struct NatsOptions {
    /// A credentials file for it
    #[arg(long = "nats-creds", value_name = "FILE", env = "TENURE_NATS_CREDS")]
    creds: Option<PathBuf>,

    /// The certificate of the authority that signed its own, in PEM
    #[arg(long = "nats-ca", value_name = "FILE", env = "TENURE_NATS_CA")]
    ca: Option<PathBuf>,

    /// Name of the cluster: several may share one NATS
    #[arg(long, value_name = "NAME", env = "TENURE_CLUSTER", default_value = "TENURE")]
    cluster: ClusterName,
}

impl NatsOptions {
    /// The settings of the connection.
    fn settings(&self, url: &str, name: &str) -> NatsSettings {
        let (credentials, ca, name) = (self.creds.clone(), self.ca.clone(), name.to_owned());
        let cluster = self.cluster.clone();
        NatsSettings { credentials, ca, cluster, name, ..NatsSettings::new(url) }
    }
}

/// How long a command asks a cluster.
#[derive(Debug, Clone, Args)]
struct PatienceArgs {
    /// How long to ask a cluster that gives no answer, such as 5s [default: 30s]
    #[arg(long, value_name = "TIME", env = "TENURE_PATIENCE", value_parser = patience)]
    patience: Option<Duration>,
}

/// How long a command may ask: in less no answer can come, and more is a mistake.
const PATIENCE: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(365 * 24 * 60 * 60);

fn patience(text: &str) -> Result<Duration, String> {
    let patience = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if !PATIENCE.contains(&patience) {
        return Err("it goes from `100ms` to `365d`".to_owned());
    }
    Ok(patience)
}

impl PatienceArgs {
    /// The settings with this patience.
    fn within(&self, settings: NatsSettings) -> NatsSettings {
        let patience = self.patience.unwrap_or(settings.patience);
        let first_wait = settings.first_wait.min(patience);
        NatsSettings { first_wait, patience, ..settings }
    }
}

impl NatsArgs {
    /// Connects; answers come to this inbox.
    pub(crate) async fn open(&self, name: &str, inbox: String) -> Result<Connection, Failure> {
        Ok(Connection::open(&self.options.settings(&self.url, name), inbox).await?)
    }
}

/// The options that name the cluster to another command, but for what the environment says. Without the
/// address if that has a login, which must not be shown.
fn told(url: &str, cluster: &ClusterName) -> String {
    let environment = std::env::var("TENURE_NATS_URL").ok();
    let mut told = String::new();
    if environment.as_deref() != Some(url) && !url.contains('@') {
        told.push_str(&format!(" --nats {url}"));
    }
    told + &named(cluster)
}

/// The option that names a cluster, unless it is the default or the environment names it.
fn named(cluster: &ClusterName) -> String {
    let environment = std::env::var("TENURE_CLUSTER").ok();
    match cluster.is_default() || environment.as_deref() == Some(cluster.as_str()) {
        true => String::new(),
        false => format!(" --cluster {cluster}"),
    }
}

/// A session of a cluster, and who commands there.
#[derive(Debug, Clone, Args)]
pub(crate) struct ClusterArgs {
    #[command(flatten)]
    nats: NatsArgs,

    #[command(flatten)]
    patience: PatienceArgs,

    /// Session the task belongs to
    #[arg(long, value_name = "NAME", env = "TENURE_SESSION", default_value = "default")]
    pub(crate) session: SessionId,

    /// Who this is: what the server lets it in as
    #[arg(long, value_name = "NAME", env = "TENURE_PRINCIPAL", default_value = "cli")]
    name: Token,
}

impl ClusterArgs {
    /// The options that name this cluster to another command.
    pub(crate) fn told(&self) -> String {
        told(&self.nats.url, &self.nats.options.cluster)
    }

    /// Connects as an orchestrator of the session.
    pub(crate) async fn connect(&self) -> Result<Client<NatsClient>, Failure> {
        let name = format!("tenure-{}", self.name);
        let settings = self.patience.within(self.nats.options.settings(&self.nats.url, &name));
        let caller = ClusterUser::connect(&settings, Role::Orchestrator, self.name.clone()).await?;
        caller.client(&self.session).await
    }
}

/// As whom somebody looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Looker {
    /// May command too
    Orchestrator,
    /// May only look
    Observer,
}

impl Looker {
    const fn role(self) -> Role {
        match self {
            Self::Orchestrator => Role::Orchestrator,
            Self::Observer => Role::Observer,
        }
    }
}

/// A cluster to look into, if one is named.
#[derive(Debug, Clone, Args)]
pub(crate) struct LookArgs {
    /// Look into the cluster with this NATS, unless --data names a directory
    #[arg(long = "nats", value_name = "URL", env = "TENURE_NATS_URL", hide_env_values = true)]
    url: Option<String>,

    #[command(flatten)]
    options: NatsOptions,

    #[command(flatten)]
    patience: PatienceArgs,

    /// Who asks the cluster: what the server lets this in as
    #[arg(long, value_name = "NAME", env = "TENURE_PRINCIPAL", default_value = "cli")]
    name: Token,

    /// What the server knows it as
    #[arg(
        long,
        value_enum,
        value_name = "ROLE",
        env = "TENURE_ROLE",
        default_value = "orchestrator"
    )]
    role: Looker,
}

impl LookArgs {
    /// Whether the options name a cluster.
    pub(crate) const fn is_given(&self) -> bool {
        self.url.is_some()
    }

    /// The options that name this cluster to another command.
    pub(crate) fn told(&self) -> String {
        self.url.as_deref().map_or_else(String::new, |url| told(url, &self.options.cluster))
    }

    /// The same without the address.
    pub(super) fn named(&self) -> String {
        named(&self.options.cluster)
    }

    /// Connects to the named cluster, or to that of this machine.
    pub(crate) async fn caller(&self) -> Result<ClusterUser, Failure> {
        let url = self.url.as_deref().unwrap_or("nats://127.0.0.1:4222");
        let settings = self.options.settings(url, &format!("tenure-{}", self.name));
        let settings = self.patience.within(settings);
        ClusterUser::looking(&settings, self.role, self.name.clone()).await
    }
}

/// A user whom the NATS server has let in.
#[derive(Debug)]
pub(crate) struct ClusterUser {
    connection: Connection,
    role: Role,
    principal: Token,
    address: String,
}

impl ClusterUser {
    /// Connects as a user who reads.
    pub(crate) async fn looking(
        settings: &NatsSettings,
        role: Looker,
        principal: Token,
    ) -> Result<Self, Failure> {
        Self::connect(settings, role.role(), principal).await
    }

    async fn connect(
        settings: &NatsSettings,
        role: Role,
        principal: Token,
    ) -> Result<Self, Failure> {
        let boot = Token::new(boot()).map_err(Rejection::from)?;
        let connection = Connection::open(settings, inbox(role, &principal, &boot)).await?;
        let mut address = format!("nats://{}", without_secrets(&settings.url));
        if !settings.cluster.is_default() {
            address.push_str(&format!(" ({})", settings.cluster));
        }
        Ok(Self { connection, role, principal, address })
    }

    /// The address of the cluster, without secrets, and its name if it has one.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// A client in a session.
    pub(crate) async fn client(&self, session: &SessionId) -> Result<Client<NatsClient>, Failure> {
        let (role, session, principal) = (self.role, session.clone(), self.principal.clone());
        let name = ClientName { role, session, principal };
        let client =
            NatsClient::join(self.connection.clone(), &name).await.map_err(|refused| {
                match (refused.code, Failure::from(refused)) {
                    (Code::Unavailable, failure) => failure.help(self.nobody_serves()),
                    (_, failure) => failure,
                }
            });
        Ok(Client::new(client?))
    }

    /// Help: what may be wrong if no node answers.
    fn nobody_serves(&self) -> String {
        match self.connection.cluster() {
            cluster if cluster.is_default() => {
                "does a node serve the cluster? `tenure serve` runs one".into()
            }
            cluster => format!(
                "does a node serve the cluster {cluster}? `tenure serve --cluster {cluster}` runs one"
            ),
        }
    }
}

const NAMES_SERVER: &str = "--nats, or TENURE_NATS_URL, names the server";

const NAMES_CREDS: &str = "--nats-creds, or TENURE_NATS_CREDS, names the credentials file";

const TRUST: &str = "see that --nats is an address of NATS, and that both sides agree on TLS: --nats-ca \
     (TENURE_NATS_CA) is the certificate of the authority that signed the server's own";

/// Help: how NATS learns which user connects.
pub(crate) const LOGIN: &str = "the user is in the address of --nats, or in --nats-creds; --name \
     (TENURE_PRINCIPAL) must be the name of that user, and --session or --pool one that it is let into";

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        let refused = |code| Self::refused(code, &error);
        match &error {
            ConnectError::Address { .. } => Self::caused(Exit::Usage, &error).help(NAMES_SERVER),
            ConnectError::Certificates { .. } | ConnectError::Settings { .. } => {
                Self::caused(Exit::Usage, &error).help(TRUST)
            }
            ConnectError::Credentials { .. } => Self::caused(Exit::Usage, &error).help(NAMES_CREDS),
            ConnectError::Unreachable { .. } => refused(Code::Unavailable).help(NAMES_SERVER),
            ConnectError::Denied { .. } => refused(Code::Unauthenticated).help(LOGIN),
        }
    }
}
