//! The options that name a cluster or its gateway and the login for it, and the connection that they make.
//!
//! Step 1 of the walk in docs/architecture.md.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tenure_core::id::SessionId;
use tenure_core::status::Role;
use tenure_core::{Code, Rejection};
use tenure_sdk::http::{HttpClient, HttpSettings};
use tenure_sdk::nats::{ConnectError, Connection, NatsClient, NatsSettings, boot, without_secrets};
use tenure_wire::bus::subject::{ClientName, ClusterName, Token, inbox};

use super::any::AnyClient;
use super::gateway::{GatewayArgs, NATS_VARIABLE, is_typed};
use crate::answer::{Exit, Failure};

/// Where NATS is if nobody says it.
const DEFAULT_URL: &str = "nats://127.0.0.1:4222";

/// Where NATS is.
#[derive(Debug, Clone, Args)]
pub(crate) struct NatsArgs {
    /// Where NATS is; several addresses separated by commas [default: nats://127.0.0.1:4222]
    #[arg(long = "nats", value_name = "URL", env = "TENURE_NATS_URL", hide_env_values = true)]
    url: Option<String>,

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
    /// Whether the options name a server.
    pub(crate) const fn is_given(&self) -> bool {
        self.url.is_some()
    }

    /// The named server.
    pub(crate) fn named(&self) -> Option<&str> {
        self.url.as_deref()
    }

    /// Whether somebody has typed that name: it is not from the environment.
    pub(crate) fn is_typed(&self) -> bool {
        is_typed_nats(self.url.as_deref())
    }

    /// The named server, or that of this machine.
    fn url(&self) -> &str {
        self.url.as_deref().unwrap_or(DEFAULT_URL)
    }

    /// The settings of a connection that the server lists under this name.
    pub(crate) fn settings(&self, name: &str) -> NatsSettings {
        self.options.settings(self.url(), name)
    }

    /// Connects; answers come to this inbox.
    pub(crate) async fn open(&self, name: &str, inbox: String) -> Result<Connection, Failure> {
        Ok(Connection::open(&self.settings(name), inbox).await?)
    }
}

fn is_typed_nats(url: Option<&str>) -> bool {
    url.is_some_and(|url| is_typed(url, NATS_VARIABLE))
}

