//! The settings of `tenure serve`, from flags, the environment and a file, in this order.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use tenure_core::id::{PoolId, SessionId};
use tenure_embedded::DEFAULT_POOL;
use tenure_mcp::unquoted::read_toml;
use tenure_node::{Login, Nats, RedisAt, Settings};
use tenure_sdk::nats::boot;
use tenure_wire::bus::subject::{ClusterName, Token};

mod exposed;

use self::bounds::GivenBounds;
pub(crate) use self::exposed::ExposedSettings;
use super::http::NodeHttp;
use crate::answer::{Exit, Failure};
use crate::gateway::{GrpcArgs, HttpArgs};
use crate::telemetry::LogArgs;

/// Run a scheduler node.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) log: LogArgs,

    #[command(flatten)]
    pub(crate) node: NodeArgs,
}

/// What a node uses and how.
#[derive(Debug, Clone, Args)]
pub(crate) struct NodeArgs {
    /// Settings in TOML: the names of the options below, with `_` for `-`
    #[arg(long, value_name = "FILE", env = "TENURE_CONFIG")]
    config: Option<PathBuf>,

    #[command(flatten)]
    given: GivenSettings,

    /// This start of the node: no other has the same
    #[arg(skip = boot())]
    boot: String,
}

/// Settings as they are given; the same names on the command line and in a file.
#[derive(Debug, Clone, Default, Args, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct GivenSettings {
    /// Where NATS is; several addresses separated by commas [default: nats://127.0.0.1:4222]
    #[arg(long, value_name = "URL", env = "TENURE_NATS_URL", hide_env_values = true)]
    nats: Option<String>,

    /// The certificate of the authority that signed NATS' own, in PEM
    #[arg(long, value_name = "FILE", env = "TENURE_NATS_CA")]
    nats_ca: Option<PathBuf>,

    /// Who writes the log, if not as the address says
    #[arg(long, value_name = "USER", env = "TENURE_JOURNAL_USER")]
    journal_user: Option<String>,

    /// The password of that user
    #[arg(long, value_name = "SECRET", env = "TENURE_JOURNAL_PASSWORD", hide_env_values = true)]
    journal_password: Option<String>,

    /// A credentials file instead
    #[arg(long, value_name = "FILE", env = "TENURE_JOURNAL_CREDS")]
    journal_creds: Option<PathBuf>,

    /// Who speaks to workers
    #[arg(long, value_name = "USER", env = "TENURE_CONTROL_USER")]
    control_user: Option<String>,

    /// The password of that user
    #[arg(long, value_name = "SECRET", env = "TENURE_CONTROL_PASSWORD", hide_env_values = true)]
    control_password: Option<String>,

    /// A credentials file instead
    #[arg(long, value_name = "FILE", env = "TENURE_CONTROL_CREDS")]
    control_creds: Option<PathBuf>,

    /// Who speaks to orchestrators and observers
    #[arg(long, value_name = "USER", env = "TENURE_INTAKE_USER")]
    intake_user: Option<String>,

    /// The password of that user
    #[arg(long, value_name = "SECRET", env = "TENURE_INTAKE_PASSWORD", hide_env_values = true)]
    intake_password: Option<String>,

    /// A credentials file instead
    #[arg(long, value_name = "FILE", env = "TENURE_INTAKE_CREDS")]
    intake_creds: Option<PathBuf>,

    /// Where Redis is: redis, or rediss with TLS; redis-cluster or rediss-cluster and some of its
    /// servers where it is a Redis Cluster [default: redis://127.0.0.1:6379]
    #[arg(long, value_name = "URL", env = "TENURE_REDIS_URL", hide_env_values = true)]
    redis: Option<String>,

    /// The certificate of the authority that signed Redis' own, if this machine does not know it
    #[arg(long, value_name = "FILE", env = "TENURE_REDIS_CA")]
    redis_ca: Option<PathBuf>,

    /// Name of this node; what makes it unique to this start is added [default: node]
    #[arg(long, value_name = "NAME", env = "TENURE_NODE")]
    node: Option<String>,

    /// Name of the cluster: what subjects and names of streams and keys begin with [default: TENURE]
    #[arg(long, value_name = "NAME", env = "TENURE_CLUSTER")]
    cluster: Option<String>,

    /// Partitions of the cluster, a power of two: fixed when it is made [default: 8]
    #[arg(long, value_name = "N", env = "TENURE_PARTITIONS")]
    partitions: Option<u32>,

    /// NATS servers that keep each stream of the log [default: 1]
    #[arg(long, value_name = "N", env = "TENURE_REPLICAS")]
    replicas: Option<usize>,

    /// Bytes that each stream of the log may take [default: as many as the server has]
    #[arg(long, value_name = "BYTES", env = "TENURE_MAX_BYTES")]
    max_bytes: Option<u64>,

    /// Bytes that the large values of a session may take, each 64 KiB at least [default: 10737418240]
    #[arg(long, value_name = "BYTES", env = "TENURE_BLOB_QUOTA")]
    blob_quota: Option<u64>,

    #[command(flatten)]
    #[serde(flatten)]
    bounds: GivenBounds,

    /// How long a worker may be silent before its steps go to another, in milliseconds
    /// [default: 30000]
    #[arg(long, value_name = "MS", env = "TENURE_LEASE_MS")]
    lease_ms: Option<u64>,

    /// How long a node may be silent before its partitions go to another, in milliseconds
    /// [default: 1500]
    #[arg(long, value_name = "MS", env = "TENURE_OWNERSHIP_MS")]
    ownership_ms: Option<u64>,

    /// How long a task that is being closed waits for its workers to stop, in milliseconds
    /// [default: 10000]
    #[arg(long, value_name = "MS", env = "TENURE_CANCEL_WAIT_MS")]
    cancel_wait_ms: Option<u64>,

    /// How long a dispatched run waits for a worker, in milliseconds [default: 300000]
    #[arg(long, value_name = "MS", env = "TENURE_RUN_TTL_MS")]
    run_ttl_ms: Option<u64>,

    /// Steps that a task may have [default: 100000]
    #[arg(long, value_name = "N", env = "TENURE_STEPS_MAX")]
    steps_max: Option<usize>,

    /// Tokens that the summary of tasks for a model may have [default: 2000]
    #[arg(long, value_name = "N", env = "TENURE_BOARD_TOKENS")]
    board_tokens: Option<usize>,

    /// Pool of steps that name none [default: default]
    #[arg(long, value_name = "POOL", env = "TENURE_DEFAULT_POOL")]
    default_pool: Option<String>,

    /// Address and port at which this node serves the HTTP API too, as `tenure gateway` does [default: none]
    #[arg(long, value_name = "ADDR", env = "TENURE_HTTP")]
    http: Option<SocketAddr>,

    /// File that says who may come in over HTTP, and as whom (docs/http.md)
    #[arg(long, value_name = "FILE", env = "TENURE_HTTP_CALLERS")]
    http_callers: Option<PathBuf>,

    /// Certificate of the HTTP API in PEM, with which it speaks TLS
    #[arg(long, value_name = "FILE", env = "TENURE_HTTP_CERT")]
    http_cert: Option<PathBuf>,

    /// The private key of that certificate
    #[arg(long, value_name = "FILE", env = "TENURE_HTTP_KEY")]
    http_key: Option<PathBuf>,

    /// Certificates of the authorities that sign those of callers
    #[arg(long, value_name = "FILE", env = "TENURE_HTTP_CLIENT_CA")]
    http_client_ca: Option<PathBuf>,

    /// Another name under which browsers reach the HTTP API, as that of a proxy (repeatable)
    #[arg(
        long = "http-name",
        value_name = "HOST",
        env = "TENURE_HTTP_NAMES",
        value_delimiter = ','
    )]
    http_names: Option<Vec<String>>,

    /// File that says which agents speak A2A here (docs/a2a.md)
    #[arg(long, value_name = "FILE", env = "TENURE_AGENTS")]
    agents: Option<PathBuf>,

    /// Address and port at which /metrics is served for Prometheus, with /livez and /readyz [default: none]
    #[arg(long, value_name = "ADDR", env = "TENURE_METRICS")]
    metrics: Option<SocketAddr>,

    /// File that says who may read /metrics (docs/http.md); without it only this machine is served
    #[arg(long, value_name = "FILE", env = "TENURE_METRICS_CALLERS")]
    metrics_callers: Option<PathBuf>,

    /// Address and port at which gRPC is spoken: by the agents of --agents, and with --macp [default: none]
    #[arg(long, value_name = "ADDR", env = "TENURE_GRPC")]
    grpc: Option<SocketAddr>,

    /// Session in which the tasks of MACP sessions are (docs/macp.md) [default: MACP is not spoken]
    #[arg(long, value_name = "SESSION", env = "TENURE_MACP")]
    macp: Option<SessionId>,

    /// File with the policies that MACP sessions may name
    #[arg(long, value_name = "FILE", env = "TENURE_MACP_POLICIES")]
    macp_policies: Option<PathBuf>,

    /// Pool whose workers may be given tasks of MACP sessions, as POOL or POOL/HANDLER (repeatable)
    #[arg(
        long = "macp-pool",
        value_name = "POOL",
        env = "TENURE_MACP_POOLS",
        value_delimiter = ','
    )]
    macp_pools: Option<Vec<String>>,

    /// The most sessions of MACP that one caller may have open at a time [default: 25000]
    #[arg(long, value_name = "N", env = "TENURE_MACP_OPEN_MAX")]
    macp_open_max: Option<usize>,

    /// Take the token of a caller of MACP as its name: to try things out on this machine
    #[arg(long, env = "TENURE_MACP_TRUST_TOKENS")]
    macp_trust_tokens: bool,

    /// Who speaks to NATS for callers of the HTTP API
    #[arg(long, value_name = "USER", env = "TENURE_GATEWAY_USER")]
    gateway_user: Option<String>,

    /// The password of that user
    #[arg(long, value_name = "SECRET", env = "TENURE_GATEWAY_PASSWORD", hide_env_values = true)]
    gateway_password: Option<String>,

    /// A credentials file instead
    #[arg(long, value_name = "FILE", env = "TENURE_GATEWAY_CREDS")]
    gateway_creds: Option<PathBuf>,

    /// In a file alone: variables of OpenTelemetry, for what the environment does not say.
    #[arg(skip)]
    telemetry: BTreeMap<String, String>,
}

