//! Checks at the start of a node whether a Redis can be used for leases.

use std::collections::HashMap;

use redis::{ErrorKind, RedisError};
use tokio::time::timeout;

use super::TIMEOUT;
use crate::redis_at::{RedisConnection, stays};

/// Why Redis cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RedisOpenError {
    /// Redis does not answer, or cannot yet.
    #[error("redis: {0}")]
    Unavailable(String),
    /// Redis refuses this node, or the settings are wrong: waiting does not help.
    #[error("redis: {0}")]
    Refused(String),
    /// Redis drops keys when memory runs short: leases would vanish silently.
    #[error(
        "redis evicts keys (maxmemory-policy {0}), and leases are keys: set maxmemory-policy to \
         noeviction"
    )]
    Evicts(String),
}

impl RedisOpenError {
    /// Whether trying again may succeed, with nobody's help.
    pub fn passes(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }

    pub(super) fn of(error: &RedisError) -> Self {
        let how = if stays(error) { Self::Refused } else { Self::Unavailable };
        how(error.to_string())
    }
}

/// Makes sure that Redis never evicts a key.
pub(super) async fn refuse_eviction(redis: &mut RedisConnection) -> Result<(), RedisOpenError> {
    let mut ask = redis::cmd("INFO");
    ask.arg("memory");
    let of_each = async {
        match redis {
            RedisConnection::One(one) => Ok(vec![ask.query_async::<String>(one).await?]),
            RedisConnection::Cluster(all) => {
                let by_server: HashMap<String, String> = ask.query_async(all).await?;
                Ok(by_server.into_values().collect())
            }
        }
    };
    let of_each: Result<Vec<String>, RedisError> = timeout(TIMEOUT, of_each)
        .await
        .unwrap_or_else(|_| Err((ErrorKind::Io, "it does not answer").into()));
    for info in of_each.map_err(|error| RedisOpenError::of(&error))? {
        let policy = info.lines().find_map(|line| line.strip_prefix("maxmemory_policy:"));
        match policy.map(str::trim) {
            Some("noeviction") => {}
            Some(other) => return Err(RedisOpenError::Evicts(other.to_owned())),
            None => tracing::warn!("redis does not say whether it evicts keys; it must not"),
        }
    }
    Ok(())
}
