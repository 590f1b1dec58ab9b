//! [`Credentials`]: what a request brings to show who its caller is.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use crate::identity::{Authenticator, ClientCertificate, LoggedIn, LoginRefused};

/// The scheme of tokens in the header.
const SCHEME: &[u8] = b"bearer ";

/// The other end of a connection, as this end sees it. No header changes it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peer {
    /// Its address; `None` on a Unix socket.
    pub(crate) address: Option<IpAddr>,
    /// Whether the connection is encrypted.
    pub(crate) is_tls: bool,
    /// Its certificate, if it has one, which TLS has verified.
    pub(crate) certificate: Option<ClientCertificate>,
    /// Cancelled once the certificate counts no more, as the authorities are other ones than those by which it
    /// was verified.
    pub(crate) outdated: CancellationToken,
}

/// What shows who a caller is.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Credentials {
    /// A token.
    Bearer(Arc<[u8]>),
    /// The certificate of the connection.
    Certificate(ClientCertificate),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bearer(_) => f.write_str("Bearer"), // A token is nobody's to read.
            Self::Certificate(it) => f.debug_tuple("Certificate").field(it).finish(),
        }
    }
}

impl Credentials {
    /// What a request brings. A token counts before a certificate.
    ///
    /// # Errors
    /// The header is there twice, or is no token.
    pub(super) fn of(headers: &HeaderMap, peer: &Peer) -> Result<Option<Self>, LoginRefused> {
        let mut said = headers.get_all(AUTHORIZATION).iter();
        let Some(value) = said.next() else {
            let verified = peer.certificate.as_ref().filter(|_| !peer.outdated.is_cancelled());
            return Ok(verified.cloned().map(Self::Certificate));
        };
        let (scheme, token) =
            value.as_bytes().split_at_checked(SCHEME.len()).ok_or(LoginRefused::Invalid)?;
        if said.next().is_some() || !scheme.eq_ignore_ascii_case(SCHEME) {
            return Err(LoginRefused::Invalid);
        }
        Ok(Some(Self::Bearer(token.trim_ascii().into())))
    }

    /// Whose they are now.
    pub(super) fn login(&self, by: &Authenticator) -> Result<LoggedIn, LoginRefused> {
        match self {
            Self::Bearer(token) => by.bearer(token),
            Self::Certificate(it) => by.certificate(it),
        }
    }

    /// Whose they are now, if anybody's.
    pub(super) fn check(&self, by: &Authenticator) -> Option<LoggedIn> {
        self.login(by).ok()
    }

    /// A number that two different ones hardly share; none for certificates, which nobody guesses.
    pub(super) fn mark(&self) -> Option<u64> {
        let Self::Bearer(token) = self else { return None };
        let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(Sha256::digest(token));
        Some(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn of(values: &[&'static str]) -> Result<Option<Credentials>, LoginRefused> {
        let pairs = values.iter().map(|value| (AUTHORIZATION, HeaderValue::from_static(value)));
        let mut headers = HeaderMap::new();
        pairs.for_each(|(name, value)| {
            headers.append(name, value);
        });
        Credentials::of(&headers, &Peer::default())
    }

    #[test]
    fn a_token_is_in_one_header_of_one_form() {
        assert_eq!(of(&[]), Ok(None));
        for good in ["Bearer abc", "bearer abc", "BEARER   abc "] {
            let token = Credentials::Bearer(Arc::from(b"abc".as_slice()));
            assert_eq!(of(&[good]), Ok(Some(token)), "{good:?}");
        }
        for bad in ["", "abc", "Basic abc", "Bearer", "Bearerabc", "Token abc"] {
            assert_eq!(of(&[bad]), Err(LoginRefused::Invalid), "{bad:?}");
        }
        assert_eq!(of(&["Bearer abc", "Bearer abc"]), Err(LoginRefused::Invalid));
    }

    #[test]
    fn a_token_counts_before_a_certificate_and_is_not_shown() {
        let certificate = Some(ClientCertificate::read(&[]));
        let peer = Peer { certificate: certificate.clone(), ..Peer::default() };
        let mut headers = HeaderMap::new();
        let by_peer = Credentials::of(&headers, &peer);
        assert_eq!(by_peer, Ok(certificate.map(Credentials::Certificate)));
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer very-secret"));
        let token = Credentials::of(&headers, &peer).unwrap().unwrap();
        assert_eq!(format!("{token:?}"), "Bearer");
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer other"));
        assert_ne!(token.mark(), Credentials::of(&headers, &peer).unwrap().unwrap().mark());
    }

    #[test]
    fn a_certificate_of_former_authorities_is_none() {
        let certificate = Some(ClientCertificate::read(&[]));
        let peer = Peer { certificate, ..Peer::default() };
        assert!(Credentials::of(&HeaderMap::new(), &peer).unwrap().is_some());
        peer.outdated.cancel();
        assert_eq!(Credentials::of(&HeaderMap::new(), &peer), Ok(None));
    }
}