/// The shortest lease: a heartbeat has to get through three times.
const LEASE_MS_MIN: u64 = 1_000;
/// The shortest ownership: it is renewed every 400 ms.
const OWNERSHIP_MS_MIN: u64 = 1_000;

impl NodeArgs {
    /// The variables of OpenTelemetry in the file; none if it cannot be read, which is an error
    /// later.
    pub(crate) fn telemetry(&self) -> BTreeMap<String, String> {
        self.in_file().map(|given| given.telemetry).unwrap_or_default()
    }

    /// The name that the user gave the node, if any.
    pub(crate) fn name(&self) -> Option<String> {
        let in_file = || self.in_file().and_then(|given| given.node);
        self.given.node.clone().or_else(in_file)
    }

    /// A name that no other start of this or another node has.
    pub(crate) fn boot_name(&self) -> String {
        boot_name(self.name(), &self.boot)
    }

    fn in_file(&self) -> Option<GivenSettings> {
        self.config.as_deref().and_then(|file| read(file).ok())
    }

    /// The settings of a node.
    pub(crate) fn into_settings(self) -> Result<Settings, Failure> {
        let boot = self.boot.clone();
        self.into_given()?.into_settings(&boot)
    }

    /// The HTTP API that the node serves too, if it is to.
    pub(crate) fn http(&self) -> Result<Option<NodeHttp>, Failure> {
        self.clone().into_given()?.http()
    }

