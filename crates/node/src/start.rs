//! Waits for what a node needs before it can begin: NATS, the log there, and Redis. It waits for
//! servers that cannot be reached, as they may be starting beside it; where waiting cannot help, it
//! fails.

use std::sync::Arc;
use std::time::Duration;

use async_nats::Client;
use tenure_cluster::leases::RedisOpenError;
use tenure_cluster::ownership::KeepError;
use tenure_cluster::{JetStreamBlobs, JetStreamJournal, RedisLeases, StreamOpenError};
use tenure_core::Rejection;
use tenure_wire::bus::MESSAGE_MAX;
use tokio::time::sleep;

use crate::bus::{Fault, ListenError, NoConnection, connect};
use crate::settings::{Login, Settings, without_secrets};

/// The pause between two tries.
const AGAIN: Duration = Duration::from_millis(500);

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// NATS cannot be reached, or does not accept this node.
    #[error("nats at {url}: {why}")]
    Nats {
        /// Where.
        url: String,
        /// What kind of trouble it is.
        fault: Fault,
        /// Why.
        why: String,
    },
    /// The server's `max_payload` is less than the longest message.
    #[error("nats at {url}: max_payload is {most} bytes, and messages have up to {MESSAGE_MAX}")]
    Payload {
        /// Where.
        url: String,
        /// Its `max_payload`.
        most: usize,
    },
    /// The log cannot be used.
    #[error(transparent)]
    Log(#[from] StreamOpenError),
    /// Redis cannot be used.
    #[error(transparent)]
    Leases(#[from] RedisOpenError),
    /// The loop that keeps partitions did not start.
    #[error("ownership of partitions: {0}")]
    Ownership(#[from] KeepError),
    /// The threads for reads did not start.
    #[error("threads for reads: {0}")]
    Threads(std::io::Error),
    /// The scheduler did not start.
    #[error(transparent)]
    Refused(#[from] Rejection),
}

impl StartError {
    /// Whether trying again may succeed, with nobody's help.
    pub fn passes(&self) -> bool {
        match self {
            Self::Nats { fault, .. } => *fault == Fault::Away,
            Self::Log(error) => error.passes(),
            Self::Leases(error) => error.passes(),
            Self::Payload { .. } | Self::Ownership(_) | Self::Threads(_) | Self::Refused(_) => {
                false
            }
        }
    }

    /// Whether the record of the cluster contradicts the node's settings, or Redis.
    pub fn is_of_another_cluster(&self) -> bool {
        matches!(
            self,
            Self::Log(StreamOpenError::Other(_)) | Self::Leases(RedisOpenError::OtherStore { .. })
        )
    }

    /// What to do about it.
    pub fn advice(&self) -> String {
        match self {
            Self::Nats { fault: Fault::Away, .. } => "--nats names the server; see that it runs",
            Self::Nats { fault: Fault::Settings, .. } => {
                "see that --nats is an address of NATS, and that both sides agree on TLS: the options \
                 for certificates say whom this node trusts"
            }
            Self::Nats { .. } => {
                "see that user, password and certificate are those of --nats; deploy/nats says which \
                 rights a node needs"
            }
            Self::Payload { .. } => "set max_payload: 1MB on every server of NATS",
            Self::Log(error) => return error.advice(),
            Self::Leases(error) => error.advice(),
            Self::Threads(_) => "see how many threads this process may have",
            Self::Ownership(_) | Self::Refused(_) => "TENURE_LOG=debug says more",
        }
        .into()
    }
}

pub(crate) fn unreachable_at(url: &str) -> impl Fn(ListenError) -> StartError {
    let url = without_secrets(url);
    move |error| {
        let (url, why) = (url.clone(), error.to_string());
        StartError::Nats { url, fault: Fault::Away, why }
    }
}

/// The connections of a node to NATS.
pub(crate) struct Servers {
    pub(crate) log: Client,
    pub(crate) control: Client,
    pub(crate) reports: Client,
    pub(crate) intake: Client,
    pub(crate) lookups: Client,
}

/// Connects to NATS, once it can be reached.
pub(crate) async fn servers(settings: &Settings) -> Result<Servers, StartError> {
    let nats = &settings.nats;
    let servers = patiently("nats", || async {
        Ok(Servers {
            log: connected(settings, &nats.journal, "journal").await?,
            control: connected(settings, &nats.control, "control").await?,
            reports: connected(settings, &nats.control, "reports").await?,
            intake: connected(settings, &nats.intake, "intake").await?,
            lookups: connected(settings, &nats.control, "lookups").await?,
        })
    });
    let servers = servers.await?;
    // Each connection may have come to another server.
    let Servers { log, control, reports, intake, lookups } = &servers;
    let all = [log, control, reports, intake, lookups];
    let most = all.map(|client| client.server_info().max_payload);
    match most.into_iter().min().filter(|most| *most < MESSAGE_MAX) {
        Some(most) => Err(StartError::Payload { url: without_secrets(&nats.url), most }),
        None => Ok(servers),
    }
}

async fn connected(settings: &Settings, login: &Login, part: &str) -> Result<Client, StartError> {
    let client = connect(&settings.nats, login, &settings.node, part).await;
    client.map_err(|NoConnection { fault, why }| StartError::Nats {
        url: without_secrets(&settings.nats.url),
        fault,
        why,
    })
}

/// Opens the log, once JetStream answers.
pub(crate) async fn journal(
    settings: &Settings,
    log: &Client,
) -> Result<Arc<JetStreamJournal>, StartError> {
    let told = log_settings(settings);
    patiently("the log", || async {
        Ok(Arc::new(JetStreamJournal::open(log.clone(), told.clone()).await?))
    })
    .await
}

/// The store of blobs, beside the log.
pub(crate) fn blobs(settings: &Settings, log: &Client) -> JetStreamBlobs {
    JetStreamBlobs::new(log.clone(), log_settings(settings), settings.blob_quota)
}

fn log_settings(settings: &Settings) -> tenure_cluster::LogSettings {
    tenure_cluster::LogSettings {
        name: settings.cluster.as_str().into(),
        partitions: settings.partitions,
        replicas: settings.replicas,
        max_bytes: settings.max_bytes,
        node: settings.node.as_str().into(),
        observer: settings.scheduler.observer.clone(),
        features: settings.features.of_logs(),
        ..tenure_cluster::LogSettings::default()
    }
}

/// Opens the store of leases, once Redis answers, if it belongs to the store of the log.
pub(crate) async fn leases(
    settings: &Settings,
    name: &str,
    journal: &JetStreamJournal,
) -> Result<RedisLeases, StartError> {
    let (at, owned) = (&settings.redis, journal.owned());
    patiently("redis", || async {
        let leases = RedisLeases::open(at, name, Arc::clone(owned)).await?;
        leases.belong_to(at, name, journal.store()).await?;
        Ok(leases)
    })
    .await
}

/// Tries until it succeeds, or fails for good. Logs once that it waits.
async fn patiently<T, F>(what: &str, open: impl Fn() -> F) -> Result<T, StartError>
where
    F: Future<Output = Result<T, StartError>>,
{
    let mut waits = false;
    loop {
        match open().await {
            Err(error) if error.passes() => {
                if !std::mem::replace(&mut waits, true) {
                    tracing::warn!(%error, "this node waits for {what}: {}", error.advice());
                }
                sleep(AGAIN).await;
            }
            opened => {
                if waits && opened.is_ok() {
                    tracing::info!("{what} is there");
                }
                return opened;
            }
        }
    }
}
