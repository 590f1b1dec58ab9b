//! TLS, and callers who are known by their certificates.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    SanType,
};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tenure_gateway::server::TlsFiles;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::raw::{Raw, RawAnswer};
use crate::site::{Site, request};

/// An authority, which signs the certificates of a test.
struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key.
struct Signed {
    certificate: CertificateDer<'static>,
    pem: String,
    key: KeyPair,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn server(&self) -> Signed {
        self.sign(CertificateParams::new(vec!["localhost".to_owned()]).unwrap())
    }

    fn client(&self, spiffe: &str) -> Signed {
        self.sign(Self::params_of(spiffe))
    }

    /// A certificate that ends at the beginning of a second, so long from now or a little less.
    fn client_for(&self, spiffe: &str, valid: Duration) -> Signed {
        let mut params = Self::params_of(spiffe);
        let until = (SystemTime::now() + valid).duration_since(UNIX_EPOCH).unwrap();
        params.not_after = rcgen::date_time_ymd(1970, 1, 1) + until;
        self.sign(params)
    }

    fn params_of(spiffe: &str) -> CertificateParams {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names.push(SanType::URI(spiffe.try_into().unwrap()));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params
    }

    fn sign(&self, params: CertificateParams) -> Signed {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Signed { certificate: certificate.der().clone(), pem: certificate.pem(), key }
    }
}

/// Writes the files of a server.
fn files(dir: &Path, authority: &Authority, server: &Signed) -> TlsFiles {
    let files = TlsFiles {
        certificate: dir.join("cert.pem"),
        key: dir.join("key.pem"),
        client_authorities: Some(dir.join("clients.pem")),
    };
    fs::write(&files.certificate, &server.pem).unwrap();
    fs::write(&files.key, server.key.serialize_pem()).unwrap();
    fs::write(dir.join("clients.pem"), authority.0.pem()).unwrap();
    files
}

/// A server that knows one certificate and one token.
async fn site(authority: &Authority) -> Site {
    Site::with(|settings, dir| {
        settings.tls = Some(files(dir, authority, &authority.server()));
        let path = crate::site::two_tokens(dir);
        let entry = "[[certificates]]\nname = \"uri:spiffe://example.org/ant\"\n\
                     principal = \"ant\"\nrole = \"worker\"\npools = [\"build\"]\n";
        let text = fs::read_to_string(&path).unwrap() + entry;
        fs::write(&path, text).unwrap();
        settings.identities = Some(path);
    })
    .await
}

async fn connect(
    site: &Site,
    authority: &Authority,
    client: Option<Signed>,
) -> std::io::Result<Raw<TlsStream<TcpStream>>> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.0.der().clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match client {
        Some(Signed { certificate, key, .. }) => {
            let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
            builder.with_client_auth_cert(vec![certificate], key).unwrap()
        }
        None => builder.with_no_client_auth(),
    };
    let stream = TcpStream::connect(site.address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.map(Raw::new)
}

/// The answer; none if the connection ended instead.
async fn who(
    site: &Site,
    authority: &Authority,
    client: Option<Signed>,
    headers: &[(&str, &str)],
) -> Option<RawAnswer> {
    let mut connection = connect(site, authority, client).await.ok()?;
    connection.send(request("POST /who", headers)).await;
    connection.answer().await
}