    fn into_given(self) -> Result<GivenSettings, Failure> {
        match self.config {
            Some(file) => Ok(self.given.or(read(&file)?)),
            None => Ok(self.given),
        }
    }
}

fn read(file: &Path) -> Result<GivenSettings, Failure> {
    let named = |why: &dyn std::fmt::Display| {
        Failure::new(Exit::Usage, format!("{}: {why}", file.display()))
    };
    let text = std::fs::read_to_string(file).map_err(|error| named(&error))?;
    read_toml(&text).map_err(|why| named(&why))
}

impl GivenSettings {
    /// Takes the settings that are missing here from `other`.
    fn or(self, other: Self) -> Self {
        Self {
            nats: self.nats.or(other.nats),
            nats_ca: self.nats_ca.or(other.nats_ca),
            journal_user: self.journal_user.or(other.journal_user),
            journal_password: self.journal_password.or(other.journal_password),
            journal_creds: self.journal_creds.or(other.journal_creds),
            control_user: self.control_user.or(other.control_user),
            control_password: self.control_password.or(other.control_password),
            control_creds: self.control_creds.or(other.control_creds),
            intake_user: self.intake_user.or(other.intake_user),
            intake_password: self.intake_password.or(other.intake_password),
            intake_creds: self.intake_creds.or(other.intake_creds),
            redis: self.redis.or(other.redis),
            redis_ca: self.redis_ca.or(other.redis_ca),
            node: self.node.or(other.node),
            cluster: self.cluster.or(other.cluster),
            partitions: self.partitions.or(other.partitions),
            replicas: self.replicas.or(other.replicas),
            max_bytes: self.max_bytes.or(other.max_bytes),
            blob_quota: self.blob_quota.or(other.blob_quota),
            bounds: self.bounds.or(&other.bounds),
            lease_ms: self.lease_ms.or(other.lease_ms),
            ownership_ms: self.ownership_ms.or(other.ownership_ms),
            cancel_wait_ms: self.cancel_wait_ms.or(other.cancel_wait_ms),
            run_ttl_ms: self.run_ttl_ms.or(other.run_ttl_ms),
            steps_max: self.steps_max.or(other.steps_max),
            board_tokens: self.board_tokens.or(other.board_tokens),
            default_pool: self.default_pool.or(other.default_pool),
            http: self.http.or(other.http),
            http_callers: self.http_callers.or(other.http_callers),
            http_cert: self.http_cert.or(other.http_cert),
            http_key: self.http_key.or(other.http_key),
            http_client_ca: self.http_client_ca.or(other.http_client_ca),
            http_names: self.http_names.or(other.http_names),
            agents: self.agents.or(other.agents),
            metrics: self.metrics.or(other.metrics),
            metrics_callers: self.metrics_callers.or(other.metrics_callers),
            grpc: self.grpc.or(other.grpc),
            macp: self.macp.or(other.macp),
            macp_policies: self.macp_policies.or(other.macp_policies),
            macp_pools: self.macp_pools.or(other.macp_pools),
            macp_open_max: self.macp_open_max.or(other.macp_open_max),
            macp_trust_tokens: self.macp_trust_tokens || other.macp_trust_tokens,
            gateway_user: self.gateway_user.or(other.gateway_user),
            gateway_password: self.gateway_password.or(other.gateway_password),
            gateway_creds: self.gateway_creds.or(other.gateway_creds),
            telemetry: other.telemetry,
        }
    }

