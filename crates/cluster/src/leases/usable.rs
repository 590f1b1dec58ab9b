//! Checks at the start of a node whether a Redis can be used for leases.

use std::collections::HashMap;

use redis::{ErrorKind, RedisError};
use tokio::time::timeout;

use super::TIMEOUT;
use crate::redis_at::{RedisAt, RedisConnection, stays, words};

/// The hint where the login in the address may have been read wrong.
const ESCAPE: &str =
    "; a character such as / # ? % in the password is written as % and its number, %2F for /";

/// Why Redis cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RedisOpenError {
    /// Redis does not answer, or cannot yet.
    #[error("{0}")]
    Unavailable(String),
    /// Redis refuses this node, or the settings are wrong: waiting does not help.
    #[error("{0}")]
    Refused(String),
    /// Redis drops keys when memory runs short: leases would vanish silently.
    #[error(
        "redis evicts keys (maxmemory-policy {0}), and leases are keys: set maxmemory-policy to \
         noeviction"
    )]
    Evicts(String),
    /// Redis belongs to another store than the streams.
    #[error(
        "{at} belongs to the cluster {found}, and the streams in NATS are those of the cluster {given}"
    )]
    OtherStore {
        /// Where Redis is.
        at: String,
        /// The store that Redis names.
        found: String,
        /// The store that the streams name.
        given: String,
    },
}

impl RedisOpenError {
    /// Whether trying again may succeed, with nobody's help.
    pub fn passes(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }

    /// What to do about it.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "--redis names the server; see that it runs",
            Self::Refused(_) | Self::Evicts(_) => {
                "see that --redis and its certificate are right; it must never evict keys"
            }
            Self::OtherStore { .. } => {
                "if both are of use, name this cluster otherwise with --cluster, or give it another Redis or \
                 another database of it with --redis; if the streams were made anew and the others are lost, \
                 go on as docs/operations.md says under Restore, from where it deletes the keys in Redis"
            }
        }
    }

    pub(super) fn of(at: &RedisAt, error: &RedisError) -> Self {
        let escape = if at.has_bare_login() { ESCAPE } else { "" };
        let what = format!("{at:?}: {}{escape}", words(error));
        match stays(error) {
            false => Self::Unavailable(what),
            true => Self::Refused(what),
        }
    }
}

/// The key that says which store Redis belongs to. `name` is the prefix of all keys.
pub(crate) fn store_key(name: &str) -> String {
    format!("{name}:{{own}}:store")
}

/// Makes sure that Redis belongs to this store, and writes it down if Redis belongs to none yet.
pub(super) async fn belong_to(
    at: &RedisAt,
    mut redis: RedisConnection,
    name: &str,
    store: &str,
) -> Result<(), RedisOpenError> {
    let key = store_key(name);
    let (mut get, mut set) = (redis::cmd("GET"), redis::cmd("SET"));
    get.arg(&key);
    set.arg(&key).arg(store).arg("NX");
    let asked = async {
        // A Redis that takes no writes just now may still say whose it is.
        let mut found: Option<String> = get.query_async(&mut redis).await?;
        if found.is_none() {
            set.query_async::<()>(&mut redis).await?;
            found = get.query_async(&mut redis).await?; // Another node may have been first.
        }
        Ok::<_, RedisError>(found)
    };
    let found = timeout(TIMEOUT, asked).await.unwrap_or_else(|_| Err(no_answer()));
    match found.map_err(|error| RedisOpenError::of(at, &error))? {
        Some(found) if found != store => {
            let given = store.to_owned();
            Err(RedisOpenError::OtherStore { at: format!("{at:?}"), found, given })
        }
        _ => Ok(()),
    }
}

fn no_answer() -> RedisError {
    (ErrorKind::Io, "it does not answer").into()
}

/// Makes sure that Redis never evicts a key.
pub(super) async fn refuse_eviction(
    at: &RedisAt,
    redis: &mut RedisConnection,
) -> Result<(), RedisOpenError> {
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
    let of_each: Result<Vec<String>, RedisError> =
        timeout(TIMEOUT, of_each).await.unwrap_or_else(|_| Err(no_answer()));
    for info in of_each.map_err(|error| RedisOpenError::of(at, &error))? {
        let policy = info.lines().find_map(|line| line.strip_prefix("maxmemory_policy:"));
        match policy.map(str::trim) {
            Some("noeviction") => {}
            Some(other) => return Err(RedisOpenError::Evicts(other.to_owned())),
            None => tracing::warn!("redis does not say whether it evicts keys; it must not"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::{Owned, RedisLeases};

    /// A server that says this to everybody, at once or after it has heard something.
    async fn other(says: &'static [u8], after_a_question: bool) -> String {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = server.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            while let Ok((mut caller, _)) = server.accept().await {
                if after_a_question {
                    let _ = caller.read(&mut [0; 1024]).await;
                }
                let _ = caller.write_all(says).await;
                let _ = caller.read(&mut [0; 1024]).await;
            }
        });
        at
    }

    async fn refused(url: String) -> RedisOpenError {
        let owned = Arc::new(Owned::none(1));
        RedisLeases::open(&RedisAt::from(url), "tenure", owned).await.unwrap_err()
    }

    #[tokio::test]
    async fn what_is_no_redis_is_named_and_does_not_pass() {
        let nats = other(b"INFO {\"server_id\":\"N\"}\r\n", false).await;
        let http = other(b"HTTP/1.1 400 Bad Request\r\n\r\n", true).await;
        for (url, why) in [
            (format!("redis://:s3cret@{nats}"), "the server there is no Redis"),
            (format!("redis://{http}"), "the server there is no Redis"),
            (format!("rediss://{nats}"), "the server there has no TLS"),
        ] {
            let refused = refused(url.clone()).await;
            let said = refused.to_string();
            assert!(!refused.passes() && said.contains(why), "{url}: {said}");
            assert!(said.starts_with("redis") && said.contains("://127.0.0.1:"), "{said}");
            assert!(!said.contains("s3cret") && said.lines().count() == 1, "{said}");
        }
    }

    #[tokio::test]
    async fn a_redis_that_is_away_is_named_and_may_come() {
        let away = refused("redis://127.0.0.1:9".into()).await;
        assert!(away.passes(), "{away:?}");
        assert!(away.to_string().starts_with("redis://127.0.0.1:9: "), "{away}");
    }

    #[tokio::test]
    async fn a_password_that_breaks_the_address_comes_with_a_hint() {
        let said = refused("redis://:a/b@127.0.0.1:9".into()).await.to_string();
        assert!(said.contains("%2F for /") && !said.contains("a/b"), "{said}");
    }
}
