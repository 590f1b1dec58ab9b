//! Where a gateway may listen.

use std::net::SocketAddr;

/// A gateway without authentication was to listen where others than this machine can reach it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "without authentication the HTTP API listens on this machine alone, and {0} can be reached from \
     others: name a file of tokens (docs/http.md, Identity), or listen on 127.0.0.1"
)]
pub struct BindRefused(SocketAddr);

/// Whether a gateway may listen there. Without authentication everybody who reaches it may do
/// everything, so only this machine may.
///
/// # Errors
/// It may not; the message says what to do.
pub fn check_bind(address: SocketAddr, has_authentication: bool) -> Result<(), BindRefused> {
    if has_authentication || address.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    Err(BindRefused(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_bound_without_authentication() {
        for own in ["127.0.0.1:80", "127.0.0.9:0", "[::1]:80", "[::ffff:127.0.0.1]:80"] {
            assert_eq!(check_bind(own.parse().unwrap(), false), Ok(()), "{own}");
        }
        for other in ["0.0.0.0:80", "[::]:80", "192.168.0.1:80", "[::ffff:10.0.0.1]:80"] {
            let address = other.parse().unwrap();
            assert_eq!(check_bind(address, true), Ok(()), "{other}");
            let said = check_bind(address, false).unwrap_err().to_string();
            assert!(said.contains(other) && said.contains("127.0.0.1"), "{said}");
        }
    }
}
