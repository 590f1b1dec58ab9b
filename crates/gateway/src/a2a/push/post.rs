//! Sends one update: a POST on a connection of its own.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, InvalidHeaderValue};
use axum::http::request::Builder;
use axum::http::{HeaderValue, Request, StatusCode};
use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::target::PushTarget;
use crate::a2a::error::A2aError;
use crate::a2a::wire::A2aPushConfig;

/// How long a receiver has to take an update.
const TAKEN_WITHIN: Duration = Duration::from_secs(15);

/// What carries the token of a configuration.
const TOKEN: HeaderName = HeaderName::from_static("x-a2a-notification-token");

/// What is sent of an update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UpdateBody {
    /// Its media type.
    pub(super) media_type: &'static str,
    /// JSON.
    pub(super) text: String,
}

/// Why an update was not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum PostError {
    /// The host cannot be reached.
    #[error("no connection: {0}")]
    Connection(#[from] io::Error),
    /// The connection breaks.
    #[error("the connection breaks: {0}")]
    Http(#[from] hyper::Error),
    /// A value cannot stand in a header.
    #[error("a header cannot be written: {0}")]
    Header(#[from] axum::http::Error),
    /// The receiver takes too long.
    #[error("the receiver takes too long")]
    TooSlow,
}

/// What the gateway trusts when it speaks TLS: the authorities of its machine.
pub(super) fn connector() -> Result<TlsConnector, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions()?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config).into())
}

/// Refuses a configuration whose token or login cannot be sent: no update could ever be.
///
/// # Errors
/// Something in it cannot stand in a header.
pub(crate) fn check_headers(config: &A2aPushConfig) -> Result<(), A2aError> {
    let wrong =
        |_| A2aError::invalid("authentication", "token or login cannot be sent in a header");
    headers(Request::post("/"), config).body(()).map(drop).map_err(wrong)
}

/// Sends an update, and returns the status of the answer.
///
/// # Errors
/// There was no answer.
pub(super) async fn post(
    target: &PushTarget,
    config: &A2aPushConfig,
    body: &UpdateBody,
    tls: &TlsConnector,
) -> Result<StatusCode, PostError> {
    let request = request(target, config, body)?;
    let sent = async {
        let stream = TcpStream::connect(&*target.resolve().await?).await?;
        if !target.is_tls {
            return exchange(stream, request).await;
        }
        let name = ServerName::try_from(target.host.clone()).map_err(io::Error::other)?;
        exchange(tls.connect(name, stream).await?, request).await
    };
    timeout(TAKEN_WITHIN, sent).await.unwrap_or(Err(PostError::TooSlow))
}

fn request(
    target: &PushTarget,
    config: &A2aPushConfig,
    body: &UpdateBody,
) -> Result<Request<Full<Bytes>>, axum::http::Error> {
    let request = Request::post(&*target.path)
        .header(HOST, &*target.authority)
        .header(CONTENT_TYPE, body.media_type);
    headers(request, config).body(Full::new(body.text.clone().into()))
}

/// The request with what says from whom it comes.
fn headers(mut request: Builder, config: &A2aPushConfig) -> Builder {
    if let Some(token) = &config.token {
        request = request.header(TOKEN, Secret(token));
    }
    if let Some(authentication) = &config.authentication {
        let credentials = authentication.credentials.as_deref().unwrap_or_default();
        let value = format!("{} {credentials}", authentication.scheme);
        request = request.header(AUTHORIZATION, Secret(value.trim_end()));
    }
    request
}

/// A value that no log shows.
struct Secret<'a>(&'a str);

impl TryFrom<Secret<'_>> for HeaderValue {
    type Error = InvalidHeaderValue;

    fn try_from(secret: Secret<'_>) -> Result<Self, InvalidHeaderValue> {
        let mut value = Self::from_str(secret.0)?;
        value.set_sensitive(true);
        Ok(value)
    }
}

async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<StatusCode, PostError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let sent = sender.send_request(request);
    tokio::pin!(sent, connection);
    let response = tokio::select! {
        response = &mut sent => response?,
        ended = &mut connection => {
            ended?;
            sent.await?
        }
    };
    Ok(response.status())
}

#[cfg(test)]
mod tests {
    use super::super::PushRules;
    use super::*;

    fn body() -> UpdateBody {
        UpdateBody { media_type: "application/a2a+json", text: "{}".into() }
    }

    #[test]
    fn an_update_says_from_whom_it_comes() {
        let target = PushTarget::read("https://example.org/hook", &PushRules::default()).unwrap();
        let authentication = serde_json::json!({ "scheme": "Bearer", "credentials": "abc" });
        let config = serde_json::json!({ "token": "t1", "authentication": authentication });
        let config: A2aPushConfig = serde_json::from_value(config).unwrap();
        let request = request(&target, &config, &body()).unwrap();
        let header = |name: &HeaderName| request.headers()[name].to_str().unwrap();
        assert_eq!((request.uri().path(), header(&HOST)), ("/hook", "example.org"));
        assert_eq!((header(&AUTHORIZATION), header(&TOKEN)), ("Bearer abc", "t1"));
        assert_eq!(header(&CONTENT_TYPE), "application/a2a+json");
        assert!(request.headers()[AUTHORIZATION].is_sensitive());
        check_headers(&config).unwrap();
    }

    /// What would begin another header is refused before anything is kept.
    #[test]
    fn a_token_cannot_forge_a_header() {
        let forged = A2aPushConfig { token: Some("a\r\nb: c".into()), ..A2aPushConfig::default() };
        let target = PushTarget::read("https://example.org/hook", &PushRules::default()).unwrap();
        assert!(request(&target, &forged, &body()).is_err());
        assert!(check_headers(&forged).is_err());
    }
}
