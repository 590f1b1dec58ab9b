//! Where the servers are, and with which logins to reach them.

use std::path::PathBuf;
use std::time::Duration;

use tenure_cluster::RedisAt;
use tenure_core::features::Features;
use tenure_core::id::PoolId;
use tenure_ports::blobs::SESSION_QUOTA;
use tenure_scheduler::Config;
pub(crate) use tenure_wire::bus::address::without_secrets;
use tenure_wire::bus::subject::{ClusterName, Token};

use crate::lanes::ReadLimits;

use crate::rates::RateSettings;

/// How a connection authenticates.
#[derive(Clone, Default)]
pub enum Login {
    /// With the login in the address, if there is one.
    #[default]
    Address,
    /// With name and password.
    Password {
        /// The name.
        user: String,
        /// The password.
        password: String,
    },
    /// With a credentials file.
    File(PathBuf),
}

impl std::fmt::Debug for Login {
    /// Without the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Address => f.write_str("Address"),
            Self::Password { user, .. } => write!(f, "Password({user})"),
            Self::File(path) => write!(f, "File({})", path.display()),
        }
    }
}

/// How to reach NATS. A node has a connection for the log, one for the messages to workers and one for the answers to
/// callers, so that the server can tell them apart; each may have its own rights. Two more have the login of the
/// messages to workers: on one come their reports, on the other what they read, so that neither holds up a grant or a
/// lease.
#[derive(Clone)]
pub struct Nats {
    /// Addresses of the servers, separated by commas.
    pub url: String,
    /// The certificate of the authority that signed the servers' own, if the machine does not know it.
    pub ca: Option<PathBuf>,
    /// The login that alone may write the log.
    pub journal: Login,
    /// The login that speaks to workers.
    pub control: Login,
    /// The login that speaks to orchestrators and observers.
    pub intake: Login,
}

impl std::fmt::Debug for Nats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { url, ca, journal, control, intake } = self;
        let mut all = f.debug_struct("Nats");
        all.field("url", &without_secrets(url)).field("ca", ca).field("journal", journal);
        all.field("control", control).field("intake", intake).finish()
    }
}

impl Nats {
    /// One address, with its login for all connections.
    pub fn at(url: impl Into<String>) -> Self {
        let (journal, control, intake) = Default::default();
        Self { url: url.into(), ca: None, journal, control, intake }
    }
}

/// Settings of a node.
#[derive(Clone)]
pub struct Settings {
    /// Where NATS is.
    pub nats: Nats,
    /// Where Redis is.
    pub redis: RedisAt,
    /// The name of this boot of this node: no other boot has it.
    pub node: Token,
    /// The name of the cluster, with which subjects and the names of streams and keys begin: clusters on the
    /// same servers differ in it.
    pub cluster: ClusterName,
    /// Number of partitions of the cluster: fixed when the cluster is made (OWN-01).
    pub partitions: u32,
    /// How many servers store each stream of the log.
    pub replicas: usize,
    /// How many bytes a stream may take; none: as many as the server has.
    pub max_bytes: Option<u64>,
    /// How many bytes the blobs of a session may take (VALUE-01).
    pub blob_quota: u64,
    /// How long a partition stays with a node that does not renew its lease.
    pub ownership: Duration,
    /// How many workers may have a link at a time; the node refuses others.
    pub links_max: usize,
    /// How many reads of workers and clients may be under way at a time; others are refused and may
    /// come again. Reads of other nodes do not count: they are needed for what is being written,
    /// and are few.
    pub reads_max: usize,
    /// How much of this one principal has.
    pub reads: ReadLimits,
    /// What each principal may send a second.
    pub rates: RateSettings,
    /// What the node can do that an older one cannot (EVOLVE-02).
    pub features: Features,
    /// Settings of the scheduler.
    pub scheduler: Config,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut all = f.debug_struct("Settings");
        all.field("nats", &self.nats).field("redis", &self.redis);
        all.field("node", &self.node).field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl Settings {
    /// A node of a cluster of 8 partitions, leases of 30 s.
    pub fn new(nats: Nats, redis: impl Into<RedisAt>, node: Token, default_pool: PoolId) -> Self {
        let scheduler = Config { embedded: false, ..Config::embedded(default_pool) };
        Self {
            nats,
            redis: redis.into(),
            node,
            cluster: ClusterName::default(),
            partitions: scheduler.partitions,
            replicas: 1,
            max_bytes: None,
            blob_quota: SESSION_QUOTA,
            ownership: Duration::from_millis(1_500),
            links_max: 65_536,
            reads_max: 4_096,
            reads: ReadLimits::default(),
            rates: RateSettings::default(),
            features: Features::of_program(),
            scheduler,
        }
    }

    /// Settings of the scheduler, adapted to the cluster.
    pub(crate) fn config(&self) -> Config {
        let mut config = Config { partitions: self.partitions, ..self.scheduler.clone() };
        if self.replicas > 1 {
            config.limits = config.limits.on_replicated_log();
        }
        let (asked_for, lease_ms) = (self.scheduler.limits.lease_ms, config.limits.lease_ms);
        if lease_ms != asked_for {
            tracing::warn!(asked_for, lease_ms, "leases are longer: the log has replicas");
        }
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P30: an election among the servers of the log costs no worker its lease.
    #[test]
    fn leases_on_a_replicated_log_are_no_shorter_than_an_election() {
        let (node, pool) = (Token::new("n1").unwrap(), "default".parse().unwrap());
        let mut settings =
            Settings::new(Nats::at("nats://host"), "redis://host".to_owned(), node, pool);
        for (lease_ms, replicas, lasts) in
            [(1_000, 1, 1_000), (1_000, 3, 15_000), (15_000, 3, 15_000), (20_000, 3, 20_000)]
        {
            (settings.scheduler.limits.lease_ms, settings.replicas) = (lease_ms, replicas);
            assert_eq!(settings.config().limits.lease_ms, lasts, "{lease_ms} on {replicas}");
        }
        assert_eq!(settings.config().partitions, settings.partitions);
    }

    #[test]
    fn secrets_of_an_address_are_not_shown() {
        let shown = format!("{:?}", Nats::at("nats://user:s3,cret@host:1"));
        assert!(shown.contains("host:1") && !shown.contains("s3"), "{shown}");
    }
}
