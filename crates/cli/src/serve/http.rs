//! The HTTP API of a node: a gateway in the same process, which goes over NATS as any other.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tenure_gateway::Backend as _;
use tenure_gateway::server::ServerSettings;
use tenure_node::{Login, Settings};
use tenure_sdk::nats::NatsSettings;
use tenure_wire::bus::address::servers;

use crate::answer::Failure;
use crate::gateway::{HttpHost, SpokenHere, cluster};

/// What an HTTP API of a node needs.
#[derive(Debug, Clone)]
pub(crate) struct NodeHttp {
    /// Where it listens, and for whom.
    pub(super) server: ServerSettings,
    /// What is spoken there beside it.
    pub(super) spoken: SpokenHere,
    /// The user of NATS for its callers.
    pub(super) login: Login,
}

/// The HTTP API of a node with its way to the cluster.
#[derive(Debug)]
pub(super) struct GatewayOfNode {
    server: ServerSettings,
    spoken: SpokenHere,
    nats: NatsSettings,
}

impl NodeHttp {
    /// The HTTP API of the node with these settings: its way goes to the same cluster, as the user for callers.
    pub(super) fn of(self, node: &Settings) -> GatewayOfNode {
        let nats = &node.nats;
        let (url, credentials) = match self.login {
            Login::Address => (nats.url.clone(), None),
            Login::Password { user, password } => (with_login(&nats.url, &user, &password), None),
            Login::File(file) => (nats.url.clone(), Some(file)),
        };
        let (ca, cluster, name) = (nats.ca.clone(), node.cluster.clone(), "tenure-gateway".into());
        let nats = NatsSettings { credentials, ca, cluster, name, ..NatsSettings::new(url) };
        GatewayOfNode { server: self.server, spoken: self.spoken, nats }
    }
}

impl GatewayOfNode {
    /// Listens, and serves the cluster, on a thread of its own.
    pub(super) async fn start(self) -> Result<HttpHost, Failure> {
        HttpHost::start(cluster(self.nats)?.erased(), self.server, self.spoken, 1).await
    }
}

/// The addresses with this login in place of any other.
fn with_login(addresses: &str, user: &str, password: &str) -> String {
    let escaped = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let mut all = servers(addresses).collect::<Vec<_>>().join(",");
    let begin = all.find("://").map_or(0, |at| at + "://".len());
    let begin = if all.find(',').is_some_and(|comma| comma < begin) { 0 } else { begin };
    all.insert_str(begin, &format!("{}:{}@", escaped(user), escaped(password)));
    all
}

#[cfg(test)]
mod tests {
    use tenure_wire::bus::address::login;

    use super::*;

    #[test]
    fn the_login_of_callers_takes_the_place_of_any_other() {
        let odd = ("gate@way", "a:b,c/d%");
        for (addresses, server) in [
            ("nats://one:4222", "nats://one:4222"),
            ("tls://ann:s3cret@one:4222,tls://two:4222", "tls://one:4222"),
            ("one:4222,nats://two:4222", "one:4222"),
        ] {
            let all = with_login(addresses, odd.0, odd.1);
            let read = login(&all).unwrap();
            assert_eq!((&*read.user, read.password.as_deref()), (odd.0, Some(odd.1)), "{all}");
            assert_eq!(servers(&all).next().as_deref(), Some(server), "{all}");
            assert_eq!(servers(&all).count(), servers(addresses).count());
            assert!(!all.contains("s3cret"));
        }
    }
}
