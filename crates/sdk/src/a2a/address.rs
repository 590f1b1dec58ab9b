//! The addresses of agents, and which hosts may be reached.

use std::net::IpAddr;

use hyper::Uri;

use super::error::PeerError;

/// Where cards are, below the address of an agent: at present, and before version 0.3.
const CARD_PATHS: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];

/// The address of an agent or of its card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PeerUrl {
    /// The scheme, the host and the port.
    pub(super) origin: String,
    /// The host alone, in lower case.
    pub(super) host: String,
    /// The path with the query.
    pub(super) path: String,
}

impl PeerUrl {
    /// Reads an address.
    ///
    /// # Errors
    /// It is none of HTTP, or a login stands in it.
    pub(super) fn read(url: &str) -> Result<Self, PeerError> {
        let refused = |why: &str| {
            let address = url.rsplit_once('@').map_or(url, |(_, host)| host);
            Err(PeerError::Address { address: address.to_owned(), why: why.to_owned() })
        };
        let Ok(uri) = url.parse::<Uri>() else { return refused("it is no address") };
        let (Some(scheme @ ("http" | "https")), Some(authority)) =
            (uri.scheme_str(), uri.authority())
        else {
            return refused("it begins with http:// or https://, and names a host");
        };
        if authority.as_str().contains('@') {
            return refused("a login does not stand in an address: give a token");
        }
        let path = uri.path_and_query().map_or("/", |it| it.as_str());
        Ok(Self {
            origin: format!("{scheme}://{authority}"),
            host: authority.host().to_ascii_lowercase(),
            path: path.to_owned(),
        })
    }

    /// The keys under which a token for it may stand, the most exact one first. A name alone stands for what is reached
    /// over TLS, or on this machine.
    pub(super) fn token_keys(&self) -> Vec<String> {
        let (origin, host) = (self.origin.to_ascii_lowercase(), &self.host);
        let mut keys = vec![origin];
        if self.is_tls() || is_here(host) {
            keys.push(host.clone());
        } else {
            keys.push(format!("http://{host}"));
        }
        keys
    }

    /// Whether it is reached over TLS.
    pub(super) fn is_tls(&self) -> bool {
        self.origin.starts_with("https:")
    }

    /// The addresses at which the card may be: this one if it names a file of JSON, else the known places
    /// below it.
    pub(super) fn cards(&self) -> Vec<Self> {
        if self.path.ends_with(".json") {
            return vec![self.clone()];
        }
        let base = self.path.trim_end_matches('/');
        let at = |path: &&str| Self { path: format!("{base}{path}"), ..self.clone() };
        CARD_PATHS.iter().map(at).collect()
    }

    /// The same address with more behind its path.
    pub(super) fn below(&self, path: &str) -> String {
        format!("{}{path}", self.path.trim_end_matches('/'))
    }
}

/// Whether a host is this machine.
fn is_here(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who listens on the way learns no token that was given for a host alone.
    #[test]
    fn a_token_goes_in_the_clear_where_that_was_said() {
        for (url, keys) in [
            ("https://One:8443/a", ["https://one:8443", "one"]),
            ("http://One:80/a", ["http://one:80", "http://one"]),
            ("http://localhost:80", ["http://localhost:80", "localhost"]),
            ("http://[::1]:80", ["http://[::1]:80", "[::1]"]),
            ("http://127.0.0.1", ["http://127.0.0.1", "127.0.0.1"]),
            ("http://127.0.0.1.example", ["http://127.0.0.1.example", "http://127.0.0.1.example"]),
        ] {
            assert_eq!(PeerUrl::read(url).unwrap().token_keys(), keys, "{url}");
        }
    }

    /// The card of an agent stands at a known place below its address, unless the address is that of a card.
    #[test]
    fn a_card_is_looked_for_below_the_address() {
        for (url, cards) in [
            ("http://One:80", vec!["/.well-known/agent-card.json", "/.well-known/agent.json"]),
            ("https://one/a/", vec!["/a/.well-known/agent-card.json", "/a/.well-known/agent.json"]),
            ("http://one/cards/a.json", vec!["/cards/a.json"]),
        ] {
            let url = PeerUrl::read(url).unwrap();
            assert_eq!(url.host, "one");
            assert_eq!(url.cards().into_iter().map(|it| it.path).collect::<Vec<_>>(), cards);
        }
    }

    /// Sockets, files and logins are no addresses of agents, and an error shows no password.
    #[test]
    fn other_addresses_are_refused() {
        for url in
            ["unix:/run/a.sock", "file:///etc/passwd", "one:80", "/a", "", "http://ann:s3cret@one"]
        {
            let refused = PeerUrl::read(url).unwrap_err();
            assert!(matches!(refused, PeerError::Address { .. }), "{url}");
            assert!(!refused.to_string().contains("s3cret"), "{refused}");
        }
    }
}