    /// What an HTTP API of the node needs. Without an address there is none.
    fn http(self) -> Result<Option<NodeHttp>, Failure> {
        let grpc = GrpcArgs {
            grpc: self.grpc,
            macp: self.macp,
            macp_policies: self.macp_policies,
            macp_pools: self.macp_pools.unwrap_or_default(),
            macp_open_max: self.macp_open_max,
            macp_trust_tokens: self.macp_trust_tokens,
        };
        if self.http.is_none() {
            grpc.check_unused()?;
            return Ok(None);
        }
        let args = HttpArgs {
            http: self.http,
            http_callers: self.http_callers,
            http_cert: self.http_cert,
            http_key: self.http_key,
            http_client_ca: self.http_client_ca,
            http_names: self.http_names.unwrap_or_default(),
            agents: self.agents,
            grpc,
        };
        let login = login("gateway", self.gateway_user, self.gateway_password, self.gateway_creds)?;
        Ok(Some(NodeHttp { server: args.settings()?, spoken: args.spoken()?, login }))
    }

    fn into_settings(self, boot: &str) -> Result<Settings, Failure> {
        let pool = self.default_pool.unwrap_or_else(|| DEFAULT_POOL.into());
        let pool = PoolId::new(pool).map_err(|bad| usage("default-pool", &bad))?;
        let nats = Nats {
            url: self.nats.unwrap_or_else(|| "nats://127.0.0.1:4222".into()),
            ca: self.nats_ca,
            journal: login(
                "journal",
                self.journal_user,
                self.journal_password,
                self.journal_creds,
            )?,
            control: login(
                "control",
                self.control_user,
                self.control_password,
                self.control_creds,
            )?,
            intake: login("intake", self.intake_user, self.intake_password, self.intake_creds)?,
        };
        let redis = RedisAt {
            url: self.redis.unwrap_or_else(|| "redis://127.0.0.1:6379".into()),
            ca: self.redis_ca.as_deref().map(certificate).transpose()?,
        };
        let node = Token::new(boot_name(self.node, boot)).map_err(|bad| usage("node", &bad))?;
        let mut settings = Settings::new(nats, redis, node, pool);
        if let Some(cluster) = self.cluster {
            settings.cluster = ClusterName::new(cluster).map_err(|bad| usage("cluster", &bad))?;
        }
        if let Some(partitions) = self.partitions {
            settings.partitions = within("partitions", u64::from(partitions), 1..=1024)
                .map(|n| u32::try_from(n).unwrap_or(1))?;
        }
        if let Some(replicas) = self.replicas {
            within("replicas", replicas as u64, 1..=5)?;
            settings.replicas = replicas;
        }
        settings.max_bytes = self.max_bytes;
        settings.blob_quota = self.blob_quota.unwrap_or(settings.blob_quota);
        self.bounds.apply(&mut settings)?;
        let limits = &mut settings.scheduler.limits;
        if let Some(ms) = self.lease_ms {
            limits.lease_ms = within("lease-ms", ms, LEASE_MS_MIN..=86_400_000)?;
        }
        if let Some(ms) = self.cancel_wait_ms {
            limits.cancel_wait_ms = within("cancel-wait-ms", ms, 100..=600_000)?;
        }
        if let Some(ms) = self.run_ttl_ms {
            limits.run_ttl_ms = within("run-ttl-ms", ms, 1_000..=604_800_000)?;
        }
        if let Some(steps) = self.steps_max {
            within("steps-max", steps as u64, 1..=100_000)?;
            limits.steps_max = steps;
        }
        if let Some(tokens) = self.board_tokens {
            within("board-tokens", tokens as u64, 100..=100_000)?;
            limits.board_tokens = tokens;
        }
        if let Some(ms) = self.ownership_ms {
            let ms = within("ownership-ms", ms, OWNERSHIP_MS_MIN..=60_000)?;
            settings.ownership = Duration::from_millis(ms);
        }
        Ok(settings)
    }
}