#[tokio::test]
async fn a_certificate_says_who_its_caller_is() {
    let authority = Authority::new();
    let site = site(&authority).await;
    let ant = || Some(authority.client("spiffe://example.org/ant"));
    let known = who(&site, &authority, ant(), &[]).await.unwrap();
    assert_eq!((known.status, known.body.as_str()), (200, "ant worker"));

    let token = [("authorization", "Bearer bob-token")];
    let both = who(&site, &authority, ant(), &token).await.unwrap();
    assert_eq!(both.body, "bob observer", "a token counts before a certificate");
    let wrong = [("authorization", "Bearer wrong")];
    assert_eq!(who(&site, &authority, ant(), &wrong).await.unwrap().status, 401);

    let other = Some(authority.client("spiffe://example.org/bee"));
    assert_eq!(who(&site, &authority, other, &[]).await.unwrap().status, 401);
    assert_eq!(who(&site, &authority, None, &[]).await.unwrap().status, 401);
    let without = who(&site, &authority, None, &token).await.unwrap();
    assert_eq!(without.body, "bob observer");
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_not_spoken_with() {
    let (authority, other) = (Authority::new(), Authority::new());
    let site = site(&authority).await;
    let forged = Some(other.client("spiffe://example.org/ant"));
    assert_eq!(who(&site, &authority, forged, &[]).await, None);
}

#[tokio::test]
async fn a_page_that_was_fetched_without_tls_does_not_speak_for_one_with_it() {
    let authority = Authority::new();
    let site = site(&authority).await;
    let ant = || Some(authority.client("spiffe://example.org/ant"));
    for (origin, status) in [("https://localhost", 200), ("http://localhost", 403)] {
        let answer = who(&site, &authority, ant(), &[("origin", origin)]).await.unwrap();
        assert_eq!(answer.status, status, "{origin}");
    }
}

#[tokio::test]
async fn a_certificate_that_was_changed_is_used_once_it_is_read_again() {
    let authority = Authority::new();
    let site = site(&authority).await;
    let mut before = connect(&site, &authority, None).await.unwrap();
    let next = Authority::new();
    files(site.dir.path(), &next, &next.server());
    site.files.reload().unwrap();
    assert!(connect(&site, &authority, None).await.is_err(), "it has another certificate now");
    assert!(connect(&site, &next, None).await.is_ok());
    before.send(request("GET /livez", &[])).await;
    assert_eq!(before.answer().await.unwrap().status, 200, "connections that are there stay");
}

/// A connection that is there, on which a certificate has already counted.
async fn known(site: &Site, authority: &Authority, client: Signed) -> Raw<TlsStream<TcpStream>> {
    let mut connection = connect(site, authority, Some(client)).await.unwrap();
    connection.send(request("POST /who", &[])).await;
    assert_eq!(connection.answer().await.unwrap().body, "ant worker");
    connection
}

/// A stream of events on a connection of its own.
async fn stream(site: &Site, authority: &Authority, client: Signed) -> Raw<TlsStream<TcpStream>> {
    let mut connection = connect(site, authority, Some(client)).await.unwrap();
    connection.send(request("GET /events", &[])).await;
    connection.until("data: first").await;
    connection
}

/// TLS verifies a certificate when a connection begins, and a connection may be open for days.
#[tokio::test]
async fn a_certificate_counts_until_it_ends() {
    let authority = Authority::new();
    let site = site(&authority).await;
    let ant = || authority.client_for("spiffe://example.org/ant", Duration::from_secs(6));
    let (mut idle, mut stream) =
        (known(&site, &authority, ant()).await, stream(&site, &authority, ant()).await);
    stream.until("\r\n0\r\n\r\n").await; // The stream ends as streams do, with the certificate.
    idle.send(request("POST /who", &[])).await;
    let late = idle.answer().await.unwrap();
    assert_eq!(late.status, 401);
    assert!(late.header("www-authenticate").contains("expired"), "{}", late.head);
    idle.send(request("POST /who", &[("authorization", "Bearer bob-token")])).await;
    assert_eq!(idle.answer().await.unwrap().body, "bob observer", "a token still counts");
}

/// An operator who takes an authority away means also what it has let in.
#[tokio::test]
async fn connections_end_when_the_authorities_of_clients_are_other_ones() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let site = site(&authority).await;
    let ant = || authority.client("spiffe://example.org/ant");
    let (mut idle, mut stream) =
        (known(&site, &authority, ant()).await, stream(&site, &authority, ant()).await);
    let mut without = connect(&site, &authority, None).await.unwrap();
    without.send(request("GET /livez", &[])).await;
    assert_eq!(without.answer().await.unwrap().status, 200);
    site.files.reload().unwrap();
    idle.send(request("POST /who", &[])).await;
    assert_eq!(idle.answer().await.unwrap().status, 200, "the authorities are the same");

    fs::write(site.dir.path().join("clients.pem"), clients.0.pem()).unwrap();
    site.files.reload().unwrap();
    assert_eq!(idle.rest().await, "");
    assert!(stream.rest().await.ends_with("0\r\n\r\n"), "the stream ends as streams do");
    without.send(request("GET /livez", &[])).await;
    assert_eq!(without.answer().await.unwrap().status, 200, "it was let in by none of them");
    assert_eq!(who(&site, &authority, Some(ant()), &[]).await, None);
    let again = clients.client("spiffe://example.org/ant");
    assert_eq!(who(&site, &authority, Some(again), &[]).await.unwrap().body, "ant worker");
}

/// AUTH-TLS-001: a server with TLS speaks nothing else.
#[tokio::test]
async fn what_is_no_tls_gets_no_answer() {
    let authority = Authority::new();
    let site = site(&authority).await;
    let mut plain = site.connect().await;
    plain.send(request("GET /livez", &[])).await;
    assert_eq!(plain.answer().await, None);
}
