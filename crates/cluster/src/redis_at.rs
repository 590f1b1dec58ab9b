//! The address of Redis, and connections to it: one server or a Redis Cluster, with TLS or without.

use std::time::Duration;

use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{Cmd, ErrorKind, Pipeline, RedisError, RedisFuture, TlsCertificates, Value};
use tokio::time::timeout;

/// Where Redis is, and which authority vouches for it.
#[derive(Clone)]
pub struct RedisAt {
    /// `redis://[user:password@]host:port[/database]`. With `rediss` the connection has TLS. With
    /// `redis-cluster` or `rediss-cluster` it is a Redis Cluster, and the address names some of its
    /// servers, separated by commas.
    pub url: String,
    /// The certificate of the authority that signed the servers' own, in PEM, if the machine does not
    /// know it. It needs an address with TLS.
    pub ca: Option<Vec<u8>>,
}

impl From<String> for RedisAt {
    fn from(url: String) -> Self {
        Self { url, ca: None }
    }
}

impl std::fmt::Debug for RedisAt {
    /// Without the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (scheme, rest) = self.url.split_once("://").unwrap_or(("", &self.url));
        let servers = rest.rsplit_once('@').map_or(rest, |(_, servers)| servers);
        match scheme {
            "" => f.write_str(servers),
            _ => write!(f, "{scheme}://{servers}"),
        }
    }
}

impl RedisAt {
    /// Reads the address. Each connection and each answer may take `patience`.
    pub(crate) fn client(&self, patience: Duration) -> Result<RedisClient, RedisError> {
        let certificates = || TlsCertificates { client_tls: None, root_cert: self.ca.clone() };
        let which = match (self.servers(), &self.ca) {
            (Some(servers), ca) => {
                let builder = ClusterClient::builder(servers)
                    .connection_timeout(patience)
                    .response_timeout(patience)
                    .overall_response_timeout(Some(patience))
                    .retries(2)
                    .min_retry_wait(10)
                    .max_retry_wait(100);
                RedisKind::Cluster(match ca {
                    Some(_) => builder.certs(certificates()).build()?,
                    None => builder.build()?,
                })
            }
            (None, Some(_)) => {
                RedisKind::One(redis::Client::build_with_tls(self.url.as_str(), certificates())?)
            }
            (None, None) => RedisKind::One(redis::Client::open(self.url.as_str())?),
        };
        Ok(RedisClient { which, patience, place: format!("{self:?}") })
    }

    /// Whether the login has a character that means something else in an address, and so must be written as
    /// `%` and its number.
    pub(crate) fn has_bare_login(&self) -> bool {
        let (_, rest) = self.url.split_once("://").unwrap_or(("", &self.url));
        let login = rest.rsplit_once('@').map_or("", |(login, _)| login);
        let is_hex = |text: Option<&str>| {
            text.is_some_and(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()))
        };
        let is_bare = |at: usize| !is_hex(login.get(at + 1..at + 3));
        login.contains(['/', '#', '?', '[', ']', ' '])
            || login.match_indices('%').any(|(at, _)| is_bare(at))
    }

    /// The named servers of a Redis Cluster, each as an address of its own.
    fn servers(&self) -> Option<Vec<String>> {
        let (scheme, rest) = self.url.split_once("-cluster://")?;
        let (login, servers) = rest.rsplit_once('@').unwrap_or_default();
        let (login, servers) = match servers {
            "" => (String::new(), rest),
            _ => (format!("{login}@"), servers),
        };
        Some(servers.split(',').map(|at| format!("{scheme}://{login}{}", at.trim())).collect())
    }
}

/// Opens connections to Redis.
#[derive(Debug)]
pub(crate) struct RedisClient {
    /// Where it is, without the login.
    pub(crate) place: String,
    which: RedisKind,
    patience: Duration,
}

#[derive(Debug)]
enum RedisKind {
    One(redis::Client),
    Cluster(ClusterClient),
}