/// The options that name the cluster to another command, but for what the environment says. Without the
/// address if that has a login, which must not be shown.
fn told(url: Option<&str>, cluster: &ClusterName) -> String {
    let environment = std::env::var("TENURE_NATS_URL").ok();
    let mut told = String::new();
    if let Some(url) = url.filter(|url| environment.as_deref() != Some(*url) && !url.contains('@'))
    {
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
    gateway: GatewayArgs,

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
    /// The address of the gateway, if it is to be used.
    fn gateway(&self) -> Option<&str> {
        self.gateway.chosen(self.nats.url.as_deref())
    }

    /// The options that name this cluster to another command.
    pub(crate) fn told(&self) -> String {
        match self.gateway() {
            Some(url) => GatewayArgs::told(url),
            None => told(Some(self.nats.url()), &self.nats.options.cluster),
        }
    }

    /// Connects as an orchestrator of the session.
    pub(crate) async fn connect(&self) -> Result<AnyClient, Failure> {
        let caller = match self.gateway() {
            Some(url) => {
                ClusterUser::of_gateway(self.gateway.settings(url, self.patience.patience))
            }
            None => {
                let settings = self.nats.settings(&format!("tenure-{}", self.name));
                let (settings, role) = (self.patience.within(settings), Role::Orchestrator);
                ClusterUser::connect(&settings, role, self.name.clone()).await?
            }
        };
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
    gateway: GatewayArgs,

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
    /// Whether the options name a cluster, or its gateway.
    pub(crate) fn is_given(&self) -> bool {
        self.url.is_some() || self.gateway().is_some()
    }

    /// Whether somebody has typed that name: it is not from the environment.
    pub(super) fn is_typed(&self) -> bool {
        is_typed_nats(self.url.as_deref()) || self.gateway.is_typed()
    }

    /// What the server knows the caller as, as far as the options say.
    pub(crate) const fn role(&self) -> Role {
        self.role.role()
    }

    /// The address of the gateway, if it is to be used.
    fn gateway(&self) -> Option<&str> {
        self.gateway.chosen(self.url.as_deref())
    }

    /// The options that name this cluster to another command.
    pub(crate) fn told(&self) -> String {
        match (self.gateway(), self.url.as_deref()) {
            (Some(url), _) => GatewayArgs::told(url),
            (None, Some(url)) => told(Some(url), &self.options.cluster),
            (None, None) => String::new(),
        }
    }

    /// The same, without the address of a NATS server, which may hold a password.
    pub(super) fn hinted(&self) -> String {
        match self.gateway() {
            Some(url) => GatewayArgs::told(url),
            None => {
                let is_known = std::env::var_os("TENURE_NATS_URL").is_some();
                let address = if is_known { "" } else { " --nats URL" };
                format!("{address}{}", named(&self.options.cluster))
            }
        }
    }

    /// Connects to the named cluster, or to that of this machine. A gateway is asked when a session is known.
    pub(crate) async fn caller(&self) -> Result<ClusterUser, Failure> {
        if let Some(url) = self.gateway() {
            let settings = self.gateway.settings(url, self.patience.patience);
            return Ok(ClusterUser::of_gateway(settings));
        }
        let url = self.url.as_deref().unwrap_or(DEFAULT_URL);
        let settings = self.options.settings(url, &format!("tenure-{}", self.name));
        let settings = self.patience.within(settings);
        ClusterUser::looking(&settings, self.role, self.name.clone()).await
    }
}

/// A user of a cluster: one whom the NATS server has let in, or one who goes through a gateway.
#[derive(Debug)]
pub(crate) struct ClusterUser {
    way: UserWay,
    address: String,
}

/// The way to a cluster.
#[derive(Debug)]
enum UserWay {
    Nats { connection: Connection, role: Role, principal: Token },
    Gateway(HttpSettings),
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
        Ok(Self { way: UserWay::Nats { connection, role, principal }, address })
    }

    /// A user who goes through a gateway, which knows from the token who that is.
    fn of_gateway(settings: HttpSettings) -> Self {
        Self { address: settings.shown(), way: UserWay::Gateway(settings) }
    }

    /// The address of the cluster, with its name if it has one, or of the gateway; without secrets.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// What is at the address, for people.
    pub(crate) fn place(&self) -> String {
        match &self.way {
            UserWay::Nats { .. } => format!("cluster at {}", self.address),
            UserWay::Gateway(_) => format!("gateway at {}", self.address),
        }
    }

    /// A client in a session.
    pub(crate) async fn client(&self, session: &SessionId) -> Result<AnyClient, Failure> {
        Ok(match &self.way {
            UserWay::Nats { .. } => self.nats(session).await?.into(),
            UserWay::Gateway(settings) => {
                HttpClient::connect(settings, session.clone()).await?.into()
            }
        })
    }

    /// A client in a session, for what gateways do not offer.
    pub(crate) async fn nats(&self, session: &SessionId) -> Result<NatsClient, Failure> {
        let UserWay::Nats { connection, role, principal } = &self.way else {
            let message = format!("the {} does not offer this", self.place());
            return Err(Failure::new(Exit::Usage, message).help(NEEDS_NATS));
        };
        let (session, principal) = (session.clone(), principal.clone());
        let name = ClientName { role: *role, session, principal };
        NatsClient::join(connection.clone(), &name).await.map_err(|refused| {
            match (refused.code, Failure::from(refused)) {
                (Code::Unavailable, failure) => failure.help(nobody_serves(connection.cluster())),
                (_, failure) => failure,
            }
        })
    }
}

/// Help: what may be wrong if no node answers.
fn nobody_serves(cluster: &ClusterName) -> String {
    match cluster.is_default() {
        true => "does a node serve the cluster? `tenure serve` runs one".into(),
        false => format!(
            "does a node serve the cluster {cluster}? `tenure serve --cluster {cluster}` runs one"
        ),
    }
}

const NEEDS_NATS: &str = "this command asks the nodes themselves: --nats names the server (and TENURE_URL must \
     not name a gateway)";

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
