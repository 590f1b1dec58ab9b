//! [`PushTarget`]: an address to which updates may be sent.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use axum::http::Uri;
use axum::http::uri::Scheme;
use tokio::net::lookup_host;

use super::PushRules;
use crate::a2a::error::A2aError;

/// An address to which updates may be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PushTarget {
    /// The name or the IP address of the host.
    pub(super) host: String,
    /// Name and port as they stand in the address.
    pub(super) authority: String,
    port: u16,
    /// Path and query.
    pub(super) path: String,
    /// Whether the connection is encrypted.
    pub(super) is_tls: bool,
    /// Whether the operator has named the host, so that it may have any address.
    is_allowed: bool,
}

impl PushTarget {
    /// Reads an address.
    ///
    /// # Errors
    /// It is no address of HTTP, or one to which nothing is sent.
    pub(crate) fn read(url: &str, rules: &PushRules) -> Result<Self, A2aError> {
        let wrong = |why: &str| A2aError::invalid("url", why);
        let uri: Uri = url.parse().map_err(|_| wrong("this is no address"))?;
        let Some(authority) = uri.authority() else {
            return Err(wrong("this is no whole address"));
        };
        if authority.as_str().contains('@') {
            return Err(wrong("an address has no login: give it in authentication"));
        }
        let is_tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(wrong("an address begins with https://")),
        };
        let host = authority.host().trim_matches(['[', ']']).to_ascii_lowercase();
        let is_allowed = rules.names(&host);
        if !is_tls && !is_allowed {
            return Err(wrong("updates are sent with TLS: the address begins with https://"));
        }
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let target =
            Self { host, authority: authority.to_string(), port, path, is_tls, is_allowed };
        match target.host.parse::<IpAddr>() {
            Ok(ip) if !target.admits(ip) => Err(wrong("this host is not called from here")),
            _ => Ok(target),
        }
    }

    /// The IP addresses of the host to which updates may be sent, at least one.
    ///
    /// # Errors
    /// The name is not known, or all its addresses are such that nothing is sent there.
    pub(super) async fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let found = lookup_host((&*self.host, self.port)).await?;
        let admitted: Vec<_> = found.filter(|address| self.admits(address.ip())).collect();
        if admitted.is_empty() {
            let why = "the host has no public address";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        Ok(admitted)
    }

    fn admits(&self, ip: IpAddr) -> bool {
        self.is_allowed || is_public(ip)
    }
}

/// Whether an IP address belongs to the public network.
fn is_public(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    let is_special = ip.is_private()
        || ip.is_loopback()
        || ip.is_link_local()
        || ip.is_documentation()
        || a == 0
        || a >= 224 // Multicast, reserved and broadcast.
        || (a == 100 && (64..128).contains(&b)) // Shared by customers of a provider.
        || (a == 192 && b == 0 && c == 0)
        || (a == 198 && (18..20).contains(&b)); // Measurements.
    !is_special
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    let [first, second, ..] = ip.segments();
    // Of all there are, 2000::/3 is public. In it are tunnels, which lead to IPv4, and documentation.
    let is_global = (0x2000..0x4000).contains(&first);
    let is_tunnel = first == 0x2002 || (first == 0x2001 && second == 0);
    let is_documentation = (first == 0x2001 && second == 0x0db8) || first == 0x3fff;
    is_global && !is_tunnel && !is_documentation
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(allow: &[&str]) -> PushRules {
        PushRules { allow: allow.iter().map(ToString::to_string).collect() }
    }

    fn is_read(url: &str, allow: &[&str]) -> bool {
        PushTarget::read(url, &rules(allow)).is_ok()
    }

    #[test]
    fn updates_go_to_public_addresses_with_tls() {
        for (url, is_ok) in [
            ("https://example.org/hook?a=1", true),
            ("https://example.org:8443", true),
            ("https://93.184.216.34/", true),
            ("http://example.org/", false),
            ("https://127.0.0.1/", false),
            ("https://10.1.2.3/", false),
            ("https://169.254.169.254/latest", false),
            ("https://[::1]/", false),
            ("https://[::ffff:127.0.0.1]/", false),
            ("https://ann:secret@example.org/", false),
            ("ftp://example.org/", false),
            ("/hook", false),
            ("example.org", false),
            ("", false),
        ] {
            assert_eq!(is_read(url, &[]), is_ok, "{url}");
        }
    }

    #[test]
    fn hosts_that_the_operator_names_may_have_any_address() {
        for url in ["http://localhost:9/hook", "http://LOCALHOST/", "http://127.0.0.1:9/"] {
            assert!(!is_read(url, &[]) && is_read(url, &["localhost", "127.0.0.1"]), "{url}");
        }
        let target = PushTarget::read("http://localhost:9/a?b=c", &rules(&["localhost"])).unwrap();
        assert_eq!((&*target.authority, &*target.path), ("localhost:9", "/a?b=c"));
    }

    #[test]
    fn addresses_of_networks_inside_are_not_public() {
        for inside in [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "192.0.0.1",
            "192.168.1.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "2001::1",
            "2001:db8::1",
            "2002:a00:1::",
            "fc00::1",
            "fe80::1",
            "ff02::1",
        ] {
            assert!(!is_public(inside.parse().unwrap()), "{inside}");
        }
        for public in ["8.8.8.8", "100.128.0.1", "192.0.1.1", "2606:4700::1111", "::ffff:8.8.8.8"] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
    }

    /// The name of a host is checked where it is looked up, so that it cannot mean another address later.
    #[tokio::test]
    async fn a_name_that_means_an_inner_address_is_not_called() {
        let target =
            |allow: &[&str]| PushTarget::read("https://localhost:9/", &rules(allow)).unwrap();
        let refused = target(&[]).resolve().await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        let admitted = target(&["localhost"]).resolve().await.unwrap();
        assert!(!admitted.is_empty() && admitted.iter().all(|it| it.ip().is_loopback()));
    }
}