impl RedisClient {
    /// A connection, which reconnects by itself. It tries only a few times in quick succession: a
    /// caller that waits for a lease asks again, and the library's own retries would outlast a
    /// heartbeat.
    pub(crate) async fn connect(&self) -> Result<RedisConnection, RedisError> {
        let connecting = async {
            match &self.which {
                RedisKind::One(client) => {
                    let config = ConnectionManagerConfig::new()
                        .set_number_of_retries(1)
                        .set_max_delay(self.patience / 5)
                        .set_connection_timeout(Some(self.patience))
                        .set_response_timeout(Some(self.patience));
                    let connection = ConnectionManager::new_with_config(client.clone(), config);
                    connection.await.map(RedisConnection::One)
                }
                RedisKind::Cluster(client) => {
                    client.get_async_connection().await.map(RedisConnection::Cluster)
                }
            }
        };
        let no_answer = |_| Err((ErrorKind::Io, "it does not answer").into());
        timeout(3 * self.patience, connecting).await.unwrap_or_else(no_answer)
    }
}

/// Whether an error stays until somebody changes the settings: the server refuses the login, its
/// certificate is not trusted, or it is something else than Redis. This looks at the text, as the
/// client of a Redis Cluster keeps nothing else of why it has no connection.
pub(crate) fn stays(error: &RedisError) -> bool {
    const SIGNS: [&str; 5] =
        ["NOAUTH", "WRONGPASS", "NOPERM", "uthentication failed", "certificate"];
    let text = error.to_string();
    error.kind() == ErrorKind::InvalidClientConfig
        || is_foreign(error)
        || is_plain(error)
        || SIGNS.iter().any(|sign| text.contains(sign))
}

/// What is wrong, in one line.
pub(crate) fn words(error: &RedisError) -> String {
    if is_plain(error) {
        return "the server there has no TLS, and the address asks for it".into();
    }
    if is_foreign(error) {
        return "the server there is no Redis".into();
    }
    error.to_string().lines().collect::<Vec<_>>().join(" ")
}

/// Whether the answer is none of Redis. An answer that ends in the middle may be that of a Redis that goes away.
fn is_foreign(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Parse && !error.to_string().contains("end of input")
}

/// Whether the answer is none of TLS.
fn is_plain(error: &RedisError) -> bool {
    error.to_string().contains("corrupt message")
}

/// A connection. Clones share it.
#[derive(Clone)]
pub(crate) enum RedisConnection {
    One(ConnectionManager),
    Cluster(ClusterConnection),
}

impl std::fmt::Debug for RedisConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::One(_) => "One",
            Self::Cluster(_) => "Cluster",
        })
    }
}

impl ConnectionLike for RedisConnection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::One(one) => one.req_packed_command(cmd),
            Self::Cluster(cluster) => cluster.req_packed_command(cmd),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::One(one) => one.req_packed_commands(pipeline, offset, count),
            Self::Cluster(cluster) => cluster.req_packed_commands(pipeline, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::One(one) => one.get_db(),
            Self::Cluster(cluster) => cluster.get_db(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(url: &str) -> RedisAt {
        RedisAt::from(url.to_owned())
    }

    #[test]
    fn some_servers_of_a_cluster_are_named() {
        assert_eq!(at("redis://a:1").servers(), None);
        let named = at("rediss-cluster://u:p@ss@a:1, b:2").servers().unwrap();
        assert_eq!(named, ["rediss://u:p@ss@a:1", "rediss://u:p@ss@b:2"]);
        assert_eq!(at("redis-cluster://a:1").servers().unwrap(), ["redis://a:1"]);
    }

    #[test]
    fn no_secret_is_shown() {
        assert_eq!(format!("{:?}", at("redis://u:p@ss@host:6379/0")), "redis://host:6379/0");
        assert_eq!(format!("{:?}", at("redis-cluster://:p@a:1,b:2")), "redis-cluster://a:1,b:2");
        assert_eq!(format!("{:?}", at("u:p@host")), "host");
    }

    #[test]
    fn a_login_that_must_be_escaped_is_seen() {
        for bare in ["redis://:a/b@host", "redis://:a#b@host", "redis://:a%b@host", "redis://:%@h"]
        {
            assert!(at(bare).has_bare_login(), "{bare}");
        }
        for right in ["redis://host/0", "redis://u:p@ss@host", "redis://:a%2Fb@host/0"] {
            assert!(!at(right).has_bare_login(), "{right}");
        }
    }
}
