//! Whether a collector is there at all. The exporters' errors do not say it: a collector that is
//! away and one that refuses what it was sent look alike.

use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a connection may take.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// Where a collector listens.
#[derive(Debug, Clone)]
pub(super) struct CollectorAddress(String);

impl CollectorAddress {
    /// The host and the port of an endpoint, such as `http://127.0.0.1:4318/v1/traces`. `port`: what
    /// it is if neither the endpoint nor its scheme says it.
    pub(super) fn of(endpoint: &str, port: u16) -> Self {
        let (scheme, rest) = endpoint.split_once("://").unwrap_or(("", endpoint));
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let behind_host = host.rsplit_once(']').map_or(host, |(_, port)| port);
        if behind_host.contains(':') {
            return Self(host.to_owned());
        }
        let port = match scheme {
            "http" => 80,
            "https" => 443,
            _ => port,
        };
        Self(format!("{host}:{port}"))
    }

    /// Whether nobody accepts connections there now.
    pub(super) async fn is_away(&self) -> bool {
        !matches!(timeout(CONNECT_MAX, TcpStream::connect(&self.0)).await, Ok(Ok(_)))
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn the_address_is_that_of_the_endpoint() {
        for (endpoint, address) in [
            ("http://127.0.0.1:4318/v1/traces", "127.0.0.1:4318"),
            ("https://user:secret@otel.example/v1/logs", "otel.example:443"),
            ("http://otel.example?x", "otel.example:80"),
            ("http://[::1]:4318", "[::1]:4318"),
            ("[::1]", "[::1]:4317"),
            ("otel.example", "otel.example:4317"),
        ] {
            assert_eq!(CollectorAddress::of(endpoint, 4317).0, address, "{endpoint}");
        }
    }

    #[tokio::test]
    async fn a_collector_is_away_if_it_accepts_no_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let collector = CollectorAddress::of(&format!("http://{address}"), 4317);
        assert!(!collector.is_away().await);
        drop(listener);
        assert!(collector.is_away().await);
    }
}
