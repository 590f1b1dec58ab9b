//! The way to a gateway: its address, and connections over TCP, TLS or a Unix socket.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;
use hyper::header::HeaderValue;
use hyper::http::uri::{Authority, Scheme};
use tenure_core::Rejection;
use tenure_wire::bus::fault;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::patience::unavailable;

/// How long a gateway may take to accept a connection, TLS included.
const LET_IN: Duration = Duration::from_secs(5);

/// How to reach a gateway.
#[derive(Clone)]
pub struct HttpSettings {
    /// `http://host:port`, `https://host:port`, or `unix:/path` for a socket in the file system. A
    /// path behind the host stands before all paths of the gateway. Several addresses have commas
    /// between them: when one gateway does not answer, the next one is asked.
    pub url: String,
    /// The token that says who the caller is; a gateway without authentication needs none.
    pub token: Option<String>,
    /// The certificate of the authority that signed the gateway's own, if the machine does not know it.
    pub ca: Option<PathBuf>,
    /// How long to look for the gateway before the first request fails.
    pub first_wait: Duration,
    /// How long one request waits for its answer; a longer body has more time.
    pub request_timeout: Duration,
    /// How long to repeat a request that gets no final answer.
    pub patience: Duration,
    /// How many requests are sent at the same time, each over a connection of its own; more wait
    /// for their turn. Streams of events come on further connections.
    pub connections_max: usize,
}

impl HttpSettings {
    /// The defaults for this gateway: 5 s for the first answer, 10 s for a request, 30 s of patience,
    /// and 64 connections.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            token: None,
            ca: None,
            first_wait: Duration::from_secs(5),
            request_timeout: Duration::from_secs(10),
            patience: Duration::from_secs(30),
            connections_max: 64,
        }
    }

    /// The addresses for people, without what stands before an `@`, which may be a password. A comma in a password
    /// cuts its address in two: then the pieces before the `@` are hidden, too.
    pub fn shown(&self) -> String {
        let mut shown: Vec<(bool, String)> = Vec::new();
        for url in self.urls() {
            if is_cut(url) {
                while shown.pop().is_some_and(|(begins, _)| !begins) {}
            }
            shown.push((begins_address(url), without_login(url)));
        }
        shown.into_iter().map(|(_, shown)| shown).collect::<Vec<_>>().join(",")
    }

    /// The addresses, one by one.
    fn urls(&self) -> impl Iterator<Item = &str> {
        self.url.split(',').map(str::trim)
    }
}

impl fmt::Debug for HttpSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpSettings")
            .field("url", &self.shown())
            .field("token", &self.token.as_ref().map(|_| "hidden"))
            .field("ca", &self.ca)
            .field("first_wait", &self.first_wait)
            .field("request_timeout", &self.request_timeout)
            .field("patience", &self.patience)
            .field("connections_max", &self.connections_max)
            .finish()
    }
}

impl From<&str> for HttpSettings {
    fn from(url: &str) -> Self {
        Self::new(url)
    }
}