fn certificate(file: &Path) -> Result<Vec<u8>, Failure> {
    let named = |error| Failure::new(Exit::Usage, format!("{}: {error}", file.display()));
    std::fs::read(file).map_err(named)
}

fn boot_name(node: Option<String>, boot: &str) -> String {
    format!("{}-{boot:.8}", node.as_deref().unwrap_or("node"))
}

fn login(
    part: &str,
    user: Option<String>,
    password: Option<String>,
    creds: Option<PathBuf>,
) -> Result<Login, Failure> {
    match (user, password, creds) {
        (None, None, None) => Ok(Login::Address),
        (Some(user), Some(password), None) => Ok(Login::Password { user, password }),
        (None, None, Some(file)) => Ok(Login::File(file)),
        _ => {
            let message =
                format!("{part}: a user goes with a password, and a credentials file with neither");
            Err(Failure::new(Exit::Usage, message))
        }
    }
}

fn within(option: &str, value: u64, range: std::ops::RangeInclusive<u64>) -> Result<u64, Failure> {
    if range.contains(&value) {
        return Ok(value);
    }
    let (least, most) = (range.start(), range.end());
    let message = format!("--{option} is {value}, and may be {least} to {most}");
    Err(Failure::new(Exit::Usage, message))
}

fn usage(option: &str, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(Exit::Usage, format!("--{option}: {why}"))
}

mod bounds;

#[cfg(test)]
mod tests;