impl From<String> for HttpSettings {
    fn from(url: String) -> Self {
        Self::new(url)
    }
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum HttpConnectError {
    /// The address is malformed.
    #[error("{address:?} is not the address of a gateway: {why}")]
    Address {
        /// The address.
        address: String,
        /// What is wrong with it.
        why: String,
    },
    /// The token cannot be sent.
    #[error("the token has characters that a header cannot carry")]
    Token,
    /// The certificates cannot be read.
    #[error("the certificates {} cannot be used", path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// TLS cannot be set up here.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
    /// No gateway answers there, or it refuses this caller.
    #[error(transparent)]
    Refused(#[from] Rejection),
}

/// The bytes of a connection.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// A connection, whatever it runs over.
pub(crate) type AnyStream = Box<dyn ByteStream>;

/// Where a gateway is, and what each request to it carries.
pub(crate) struct GatewayAddress {
    way: GatewayRoute,
    /// The address as errors show it.
    shown: String,
    host: HeaderValue,
    /// The path before all paths of the gateway, without a slash at its end.
    base: String,
    bearer: Option<HeaderValue>,
}

enum GatewayRoute {
    Tcp { host: String, port: u16 },
    Tls { host: String, port: u16, name: ServerName<'static>, tls: TlsConnector },
    Unix(PathBuf),
}

impl fmt::Debug for GatewayAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl GatewayAddress {
    /// Reads the addresses, the token and the certificates. There is one address at least.
    pub(super) async fn all(settings: &HttpSettings) -> Result<Vec<Self>, HttpConnectError> {
        if settings.urls().any(is_cut) {
            return Err(HttpConnectError::Address {
                address: settings.shown(),
                why: NO_LOGIN.into(),
            });
        }
        let mut all = Vec::new();
        for url in settings.urls() {
            all.push(Self::of(url, settings.token.as_deref(), settings.ca.as_ref()).await?);
        }
        Ok(all)
    }

    /// Reads one address, with the token and the certificates for it.
    pub(crate) async fn of(
        url: &str,
        token: Option<&str>,
        ca: Option<&PathBuf>,
    ) -> Result<Self, HttpConnectError> {
        let bearer = token.map(bearer).transpose()?;
        if let Some(path) = url.strip_prefix("unix:") {
            return Self::of_socket(path, bearer);
        }
        let Url { scheme, authority, base } = Url::read(url)?;
        let is_tls = scheme == Scheme::HTTPS;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let way = if is_tls {
            let name = ServerName::try_from(host.clone());
            let name = name.map_err(|no| refused_url(url, no.to_string()))?;
            GatewayRoute::Tls { host, port, name, tls: connector(ca).await? }
        } else {
            GatewayRoute::Tcp { host, port }
        };
        let shown = format!("{scheme}://{authority}{base}");
        let host = HeaderValue::from_str(authority.as_str());
        let host = host.map_err(|no| refused_url(url, no.to_string()))?;
        Ok(Self { way, shown, host, base, bearer })
    }

    fn of_socket(path: &str, bearer: Option<HeaderValue>) -> Result<Self, HttpConnectError> {
        let shown = format!("unix:{path}");
        if path.is_empty() {
            return Err(refused_url(&shown, "it names no file".into()));
        }
        let (host, base) = (HeaderValue::from_static("localhost"), String::new());
        Ok(Self { way: GatewayRoute::Unix(path.into()), shown, host, base, bearer })
    }

    /// The address as errors show it.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    /// The whole path of a path of the gateway.
    pub(super) fn path(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// The `Host` of each request.
    pub(crate) fn host(&self) -> &HeaderValue {
        &self.host
    }

    /// The `Authorization` of each request.
    pub(crate) fn bearer(&self) -> Option<&HeaderValue> {
        self.bearer.as_ref()
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// `unavailable` if nobody answers there now; `validation_error` if the two sides do not agree on TLS.
    pub(crate) async fn open(&self, within: Duration) -> Result<AnyStream, Rejection> {
        match timeout(within.min(LET_IN), self.dial()).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                let message = format!("no connection to {}: {}", self.shown, fault::why(&error));
                Err(Rejection::invalid("url", message))
            }
            Ok(Err(error)) => Err(self.unreachable(&fault::why(&error))),
            Err(_) => Err(self.unreachable("it does not answer")),
        }
    }

    /// The refusal where nothing was sent.
    pub(super) fn unreachable(&self, why: &str) -> Rejection {
        unavailable(format!("cannot reach {}: {why}", self.shown))
    }

    async fn dial(&self) -> io::Result<AnyStream> {
        match &self.way {
            GatewayRoute::Tcp { host, port } => Ok(Box::new(tcp(host, *port).await?)),
            GatewayRoute::Tls { host, port, name, tls } => {
                Ok(Box::new(tls.connect(name.clone(), tcp(host, *port).await?).await?))
            }
            GatewayRoute::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
        }
    }
}

async fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?; // A request is sent as a whole, and waits for no more.
    Ok(stream)
}

/// The parts of an `http` or `https` address.
struct Url {
    scheme: Scheme,
    authority: Authority,
    base: String,
}

impl Url {
    fn read(url: &str) -> Result<Self, HttpConnectError> {
        let refused = |why: &str| refused_url(url, why.to_owned());
        let uri: Uri = url
            .parse()
            .map_err(|no: hyper::http::uri::InvalidUri| refused_url(url, no.to_string()))?;
        let base = uri.path().trim_end_matches('/').to_owned();
        let has_query = uri.query().is_some();
        let parts = uri.into_parts();
        let scheme = parts.scheme.filter(|it| [Scheme::HTTP, Scheme::HTTPS].contains(it));
        let scheme = scheme.ok_or_else(|| {
            refused("it begins with http://, https:// or unix:, and names a host or a file")
        })?;
        let authority = parts.authority.ok_or_else(|| refused("it names no host"))?;
        if authority.as_str().contains('@') {
            return Err(refused(NO_LOGIN));
        }
        if has_query {
            return Err(refused("it has a query"));
        }
        Ok(Self { scheme, authority, base })
    }
}

fn refused_url(url: &str, why: String) -> HttpConnectError {
    HttpConnectError::Address { address: without_login(url), why }
}

/// The advice about a login in an address.
const NO_LOGIN: &str = "a login does not stand in the address: give a token";

/// Whether this is the beginning of an address, and no piece of one.
fn begins_address(url: &str) -> bool {
    url.contains("://") || url.starts_with("unix:")
}

/// Whether this is the end of an address with a login that has a comma.
fn is_cut(url: &str) -> bool {
    url.contains('@') && !begins_address(url)
}

/// The address without what stands before an `@`, which may be a password.
fn without_login(url: &str) -> String {
    url.rsplit_once('@').map_or_else(|| url.to_owned(), |(_, host)| format!("…@{host}"))
}

fn bearer(token: &str) -> Result<HeaderValue, HttpConnectError> {
    let value = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
    let mut value = value.map_err(|_| HttpConnectError::Token)?;
    value.set_sensitive(true);
    Ok(value)
}

/// TLS that trusts the authorities of this machine and that of the file.
async fn connector(ca: Option<&PathBuf>) -> Result<TlsConnector, HttpConnectError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca {
        let wrong = |source| HttpConnectError::Certificates { path: path.clone(), source };
        let given = tokio::fs::read(path).await.and_then(|pem| certificates(&pem));
        for certificate in given.map_err(wrong)? {
            roots.add(certificate).map_err(|error| wrong(io::Error::other(error)))?;
        }
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| HttpConnectError::Tls(error.to_string()))?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config).into())
}

/// The certificates in a file, at least one.
fn certificates(pem: &[u8]) -> io::Result<Vec<CertificateDer<'static>>> {
    let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| wrong(error.to_string()))?;
    if found.is_empty() {
        return Err(wrong("it has no certificate in PEM".into()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(url: &str) -> Result<GatewayAddress, HttpConnectError> {
        let mut all = GatewayAddress::all(&HttpSettings::new(url)).await?;
        assert_eq!(all.len(), 1, "{url}");
        Ok(all.remove(0))
    }

    #[tokio::test]
    async fn several_addresses_have_commas_between_them() {
        let settings = HttpSettings::new("http://one:1, unix:/run/t.sock,https://two");
        let all = GatewayAddress::all(&settings).await.unwrap();
        let shown: Vec<_> = all.iter().map(GatewayAddress::shown).collect();
        assert_eq!(shown, ["http://one:1", "unix:/run/t.sock", "https://two"]);
        for wrong in ["http://one,", ",", "http://one,nats://two"] {
            assert!(GatewayAddress::all(&HttpSettings::new(wrong)).await.is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn an_address_is_read_with_its_parts() {
        for (url, shown, host, path) in [
            ("http://one:8080", "http://one:8080", "one:8080", "/v1"),
            ("http://one", "http://one", "one", "/v1"),
            ("http://[::1]:8080/", "http://[::1]:8080", "[::1]:8080", "/v1"),
            ("http://one/tenure/", "http://one/tenure", "one", "/tenure/v1"),
            ("unix:/run/t.sock", "unix:/run/t.sock", "localhost", "/v1"),
        ] {
            let address = read(url).await.unwrap();
            assert_eq!(address.shown(), shown);
            assert_eq!(address.host().to_str().unwrap(), host);
            assert_eq!(address.path("/v1"), path);
        }
    }

    #[tokio::test]
    async fn a_wrong_address_is_refused_and_shows_no_password() {
        for url in
            ["one:8080", "/v1", "nats://one", "http://", "unix:", "http://one?x=1", "http://a b"]
        {
            let refused = read(url).await.unwrap_err();
            assert!(matches!(refused, HttpConnectError::Address { .. }), "{url}: {refused}");
        }
        let refused = read("http://ann:s3cret@one").await.unwrap_err().to_string();
        assert!(refused.contains("…@one") && !refused.contains("s3cret"), "{refused}");
        for cut in ["http://ann:s3,cret@one", "http://zero,https://ann:s3,c,ret@one"] {
            let refused = read(cut).await.unwrap_err().to_string();
            assert!(refused.contains("…@one") && !refused.contains("s3"), "{refused}");
            let shown = format!("{:?} {}", HttpSettings::new(cut), HttpSettings::new(cut).shown());
            assert!(!shown.contains("s3") && !shown.contains("ret"), "{shown}");
        }
    }

    #[test]
    fn settings_show_no_secret() {
        let settings = HttpSettings {
            token: Some("t0ken".into()),
            ..HttpSettings::new("http://ann:s3cret@one,http://ann:s3cret@two")
        };
        assert_eq!(settings.shown(), "…@one,…@two");
        assert_eq!(HttpSettings::new("http://one/t, unix:/s").shown(), "http://one/t,unix:/s");
        let shown = format!("{settings:?}");
        assert!(!shown.contains("t0ken") && !shown.contains("s3cret"), "{shown}");
    }

    #[tokio::test]
    async fn a_token_or_a_file_that_cannot_be_used_is_refused() {
        let token = HttpSettings { token: Some("a\nb".into()), ..HttpSettings::new("http://one") };
        assert!(matches!(GatewayAddress::all(&token).await, Err(HttpConnectError::Token)));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.pem");
        for write in [false, true] {
            if write {
                std::fs::write(&path, "no certificate").unwrap();
            }
            let usual = HttpSettings::new("https://one");
            let refused =
                GatewayAddress::all(&HttpSettings { ca: Some(path.clone()), ..usual }).await;
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains(path.to_str().unwrap()), "{refused}");
        }
    }
}
